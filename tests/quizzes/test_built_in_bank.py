"""The packs that come with the site, as one bank: how much there is, and that nothing in it is doubted."""

import re
from itertools import islice

import pytest

from calculators.lab.guided import GUIDED
from calculators.lab.spec import experiment_names
from quizzes import markdown
from quizzes.bank import builtin_folders
from quizzes.packs import rules
from quizzes.packs.census import census
from quizzes.packs.checking import check_pack
from quizzes.packs.rules.scenarios import SYMPTOMS
from quizzes.questions import fair_draws, fill, words_after, words_for
from quizzes.subjects import SUBJECTS
from tutor.lessons import catalogue

PACKS = [check_pack(folder) for folder in builtin_folders()]
QUESTIONS = [(pack, question.content) for pack in PACKS for question in pack.questions]
BELIEFS = {belief.id: belief for pack in PACKS for belief in pack.header.misconceptions}
DRAWS = 6
"""Draws of each question whose texts are read; the compiler calculates all of them."""

LEAST = {
    "two-camps": 12,
    "tp-or-pp": 40,
    "sp-or-cp": 32,
    "experts": 20,
    "data": 18,
    "combine-and-place": 24,
    "bytes": 24,
    "home-cluster": 24,
    "exam-or-practice": 12,
}


def told() -> dict:
    return census(PACKS, [])


def named(pair) -> str:
    return pair[1].id


def test_neither_the_compiler_nor_a_rule_has_a_doubt():
    assert [warning for pack in PACKS for warning in pack.warnings] == []
    assert [str(finding) for _, finding in rules.findings(PACKS)] == []


def test_every_pack_has_as_many_questions_as_it_should():
    counts = told()["by_pack"]

    assert {name: counts.get(name, 0) for name, least in LEAST.items() if counts.get(name, 0) < least} == {}
    assert told()["questions"] >= 200


def test_there_are_all_five_types_and_all_three_levels():
    assert set(told()["by_type"]) == {"single", "multiple", "numeric", "match", "order"}
    assert set(told()["by_level"]) == {"recognise", "diagnose", "design"}


def test_there_are_enough_templates_pairs_and_misconceptions():
    assert told()["numeric_templates"] >= 24
    assert told()["minimal_pairs"] >= 24
    assert told()["misconceptions"] >= 24
    assert told()["scenario_shaped"] >= 0.75 * told()["single_choice"]


def test_every_symptom_plays_in_four_settings_and_every_subject_has_questions():
    assert {name: len(told()["symptoms"][name]) >= 4 for name in SYMPTOMS} == dict.fromkeys(SYMPTOMS, True)
    assert [tag for tag in SUBJECTS if tag not in told()["by_tag"]] == []


def test_a_misconception_is_declared_once_and_can_be_noticed_and_refuted():
    declared = [belief.id for pack in PACKS for belief in pack.header.misconceptions]

    assert len(declared) == len(set(declared))
    for belief in BELIEFS.values():
        assert belief.tell, belief.id
        assert len(re.findall(r"[.!?](?:\s|$)", belief.refutation)) >= 2, belief.id


def test_every_link_to_a_lesson_goes_to_a_lesson_and_a_heading_of_it():
    lessons = catalogue.lessons()
    links = [(question.id, link) for _, question in QUESTIONS for link in question.lessons]
    links += [(belief.id, link) for belief in BELIEFS.values() for link in belief.lessons]

    dead = []
    for owner, link in links:
        slug, _, part = link.partition("#")
        lesson = lessons.get(slug)
        if lesson is None or (part and part not in {heading.slug for heading in lesson.body.headings}):
            dead.append((owner, link))
    assert dead == []


def test_every_experiment_named_is_one_that_the_lab_has():
    named = {question.verify.lab for _, question in QUESTIONS if question.verify and question.verify.lab}
    named |= {lab for belief in BELIEFS.values() for lab in belief.labs}

    assert named - set(experiment_names()) - set(GUIDED) == set()


@pytest.mark.parametrize("pair", QUESTIONS, ids=named)
def test_a_question_has_something_to_read_marks_that_are_explained_and_tests_of_every_answer(pair):
    pack, question = pair
    marked = {cue.reason for cue in markdown.cues_of(f"{question.symptom}\n\n{question.prompt}")}

    assert question.lessons
    assert question.objectives
    assert question.level
    assert marked <= set(question.cues) | set(pack.header.cues) | {
        reason for reason in marked if " " in reason
    }
    assert set(question.cues) <= marked
    assert any(test.credit == 1 for test in question.tests)
    assert {test.misconception for test in question.tests if test.misconception} <= set(
        question.misconceptions()
    )
    if question.type == "single":
        assert {test.choose[0] for test in question.tests if test.choose} == {
            option.id for option in question.choices
        }
        assert len({option.feedback for option in question.choices}) == len(question.choices)


@pytest.mark.parametrize("pair", QUESTIONS, ids=named)
def test_no_text_is_left_with_a_gap_or_an_unreadable_number(pair):
    _, question = pair
    for drawn in islice(fair_draws(question), DRAWS):
        before, after = words_for(question, drawn), words_after(question, drawn)
        for passage in question.texts():
            if not passage.value:
                shown = fill(passage.text, before if passage.before else after)
                assert "{{" not in shown, shown
        assert "e+" not in "".join(after.values())
