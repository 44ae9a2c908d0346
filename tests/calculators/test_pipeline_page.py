"""The pipeline page says what `calculators.predict.schedules` plays, and draws it."""

import re
from xml.etree import ElementTree

import pytest
from django.urls import reverse

from calculators.lab.spec import Schedule as LabSchedule
from calculators.pages.pipeline.case import MOST_OPERATIONS
from calculators.pages.pipeline.gantt import Gantt
from calculators.predict import schedules
from calculators.predict.schedules import SCHEDULES, Schedule, timetable
from calculators.units import seconds
from tests.calculators.reading import figure, table, words

PAGE = reverse("calculators:pipeline")
SVG = "{http://www.w3.org/2000/svg}"


def said(response):
    """The words of the page with plain spaces: a share never breaks before its sign."""
    return words(response).replace("\N{NO-BREAK SPACE}", " ")


def cells(response, name):
    return [[cell.replace("\N{NO-BREAK SPACE}", " ") for cell in row] for row in table(response, name)]


def sizes_for(schedule, stages):
    """Sizes that the schedule runs as published."""
    return {"schedule": schedule.value, "stages": stages, "micro_batches": 3 * stages + stages % 2}


def boxes(svg, kind):
    """(x, y, width, height) of every box of one kind."""
    path = ElementTree.fromstring(svg).find(f"{SVG}path[@class='gantt-{kind}']")
    if path is None:
        return []
    return [tuple(map(float, box)) for box in re.findall(r"M(\S+) (\S+)h(\S+)v(\S+?)[hH]", path.get("d"))]


def test_the_page_opens_on_the_lessons_pipeline_and_says_both_conventions(client):
    response = client.get(PAGE)

    assert "In a step of 330 ms each stage works 240 ms and waits 90 ms" in said(response)
    assert "37.5 % of the useful time, 27.27 % of the whole." in said(response)
    assert cells(response, "numbers")[1:6] == [
        ["Time of a step", "330 ms", "330 ms"],
        ["Bubble: time that a stage waits", "90 ms", "90 ms"],
        ["Idle over useful", "37.5 %", "37.5 %"],
        ["Idle share of the whole", "27.27 %", "27.27 %"],
        ["Fullest stage holds, micro-batches", "4", "4"],
    ]
    assert cells(response, "stages")[1:] == [
        [str(stage), "240 ms", "90 ms", str(4 - stage)] for stage in range(4)
    ]
    assert "Formula and timetable agree." in said(response)


@pytest.mark.parametrize("schedule", list(Schedule))
def test_every_schedule_has_its_numbers_its_picture_and_its_table(client, schedule):
    sizes = sizes_for(schedule, 4)
    times = {"forward": 12, "backward_input": 12, "backward_weight": 6}
    played = timetable(**sizes, **{name: time / 1000 for name, time in times.items()})

    response = client.get(PAGE, {**sizes, **times})

    numbers = {row[0]: row[1:] for row in cells(response, "numbers")}
    assert numbers["Time of a step"][1] == seconds(played.period)
    assert numbers["Bubble: time that a stage waits"][1] == seconds(round(played.bubble_seconds, 12))
    assert len(cells(response, "stages")) == 5
    assert "<svg" in response.content.decode()
    assert SCHEDULES[schedule].idea in said(response)
    chosen = re.findall(r'<tr class="chosen"><th scope="row">(.*?)</th>', response.content.decode())
    name = "Interleaved ×2" if schedule is Schedule.INTERLEAVED else SCHEDULES[schedule].name
    assert chosen == [name]


def test_the_chart_and_its_table_say_the_same_and_the_chosen_schedule_has_the_colour(client):
    response = client.get(PAGE, {"schedule": "zb-h1", "stages": "4", "micro_batches": "8"})

    drawn = figure(response, "schedules")
    (chosen,) = [trace for trace in drawn["data"] if trace["line"]["color"] == "var(--pp)"]
    assert chosen["name"] == "ZB-H1"
    assert chosen["x"] == [4, 8, 16, 32, 64, 128, 256]
    assert chosen["y"] == [round(3 / (3 * m + 3), 6) for m in chosen["x"]]
    assert {trace["marker"]["symbol"] for trace in drawn["data"]} >= {"circle-open", "star-open"}
    assert all(trace["marker"]["symbol"].endswith("-open") for trace in drawn["data"])
    row = next(row for row in cells(response, "shares") if row[0] == "ZB-H1")
    assert row[2] == "11.11 %"
    assert chosen["text"][1].replace("\N{NO-BREAK SPACE}", " ") == "11.11 %"


def test_curves_that_are_the_same_share_a_line_and_impossible_sizes_have_no_mark(client):
    drawn = figure(client.get(PAGE), "schedules")

    names = [trace["name"] for trace in drawn["data"]]
    assert "GPipe, 1F1B" in names
    assert "Naive" not in names  # its flat line would press the others to the ground
    assert "ZB-H2, ZB-V" in names
    dualpipe = next(trace for trace in drawn["data"] if trace["name"] == "DualPipe")
    assert dualpipe["y"][0] is None


