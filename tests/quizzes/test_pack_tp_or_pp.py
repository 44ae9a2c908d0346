"""Scenarios of the pack “Tensor or pipeline parallelism?” a second way: their keys, wrong answers and sizes."""

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from quizzes.expressions import evaluate
from quizzes.packs.checking import check_pack
from quizzes.questions import AnyQuestion, Numeric, Single, fair_draws, fill, mark, numbers, words_after

ROOT = Path(__file__).parents[2]
PACK = check_pack(ROOT / "quizzes" / "packs" / "tp-or-pp")
BELIEFS = {belief.id: belief for belief in PACK.header.misconceptions}

# What the key of each scenario builds: tensor-parallel size, pipeline stages.
LAYOUT_OF_KEY = {
    "wide-ffn-batch-one": (8, 1),
    "many-layers-each-fits": (1, 8),
    "attention-block-too-wide": (8, 1),
    "slow-link-between-boxes": (1, 2),
    "two-by-two-machines": (2, 2),
    "one-conversation-faster": (2, 1),
    "more-requests-in-flight": (1, 2),
    "nvlink-cue": (4, 1),
    "head-count-refused": (2, 3),
    "latency-not-bandwidth": (2, 1),
    "faster-network-no-change": (1, 2),
    "stages-idle": (1, 4),
    "no-nvlink-workstation": (1, 4),
}
PAIRS = {
    "wide-or-deep": ("wide-ffn-batch-one", "many-layers-each-fits"),
    "one-or-many": ("one-conversation-faster", "more-requests-in-flight"),
    "turns-or-meetings": ("latency-not-bandwidth", "faster-network-no-change"),
}


COUNTING = ("transfers-per-token-tp", "transfers-per-token-pp", "bytes-ratio")
QUESTIONS: dict[str, AnyQuestion] = {
    q.content.id: q.content for q in PACK.questions if q.content.id in (*LAYOUT_OF_KEY, *COUNTING)
}


def key_of(question: Single) -> str:
    return next(option.id for option in question.choices if option.credit == 1)


def stem_of(question: AnyQuestion) -> str:
    return f"{question.symptom}\n\n{question.prompt}"


def after_texts(question: AnyQuestion) -> Iterator[str]:
    """Everything a learner reads after the answer."""
    yield question.explanation
    if isinstance(question, Numeric):
        yield from (wrong.feedback for wrong in question.wrong)
    else:
        yield from (option.feedback for option in question.choices)


def draws_of(name: str) -> list[dict[str, float]]:
    return [numbers(drawn) for drawn in fair_draws(QUESTIONS[name])]


# --- what a stem gives -------------------------------------------------------------------------------------


def test_where_exam_and_practice_differ_the_stem_says_which_is_asked():
    labelled = {question.id for question in QUESTIONS.values() if "wording-practice" in question.tags}
    told = {question.id for question in QUESTIONS.values() if "not exam wording" in question.prompt}

    assert labelled == told == {"no-nvlink-workstation", "bytes-ratio"}
    assert all("*Exam wording" in QUESTIONS[name].explanation for name in labelled)
    assert all("2026" in QUESTIONS[name].prompt for name in (*labelled, "head-count-refused"))


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=lambda q: q.id)
def test_no_result_is_typed(question):
    measure = r"\d[\d.,]*\s(?:ms|µs|s|GB|GiB|KiB|MiB|%|Gbit/s|GB/s|tokens per second)(?!\w)"
    given = " ".join(stem_of(question).split())
    if isinstance(question, Single):
        given += " ".join(option.text for option in question.choices)

    for text in after_texts(question):
        for found in re.findall(measure, " ".join(text.split())):
            assert found in given, f"{found} is not given in the stem"


# --- minimal pairs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("pair", "names"), PAIRS.items())
def test_a_pair_shares_its_scenario_and_flips_its_key(pair, names):
    one, other = (QUESTIONS[name] for name in names)

    assert one.pair == other.pair == pair
    assert key_of(one) != key_of(other)
    for question, key in ((one, key_of(other)), (other, key_of(one))):
        drawn = next(fair_draws(question))
        assert mark(question, drawn, chosen=[key]).misconception in BELIEFS


