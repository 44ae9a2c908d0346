"""The page of one layout says what `calculators.predict` calculates of it, and of a broken one only what it breaks."""

import re
from dataclasses import replace
from html import unescape
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from django.http import QueryDict
from django.test import Client
from django.urls import reverse
from hypothesis import given, settings
from hypothesis import strategies as st

from calculators.cluster_fields import MOST_DEVICES
from calculators.pages.layout import LAYOUT
from calculators.pages.layout.families import of_a_rank
from calculators.pages.layout.form import GIB, LayoutForm
from calculators.pages.layout.heat import MOST_IN_A_PICTURE, HeatMap
from calculators.pages.layout.pairs import MOST_HOSTS
from calculators.pages.layout.runs import run_of
from calculators.pages.layout.words import MEMORY_PARTS, TIME_PARTS, describe
from calculators.predict.collectives import BACKENDS
from calculators.predict.implementations import MEGATRON
from calculators.predict.memory import serving_memory, training_memory
from calculators.predict.models.catalogue import MODELS
from calculators.predict.rules import check
from calculators.predict.shapes import Layout, Layouts, Phase, Recompute
from calculators.predict.timing import decode_step, prefill, training_step
from calculators.predict.traffic import block_matrix, composed, pair_matrix, tier_bytes
from calculators.units import both_bytes, iec_bytes, plain, seconds
from tests.calculators.reading import figure, table, words

PAGE = reverse("calculators:layout")
OPENS = Layouts(tp=8, pp=4, dp=2, sp=True, zero=1, recompute=int(Recompute.SELECTIVE))
SHAPE = MODELS["llama-3.1-70b"].shape
MIXTRAL = {"model": "mixtral-8x7b", "devices": "16", "tp": "2", "pp": "1", "ep": "8", "tokens": "4096"}
CUTS = {"tp": "16", "pp": "2"}
BROKEN = {"tp": "6", "pp": "3"}
OPEN = {"part": list(LAYOUT.parts)}
"""With everything shown that the page calculates when it is opened."""


def said(response):
    return words(response).replace("\N{NO-BREAK SPACE}", " ")


def case_of(query):
    form = LayoutForm(QueryDict("&".join(f"{name}={value}" for name, value in query.items())))
    assert form.is_valid(), form.errors
    return form.case


def rows(response, name):
    return [[cell.replace("\N{NO-BREAK SPACE}", " ") for cell in row] for row in table(response, name)]


# --- the numbers are the library's ------------------------------------------------------------------------------------


def test_the_page_opens_on_what_composed_says_of_its_layout(client):
    moved = composed(SHAPE, OPENS, phase=Phase.TRAINING, tokens=8192, batch=64)

    response = client.get(PAGE)

    found = rows(response, "axes")
    assert [row[0] for row in found[1:]] == ["TP", "PP", "DP", "All"]
    for row in found[1:-1]:
        axis = moved.axes[row[0].lower()]
        assert row[3:] == [
            plain(axis.calls.item()),
            plain(axis.rounds.item()),
            iec_bytes(axis.handed_bytes.item()),
            iec_bytes(axis.wire_bytes.item()),
        ]
    assert found[-1][5:] == [iec_bytes(moved.handed_bytes.item()), iec_bytes(moved.wire_bytes.item())]
    assert f"for each step the busiest rank sends {iec_bytes(moved.wire_bytes.item())}" in said(response)
    assert "TP 8 × PP 4 × DP 2, SP, ZeRO-1, selective recomputation, 32 micro-batches of 1" in said(response)
    assert "A replica takes tp 8 × cp 1 × pp 4 = 32 devices, so 64 devices make dp = 2." in said(response)


STATES = {
    "dense": {},
    "across hosts": CUTS,
    "zero-3": {"zero": "3", "sp": "off", "recompute": "full", "micro_batch": "2"},
    "chunks": {"vpp": "2", "cp": "2", "tp": "4"},
    "experts": MIXTRAL,
    "sliced experts": MIXTRAL | {"ep": "2", "etp": "2"},
    "latent": {"model": "deepseek-v3", "devices": "128", "ep": "16", "pp": "4", "stages": "uneven"},
    "prefill": {"phase": "prefill", "cp": "2", "pp": "2", "batch": "4"},
    "decode": {"phase": "decode", "pp": "2", "batch": "16"},
    "decode with experts": MIXTRAL | {"phase": "decode", "batch": "32"},
    "gradients in fp32": {"optimizer": "megatron-adam"},
    "a tree": {"backend": "NCCL, tree"},
    "gloo": {"backend": "gloo"},
    "a switch": {"backend": "NVLS"},
}