def test_the_formula_is_shown_in_letters_and_in_numbers(client):
    html = client.get(PAGE, {"schedule": "interleaved", "part": "formulas"}).content.decode()

    assert html.count("<math") >= 8
    assert r"\frac{p-1}{v\,m+p-1}" in html
    assert r"(4-1) \cdot \frac{10+10+10}{2} = 45" in html


def test_too_few_micro_batches_are_said_in_a_sentence_and_still_shown(client):
    # pytorch/torchtitan issue 775, the 17th situation of the facts
    response = client.get(PAGE, {"stages": "8", "micro_batches": "4"})

    assert "1F1B has 4 micro-batches for 8 stages, so the pipeline is never full" in said(response)
    assert "<svg" in response.content.decode()


def test_a_schedule_that_cannot_be_is_refused_with_what_would_work(client):
    response = client.get(PAGE, {"schedule": "interleaved", "stages": "4", "micro_batches": "6"})

    assert "Nothing is calculated yet" in said(response)
    assert "Nearest that work: 4 or 8." in said(response)


def test_no_work_at_all_is_refused(client):
    response = client.get(PAGE, {"forward": "0", "backward_input": "0", "backward_weight": "0"})

    assert "Forward, input gradient and weight gradient are all 0, so there is no work to plan." in said(
        response
    )


def test_a_slower_last_stage_is_played_and_the_page_says_that_the_formula_does_not_hold(client):
    response = client.get(PAGE, {"last_stage": "1.4", "micro_batches": "16"})

    played = timetable("1f1b", stages=4, micro_batches=16, forward=[0.01] * 3 + [0.014],
                       backward_input=[0.01] * 3 + [0.014], backward_weight=[0.01] * 3 + [0.014])  # fmt: skip
    assert cells(response, "numbers")[1][2] == seconds(played.period)
    assert "every micro-batch passes the slowest stage, and the others wait for it" in said(response)
    assert "each stage on average works" in said(response)


def test_messages_without_a_formula_are_played(client):
    response = client.get(PAGE, {"schedule": "zb-h1", "send": "2"})

    assert cells(response, "numbers")[1][1] == "no formula"
    assert "No formula is known for ZB-H1 when messages take time: what is played is the answer." in said(
        response
    )


def test_a_formula_beyond_its_condition_is_told_apart_from_what_is_played(client):
    response = client.get(PAGE, {"schedule": "zb-h1", "backward_weight": "13", "micro_batches": "16"})

    assert cells(response, "numbers")[2][1:] == ["21 ms", "30 ms"]
    assert "The timetable differs" in said(response)


def test_a_zero_bubble_says_what_it_assumes(client):
    response = client.get(PAGE, {"schedule": "zb-h2"})

    assert "waits 0 s" in said(response)
    assert "From first to last it takes 270 ms, but no stage spends more than 240 ms on a step" in said(
        response
    )


def test_a_large_step_is_drawn_in_part_and_a_huge_one_not_at_all_and_both_say_so(client):
    large = client.get(PAGE, {"stages": "16", "micro_batches": "64"})
    huge = client.get(PAGE, {"stages": "64", "micro_batches": "256"})

    assert f"Drawn with {MOST_OPERATIONS // 32} of the 64 micro-batches" in said(large)
    assert cells(large, "numbers")[1][1] == seconds((64 + 15) * 0.03)
    assert "played and drawn for up to 16 stages and 1,600 operations" in said(huge)
    assert "<svg" not in huge.content.decode().split('id="result"')[1]
    assert cells(huge, "numbers")[1] == ["Time of a step", seconds((256 + 63) * 0.03)]


def test_what_neither_formula_nor_picture_can_tell_is_said(client):
    response = client.get(PAGE, {"schedule": "zb-h1", "stages": "64", "micro_batches": "256", "send": "2"})

    assert "No formula is known for this case, and the step is too large to be played here." in said(response)
    assert cells(response, "numbers")[1] == ["Time of a step", "no formula"]


def test_one_stage_waits_for_nobody(client):
    response = client.get(PAGE, {"stages": "1"})

    assert "One stage has nobody to wait for: it works all 240 ms of a step." in said(response)
    assert "Run it for real" not in said(response)


@pytest.mark.parametrize(
    ("schedule", "taken", "said_of_it"),
    [
        ("gpipe", LabSchedule.GPIPE, None),
        ("1f1b", LabSchedule.ONE_F_ONE_B, None),
        ("zb-h1", LabSchedule.ONE_F_ONE_B, "It follows 1F1B instead of ZB-H1: the lab runs those two."),
        ("naive", LabSchedule.GPIPE, "It follows GPipe instead of Naive: the lab runs those two."),
    ],
)
def test_the_run_follows_the_schedule_or_says_that_it_does_not(client, schedule, taken, said_of_it):
    response = client.get(PAGE, {"schedule": schedule})

    (run,) = response.context["answer"].runs
    assert ("schedule=gpipe" in run.address) == (taken is LabSchedule.GPIPE)
    assert "phase=training" in run.address
    assert "not yet who works when" in run.differences[-1]
    assert said_of_it is None or said_of_it in run.differences