@pytest.mark.parametrize("names", PAIRS.values())
def test_the_stems_of_a_pair_differ_in_little(names):
    one, other = (re.findall(r"\w+", QUESTIONS[name].prompt) for name in names)
    shared = sum((Counter(one) & Counter(other)).values())

    assert shared / max(len(one), len(other)) > 0.75


# --- sizes that can exist ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "layout"), LAYOUT_OF_KEY.items())
def test_the_layout_of_the_key_divides_heads_and_layers(name, layout):
    tensor, stages = layout
    question = QUESTIONS[name]

    assert re.search(r"\bheads\b", question.prompt)
    assert re.search(r"\blayers\b", question.prompt)
    for drawn in draws_of(name):
        assert drawn["heads"] % tensor == 0
        assert drawn["layers"] % stages == 0
    for key_value_heads in re.findall(r"(\d+)\s+key/value", question.prompt):
        assert int(key_value_heads) % tensor == 0


@pytest.mark.parametrize("name", ["nvlink-cue", "head-count-refused"])
def test_the_size_that_is_refused_does_not_divide(name):
    for drawn in draws_of(name):
        assert drawn["heads"] % 6 != 0
        assert drawn["heads"] % 5 != 0 or drawn["kv_heads"] % 5 != 0


# --- numbers a second way ----------------------------------------------------------------------------------


def test_all_reduces_per_token_are_counted_block_by_block():
    question = QUESTIONS["transfers-per-token-tp"]
    for drawn in draws_of(question.id):
        calls = sum(1 for _layer in range(int(drawn["layers"])) for _block in ("attention", "feed-forward"))

        assert evaluate(question.answer.calc, drawn) == calls


