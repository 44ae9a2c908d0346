"""The lessons of the site: whole, true to the calculators, and with nothing typed that should be calculated."""

import re
from fractions import Fraction

import numpy as np
import pytest
from django.core.checks import run_checks

from calculators.lab.spec import Qkv, experiment
from tests.lessons.examples import lesson_file
from tests.lessons.reading import number, prose, rows
from tutor.lessons import catalogue
from tutor.lessons.numbers import NUMBER

SLUGS = ["tensor-parallelism", "pipeline-parallelism", "tp-or-pp"]
TP, PP, BOTH = SLUGS


# --- second ways of counting: things are moved and counted, no formula -------------------------------


def ring_all_reduce(ranks, size):
    """(bytes sent by one rank, rounds): chunks really go round a ring until everybody holds the sum."""
    chunks = [[rank * ranks + chunk for chunk in range(ranks)] for rank in range(ranks)]
    total = [sum(rank[chunk] for rank in chunks) for chunk in range(ranks)]
    sent = rounds = 0
    for step in range(2 * (ranks - 1)):
        adding = step < ranks - 1
        moving = [(rank, (rank - step) % ranks) for rank in range(ranks)]
        values = [chunks[rank][chunk] for rank, chunk in moving]
        for (rank, chunk), value in zip(moving, values, strict=True):
            right = (rank + 1) % ranks
            chunks[right][chunk] = chunks[right][chunk] + value if adding else value
        sent += size / ranks
        rounds += 1
    assert chunks == [total] * ranks
    return sent, rounds


def forward_pass(stages, micro_batches):
    """(idle slots of each stage, all slots): every stage starts a micro-batch as soon as it can."""
    done = {}
    for micro_batch in range(micro_batches):
        for stage in range(stages):
            ready = max(done.get((stage - 1, micro_batch), 0), done.get((stage, micro_batch - 1), 0))
            done[stage, micro_batch] = ready + 1
    slots = max(done.values())
    return slots - micro_batches, slots


def walk(layers, hidden_size, bytes_per_element, meetings_of_a_layer):
    """(meetings, bytes) of one token that goes through the layers one by one."""
    meetings = moved = 0
    for _ in range(layers):
        for _ in range(meetings_of_a_layer):
            meetings += 1
            moved += np.zeros(hidden_size, dtype=f"f{bytes_per_element}").nbytes
    return meetings, moved


# --- numbers -----------------------------------------------------------------------------------------


def test_the_small_product_comes_out_as_numpy_says():
    x, matrix = np.array([1, 2]), np.array([[3, 4], [5, 6]])

    by_columns = [x @ matrix[:, 0], x @ matrix[:, 1]]
    by_rows = [x[0] * matrix[0], x[1] * matrix[1]]

    assert f"computes 1⋅3+2⋅5={by_columns[0]}, device 1 computes 1⋅4+2⋅6={by_columns[1]}." in prose(TP)
    assert f"gets 1⋅(3,4)=({by_rows[0][0]},{by_rows[0][1]}), device 1 gets" in prose(TP)
    assert f"2⋅(5,6)=({by_rows[1][0]},{by_rows[1][1]})." in prose(TP)
    assert list(sum(by_rows)) == by_columns


def test_a_token_costs_what_a_walk_through_the_layers_counts():
    meetings, moved = walk(64, 4096, 2, meetings_of_a_layer=2)

    assert number(r"Each of the two devices sends ([\d.,]+) MiB per token", TP) * 2**20 == moved
    assert number(r"per token, in ([\d,]+) all-reduces that must", TP) == meetings
    assert number(r"=([\d,]+) B Each of the two", TP) == moved


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_the_table_of_devices_agrees_with_a_ring_that_really_turns(devices):
    sent, rounds = ring_all_reduce(devices, 8192)

    row = next(row for row in rows(TP) if row[0] == str(devices))

    assert row[1:] == [f"{100 / devices:g} %", f"{128 * sent / 2**20:.2f} MiB", "128", f"{128 * rounds:,}"]


@pytest.mark.parametrize(
    ("rung", "seconds"),
    [("NVLink", 6e-6), ("PCIe", 54e-6), ("Wired Ethernet", 300e-6)],
)
def test_latency_is_paid_once_for_every_meeting(rung, seconds):
    waited = sum(seconds for _ in range(128))

    row = next(row for row in rows(TP) if row[0].startswith(rung))

    assert row[2:] == [f"{waited * 1e3:.1f} ms", f"{1 / waited:,.0f}"]


def test_a_prompt_moves_its_length_times_a_token():
    assert number(r"makes every all-reduce carry ([\d.]+) MiB", TP) == 2048 * 8192 / 2**20
    assert number(r"a device sends ([\d.]+) GiB for the prompt", TP) == 2048 * 128 * 8192 / 2**30
    assert number(r"decides: (\d+) ms over PCIe", TP) == round(2048 * 128 * 8192 / 63e9 * 1e3)
    assert number(r"at 63 GB/s, (\d+) s over", TP) == round(2048 * 128 * 8192 * 8 / 1e9)