@pytest.mark.parametrize("query", STATES.values(), ids=STATES)
def test_axis_by_axis_the_case_has_the_composition_s_figures(query):
    case = case_of(query)

    assert not case.broken
    moved = case.composition
    assert case.sent_bytes == pytest.approx(moved.wire_bytes.item())
    assert case.handed_bytes == pytest.approx(moved.handed_bytes.item())
    assert {axis for axis, traffic in moved.axes.items() if traffic.calls > 0} == set(case.axes)
    for axis, mine in case.axes.items():
        theirs = moved.axes[axis]
        assert mine.calls == pytest.approx(theirs.calls.item())
        assert mine.rounds == pytest.approx(theirs.rounds.item())
        assert mine.sent_bytes == pytest.approx(theirs.wire_bytes.item())
        assert float(mine.handed.max()) == pytest.approx(theirs.handed_bytes.item())
        parts = [part for part in theirs.parts if part.calls > 0]
        assert [part.bytes_per_call for part in mine.parts] == pytest.approx(
            [part.bytes_per_call.item() for part in parts]
        )


@pytest.mark.parametrize("query", STATES.values(), ids=STATES)
def test_time_and_memory_are_those_of_the_planner_s_functions(client, query):
    case = case_of(query)
    layouts, cluster, sequences = case.layouts, case.cluster, -(-case.batch // case.layout.dp)
    if case.phase is Phase.TRAINING:
        program = replace(MEGATRON, gradient_bytes=case.optimizer.exchanged_gradient_bytes)
        step = training_step(
            case.shape, layouts, cluster, tokens=case.tokens, batch=case.batch, implementation=program
        )
        memory = training_memory(
            case.shape,
            layouts,
            tokens=case.tokens,
            micro_batches=case.micro_batches,
            optimizer=case.optimizer,
        )
    else:
        memory = serving_memory(case.shape, layouts, batch=sequences, context_tokens=case.tokens)
        step = (
            decode_step(case.shape, layouts, cluster, batch=sequences, context_tokens=case.tokens)
            if case.phase is Phase.DECODE
            else prefill(case.shape, layouts, cluster, tokens=case.tokens, batch=sequences)
        )

    response = client.get(PAGE, query)

    times = {row[0].lower(): row[1] for row in rows(response, "time")[1:]}
    parts = {name: getattr(step, part).item() for part, name in TIME_PARTS.items()}
    assert times == {name.lower(): seconds(value) for name, value in parts.items() if value > 0} | {
        "together": seconds(step.total.item())
    }
    held = {row[0].lower(): row[1] for row in rows(response, "memory")[1:]}
    sizes = {name: getattr(memory, part).item() for part, name in MEMORY_PARTS.items()}
    assert held == {name.lower(): both_bytes(value) for name, value in sizes.items() if value > 0} | {
        "together": both_bytes(memory.total.item())
    }


@pytest.mark.parametrize("query", STATES.values(), ids=STATES)
def test_the_links_carry_what_the_tiers_say(client, query):
    case = case_of(query)
    tiers = tier_bytes(case.composition, case.cluster)

    response = client.get(PAGE, query)

    joining = [number for number, tier in enumerate(case.cluster.tiers) if tier.devices > 1]
    found = rows(response, "tiers")
    assert found[0][1:] == [tiers.tiers[number] for number in joining]
    used = [row[0].lower() for row in found[1:-3]]
    assert set(used) == set(case.axes)
    for row in found[1:-3]:
        assert row[1:] == [iec_bytes(tiers.axes[row[0].lower()][number]) for number in joining]
    assert found[-3][1:] == [iec_bytes(tiers.total[number]) for number in joining]
    assert found[-2][1:] == [iec_bytes(tiers.total[number] / case.cluster.devices) for number in joining]
    assert sum(tiers.axes[name].sum() for name in used) == pytest.approx(tiers.total.sum())
    drawn = {trace["name"].lower(): trace["y"] for trace in figure(response, "tiers")["data"]}
    assert drawn == {name: [tiers.axes[name][number] or None for number in joining] for name in used}


def test_a_link_takes_at_least_the_bytes_over_its_speed(client):
    case = case_of({})
    each = tier_bytes(case.composition, case.cluster).total / 64

    found = rows(client.get(PAGE), "tiers")

    speeds = [tier.link.bytes_per_second for tier in case.cluster.tiers]
    assert found[-1][1:] == [seconds(a / b) for a, b in zip(each, speeds, strict=True)]


def test_a_link_inside_hosts_of_one_device_is_left_out(client):
    response = client.get(
        PAGE, {"phase": "decode", "devices": "2", "devices_per_host": "1", "tp": "2", "pp": "1", "batch": "1"}
    )

    assert rows(response, "tiers")[0][1:] == ["InfiniBand NDR, one port"]


def test_wider_gradients_take_twice_the_bytes_of_their_half(client):
    narrow, wide = case_of({}), case_of({"optimizer": "megatron-adam"})

    half = {part.share.what: part.sent.max() for part in narrow.axes["dp"].parts}
    assert {part.share.what: part.sent.max() for part in wide.axes["dp"].parts} == {
        "gradients": 2 * half["gradients"],
        "weights": half["weights"],
    }
    assert wide.seconds > narrow.seconds
    assert "gradient_bytes_per_element=4" in client.get(PAGE, {"optimizer": "megatron-adam"}).content.decode()


@pytest.mark.parametrize("name", ["", "gloo", "NVLS"])
def test_the_python_gives_the_page_s_composition(client, name):
    query = {"backend": name} if name else {}
    html = client.get(PAGE, query).content.decode()

    code = unescape(re.search(r'<code id="python-call">(.*?)</code>', html, re.DOTALL)[1])
    imports, call = code.split("\n\n")
    scope = {}
    exec(imports, scope)
    moved = eval(call, scope)

    expected = composed(
        SHAPE,
        OPENS,
        phase=Phase.TRAINING,
        tokens=8192,
        batch=64,
        backend=BACKENDS[name or "textbook"],
    )
    assert moved.wire_bytes == expected.wire_bytes
    assert f"sends {iec_bytes(moved.wire_bytes.item())}" in said(client.get(PAGE, query))


# --- from rank to rank ------------------------------------------------------------------------------------------------


def test_up_to_sixteen_ranks_every_pair_has_its_number(client):
    case = case_of(MIXTRAL)
    matrix = pair_matrix(case.composition)
    unit = 1024.0 ** int(np.log(matrix.max()) / np.log(1024))

    response = client.get(PAGE, MIXTRAL | OPEN)

    found = rows(response, "pairs")
    assert len(found) == 17
    for sender, row in enumerate(found[1:]):
        expected = [plain(float(f"{value / unit:.3g}")) for value in matrix[sender]]
        expected[sender] = "·"
        assert row[1:] == expected
    assert "<svg" not in response.content.decode().split('id="result"')[1]


def cells_drawn(response):
    """(row, column) of every cell of the picture, and the classes of each."""
    svg = re.search(r'<svg class="heat".*?</svg>', response.content.decode(), re.DOTALL)[0]
    found = {}
    for classes, path in re.findall(r'<path class="heat-cell ([^"]*)" d="([^"]*)"', svg):
        for x, y in re.findall(r"M(\d+) (\d+)h8v8h-8z", path):
            found[int(y) // 10, int(x) // 10] = classes
    return found


def test_up_to_sixty_four_ranks_are_drawn_each_pair_a_hollow_cell_of_its_axis(client):
    composition = case_of({}).composition
    by_axis = {axis: pair_matrix(composition, axis=axis) for axis in ("tp", "pp", "dp")}
    total = pair_matrix(composition)

    response = client.get(PAGE, OPEN)

    found = cells_drawn(response)
    assert set(found) == set(zip(*np.nonzero(total), strict=True))
    for pair, classes in found.items():
        leading = max(by_axis, key=lambda axis: by_axis[axis][pair])
        assert f"family-{leading}" in classes
    assert found[0, 1] == "heat-5 family-tp"  # the most there is
    assert "A line begins each host." in said(response)
    kinds = rows(response, "kinds")
    assert sum(int(row[0].replace(",", "")) for row in kinds[1:]) == np.count_nonzero(total)
    assert kinds[1] == ["64", "TP", "rank 0 to 1", iec_bytes(total[0, 1])]


def test_more_ranks_are_drawn_host_by_host_and_the_page_says_so(client):
    query = {"devices": "256", "batch": "64"}
    hosts = block_matrix(case_of(query).composition, devices=8)

    response = client.get(PAGE, query | OPEN)

    assert set(cells_drawn(response)) == set(zip(*np.nonzero(hosts), strict=True))
    assert "With 256 ranks, pairs of hosts stand for pairs of ranks" in said(response)
    assert "inside host 0" in rows(response, "kinds")[1][2]


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        (
            {"devices": "1024", "batch": "1024", "pp": "8"},
            f"More than {MOST_IN_A_PICTURE} hosts are not drawn; these are the kinds of pairs.",
        ),
        (
            {"devices": "4096", "batch": "1024"},
            f"pairs of hosts for up to {MOST_HOSTS}. Of 512 hosts the totals of each link above are all that is "
            "calculated.",
        ),
        (
            {"devices": "72", "devices_per_host": "72", "pp": "1", "batch": "72"},
            "Here all 72 share one host.",
        ),
        ({"backend": "NVLS"}, "With NVLS ranks send to the switch, which adds and copies, not to each other"),
    ],
)
def test_where_there_is_no_picture_the_page_says_why(client, query, sentence):
    response = client.get(PAGE, query | OPEN)

    assert sentence in said(response)
    assert '<svg class="heat"' not in response.content.decode()


