"""The HTML of a lesson's text."""

from tests.lessons.examples import known
from tutor.lessons.markup import Piece, parts, read


def html(text, **names):
    body = read(text, names=names, terms=known().terms)
    assert body.problems == ()
    return body.html


def test_a_number_stands_in_text_in_tables_and_in_formulas():
    assert '<span class="num">8&nbsp;KiB</span>' in html("It is {{ 8192 in KiB }}.")
    assert '<strong><span class="num">6</span></strong>' in html("It is **{{ 2 * 3 }}**.")
    assert '<td><span class="num">50&nbsp;%</span></td>' in html("|a|b|\n|-|-|\n|x|{{ 1 / 2 in % }}|\n")
    assert "<mn>1,048,576</mn>" in html("It is ${{ 2**20 }}$.")


def test_a_number_written_by_an_author_cannot_bring_markup():
    text = "{{ <b>1</b> }}"

    body = read(text, names={}, terms={})

    assert "<b>" not in body.html
    assert len(body.problems) == 1


def test_raw_html_and_scripts_stay_text():
    shown = html('<script>alert(1)</script>\n\n<div class="piece-0"></div>\n\n[x](javascript:alert(1))')

    assert "<script" not in shown
    assert '<div class="piece-0"></div>' not in shown
    assert 'href="javascript' not in shown


def test_a_term_shows_its_meaning_and_leads_to_the_glossary():
    shown = html("An [all-reduce](/glossary/#all-reduce), and [again](/glossary/#all-reduce).")

    assert '<a href="/glossary/#all-reduce" aria-describedby="meaning-1">all-reduce</a>' in shown
    assert '<span class="meaning" role="tooltip" id="meaning-1">Everybody gets the sum.</span>' in shown
    assert 'id="meaning-2"' in shown


def test_notes_keep_what_is_inside_them_and_close():
    shown = html("::: exam\nChoose *TP*.\n:::\n\nAfter.")

    assert shown == '<div class="note exam">\n<p>Choose <em>TP</em>.</p>\n</div>\n<p>After.</p>\n'


def test_an_answer_opens_when_asked():
    shown = html("::: answer\nFour.\n:::")

    assert shown == '<details class="answer"><summary>Answer</summary>\n<p>Four.</p>\n</details>\n'


def test_pieces_leave_holes_in_order_even_inside_a_note():
    text = "Before.\n\n::: practice\nSee:\n\n::: experiment tensor-decode\n:::\n\n::: split-map tp=4 ranks-per-host=2\n"

    found = [part for part in parts(read(text, names={}, terms={})) if isinstance(part, Piece)]

    assert found == [
        Piece(kind="experiment", name="tensor-decode", params={}, line=6),
        Piece(kind="split-map", name="", params={"tp": "4", "ranks_per_host": "2"}, line=9),
    ]


def test_a_piece_ends_the_paragraph_above_it():
    assert "piece-0" in html("Words\n::: check tp-or-pp/bytes-ratio\n")


def test_headings_have_anchors_and_tables_have_row_headings():
    shown = html("## One token’s walk\n\n||b|\n|-|-:|\n|x|y|\n")

    assert '<h2 id="one-tokens-walk">' in shown
    assert "<td></td>" in shown
    assert "<th>x</th>" in shown
    assert '<td class="align-right">y</td>' in shown