def test_the_run_that_is_offered_can_start(client, db):
    (run,) = client.get(PAGE, {"stages": "4", "micro_batches": "8"}).context["answer"].runs

    spec = client.get(run.address).context["forecast"].spec

    assert (spec.ranks, spec.microbatches, spec.schedule) == (4, 8, LabSchedule.ONE_F_ONE_B)


def test_the_address_brings_the_same_page_back(client):
    first = client.get(
        PAGE, {"schedule": "zb-h2", "forward": "7.5", "send": "0", "stages": "6", "micro_batches": "12"}
    )

    address = first["HX-Replace-Url"]

    assert address == f"{PAGE}?schedule=zb-h2&stages=6&micro_batches=12&forward=7.5"
    assert table(client.get(address), "numbers") == table(first, "numbers")


def test_a_chunk_of_another_schedule_stays_in_the_address_and_is_left_out(client):
    response = client.get(PAGE, {"schedule": "gpipe", "chunks": "4"})

    assert "waits 90 ms" in said(response)
    assert response["HX-Replace-Url"] == f"{PAGE}?schedule=gpipe&chunks=4"


def test_the_page_asks_the_database_for_nothing(client, django_assert_num_queries, db):
    with django_assert_num_queries(0):
        client.get(PAGE)


# The picture.


@pytest.mark.parametrize("schedule", list(Schedule))
def test_the_picture_has_a_box_for_every_operation_in_its_row_and_none_overlap(schedule):
    played = timetable(**sizes_for(schedule, 4))
    svg = Gantt(timetable=played).svg

    drawn = [(kind, *box) for kind in ("f", "b", "w") for box in boxes(svg, kind)]

    assert len(drawn) == sum(len(row) for row in played.rows)
    for stage in range(4):
        row = sorted(
            (x, y, width, height) for _, x, y, width, height in drawn if stage * 30 <= y < stage * 30 + 30
        )
        assert len(row) == len(played.rows[stage])
        covered = sum(width * height / 24 for _, _, width, height in row)
        shown = float(svg.split('width="')[1].split('"')[0]) - 2
        assert covered / shown == pytest.approx(played.busy[stage] / played.makespan, abs=0.02)
        ends = {}
        for x, y, width, height in row:
            for half in range(int(y - stage * 30 - 3) // 12, int(y - stage * 30 - 3 + height) // 12):
                assert x >= ends.get(half, 0)
                ends[half] = x + width


def test_every_label_names_the_work_and_the_micro_batch_and_fits_its_box():
    svg = Gantt(timetable=timetable("zb-h1", stages=3, micro_batches=12)).svg

    labels = [text.text for text in ElementTree.fromstring(svg).find(f"{SVG}g[@class='gantt-label']")]
    narrowest = min(width for kind in "fbw" for _, _, width, _ in boxes(svg, kind))

    assert sorted(labels) == sorted(f"{work}{k}" for work in "FBW" for k in range(1, 13) for _ in range(3))
    assert narrowest >= 3 * 7.6


def test_the_picture_is_told_in_words_and_in_the_order_of_work():
    gantt = Gantt(timetable=timetable("1f1b", stages=2, micro_batches=3, forward=0.01))

    assert gantt.orders == ("F1 F2 B1 F3 B2 B3", "F1 B1 F2 B2 F3 B3")
    assert gantt.title == "1F1B: 3 micro-batches in 2 stages"
    assert gantt.sentences[0] == "Stage 0 works 6.03 s between 0 s and 8.04 s, and waits 25 % of a step."
    root = ElementTree.fromstring(gantt.svg)
    assert root.find(f"{SVG}title").text == gantt.title
    assert gantt.sentences[1] in root.find(f"{SVG}desc").text


def test_the_legend_names_only_what_is_drawn():
    whole = Gantt(timetable=timetable("gpipe", stages=2, micro_batches=3))
    divided = Gantt(timetable=timetable("zb-h1", stages=2, micro_batches=3))

    assert [key.says for key in whole.keys] == ["F forward", "B backward: both gradients", "idle"]
    assert [key.says for key in divided.keys] == [
        "F forward",
        "B backward: the gradient of the stage’s input",
        "W the gradient of its weights",
        "idle",
    ]


def test_a_very_long_step_stays_a_picture_that_a_browser_can_show():
    svg = Gantt(timetable=timetable("naive", stages=16, micro_batches=50)).svg

    assert float(svg.split('width="')[1].split('"')[0]) <= 9_100
    assert len(svg) < 60_000


def test_an_operation_that_takes_no_time_takes_no_room():
    played = timetable("zb-h1", stages=2, micro_batches=4, backward_weight=0)

    assert {width for _, _, width, _ in boxes(Gantt(timetable=played).svg, "w")} == {0}


def test_every_schedule_of_the_library_can_be_chosen(client):
    html = client.get(PAGE).content.decode()

    for schedule in schedules.Schedule:
        assert f'<option value="{schedule.value}"' in html
