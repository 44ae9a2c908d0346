"""Reading a lesson: what comes out of a good one, and the sentence for everything that can be wrong."""

import pytest

from tests.lessons.examples import BODY, FRONT, known, lesson_file
from tutor.lessons.defects import LessonError
from tutor.lessons.loader import load_lesson, load_lessons


def defects(path, site=None):
    with pytest.raises(LessonError) as refused:
        load_lesson(path, site or known())
    return str(refused.value).splitlines()


def test_a_good_lesson_becomes_a_named_thing(tmp_path):
    lesson = load_lesson(lesson_file(tmp_path), known())

    assert (lesson.title, lesson.slug, lesson.minutes, lesson.families) == (
        "Counting bytes",
        "counting",
        5,
        ("tp",),
    )
    assert lesson.given == {"layers": 64.0, "activation": 8192.0}
    assert lesson.sources[0].supports == "the formula"
    assert [heading.name for heading in lesson.contents] == ["Why"]


@pytest.mark.parametrize(
    ("change", "defect"),
    [
        (
            ("minutes: 5", "minuts: 5"),
            "line 4: minuts is not a key of a lesson. Use one of title, slug, minutes, ",
        ),
        (("minutes: 5", "minuts: 5"), "line 1: The front matter lacks minutes. Add it."),
        (
            ("slug: counting", "slug: count"),
            "line 3: slug is count, but the file is counting.md. Make them the same.",
        ),
        (
            ("minutes: 5", "minutes: soon"),
            "line 4: minutes is soon, but a lesson takes 1 to 120. Write a whole number.",
        ),
        (("family: tp", "family: tp xp"), "line 5: family has xp, which is none of dp, tp, pp, sp, cp, ep."),
        (("title: Counting bytes", "title:"), "line 2: title has no text. Write it on the same line."),
        (("minutes: 5", "minutes: 5\nminutes: 6"), "line 5: minutes is given twice. Keep one."),
        (("minutes: 5", "minutes: [5"), "line 5: The front matter cannot be read: "),
        (
            ("family: tp", "family: tp\nnext: pausing"),
            "line 6: next is pausing, but no lesson has this slug.",
        ),
        (("family: tp", "family: tp\npractice: cp"), "line 6: practice is cp, but no pack has this id."),
        (
            ("family: tp", "family: tp\nprerequisites: [waiting, hoping]"),
            "line 6: prerequisites names hoping, but no lesson has this slug.",
        ),
        (
            ("family: tp", "family: tp\nprerequisites: waiting"),
            "line 6: prerequisites is not a list. Write [slug, slug].",
        ),
        (("layers: 64", "layers: 64 / 0"), "line 9: given.layers: The expression “64 / 0” divides by zero."),
        (
            ("layers: 64", "layers: 64\n  heads: 8"),
            "line 10: given.heads is used nowhere. Use it or remove it.",
        ),
        (("given:\n  layers: 64\n  activation", "given: 64\nx"), "line 8: given is not a list of names. "),
        (("https://", "http://"), "line 13: The url http://example.org/paper does not start with https://."),
        (
            ("    supports: the formula\n", ""),
            "line 12: A source has exactly title, url, supports. This one has title, url.",
        ),
    ],
)
def test_a_defect_of_the_front_matter_is_a_sentence_with_its_line(tmp_path, change, defect):
    path = lesson_file(tmp_path, front=FRONT.replace(*change))

    assert any(line.startswith(f"counting.md, {defect}") for line in defects(path)), defects(path)


START = FRONT.count("\n") + 3  # the first line of the text


