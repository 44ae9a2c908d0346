"""The pack compiler: all defects at once, each with file and line."""

import pytest

from quizzes.packs.checking import check_pack
from quizzes.packs.findings import PackError
from tests.quizzes.conftest import HEADER, QUESTIONS, TINY

GOOD = """\
- id: q
  type: single
  prompt: "[[Two]]{cue=why} or three?"
  choices:
    - {id: a, text: Two, credit: "1", feedback: yes it is}
    - {id: b, text: Three, feedback: no}
  tests: [{choose: [a], credit: "1"}]
"""
BARE = "format: 1\nid: p\npublisher: t\ntitle: T\nversion: 1.0.0\nlicense: CC0-1.0\nauthors: [{name: N}]\n"


def test_the_tiny_pack_is_in_order():
    checked = check_pack(TINY)

    assert [question.content.id for question in checked.questions] == ["too-wide", "share", "which-send"]


def test_a_pack_with_two_defects_reports_both_with_file_and_line(findings):
    questions = GOOD.replace("id: b, text: Three", "id: a, text: Three").replace(
        "- id: q", "- id: q\n  colour: red"
    )
    other = questions + GOOD.replace("- id: q", "- id: r").replace("or three?", "or $\\\\nope$?")

    report = findings(other, header=BARE.replace("authors", "autors"))

    assert any(line.startswith("questions/basics.yaml:2: The field colour is not known") for line in report)
    assert any(line.startswith("questions/basics.yaml:11: The formula") for line in report)
    assert any(line.startswith("pack.yaml:7: The field autors is not known") for line in report)


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        ("type: single", "type: essay", 2, "Write type: single, multiple, numeric, match or order."),
        ("type: single", "type: essay", 2, "The type is 'essay'"),
        ("  type: single\n", "", 1, "The question has no type"),
        ("id: q", "id: Q q", 1, "lower-case letters"),
        ("prompt:", "promt:", 1, "The field prompt is missing"),
        ("prompt:", "promt:", 3, "The field promt is not known"),
        ('credit: "1"', 'credit: "nan"', 5, "finite number"),
        ('credit: "1"', 'credit: "lots"', 5, "is 'lots', which is not a number"),
        ('credit: "1"', 'credit: "0.5"', 1, "No option is right"),
        ("text: Three", "text: ' two. '", 6, "a and b have the same text"),
        (", feedback: no", "", 6, "needs feedback or a misconception"),
        (", feedback: no", ", misconception: unheard-of", 6, "unheard-of is not declared"),
        ("id: b", "id: a", 6, "option id a is used twice"),
        ("or three?", "or {{ many }}?", 3, "{{ many }} is not known here"),
        ("or three?", "or {% if x %}?", 3, "logic in braces"),
        ("or three?", "or {{ answer }}?", 3, "not known before the answer"),
        ("or three?", "or ![x](y.png)?", 3, "Pictures come with a later version"),
        ("or three?", "or $\\\\frac{1}{$?", 3, "cannot be read"),
        ('credit: "1"}]', 'credit: "0"}]', 7, "test 1 fails: credit is 1, the test expects 0"),
        ("choose: [a]", "choose: [z]", 7, "the answer is refused: This question has no option"),
        ("tests:", "calculator: https://example.org\n  tests:", 7, "begins with /calculate/"),
        ("tests:", "given: [x > 1]\n  tests:", 7, "uses x, which is not a parameter"),
        ("tests:", "given: [1 > 2]\n  tests:", 1, "condition 1 > 2 is false"),
        ("tests:", "objectives: [nope]\n  tests:", 7, "objective nope is not declared"),
        ("tests:", "id: r\n  tests:", 7, "“id” stands twice"),
    ],
)  # fmt: skip
def test_a_defect_is_named_where_it_stands(findings, old, new, line, reason):
    assert old in GOOD

    report = findings(GOOD.replace(old, new, 1), header=BARE)

    assert any(f"questions/basics.yaml:{line}: " in entry and reason in entry for entry in report), report


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("format: 1", "format: 2", "Format is 2, but this version reads format 1"),
        ("format: 1", "format: one", "not a whole number"),
        ("id: p", "id: P P", "lower-case letters"),
        ("license: CC0-1.0\n", "", "The field license is missing"),
        ("title: T", "title: T\ncalculator: '>=99'", "asks for calculator >=99"),
        ("title: T", "title: T\ncalculator: newest", "bound 'newest' cannot be read"),
        ("title: T", "title: T\nmisconceptions: [{id: a, name: A, refutation: $\\nope$}]", "cannot be read"),
        ("title: T", "title: T\nmisconceptions: [{id: a, name: A}]", "refutation is missing"),
    ],
)
def test_a_defect_of_the_header_is_named(findings, old, new, reason):
    report = findings(GOOD, header=BARE.replace(old, new, 1))

    assert any(entry.startswith("pack.yaml:") and reason in entry for entry in report), report


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('rtol: "0.02", ', "", "needs rtol or atol"),
        ('"16*p/tp"', '"16*q/tp"', "uses q, which is not a parameter"),
        ('"16*p/tp"', '"16*p/"', "cannot be read"),
        ('"16*p/tp"', '"16*p/(tp*pp)"', "none of the 8 draws of its parameters is fair"),
        ('"16*p/tp"', '"16*p/(tp-tp)"', "divides by zero"),
        ("units: [GB, GiB, MB]", "units: [GB, furlong]", "the unit furlong is not known"),
        ('invalid: "true"', 'credit: "0"', "the answer is refused"),
        ('"17.5", credit: "0"', '"35", invalid: "true"', "should be refused, but gets credit 1"),
        ('with: {p: "70", tp: "8", pp: "4", dp: "2"}, answer: "140"', 'with: {zz: "1"}, answer: "140"', "sets zz"),
        ('with: {p: "70", tp: "8", pp: "4", dp: "2"}, answer: "140"', 'with: {p: "71"}, answer: "140"', "no fair draw"),
    ],
)  # fmt: skip
def test_a_defect_of_a_numeric_question_is_named(findings, old, new, reason):
    assert old in QUESTIONS

    report = findings(QUESTIONS.replace(old, new, 1))

    assert any(reason in entry for entry in report), report


