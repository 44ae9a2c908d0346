"""The rules for a good bank: what each doubts, and what it lets pass."""

import io
import json

import pytest
from django.core.management import call_command

from quizzes.packs import rules
from quizzes.packs.checking import check_pack
from quizzes.packs.rules.likeness import trigrams
from quizzes.packs.rules.reading import lix
from quizzes.packs.rules.scenarios import is_scenario
from quizzes.truth import GUARDS, problems
from tests.quizzes.conftest import TINY

HEADER = """\
format: 1
id: p
publisher: t
title: T
version: 1.0.0
license: CC0-1.0
authors: [{name: N}]
misconceptions:
  - {id: swapped, name: Swaps them, refutation: Look again., lessons: [tp-or-pp]}
"""
WIDE = """\
- id: wide
  type: single
  prompt: "A dense model trains on a server of 8 GPUs. [[One matrix needs 96 GB]]{cue=why}, a GPU has 80. What now?"
  facts: {phase: training, overflow: layer, moe: "no", wording: exam}
  techniques: {tp: tensor, pp: pipeline}
  choices:
    - {id: tp, text: Tensor parallelism, credit: "1", feedback: yes it is}
    - {id: pp, text: Pipeline parallelism, misconception: swapped, feedback: no}
  cues: {why: a matrix}
  tests: [{choose: [tp], credit: "1"}]
"""
DEEP = (
    WIDE.replace("id: wide", "id: deep")
    .replace(
        "[[One matrix needs 96 GB]]{cue=why}, a GPU has 80.", "[[120 layers of 4 GB]]{cue=why} are too many."
    )
    .replace("overflow: layer", "overflow: stack")
    .replace('credit: "1", feedback: yes it is', "misconception: swapped, feedback: no")
    .replace(
        "Pipeline parallelism, misconception: swapped, feedback: no",
        'Pipeline parallelism, credit: "1", feedback: yes',
    )
    .replace("choose: [tp]", "choose: [pp]")
)


@pytest.fixture
def doubts(write_pack):
    """What the rules doubt in questions written on the spot, each as its printed line."""

    def report(questions=WIDE + DEEP, *, header=HEADER):
        return [
            str(finding) for _, finding in rules.findings([check_pack(write_pack(questions, header=header))])
        ]

    return report


def test_a_minimal_pair_that_the_advisor_confirms_raises_no_doubt(doubts):
    pair = [question.replace("  facts", "  pair: shape\n  facts") for question in (WIDE, DEEP)]

    assert doubts("".join(pair)) == []


MISJUDGED = WIDE + DEEP.replace("overflow: stack", "overflow: layer")
TWICE = WIDE + WIDE.replace("id: wide", "id: broad")


@pytest.mark.parametrize(
    ("questions", "doubt"),
    [
        (WIDE, "Only one question offers swapped; review needs two"),
        (WIDE + DEEP.replace("misconception: swapped, ", ""), "deep: the wrong option tp reveals no"),
        (MISJUDGED, "the advisor says tensor, and the key is pipeline"),
        (MISJUDGED, "the option tp is what the advisor says from the facts"),
        (WIDE + DEEP.replace("overflow: stack", "overflaw: stack"), "overflaw is no fact that the adviser knows"),
        (WIDE + DEEP.replace("tp: tensor, pp: pipeline", "tp: tensor"), "techniques: does not say what the key pp is"),
        (WIDE + DEEP.replace("tp: tensor,", "tp: tensr,"), "'tensr' is no technique"),
        (WIDE + DEEP.replace("{tp: tensor", "{xp: tensor"), "techniques: names xp, which is no option"),
        (WIDE + DEEP.replace("  facts", "  pair: shape\n  facts"), "the pair shape has 1 questions"),
        (
            (WIDE + WIDE.replace("id: wide", "id: broad")).replace("  facts", "  pair: shape\n  facts"),
            "both questions of the pair shape have the key tensor",
        ),
        (TWICE, "wide: its stem shares 100% of its words with broad"),
        (TWICE, "broad: it has the key, the facts and the distractors of wide"),
        (WIDE + DEEP.replace("[[120 layers of 4 GB]]{cue=why}", "Layers"), "1 of 2 questions"),
        (WIDE.replace("  facts", "  tags: [symptom-wide-layer]\n  facts"), "plays in 0 settings"),
        (WIDE.replace("  facts", "  tags: [symptom-odd]\n  facts"), "symptom-odd is none of the six"),
        (WIDE.replace("What now?", "Plain words. " + "Incomprehensibilities notwithstanding, " * 20), "hard already"),
    ],
)  # fmt: skip
def test_a_doubt_names_the_question_and_the_reason(doubts, questions, doubt):
    assert any(doubt in line for line in doubts(questions)), doubts(questions)