@pytest.mark.parametrize(
    ("text", "defect"),
    [
        (
            "[here](/lessons/pausing/)",
            "The link /lessons/pausing/ goes to no lesson. Lessons are: counting, waiting.",
        ),
        ("[here](#where)", "The link #where goes to no heading of this lesson."),
        ("[here](/nowhere/)", "The link /nowhere/ goes nowhere. Use /… of this site, or https://…."),
        ("[here](waiting.md)", "The link waiting.md goes nowhere. Use /… of this site, or https://…."),
        (
            "[word](/glossary/#alreduce)",
            "alreduce is not a term of the glossary. Add it to docs/glossary.md or mend the link.",
        ),
        (
            "::: check tp-or-pp/bytes-ration",
            "There is no question tp-or-pp/bytes-ration. Write it as pack/question.",
        ),
        ("::: check", "There is no question without a name. Write it as pack/question."),
        ("::: calculator memory", "There is no calculator memory. Use one of traffic."),
        (
            "::: experiment tensor-decoding",
            "There is no experiment tensor-decoding. Use one of tensor-decode.",
        ),
        ("::: schedule fast stages=2", "::: schedule takes only key=value, not fast."),
        (
            "{{ 2 * lairs }}",
            "The expression “2 * lairs” uses the unknown name lairs. Known here: activation, layers.",
        ),
        (
            "{{ layers in furlongs }}",
            "{{ layers in furlongs }} asks for “furlongs”, which is not a unit known here. ",
        ),
        ("$x = {{ layers in MiB }}$", "{{ layers in MiB }} names a unit inside a formula. "),
        (r"$\notacommand{x}$", r"The formula $\notacommand{x}$ cannot be read "),
        (r"$\frac{1}{$", r"The formula $\frac{1}{$ cannot be read "),
        ("::: warning\nx\n:::", "“warning” is not a directive. Use one of exam, practice, worked, answer, "),
        ("::: exam\nx", "::: exam is never closed. Put a line with only ::: after it."),
        (":::", "This ::: closes nothing. Remove it, or open a note above."),
        ("::: exam now\nx\n:::", "::: exam takes no words after it. Put them on the next line."),
        ("::: !", "“::: !” is no directive. Write ::: and a word: exam, practice, "),
        ("# Title", "“Title” is a second title. Start headings of the text with ##."),
        ("### Deep", "“Deep” skips a level of headings. Use ##."),
    ],
)
def test_a_defect_of_the_text_is_a_sentence_with_its_line(tmp_path, text, defect):
    path = lesson_file(tmp_path, body=f"{text}\n\n{BODY}")

    assert any(line.startswith(f"counting.md, line {START}: {defect}") for line in defects(path)), defects(
        path
    )


def test_the_same_heading_twice_has_no_anchor_of_its_own(tmp_path):
    path = lesson_file(tmp_path, body=f"{BODY}\n## Why\n")

    assert defects(path) == [f"counting.md, line {START + 6}: “Why” gives the anchor why again. Reword it."]


def test_what_is_wrong_with_the_sizes_of_a_piece_is_passed_on(tmp_path):
    path = lesson_file(tmp_path, body=f"{BODY}\n::: split-map tp=0\n")
    site = known(problem_of=lambda piece: f"tp is {piece.params['tp']}, but 1 is the least.")

    assert defects(path, site) == [
        f"counting.md, line {START + 6}: ::: split-map: tp is 0, but 1 is the least."
    ]


def test_a_lesson_without_front_matter_is_told_so(tmp_path):
    path = tmp_path / "counting.md"
    path.write_text("## Why\n")

    assert (
        "counting.md, line 1: A lesson starts with front matter between two lines of ---. Add it."
        in defects(path)
    )


def test_a_file_that_is_not_utf_8_names_the_line(tmp_path):
    path = tmp_path / "counting.md"
    path.write_bytes(b"---\ntitle: caf\xe9\n---\n")

    assert defects(path) == ["counting.md, line 2: This line is not UTF-8. Save the file as UTF-8."]


def test_all_defects_of_a_lesson_come_at_once_in_order(tmp_path):
    path = lesson_file(
        tmp_path,
        front=FRONT.replace("family: tp", "family: xp"),
        body=f"{BODY}\n{{{{ lairs }}}}\n\n[x](#y)\n",
    )

    assert [line.split(":")[0] for line in defects(path)] == [
        "counting.md, line 5",
        f"counting.md, line {START + 6}",
        f"counting.md, line {START + 8}",
    ]


def test_lessons_come_in_reading_order_and_their_anchors_are_checked(tmp_path):
    second = FRONT.replace("counting", "waiting").replace("minutes", "prerequisites: [counting]\nminutes")
    lesson_file(tmp_path)
    lesson_file(tmp_path, front=second, body=f"{BODY}\n[x](/lessons/counting/#why)\n", name="waiting.md")

    assert list(load_lessons(tmp_path, known())) == ["counting", "waiting"]

    lesson_file(tmp_path, front=second, body=f"{BODY}\n[x](/lessons/counting/#how)\n", name="waiting.md")
    with pytest.raises(LessonError, match=r"waiting\.md, line 23: The lesson counting has no heading #how\."):
        load_lessons(tmp_path, known())
