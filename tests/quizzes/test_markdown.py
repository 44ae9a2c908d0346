"""One renderer: text and money stay, formulas become MathML, and nothing runs."""

import pytest

from quizzes.markdown import MathError, cues_of, plain, problems, render, render_inline


def test_text_that_other_renderers_eat_comes_through():
    html = render('$A_a \\Rightarrow B_b$, a_b_c, \\\\, <b> & "x", $3 and $2, `$x_1$`')

    assert "<msub><mi>A</mi><mi>a</mi></msub>" in html
    assert 'a_b_c, \\, &lt;b&gt; &amp; "x", $3 and $2, <code>$x_1$</code>' in html


def test_money_beside_a_formula_is_money():
    html = render("It costs $30 per hour, $x_1$ is math, and $3/$4 is not.")

    assert html.count("<math>") == 1
    assert "$30 per hour" in html
    assert "$3/$4" in html


def test_a_code_fence_is_left_alone():
    assert "<code>$a$ [[x]]{cue=y} **b**" in render("```\n$a$ [[x]]{cue=y} **b**\n```")


def test_a_formula_with_styles_gets_classes_instead():
    html = render("$$\\begin{cases} a & b \\\\ c & d\\end{cases}$$")

    assert 'class="m-left m-tight-end"' in html
    assert " style=" not in html


def test_every_unreadable_formula_is_named_with_its_line():
    found = problems("one\ntwo $\\frac{1}{$ three\n\n$$\n\\nonsense\n$$\n")

    assert [problem.line for problem in found] == [2, 4]
    assert "at character 10" in str(found[0])
    assert "\\nonsense" in str(found[1])


def test_an_unreadable_formula_raises_or_is_shown_as_typed():
    with pytest.raises(MathError, match="cannot be read"):
        render("$\\nope$")

    assert '<code class="math-as-typed">\\nope</code>' in render("$\\nope$", strict=False)


def test_cues_are_invisible_until_they_are_lit():
    text = "Two boxes with [[1 Gbit/s *between* them]]{cue=slow-link}."

    assert render(text) == "<p>Two boxes with 1 Gbit/s <em>between</em> them.</p>\n"
    assert '<mark class="cue">1 Gbit/s <em>between</em> them<sup class="cue-number">1</sup></mark>' in render(
        text, cues=True
    )
    assert [(cue.words, cue.reason) for cue in cues_of(text)] == [("1 Gbit/s between them", "slow-link")]


def test_double_brackets_without_a_cue_stay_as_typed():
    assert render("a[[0]] and [[x]] {cue=y}") == "<p>a[[0]] and [[x]] {cue=y}</p>\n"


def test_plain_text_has_no_markup():
    assert plain("A **bold** [[cue]]{cue=x} with `code`\nand $h$.") == "A bold cue with code and h."


PAYLOADS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "![x](javascript:alert(1))",
    "<iframe src=https://example.org></iframe>",
    "<a href=x onclick=alert(1)>x</a>",
    "<math><mtext><img src=x onerror=alert(1)></mtext></math>",
    "<math><annotation-xml encoding='text/html'><script>alert(1)</script></annotation-xml></math>",
    "$\\text{</mtext><script>alert(1)</script>}$",
    "$\\text{<img src=x onerror=alert(1)>}$",
    "$\\href{javascript:alert(1)}{x}$",
    "`<script>alert(1)</script>`",
    "```<script>\nalert(1)\n```",
    "[[<script>alert(1)</script>]]{cue=<script>alert(1)</script>}",
    '[[x]]{cue="><script>alert(1)</script>"}',
    "<style>*{background:url(//example.org)}</style>",
    "<form action=//example.org><input></form>",
    "<x-y z='1' style='color:red'>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "{{ <script>alert(1)</script> }}",
    "<!--><script>alert(1)</script>-->",
]


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("show", [render, render_inline])
def test_no_payload_becomes_an_element_or_a_handler(payload, show):
    html = show(payload, cues=True, strict=False).lower()

    for tag in ("<script", "<img", "<svg", "<iframe", "<form", "<style", "<input", "<x-y", "<annotation-xml"):
        assert tag not in html
    assert 'href="javascript' not in html
    assert 'href="data' not in html
    assert "<a href=x" not in html