@pytest.mark.parametrize(
    ("verify", "doubt"),
    [
        ("{lab: nowhere}", "wide: verify: the lab has no experiment nowhere"),
        (
            "{lab: bubble, measure: sent, calc: '1'}",
            "bubble is a guided experiment of several runs; measure one of a",
        ),
        ("{lab: tensor-decode, measure: sent, calc: devices}", "It cannot be calculated for the run"),
        (
            "{lab: tensor-decode, measure: calls, calc: layers}",
            "calc gives 4 calls for tensor-decode, whose plan says 8",
        ),
        ("{lab: tensor-decode, measure: calls, calc: 2 * layers}", None),
    ],
)
def test_a_measured_question_is_about_what_the_experiment_measures(doubts, verify, doubt):
    found = [
        line for line in doubts(WIDE.replace("  cues", f"  verify: {verify}\n  cues")) if "[lab]" in line
    ]

    assert (found == []) if doubt is None else any(doubt in line for line in found), found


def test_a_misconception_without_a_lesson_is_doubted(doubts):
    found = doubts(header=HEADER.replace("lessons: [tp-or-pp]", "lessons: []"))

    assert found == ["pack.yaml:9: warning: The misconception swapped has no lesson to read. [misconception]"]


def test_the_longest_option_being_right_more_often_than_chance_is_doubted(doubts):
    question = WIDE.replace("text: Tensor parallelism", "text: Tensor parallelism because of this and that")
    found = doubts("".join(question.replace("id: wide", f"id: q{n}") for n in range(12)))

    assert any("The longest option is right 12 times in 12; chance gives 6.0" in line for line in found)


def test_absolute_words_in_wrong_options_alone_are_doubted(doubts):
    question = WIDE.replace("text: Pipeline parallelism", "text: Only a pipeline")
    found = doubts("".join(question.replace("id: wide", f"id: q{n}") for n in range(8)))

    assert any(
        "Words such as always and never stand in 8 wrong options and in no right one" in line
        for line in found
    )


def test_a_key_that_is_first_wherever_nothing_is_shuffled_is_doubted(doubts):
    question = WIDE.replace("  choices:", "  shuffle: false\n  choices:")
    found = doubts("".join(question.replace("id: wide", f"id: q{n}") for n in range(8)))

    assert any(
        "8 of 8 unshuffled questions have the right option in the same place" in line for line in found
    )


def test_numbers_drawn_and_written_count_as_one_word_when_stems_are_compared():
    assert trigrams("A layer of 96 GB on [[8 GPUs]]{cue=x}") == trigrams("a layer of {{ gb }} GB on 16 GPUs")


def test_readability_is_words_a_sentence_and_long_words_in_per_cent():
    assert lix("One two three four. Parallelism is five six.") == pytest.approx(8 / 2 + 100 * 1 / 8)


def test_a_scenario_has_a_symptom_a_topology_and_two_numbers(write_pack):
    def shaped(**changes):
        text = WIDE
        for old, new in changes.items():
            text = text.replace(
                {"cue": "[[One matrix needs 96 GB]]{cue=why}", "where": "a server of 8 GPUs", "gpu": "GPU"}[
                    old
                ],
                new,
            )
        return is_scenario(check_pack(write_pack(text, header=HEADER)).questions[0])

    assert shaped()
    assert not shaped(cue="One matrix needs 96 GB")
    assert not shaped(where="something of 8", gpu="part")


FALSE = {
    "plain-dp": "With data parallelism a full copy sits on each GPU.",
    "sp-name": "Sequence parallelism moves blocks, and Ulysses exchanges heads.",
    "direction": "NVLink moves 900 GB/s.",
    "units": "It sends 8 KB.",
    "exam-price": "The passing score is 70 %.",
}
TRUE = {
    "plain-dp": "With plain data parallelism a full copy sits on each GPU.",
    "sp-name": "Megatron's sequence parallelism refines TP, and Ulysses exchanges heads.",
    "direction": "NVLink moves 450 GB/s in one direction.",
    "units": "It sends 8 KiB at 10 Gbit/s.",
    "exam-price": "No passing score is established.",
}


def test_every_guard_has_a_false_sentence_and_a_true_one():
    assert set(FALSE) == set(TRUE) == {guard.name for guard in GUARDS}


@pytest.mark.parametrize("name", FALSE)
def test_the_guard_knows_the_false_sentence_from_the_true_one(name):
    text = f"All is well.\n\n{FALSE[name]}\n"

    assert [(line, rule) for line, rule, _ in problems(text)] == [(3, name)]
    assert list(problems(TRUE[name])) == []


def test_what_stands_in_a_console_excerpt_is_not_guarded():
    assert list(problems(f"```\n{FALSE['units']}\n```\n")) == []


def test_a_false_sentence_in_a_question_is_doubted_where_it_stands(doubts):
    found = doubts(WIDE.replace("feedback: no", f"feedback: '{FALSE['plain-dp']}'") + DEEP)

    assert any(line.startswith("questions/basics.yaml:1:") and "[plain-dp]" in line for line in found)


def test_the_census_is_printed_as_json_with_every_finding():
    out = io.StringIO()

    call_command("packs", "check", str(TINY), "--json", stdout=out)

    told = json.loads(out.getvalue())
    assert told["questions"] == 3
    assert told["by_pack"] == {"tiny": 3}
    assert sum(told["by_type"].values()) == 3
    assert told["numeric_templates"] == 1
    assert {"misconceptions", "minimal_pairs", "templates", "scenario_shaped", "symptoms"} <= set(told)
    assert {"file", "line", "rule", "severity", "message"} == set(told["findings"][0])