def test_hand_overs_per_token_are_counted_from_stage_to_stage():
    question = QUESTIONS["transfers-per-token-pp"]
    for drawn in draws_of(question.id):
        per_stage = drawn["layers"] // drawn["stages"]
        owners = [layer // per_stage for layer in range(int(drawn["layers"]))]
        sends = sum(1 for here, there in pairwise(owners) if here != there)

        assert evaluate(question.answer.calc, drawn) == sends


def test_the_ratio_of_bytes_is_counted_message_by_message():
    question = QUESTIONS["bytes-ratio"]
    for drawn in draws_of(question.id):
        devices, layers, tensor = (
            int(drawn["devices"]),
            int(drawn["layers"]),
            840,
        )  # bytes; divides by 4 and 8
        reduce_scatter_and_all_gather = 2 * sum(tensor // devices for _round in range(devices - 1))
        one_device = layers * 2 * reduce_scatter_and_all_gather
        pipeline = (devices - 1) * (tensor + tensor)  # hidden state and residual

        assert evaluate(question.answer.calc, drawn) == pytest.approx(one_device / pipeline)


WRONG_MODELS = {
    "transfers-per-token-tp": {
        "one-all-reduce-per-layer": [lambda d: d["layers"]],
        "all-reduce-at-every-boundary": [lambda d: d["layers"] - 1],
        "tp-splits-the-stack": [lambda d: d["devices"] - 1],
        None: [lambda d: 4 * d["layers"]],
    },
    "transfers-per-token-pp": {
        "counts-stages-not-boundaries": [lambda d: d["stages"]],
        "all-reduce-at-every-boundary": [lambda d: d["layers"] - 1, lambda d: 2 * d["layers"]],
    },
    "bytes-ratio": {
        "one-all-reduce-per-layer": [lambda d: d["layers"] / d["devices"]],
        "counts-stages-not-boundaries": [lambda d: 2 * d["layers"] * (d["devices"] - 1) / d["devices"] ** 2],
        None: [lambda d: 4 * d["layers"] / d["devices"], lambda d: d["layers"] / (d["devices"] - 1)],
    },
}


@pytest.mark.parametrize("name", WRONG_MODELS)
def test_a_wrong_way_of_counting_reveals_the_belief_behind_it(name):
    question = QUESTIONS[name]
    for drawn in fair_draws(question):
        for belief, models in WRONG_MODELS[name].items():
            for model in models:
                found = mark(question, drawn, raw=f"{model(numbers(drawn)):.6f}")

                assert found.credit == 0
                assert found.misconception == belief
                assert found.feedback
                assert "{{" not in found.feedback


# --- scenarios a second way --------------------------------------------------------------------------------


def test_the_wide_and_the_deep_model_are_equally_large_and_only_one_has_layers_that_fit():
    parameters = {}
    for name in PAIRS["wide-or-deep"]:
        (drawn,) = draws_of(name)
        hidden = 128 * drawn["heads"]
        layer = 4 * hidden * hidden + 2 * hidden * (10 * hidden)
        parameters[name] = layer * drawn["layers"], layer, 10 * hidden * hidden
    (wide_total, _, wide_matrix), (deep_total, deep_layer, _) = parameters.values()

    assert wide_total == deep_total
    assert 16 * wide_total < 8 * 80e9
    assert 16 * wide_matrix > 80 * 2**30  # even if 80 GB means GiB
    assert 16 * deep_layer * 4 < 80e9


def test_not_even_the_fused_projection_of_the_attention_block_fits():
    for drawn in draws_of("attention-block-too-wide"):
        hidden = 128 * drawn["heads"]

        assert 16 * 3 * hidden**2 > drawn["gpu_gb"] * 2**30
        assert 16 * 4 * hidden**2 / drawn["gpus"] < drawn["gpu_gb"] * 1e9


def milliseconds(*, gigabytes_in_turn: float, gb_per_s: float, exchanges: float, each_ms: float) -> float:
    """Time of one token: weights read one after another, then every exchange waited for."""
    return 1000 * gigabytes_in_turn / gb_per_s + exchanges * each_ms


def test_over_the_slow_cable_the_pipeline_is_the_fastest_setup_that_fits():
    for d in draws_of("slow-link-between-boxes"):
        payload = 8192 * 2
        slow, fast = (d["delay_ms"] + 1000 * payload / rate for rate in (2.5e9 / 8, 10e9 / 8))
        speed = {"gb_per_s": d["memory_gb_s"]}
        pipeline = milliseconds(gigabytes_in_turn=d["weights_gb"], exchanges=1, each_ms=slow, **speed)
        tensor = milliseconds(gigabytes_in_turn=d["weights_gb"] / 2, exchanges=160, each_ms=slow, **speed)
        upgraded = milliseconds(gigabytes_in_turn=d["weights_gb"] / 2, exchanges=160, each_ms=fast, **speed)

        assert pipeline < upgraded < tensor


def test_tensor_parallelism_inside_the_machines_beats_every_other_layout_of_the_four_cards():
    for d in draws_of("two-by-two-machines"):
        speed = {"gb_per_s": d["memory_gb_s"]}
        half = d["weights_gb"] / 2
        inside = (
            milliseconds(gigabytes_in_turn=half, exchanges=160, each_ms=d["near_ms"], **speed) + d["far_ms"]
        )
        reversed_ = milliseconds(gigabytes_in_turn=half, exchanges=160, each_ms=d["far_ms"], **speed)
        pipeline = milliseconds(gigabytes_in_turn=2 * half, exchanges=1, each_ms=d["far_ms"], **speed)
        four = milliseconds(gigabytes_in_turn=half / 2, exchanges=160, each_ms=d["far_ms"], **speed)

        assert inside < min(reversed_, pipeline, four)
        assert half > d["card_gb"]


def test_one_request_is_served_faster_by_tensor_and_many_are_by_the_pipeline():
    for d in draws_of("one-conversation-faster"):
        payload, link = 5120 * 2, 2.5e9 / 8
        half = 1000 * d["weights_gb"] / 2 / d["memory_gb_s"]
        small, middle, large = (
            d["delay_ms"] + 1000 * payload * n / link for n in (1, d["users"] / 2, d["users"])
        )

        assert half + 128 * small < 2 * half + small
        assert d["users"] / (half + 128 * large) < d["users"] / (2 * (half + middle))
    assert draws_of("one-conversation-faster") == draws_of("more-requests-in-flight")


def test_four_gpus_on_nvlink_beat_five_stages_for_one_user():
    for d in draws_of("nvlink-cue"):
        speed = {"gb_per_s": d["memory_gb_s"]}
        each = d["call_us"] / 1000
        tensor = milliseconds(gigabytes_in_turn=d["weights_gb"] / 4, exchanges=160, each_ms=each, **speed)
        stages = milliseconds(gigabytes_in_turn=d["weights_gb"], exchanges=4, each_ms=each, **speed)

        assert tensor < stages
        assert d["weights_gb"] > 80


def test_without_nvlink_a_full_pipeline_finishes_prompts_sooner():
    for d in draws_of("no-nvlink-workstation"):
        payload = 2048 * 5120 * 2
        all_reduce = 1000 * payload * 2 * 3 / 4 / (d["bus_gb_s"] * 1e9)
        hand_over = 1000 * 2 * payload / (d["copy_gb_s"] * 1e9)

        assert d["quarter_ms"] + hand_over < (d["quarter_ms"] + 128 * all_reduce) / 3


def test_a_wider_link_changes_next_to_nothing_under_either_split():
    for d in draws_of("latency-not-bandwidth"):
        payload = 5120 * 2
        old, new = (d["delay_ms"] + 1000 * payload / rate for rate in (2.5e9 / 8, 10e9 / 8))
        half = 1000 * d["weights_gb"] / 2 / d["memory_gb_s"]

        assert (half + 80 * old) / (half + 80 * new) < 1.03
        assert (2 * half + old) / (2 * half + new) < 1.001
        assert 80 * d["delay_ms"] > half  # delay, not reading, is the largest part of a token
    assert draws_of("latency-not-bandwidth") == draws_of("faster-network-no-change")


def test_the_idle_share_is_counted_in_a_grid_of_slots():
    def idle(stages: int, micro_batches: int) -> float:
        slots = stages + micro_batches - 1
        busy = sum(1 for s in range(stages) for t in range(slots) if 0 <= t - s < micro_batches)
        return 100 * (1 - busy / (stages * slots))

    question = QUESTIONS["stages-idle"]
    shown = words_after(question, next(fair_draws(question)))

    assert shown["idle"] == f"{idle(4, 4):.1f} %"
    assert shown["idle_many"] == f"{idle(4, 16):.1f} %"
    assert shown["idle_twice"] == f"{idle(8, 4):.1f} %"


REFUTATION_NUMBERS = {
    "pp-splits-a-layer": [f"holds {96 // 8}"],
    "tp-splits-the-stack": [f"{2 * 40} all-reduces", f"only {4 - 1} sends"],
    "bandwidth-over-latency": [
        f"{8192 / 1.25e9 * 1e6:.1f} µs",
        f"{128 * (0.2 + 8192 / 1.25e9 * 1e3):.1f} ms to {128 * (0.2 + 8192 / 12.5e9 * 1e3):.1f} ms",
    ],
    "dp-adds-capacity": [f"16 bytes per parameter down to {16 // 8}"],
    "ep-on-dense": [f"64 experts over 8 devices are {64 // 8} on each"],
    "tp-across-a-slow-link": [
        f"{2 * 80} all-reduces",
        f"{160 * 0.008:.2f} ms",
        f"{160 * 0.3:.0f} ms",
        f"{1000 / 48:.1f} tokens per second",
    ],
    "one-all-reduce-per-layer": [f"{2 * 64} for 64 layers"],
    "all-reduce-at-every-boundary": [f"{4 - 1} sends of 8 KiB, {3 * 8} KiB"],
    "counts-stages-not-boundaries": [f"4 stages, {4 - 1} sends"],
    "any-size-divides": [f"leave {40 % 6} over", f"6 stages of {48 // 6}"],
    "tokens-split-for-weights": [f"128k tokens into {128 // 4}k"],
    "bubble-is-a-network-problem": [f"{100 * 3 / 7:.1f} %", f"{100 * 3 / 19:.1f} %"],
}


@pytest.mark.parametrize("belief", REFUTATION_NUMBERS)
def test_the_numbers_of_a_refutation_can_be_worked_out(belief):
    text = " ".join(BELIEFS[belief].refutation.split())

    for number in REFUTATION_NUMBERS[belief]:
        assert number in text, number


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=lambda q: q.id)
def test_no_text_is_left_with_a_gap(question):
    for drawn in fair_draws(question):
        words = words_after(question, drawn)
        shown = [fill(t, words) for t in (stem_of(question), *after_texts(question), *question.cues.values())]

        assert "{{" not in "".join(shown)
        assert "e+" not in "".join(words.values())