def test_kinds_of_pairs_that_do_not_fit_are_counted():
    matrix = np.diag(2.0 ** np.arange(1, 14), k=1)

    found = HeatMap(matrices={"tp": matrix}).kinds

    assert [kind.each_bytes for kind in found] == sorted(matrix[matrix > 0], reverse=True)


def test_a_shade_holds_what_is_within_eight_times():
    row = [0.0, 800, 101, 99, 12.6, 12.4, 1e-9]

    levels = HeatMap(matrices={"tp": np.array([row] * 7)}).levels[0]

    assert levels.tolist() == [0, 5, 5, 4, 4, 3, 1]


# --- rules ------------------------------------------------------------------------------------------------------------


def test_a_broken_layout_has_its_rules_with_nearest_values_and_no_numbers(client):
    response = client.get(PAGE, BROKEN)

    for sentence in (
        "This layout breaks 5 rules, so nothing else is calculated of it.",
        "A replica takes tp 6 × cp 1 × pp 3 = 18 devices, and 64 devices do not make a whole number of those.",
        "Rule R1: tp is 6, but 6 ranks cannot share 64 attention heads equally. Nearest that work: 4 or 8.",
        "Rule R4: pp is 3, but 80 layers do not make 3 stages of equal depth. Nearest that work: 2 or 4.",
        "Rule R13: devices is 64, but replicas of tp × cp × pp = 18 devices do not share them equally.",
        "Checked by Megatron-LM",
    ):
        assert sentence in said(response)
    html = response.content.decode().split('id="result"')[1]
    assert "data-chart" not in html
    assert "<table" not in html
    assert "Run it for real" not in html


