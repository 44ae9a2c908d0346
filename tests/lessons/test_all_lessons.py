"""Every lesson of the site: whole, in one chain, its numbers calculated, its pages sound."""

import re

import pytest
from django.urls import reverse

from tests.lessons.reading import prose
from tutor.lessons import catalogue
from tutor.lessons.loader import FAMILIES
from tutor.lessons.numbers import NUMBER

LESSONS = (
    "reading-a-scenario",
    "data-parallelism",
    "tensor-parallelism",
    "pipeline-parallelism",
    "tp-or-pp",
    "sequence-parallelism",
    "context-parallelism",
    "sp-or-cp",
    "expert-parallelism",
    "sharded-data-parallelism",
    "composing-on-two-tiers",
    "counting-bytes",
    "interconnect-ladder",
    "choosing-in-order",
    "training-and-inference",
    "memory-and-kv-cache",
    "one-request",
    "exam-questions",
    "exam-map",
)

# Numbers above 9 that are typed: data of a scenario, a product or a source, never a result (test_content.py has the
# first three lessons', each with its reason).
GIVEN = {
    "reading-a-scenario": "10 12 120 128 16 64",
    "data-parallelism": "10 100 12 16 16,000 2,048 256 32 4096 80",
    "sequence-parallelism": "10 24 34",
    "context-parallelism": "10 100,004 11 13 15 16 32 34 64 8,000",
    "sp-or-cp": "10 128 16 2021 2022 2023 24 34 40 64,000",
    "expert-parallelism": "1,536 10 12 128 15 16 192 20 256 30 32 40 64",
    "composing-on-two-tiers": "100 32",
    "counting-bytes": "117 120 22 235",
    "interconnect-ladder": "1,792 10 100 109 16 17.8 189.85 200 30 32 40 400 50 800 819 900",
    "choosing-in-order": "16 20 24 29 80",
    "training-and-inference": "10",
    "memory-and-kv-cache": "10 128 16 24 32 32,768 34 512 61 64 671 70 80",
    "one-request": "1,008 24 300",
    "exam-questions": "100 120 128 64",
    "exam-map": "13 4,096 60 75",
}


def test_next_alone_leads_from_the_first_lesson_to_the_last():
    lessons = catalogue.lessons()
    way = [LESSONS[0]]
    while following := lessons[way[-1]].next:
        way.append(following)

    assert tuple(way) == LESSONS == tuple(lessons)


def test_nothing_is_asked_for_before_it_was_taught():
    for place, slug in enumerate(LESSONS):
        assert set(catalogue.lessons()[slug].prerequisites) <= set(LESSONS[:place]), slug


def test_each_family_has_a_lesson_of_its_own():
    alone = [lesson.families[0] for lesson in catalogue.lessons().values() if len(lesson.families) == 1]

    assert set(FAMILIES) <= set(alone)


@pytest.mark.parametrize("slug", LESSONS)
def test_a_lesson_has_a_worked_number_a_map_checks_both_wordings_an_experiment_and_sources(slug):
    lesson = catalogue.lessons()[slug]
    kinds = [piece.kind for piece in lesson.body.pieces]

    assert 2 <= len(lesson.questions) <= 4
    assert kinds.count("split-map") >= 1
    assert kinds.count("calculator") >= 1
    assert lesson.experiments
    for note in ('class="note exam"', 'class="note practice"', 'class="worked"'):
        assert note in lesson.body.html
    assert lesson.sources


@pytest.mark.parametrize("slug", LESSONS)
def test_the_minutes_promised_are_minutes_of_reading(slug):
    lesson, words = catalogue.lessons()[slug], len(prose(slug).split())

    minutes = lesson.minutes - len(lesson.questions)  # a question takes a minute
    assert words / 180 <= minutes <= words / 90


@pytest.mark.parametrize("slug", GIVEN)
def test_no_result_is_typed(slug):
    text = (catalogue.CONTENT / f"{slug}.md").read_text().split("\n---\n", 1)[1]
    directive, address, code = r"^:::.*$", r"\]\([^)]*\)", r"`[^`]*`"
    for hidden in (NUMBER, re.compile(directive, re.MULTILINE), re.compile(address), re.compile(code)):
        text = hidden.sub("", text)

    typed = {found for found in re.findall(r"\d[\d,.]*\d|\d", text) if float(found.replace(",", "")) > 9}
    assert typed - set(GIVEN[slug].split()) == set()


@pytest.mark.parametrize("slug", LESSONS)
def test_a_reader_meets_no_straight_quotation_mark(slug):
    text = prose(slug).replace('qkv = "separate"', "")

    assert '"' not in text
    assert "'" not in text


@pytest.mark.django_db
@pytest.mark.parametrize("slug", LESSONS)
def test_a_lessons_page_shows_every_piece_and_nothing_is_missing(client, bank, slug):
    page = client.get(reverse("lessons:lesson", args=[slug]))
    html = page.content.decode()
    lesson = catalogue.lessons()[slug]

    assert page.status_code == 200
    assert "not in the bank" not in html
    assert html.count('class="question check card"') == len(lesson.questions)
    assert "<svg" in html
    assert "{{" not in html.partition("<main")[2]