def test_training_counts_four_all_reduces_a_layer_and_the_trap_six():
    forward, backward = 2, 2

    assert number(r"sends ([\d.]+) MiB per layer and", TP) == (forward + backward) * 16
    assert (
        number(r"per layer and ([\d.]+) GiB for the 64 layers", TP) == 64 * (forward + backward) * 16 / 1024
    )
    assert number(r"layer’s four become (\d+):", TP) == 2 + 3 + 1
    assert number(r": ([\d.]+) times the traffic", TP) == 6 / 4


def test_two_memories_read_twice_as_fast():
    assert number(r"is read ([\d.]+) times a second by one", TP) == round(273 / 141, 1)
    assert number(r"could hold it, and ([\d.]+) times by two", TP) == round(546 / 141, 1)


def test_a_boundary_is_crossed_by_one_activation():
    _, moved = walk(1, 4096, 2, meetings_of_a_layer=1)

    assert f"={moved:,} bytes per token, {moved / 1024:.0f} KiB." in prose(PP)
    assert number(r"4 stages have (\d+), and", PP) == 3
    assert number(r"and (\d+) KiB travel in all", PP) * 1024 == 3 * moved
    assert number(r"a boundary takes ([\d.]+) ms", PP) == round(0.3 + moved * 8 / 1e9 * 1e3, 2)
    assert number(r"Ten times the bandwidth would save ([\d.]+) ms", PP) == round(
        3 * moved * 8 * 0.9 / 1e9 * 1e3, 1
    )


@pytest.mark.parametrize("micro_batches", [4, 8, 16, 32, 64])
def test_the_bubble_is_what_a_pipeline_that_really_runs_leaves_idle(micro_batches):
    idle, slots = forward_pass(4, micro_batches)

    row = next(row for row in rows(PP) if row[0] == str(micro_batches))

    assert row[1:] == [
        f"{idle / micro_batches:.1%}".replace("%", " %"),
        f"{idle / slots:.1%}".replace("%", " %"),
    ]


def test_nine_micro_batches_for_a_boundary_are_the_least_that_waste_a_tenth():
    enough = next(m for m in range(1, 100) if Fraction(*forward_pass(4, m)) <= Fraction(1, 10))

    assert number(r"here (\d+)\. With fewer", PP) == enough


def test_interleaving_halves_the_bubble_and_lengthens_the_way():
    assert number(r"become ([\d.]+) %,", PP) == 18.75
    assert number(r"and ([\d.]+) % of the whole time\. The price", PP) == round(100 * 3 / 19, 1)
    assert number(r"in place of [^:]*: (\d+) instead of 3\.", PP) == len(range(4 * 2)) - 1


def test_a_device_in_the_middle_sends_both_ways_for_every_micro_batch():
    assert number(r"times a step: ([\d.]+) MiB", PP) == sum(16 + 16 for _ in range(8))


def test_old_versions_lost_the_layers_that_did_not_divide():
    assert f"{80 - 80 % 32} of 80 layers" in prose(PP)
    assert f"{30 - 30 % 4} of 30" in prose(PP)


def test_the_ratio_is_the_two_walks_divided():
    tensor, moved_by_tensor = walk(64, 4096, 2, meetings_of_a_layer=2)
    pipeline, moved_by_pipeline = 1, 8192

    assert f"The ratio is {tensor / pipeline:.0f} : 1, in meetings and in bytes." in prose(BOTH)
    assert number(r"its ratio in bytes is (\d+) : 1", BOTH) == moved_by_tensor / (2 * moved_by_pipeline)
    assert number(r"busiest link sees (\d+) : 1", BOTH) == 128 * ring_all_reduce(4, 8192)[0] / 8192


@pytest.mark.parametrize(("link", "bits"), [("1 Gbit/s", 1e9), ("10 Gbit/s, same latency", 1e10)])
def test_waiting_is_latency_for_each_meeting_and_bits_over_the_line(link, bits):
    tensor = 128 * 300e-6 + 2**20 * 8 / bits
    pipeline = 300e-6 + 8192 * 8 / bits

    row = next(row for row in rows(BOTH) if row[0] == link)

    assert row[1:] == [f"{tensor * 1e3:.1f} ms", f"{pipeline * 1e3:.2f} ms"]


def test_ten_times_the_bandwidth_hardly_helps_a_tensor_split():
    slow, fast = (128 * 300e-6 + 2**20 * 8 / bits for bits in (1e9, 1e10))

    assert number(r"needs (\d+) Mbit/s", BOTH) == round(20 * 2**20 * 8 / 1e6)
    assert number(r"takes (\d+) % off", BOTH) == round(100 * (slow - fast) / slow)
    assert number(r"stops short of (\d+) tokens per second", BOTH) == int(1 / fast) + 1


def test_a_slow_link_punishes_fast_devices():
    large = 141 / 273 / 2 + 160 * (300e-6 + 16384 * 8 / 1e9)
    small = 16 / 1792 / 2 + 64 * (300e-6 + 8192 * 8 / 1e9)

    assert next(row for row in rows(BOTH) if row[0].startswith("80 layers"))[-1] == f"{large * 1e3:.0f} ms"
    assert next(row for row in rows(BOTH) if row[0].startswith("32 layers"))[-1] == f"{small * 1e3:.1f} ms"
    assert number(r"slow memory becomes ([\d.]+) times as fast", BOTH) == round(141 / 273 / large, 1) > 1
    assert number(r"fast memory becomes ([\d.]+) times slower", BOTH) == round(small / (16 / 1792), 1) > 1