def test_a_rule_s_nearest_values_lead_to_a_layout_that_keeps_it(client):
    response = client.get(PAGE, BROKEN)

    links = re.findall(
        r'<p class="instead no-print">Take <a href="([^"]*)">(.*?)</a>', response.content.decode()
    )
    assert links[0][1] == "tp 4"
    instead = client.get(PAGE + unescape(links[0][0]))
    assert "Rule R1:" not in said(instead)
    assert "Rule R4:" in said(instead)


def test_the_python_of_a_broken_layout_gives_its_rules(client):
    answer = client.get(PAGE, BROKEN).context["answer"]

    imports, call = answer.python.split("\n\n")
    scope = {}
    exec(imports, scope)

    assert [found.rule for found in eval(call, scope)][:3] == [each.violation.rule for each in answer.broken][
        :3
    ]


def test_advice_and_notes_are_said_beside_the_numbers(client):
    response = client.get(PAGE, CUTS)

    assert "Rule R17, advice: tp is 16, but such a group reaches beyond a host of 8" in said(response)
    assert "Rule R18: tp is 16, but 128,256 words do not share out in blocks of 128" in said(response)
    assert "16 ranks between hosts" in said(response)


def test_sequence_parallelism_can_be_switched_off_where_it_breaks_a_rule(client):
    response = client.get(PAGE, {"tp": "1", "pp": "8"})

    assert "Rule R7: sp is on, but without tensor parallelism there is no group" in said(response)
    html = response.content.decode()
    assert re.search(r'<a href="[^"]*sp=off[^"]*">sp off</a>', html)


