"""What a run's page shows besides the wire: levels, memory, who waited, what was followed, counters."""

import re

from django.urls import reverse

from calculators.lab.measurements import Doing, Log, Measurement, Prediction, Quantity, Series, Span, Timeline
from calculators.runs.charts import ranks_said
from calculators.runs.levels import with_nothing_expected
from calculators.runs.timeline import MOST_SPANS, Timelines
from tests.calculators.made_runs import measured_run
from tests.calculators.reading import figure, number, table, words


def page(client, run_id):
    return client.get(reverse("calculators:run", args=[run_id]))


def measured(quantity, value, *, rank=0, detail=""):
    return Measurement(quantity=quantity, rank=rank, detail=detail, value=value, steps=10)


def timeline(rank, *spans):
    return Timeline(rank=rank, spans=tuple(Span(*span) for span in spans))


def test_every_level_is_named_and_the_algorithms_bytes_have_no_meter(client, ledger):
    run_id = measured_run(ledger)

    response = page(client, run_id)

    rows = table(response, "levels")
    assert [row[0] for row in rows[1:]] == ["handed", "algorithm", "wire"]
    assert rows[2][-1] == "no meter sees it"
    assert "On the wire level: wire" in words(response)
    assert "Handed to the calls level: handed" in words(response)


def test_each_kind_of_call_has_a_line_for_ranks_that_are_alike(client, ledger):
    run_id = measured_run(ledger, ranks=4, layers=4)

    [row] = table(page(client, run_id), "kinds")[1:]

    assert row[:3] == ["all-reduce", "TP", "ranks 0 to 3"]
    assert row[3] == row[4]


def test_a_kind_of_call_that_nobody_predicted_stands_beside_zero():
    surprise = measured(Quantity.CALLS, 3, detail="dp barrier")
    expected = Prediction(quantity=Quantity.CALLS, rank=0, detail="tp all-reduce", formula=4)
    seen = measured(Quantity.CALLS, 4, detail="tp all-reduce")

    found = {c.detail: (c.predicted, c.measured) for c in with_nothing_expected([expected], [surprise, seen])}

    assert found == {"tp all-reduce": (4, 4), "dp barrier": (0, 3)}


def test_memory_is_shown_part_by_part_and_the_peak_apart(client, ledger):
    peak = [measured(Quantity.MEMORY, 300 * 2**20, rank=rank, detail="peak") for rank in range(2)]
    run_id = measured_run(ledger, phase="training", batch=2, tokens=8, events=peak)

    response = page(client, run_id)

    parts = [row[0] for row in table(response, "memory")[1:]]
    drawn = figure(response, "memory")
    assert list(dict.fromkeys(parts)) == ["weights", "gradients", "optimizer", "saved for backward"]
    assert {trace["marker"]["color"] for trace in drawn["data"] if "predicted" in trace["name"]} == {
        "rgba(0,0,0,0)"
    }
    assert {trace["marker"]["color"] for trace in drawn["data"] if "measured" in trace["name"]} == {
        "var(--tp)"
    }
    assert (
        "of the whole process, Python and torch included; nothing predicts it: ranks 0, 1: 300 MiB."
        in words(response)
    )


def test_who_waited_is_drawn_with_the_shares_beside_it(client, ledger):
    told = [
        timeline(0, (0.0, 0.003, "busy"), (0.003, 0.004, "waiting", "tp all-reduce")),
        timeline(1, (0.0, 0.001, "busy"), (0.001, 0.004, "idle", "pp receive")),
    ]
    run_id = measured_run(ledger, events=told)

    response = page(client, run_id)

    html = response.content.decode()
    assert table(response, "shares")[1:] == [
        ["rank 0", "3 ms", "75 %", "1 ms", "25 %", "0 s", "0 %"],
        ["rank 1", "1 ms", "25 %", "0 s", "0 %", "3 ms", "75 %"],
    ]
    assert "All of it is drawn: 4 ms." in words(response)
    assert all(f'class="timeline-{doing}" d="M' in html for doing in ("busy", "waiting", "idle"))