def test_the_wrong_placement_meets_over_the_cable_in_every_layer():
    assert number(r"each stage’s (\d+) layers", BOTH) == 32
    assert number(r"meet twice across the cable: (\d+) meetings", BOTH) == 32 * 2 + 32 * 2


def test_heads_that_are_left_over_are_counted():
    assert f"Heads are whole, and {64 - 6 * 10} and {64 - 5 * 12} would be left over." in prose(BOTH)
    assert f"40 heads by 3 leaves {40 - 39}." in prose(BOTH)
    assert f"all the weights: {546 / 141:.1f} tokens per second is the ceiling" in prose(BOTH)


# What may be typed: quantities of an example, names, and counts of things shown. Results are calculated.
TYPED = {
    TP: {
        "3090": "a graphics card", "63": "GB/s of PCIe 5 ×16, a datum", "16": "lanes; devices in a what-if",
        "100": "a graphics card", "64": "heads in a what-if", "10": "the partial sum −10",
    },
    PP: {
        "10": "ms of a stage", "14": "ms of a stage", "61": "layers of DeepSeek-V3", "80": "layers", "30": "layers",
        "16": "stages; micro-batches", "32": "micro-batches", "64": "micro-batches",
    },
    BOTH: {
        "10": "Gbit/s; times the bandwidth", "120": "layers in a scenario", "200": "Gbit/s; ms observed",
        "64": "heads", "70": "billion", "13": "billion", "40": "heads; a card", "24": "GB of a card",
        "25": "tokens/s observed",
        "30": "ms observed", "273": "GB/s", "141": "GB",
        "80": "layers", "32": "layers", "16": "GB", "1,792": "GB/s",
    },
}  # fmt: skip


@pytest.mark.parametrize("slug", SLUGS)
def test_no_result_is_typed(slug):
    text = (catalogue.CONTENT / f"{slug}.md").read_text().split("\n---\n", 1)[1]
    for hidden in (
        NUMBER,
        re.compile(r"^:::.*$", re.MULTILINE),
        re.compile(r"\]\([^)]*\)"),
        re.compile(r"`[^`]*`"),
    ):
        text = hidden.sub("", text)

    typed = set(re.findall(r"\d[\d,.]*\d|\d", text))

    assert sorted(value for value in typed - TYPED[slug].keys() if float(value.replace(",", "")) > 9) == []


# --- whole -------------------------------------------------------------------------------------------


def test_the_check_of_all_lessons_finds_nothing():
    assert [message.msg for message in run_checks(tags=["lessons"])] == []


def test_a_defect_of_a_lesson_is_a_defect_of_the_site(tmp_path, monkeypatch):
    lesson_file(tmp_path, body="## Why\n\n::: check tp-or-pp/no-such-question\n")
    monkeypatch.setattr(catalogue, "CONTENT", tmp_path)

    messages = [message.msg for message in run_checks(tags=["lessons"])]

    assert (
        "counting.md, line 18: There is no question tp-or-pp/no-such-question. Write it as pack/question."
        in messages
    )


@pytest.mark.parametrize("slug", SLUGS)
def test_a_lesson_has_every_part_that_a_lesson_has(slug):
    lesson = catalogue.lessons()[slug]
    kinds = [piece.kind for piece in lesson.body.pieces]

    assert 2 <= len(lesson.questions) <= 4
    assert kinds.count("split-map") == 1
    assert kinds.count("calculator") == 1
    assert lesson.experiments
    for note in ('class="note exam"', 'class="note practice"', 'class="worked"'):
        assert note in lesson.body.html
    assert lesson.sources
    assert lesson.next or lesson.practice


@pytest.mark.parametrize("slug", SLUGS)
def test_the_minutes_promised_are_minutes_of_reading(slug):
    words = len(prose(slug).split())

    # Explanations with formulas are read at some 110 to 180 words a minute; questions take a minute each.
    minutes = catalogue.lessons()[slug].minutes - len(catalogue.lessons()[slug].questions)
    assert words / 180 <= minutes <= words / 90


def test_every_question_is_asked_in_one_lesson_only():
    asked = [question for lesson in catalogue.lessons().values() for question in lesson.questions]

    assert len(asked) == len(set(asked))


def test_the_experiment_of_the_trap_takes_the_setting_that_the_lesson_names():
    assert experiment("tensor-training").qkv is Qkv.FUSED
    assert 'qkv = "separate"' in catalogue.lessons()[TP].body.html
    assert Qkv("separate") is Qkv.SEPARATE


@pytest.mark.parametrize("slug", SLUGS)
def test_a_reader_meets_no_straight_quotation_mark(slug):
    assert '"' not in re.sub(r"qkv = \"separate\"", "", prose(slug))
    assert "'" not in prose(slug)