# --- sentences --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        (
            {"devices": "1", "tp": "1", "pp": "1", "sp": "off", "model": "llama-3.1-8b", "batch": "1"},
            "one device has all of it, so nothing travels.",
        ),
        ({"devices": "1", "tp": "1", "pp": "1", "sp": "off", "batch": "1"}, "the device holds"),
        ({"phase": "decode", "batch": "1", "pp": "1", "devices": "8"}, "so the sequence gets"),
        ({"phase": "decode", "batch": "64"}, "so each sequence gets"),
        ({"phase": "decode", "batch": "64"}, "tokens a second, and all 64 together"),
        ({"phase": "prefill", "batch": "2"}, "Reading the prompts takes"),
        ({"pp": "1", "zero": "0"}, "It does not fit:"),
        (
            {"pp": "1", "zero": "0"},
            "that H100 SXM has beside the reserve. What follows is what it would do if it did.",
        ),
        ({"reserve": "500"}, "is more than the 0 B that H100 SXM has beside the reserve."),
        ({}, "All 4 stages are equally busy."),
        (
            {"devices": "8", "pp": "1", "batch": "8"},
            "There is one stage, so every rank has the same calls to make.",
        ),
        ({"model": "llama-3.1-8b", "tp": "1", "sp": "off", "batch": "64"}, "Stages differ: ranks of stage"),
        (
            {"phase": "decode"},
            "one token cannot be cut as sequence parallelism does: what the form says of them",
        ),
        ({"phase": "prefill"}, "optimizers belong to training: what the form says of them is not read."),
        (
            {"phase": "prefill"},
            "A prompt that is read in one piece needs more activations than are counted here.",
        ),
        (
            MIXTRAL | {"phase": "decode", "batch": "32"},
            "TP makes calls here that no family alone has, so no single formula gives them",
        ),
        (
            MIXTRAL | {"phase": "decode", "ep": "2", "etp": "2", "batch": "32"},
            "TP and ETP make calls here that no family alone has",
        ),
        ({"tp": "0"}, "Tensor, tp is 0, but the least that works is 1."),
        ({"pp": "x"}, "Pipeline, pp is “x”, but it must be a whole number from 1 to 1,024."),
        ({"devices": "65"}, "Devices is 65, but hosts of 8 cannot hold as many in equal numbers."),
        ({"reserve": "-1"}, "Reserved, GiB is -1, but this page takes 0 to 1000."),
        ({"backend": "mpi"}, "Carried out as is “mpi”, but it must be one of “textbook”, “gloo”"),
    ],
)
def test_the_page_says(client, query, sentence):
    assert sentence in said(client.get(PAGE, query | OPEN))


def test_what_training_alone_has_is_not_read_in_decode():
    query = {"phase": "decode", "pp": "2", "batch": "8"}
    training = {"sp": "on", "zero": "3", "vpp": "2", "micro_batch": "4", "recompute": "full"}

    assert case_of(query).says == case_of(query | training).says == "TP 8 × PP 2 × DP 4"
    assert case_of(query).seconds == case_of(query | training).seconds


def test_a_layout_is_described_by_what_is_split_and_switched_on():
    nothing = dict.fromkeys(("dp", "tp", "cp", "pp", "ep", "etp", "vpp", "micro_batch", "micro_batches"), 1)
    plain_one = nothing | dict.fromkeys(("sp", "zero", "recompute"), 0)

    assert describe(plain_one) == "one device"
    assert describe(plain_one | {"micro_batch": 4}) == "one device, 1 micro-batch of 4"
    assert describe(plain_one | {"ep": 8, "dp": 8, "zero": 3, "recompute": 2, "vpp": 4, "pp": 2}) == (
        "PP 2 × EP 8 × DP 8, 4 chunks a stage, ZeRO-3, full recomputation"
    )