def test_of_a_long_story_only_what_can_be_told_apart_is_drawn():
    spans = [(at, at + 1, ("busy", "waiting")[at % 2]) for at in range(4 * MOST_SPANS)]
    sums = [measured(Quantity.SECONDS, 480, detail=doing) for doing in ("busy", "waiting")]

    found = Timelines.of([timeline(0, *spans)], sums)

    assert (
        found.drawn_sentence
        == "The first 240 s are drawn, of 960 s, 10 steps after the measured ones; the table is of all."
    )
    assert found.svg.count("v24") == MOST_SPANS
    assert found.table.rows[0].cells[1:3] == ("480 s", "50 %")


def test_the_meters_own_sums_count_what_was_not_kept_span_by_span():
    found = Timelines.of(
        [timeline(0, (0.0, 1.0, "busy"))], [measured(Quantity.SECONDS, 3, detail=Doing.WAITING)]
    )

    assert found.table.rows[0].cells[1:] == ("0 s", "0 %", "3 s", "100 %", "0 s", "0 %")


def test_a_number_that_ranks_followed_is_plotted_solid_with_every_value_in_a_table(client, ledger):
    followed = [Series(rank=rank, name="loss", values=(4.0, 3.0, 2.5 - rank)) for rank in range(2)]
    run_id = measured_run(ledger, events=followed)

    response = page(client, run_id)

    drawn = figure(response, "series-0")
    assert [trace["y"] for trace in drawn["data"]] == [[4.0, 3.0, 2.5], [4.0, 3.0, 1.5]]
    assert {trace["marker"]["symbol"] for trace in drawn["data"]} == {"circle", "square"}
    assert table(response, "series-0")[1] == ["rank 0", "4", "2.5", "2.5", "3", "4"]
    assert "Every value" in words(response)


def test_counters_of_the_machine_say_their_level(client, ledger):
    run_id = measured_run(
        ledger, events=[measured(Quantity.HOST, 2048, detail="host 0"), measured(Quantity.ENERGY, 12)]
    )

    rows = table(page(client, run_id), "counters")[1:]

    assert rows == [
        [
            "interface bytes sent",
            "host 0",
            "interface: packets with their headers and acknowledgements",
            "2 KiB (2,048 B)",
        ],
        ["energy", "rank 0", "energy of the whole GPU", "12 J"],
    ]


def test_what_no_meter_could_see_is_taken_from_the_log(client, ledger):
    run_id = measured_run(
        ledger,
        events=[
            Log(rank=0, text="Latency is not emulated: this kernel has no netem."),
            Log(rank=0, text="hello"),
        ],
    )

    html = page(client, run_id).content.decode()

    [seen] = re.findall(r'<dd id="unseen">.*?</dd>', html, re.DOTALL)
    assert "Latency is not emulated: this kernel has no netem." in seen
    assert "hello" not in seen


def test_ranks_of_a_host_stand_together_in_the_matrices(client, ledger):
    run_id = measured_run(ledger, ranks=4, hosts=2, layers=4)

    rows = table(page(client, run_id), "matrix-measured")

    assert [cell for cell in rows[0] if cell] == ["host 0", "host 1"]
    assert rows[2][0] == "host 0"
    assert rows[4][0] == "host 1"


def test_what_is_left_between_two_ranks_has_a_matrix_of_its_own(client, ledger):
    [event] = [Measurement(quantity=Quantity.PAIR, rank=0, peer=1, value=10.0, steps=10)]
    explained, off = measured_run(ledger), measured_run(ledger, events=[event])

    plain, left = page(client, explained), page(client, off)

    assert "Unexplained: 0 B between every two ranks." in words(plain)
    assert number(table(left, "matrix-unexplained")[1][2]) < 0


def test_ranks_are_named_in_few_words():
    assert [ranks_said(ranks) for ranks in ([0], [0, 1], [0, 1, 2, 3], [0, 2, 3])] == [
        "rank 0",
        "ranks 0, 1",
        "ranks 0 to 3",
        "ranks 0, 2, 3",
    ]


def test_a_run_that_sends_nothing_says_so_instead_of_drawing_nothing(client, ledger):
    run_id = measured_run(ledger, job="data", phase="training", gradients="kept", batch=4, tokens=8)

    response = page(client, run_id)

    assert "Nothing was to cross the wire, and nothing did." in words(response)
    assert [row[-1] for row in table(response, "wire")[1:]] == ["0", "0"]
    assert 'id="wire-figure"' not in response.content.decode()