def test_an_id_used_twice_names_its_first_place(findings):
    report = findings(GOOD + GOOD, header=BARE)

    assert [entry.partition(": ")[2] for entry in report] == [
        "The question id q is already used in questions/basics.yaml, line 1. Ids are unique. [id]"
    ]
    assert report[0].startswith("questions/basics.yaml:8: ")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("text: Three", "text: All of the above", "add pin: last"),
        ("[[Two]]{cue=why}", "Two", "no words of the scenario are marked as the cue"),
        ("[[Two]]{cue=why}", "[[Two]]", "[[ is shown as typed"),
        (', feedback: yes it is', "", "option a has no feedback"),
        ('  tests: [{choose: [a], credit: "1"}]\n', "", "no tests: of its own"),
        ("feedback: no", "feedback: '[[no]]{cue=x}'", "cues are lit in symptom and prompt only"),
    ],
)  # fmt: skip
def test_a_doubt_is_a_warning_and_does_not_refuse(findings, old, new, reason):
    report = findings(GOOD.replace(old, new, 1), header=BARE)

    assert any("warning: " in entry and reason in entry for entry in report), report


def test_a_pack_without_its_parts_says_what_is_missing(tmp_path):
    (tmp_path / "questions").mkdir()
    (tmp_path / "questions" / "old.yml").write_text("- id: x")

    with pytest.raises(PackError) as caught:
        check_pack(tmp_path)
    with pytest.raises(PackError, match="no such folder"):
        check_pack(tmp_path / "nowhere")

    rules = {finding.rule for finding in caught.value.findings}
    assert rules == {"missing", "name"}


def test_a_link_out_of_the_pack_is_not_followed(write_pack, tmp_path):
    secret = tmp_path / "secret.yaml"
    secret.write_text("- id: stolen")
    folder = write_pack(GOOD, header=BARE)
    (folder / "questions" / "link.yaml").symlink_to(secret)

    with pytest.raises(PackError, match=r"link\.yaml:1: This is a link"):
        check_pack(folder)


@pytest.mark.parametrize(
    "encode",
    [
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: b"\xef\xbb\xbf" + text.encode(),
        lambda text: b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode(),
        lambda text: ("# a comment\n" + text).encode(),
    ],
    ids=["CRLF", "BOM", "BOM and CRLF", "comment"],
)
def test_line_ends_marks_and_comments_do_not_make_revisions(write_pack, encode):
    plain = check_pack(write_pack(name="plain"))

    other = check_pack(write_pack(encode(QUESTIONS), header=encode(HEADER), name="other"))

    assert [q.digest for q in other.questions] == [q.digest for q in plain.questions]


def test_yes_and_no_and_numbers_stay_as_written(findings, write_pack):
    texts = ["No", "Yes", "on", "1.10", "012", "12:30", "null", "~"]
    options = "".join(f"    - {{id: o{i}, text: {t}, feedback: f{i}}}\n" for i, t in enumerate(texts))
    question = f"- id: q\n  type: single\n  prompt: '[[x]]{{cue=y}}?'\n  choices:\n{options}"
    question = question.replace("feedback: f0", "feedback: f0, credit: '1'")

    checked = check_pack(write_pack(question, header=BARE))

    assert [option.text for option in checked.questions[0].content.choices] == texts