# --- ways on ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", [{}, {"phase": "decode", "batch": "16"}, MIXTRAL, {"recompute": "full"}])
def test_the_memory_page_says_the_same_of_this_layout(client, query):
    response = client.get(PAGE, query)

    there = client.get(response.context["answer"].memory_address)

    assert iec_bytes(case_of(query).memory_bytes) in said(there)
    assert "Nothing is calculated yet" not in said(there)
    assert not there.context["form"].unknown


def test_the_planner_is_asked_about_the_same_cluster(client):
    address = client.get(PAGE, {"devices": "8", "pp": "1", "batch": "8"}).context["answer"].planner_address

    there = parse_qs(urlsplit(address).query)
    assert there["devices"] == ["8"]
    assert there["model"] == ["llama-3.1-70b"]
    assert client.get(PAGE, {"phase": "prefill"}).context["answer"].planner_address == ""


@pytest.mark.parametrize("query", STATES.values(), ids=STATES)
def test_a_family_s_formula_gives_the_bytes_of_its_axis(query):
    case = case_of(query)

    for axis, moved in case.axes.items():
        found = of_a_rank(case, axis)
        if found is not None:
            assert found.wire_bytes.item() == pytest.approx(moved.sent_bytes)
    assert any(of_a_rank(case, axis) for axis in case.axes)


def test_every_family_of_a_usual_training_explains_itself():
    query = {
        "model": "deepseek-v3",
        "devices": "128",
        "tp": "2",
        "cp": "2",
        "ep": "8",
        "pp": "4",
        "stages": "uneven",
    }
    case = case_of(query)

    assert set(case.axes) == {"tp", "cp", "pp", "ep", "dp", "edp"}
    assert all(of_a_rank(case, axis).formulas for axis in case.axes)


def test_the_formula_has_the_numbers_in_it(client):
    html = client.get(PAGE, OPEN).content.decode()

    assert r"6 \cdot 20 \cdot 32 + 4 \cdot 20 \cdot 32 = 6{,}400" in html
    assert r"2 \cdot 32 \cdot (4-1) = 192" in html


def test_every_axis_that_the_lab_can_make_calls_of_can_be_run(client):
    query = MIXTRAL | {"devices": "32", "pp": "2", "ep": "4", "cp": "2", "batch": "64", "zero": "3"}
    response = client.get(PAGE, query)

    runs = response.context["answer"].runs
    specs = [parse_qs(urlsplit(run.address).query) for run in runs]
    assert [run.label.removeprefix("Run it for real: ") for run in runs] == [
        "TP",
        "CP",
        "PP",
        "EP",
        "DP",
        "EDP",
    ]
    assert [spec["job"][0] for spec in specs] == ["tensor", "exchange", "pipeline", *["exchange"] * 3]
    assert [spec.get("pattern", ["gradients"])[0] for spec in specs][1::2] == ["ring", "experts", "zero-3"]
    assert all(spec["back"][0].startswith(PAGE) for spec in specs)
    assert "sequence parallelism makes a gather and a scatter of each" in " ".join(runs[0].differences)
    for run in runs:
        started = client.get(run.address)
        assert started.status_code == 200
        assert "problem" not in started.context


def test_a_run_of_replicas_repeats_what_one_stage_does():
    case = case_of({"devices": "128", "batch": "128"})

    trial = run_of(case, "dp")

    assert trial.spec.repeats == 1
    assert "4 ranks" in trial.kept


def test_the_state_is_the_address_and_htmx_gets_the_result_alone(client):
    response = client.get(
        PAGE, {"tp": "4", "sp": "off"}, headers={"HX-Request": "true", "HX-Target": "result"}
    )

    assert response.headers["HX-Replace-Url"].endswith("?tp=4&sp=off")
    assert b"<html" not in response.content


def test_rules_are_asked_as_the_planner_asks_them():
    case = case_of({"stages": "uneven", "pp": "6", "tp": "8", "devices": "48", "batch": "48"})

    assert not case.broken
    assert [found.rule for found in replace(case, uneven_stages=False).broken] == ["R4"]
    assert check(case.shape, Layout(tp=8, pp=6, sp=True, zero=1), uneven_stages=True) == ()


# --- no address breaks it ---------------------------------------------------------------------------------------------

SIZES = st.integers(0, 40).map(str) | st.sampled_from(
    ["64", "1024", "99999999999", "-1", "1.5", "nan", "", "x"]
)
FIELDS = {
    "model": st.sampled_from([*MODELS, "own", "junk", ""]),
    "phase": st.sampled_from(["training", "decode", "prefill", "x"]),
    "tp": SIZES,
    "pp": SIZES,
    "cp": SIZES,
    "ep": SIZES,
    "etp": SIZES,
    "vpp": SIZES,
    "sp": st.sampled_from(["on", "off", "1"]),
    "zero": st.sampled_from(["0", "1", "2", "3", "4"]),
    "micro_batch": SIZES,
    "recompute": st.sampled_from(["none", "selective", "full", "all"]),
    "tokens": st.sampled_from(["1", "7", "4096", "131072", "10000000", "0"]),
    "batch": st.sampled_from(["1", "3", "64", "1000000", "0"]),
    "devices": st.sampled_from(["1", "2", "8", "24", "64", "128", "1024", str(MOST_DEVICES), "12345", "0"]),
    "devices_per_host": st.sampled_from(["1", "2", "3", "8", "72", "1024"]),
    "stages": st.sampled_from(["equal", "uneven", "x"]),
    "backend": st.sampled_from([*BACKENDS, "mpi"]),
    "reserve": st.sampled_from(["0", "4", "1000", "1e9", "x"]),
    "optimizer": st.sampled_from(["mixed-adam", "junk"]),
    "junk": st.text(max_size=5),
}


def check_answer(response, query):
    assert response.status_code == 200
    answer = response.context["answer"]
    text = said(response)
    if answer is None:
        assert "Nothing is calculated yet" in text
        return
    assert bool(answer.broken) != bool(answer.charts), query
    result = text.split("The same in Python")[0]
    assert "nan" not in result.lower().split()
    assert "∞" not in result


@settings(max_examples=80, deadline=None)
@given(query=st.fixed_dictionaries({}, optional=FIELDS))
def test_no_address_breaks_the_page(query):
    check_answer(Client().get(PAGE, query | OPEN), query)


LEGAL = st.fixed_dictionaries(
    {
        "model": st.sampled_from(
            ["llama-3.1-70b", "mixtral-8x7b", "deepseek-v3", "gemma-3-27b", "gpt-oss-20b"]
        ),
        "phase": st.sampled_from(["training", "decode", "prefill"]),
        "tp": st.sampled_from(["1", "2", "4"]),
        "pp": st.sampled_from(["1", "2", "4"]),
        "cp": st.sampled_from(["1", "2"]),
        "ep": st.sampled_from(["1", "2", "4"]),
        "etp": st.sampled_from(["1", "2"]),
        "sp": st.sampled_from(["on", "off"]),
        "zero": st.sampled_from(["0", "1", "3"]),
        "recompute": st.sampled_from(["none", "full"]),
        "devices": st.sampled_from(["16", "32", "64", "512"]),
        "devices_per_host": st.sampled_from(["4", "8"]),
        "batch": st.sampled_from(["512", "1024"]),
        "stages": st.just("uneven"),
        "backend": st.sampled_from(list(BACKENDS)),
    }
)


@settings(max_examples=60, deadline=None)
@given(query=LEGAL)
def test_layouts_that_may_be_legal_do_not_break_it_either(query):
    response = Client().get(PAGE, query | OPEN)

    check_answer(response, query)
    answer = response.context["answer"]
    if answer and not answer.broken and answer.pairs and answer.pairs.svg:
        assert len(cells_drawn(response)) > 0


@pytest.mark.parametrize("preset", LAYOUT.presets, ids=lambda preset: preset.label)
def test_every_preset_fits_or_is_the_one_that_cannot_be(client, preset):
    answer = client.get(LAYOUT.at(preset.query)).context["answer"]

    if preset.label == "A layout that cannot be":
        assert answer.broken
    else:
        assert answer.case.fits, (preset.label, answer.case.memory_bytes / GIB)
