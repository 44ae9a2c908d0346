"""The page *One layout*: the rules it keeps, what it moves and where, what a step waits for, what a device holds."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from calculators.cluster_fields import MOST_DEVICES, ClusterForm
from calculators.fields import Choice, Decimal, ModelField, WholeNumber, phase_field
from calculators.figures import Figure, axis, figure, log_byte_ticks, predicted_bar
from calculators.heat import MOST_IN_A_PICTURE, MOST_IN_A_TABLE, HeatMap
from calculators.layout_families import of_a_rank, run_of
from calculators.layouts import (
    AXIS_FAMILIES,
    AXIS_NAMES,
    MEMORY_PAINT,
    MEMORY_PARTS,
    TIME_PAINT,
    TIME_PARTS,
    LayoutCase,
)
from calculators.predict import placement
from calculators.predict.clusters import Tier
from calculators.predict.collectives import BACKENDS, transfer_seconds
from calculators.predict.memory import OPTIMIZERS
from calculators.predict.rules import Violation, check
from calculators.predict.shapes import Layout, Phase, Recompute
from calculators.predict.traffic import Traffic, block_matrices, composed, tier_bytes
from calculators.python_calls import python_call
from calculators.units import both_bytes, counted, iec_bytes, plain, seconds, whole_percent
from calculators.workbench import (
    Answer,
    Calculator,
    Change,
    Chart,
    LessonLink,
    Preset,
    Row,
    RunIt,
    ShownFormula,
    Table,
    run_it,
    shown,
)

GIB = 2**30
MOST_HOSTS = 128
"""Between more hosts than this only the totals of each link are calculated: the page is to answer at once."""
MOST_KINDS = 10
_RECOMPUTE = {mode.name.lower(): mode for mode in Recompute}


class LayoutForm(ClusterForm):
    """A model, a cluster, how the one is laid out on the other, and what is to be done."""

    DEFAULTS = ClusterForm.CLUSTER | {
        "model": "llama-3.1-70b",
        "phase": "training",
        "tp": "8",
        "cp": "1",
        "pp": "4",
        "ep": "1",
        "etp": "1",
        "sp": "on",
        "zero": "1",
        "vpp": "1",
        "micro_batch": "1",
        "recompute": "selective",
        "tokens": "8192",
        "batch": "64",
        "optimizer": "mixed-adam",
        "reserve": "4",
        "stages": "equal",
        "backend": "textbook",
    }

    model = ModelField()
    phase = phase_field()
    tp = WholeNumber(label="Tensor, tp", low=1, high=1_024)
    cp = WholeNumber(label="Context, cp", low=1, high=MOST_DEVICES)
    pp = WholeNumber(label="Pipeline, pp", low=1, high=1_024)
    ep = WholeNumber(label="Expert, ep", low=1, high=1_024)
    etp = WholeNumber(label="Inside experts, etp", low=1, high=1_024)
    vpp = WholeNumber(label="Chunks a stage, vpp", low=1, high=64)
    sp = Choice(label="Sequence parallelism", choices=[("off", "off"), ("on", "on, within tp")])
    zero = Choice(
        label="Replicas share out",
        choices=[
            ("0", "nothing"),
            ("1", "optimizer’s state (ZeRO-1)"),
            ("2", "and gradients (ZeRO-2)"),
            ("3", "and weights (ZeRO-3, FSDP)"),
        ],
    )
    micro_batch = WholeNumber(label="Micro-batch", low=1, high=100_000, help_text="sequences at a time")
    recompute = Choice(
        label="Recompute",
        choices=[
            ("none", "nothing: keep all"),
            ("selective", "attention scores, as flash attention does"),
            ("full", "all but each layer’s input"),
        ],
    )
    tokens = WholeNumber(
        label="Tokens", low=1, high=10_000_000, help_text="in a sequence; in decode, its context"
    )
    batch = WholeNumber(label="Sequences", low=1, high=1_000_000, help_text="at once, over all devices")
    optimizer = Choice(label="Optimizer", choices=[(key, found.name) for key, found in OPTIMIZERS.items()])
    reserve = Decimal(
        label="Reserved, GiB", low=0, high=1_000, help_text="of each device, for what is not counted"
    )
    stages = Choice(label="Stages", choices=[("equal", "equally deep"), ("uneven", "may differ by a layer")])
    backend = Choice(label="Carried out as", choices=[(name, name) for name in BACKENDS])

    @property
    def case(self) -> LayoutCase:
        """What is to be calculated; what the phase does not have is left out."""
        values = self.cleaned_data
        phase = Phase(values["phase"])
        training = phase is Phase.TRAINING
        axes = {name: values[name] for name in ("tp", "cp", "pp", "ep", "etp")}
        cluster = self.cluster
        replica = values["tp"] * values["cp"] * values["pp"]
        return LayoutCase(
            shape=values["model"],
            cluster=cluster,
            layout=Layout(
                **axes,
                dp=max(1, cluster.devices // replica),
                sp=values["sp"] == "on" and phase is not Phase.DECODE,
                vpp=values["vpp"] if training else 1,
                zero=int(values["zero"]) if training else 0,
            ),
            phase=phase,
            tokens=values["tokens"],
            batch=values["batch"],
            micro_batch=values["micro_batch"] if training else 1,
            recompute=_RECOMPUTE[values["recompute"]] if training else Recompute.NONE,
            optimizer=OPTIMIZERS[values["optimizer"]],
            reserve=values["reserve"] * GIB,
            uneven_stages=values["stages"] == "uneven",
            backend=BACKENDS[values["backend"]],
        )


def address_of(state: Mapping[str, str]) -> str:
    """The address of this page in a state, said by its fields; what it leaves out has its default."""
    said = {
        name: state[name]
        for name in LayoutForm.base_fields
        if name in state and state[name] != LayoutForm.DEFAULTS[name]
    }
    return LAYOUT.at(urlencode(said))


@dataclass(frozen=True, kw_only=True)
class Broken:
    """A rule that the layout breaks, and the states of this page that keep it."""

    violation: Violation
    instead: tuple[Change, ...]


@dataclass(frozen=True, kw_only=True)
class AxisFormulas:
    """What explains one axis."""

    family: str
    name: str
    formulas: tuple[ShownFormula, ...]


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Who sends to whom: a table of numbers, or a picture and the kinds of pairs; else only why not."""

    says: str
    table: SafeString | str = ""
    svg: SafeString | str = ""
    keys: tuple[tuple[str, str], ...] = ()
    kinds: Table | None = None


@dataclass(frozen=True, kw_only=True)
class LayoutPage(Answer):
    """What the page says of one layout; of one that breaks a rule, the rules alone."""

    case: LayoutCase
    follows: str
    broken: tuple[Broken, ...]
    remarks: tuple[Violation, ...]
    headline: SafeString | str = ""
    misfit: str = ""
    left_out: str = ""
    axes: Table | None = None
    calls: Table | None = None
    busiest: str = ""
    pairs: Pairs | None = None
    explained: tuple[AxisFormulas, ...] = ()
    unexplained: str = ""
    memory_address: str = ""
    planner_address: str = ""

    @property
    def moves_anything(self) -> bool:
        return self.axes is not None


def _answer(form: LayoutForm) -> LayoutPage:
    case = form.case
    common = {
        "case": case,
        "follows": _follows(case),
        "broken": tuple(Broken(violation=each, instead=_instead(form, each)) for each in case.broken),
        "remarks": case.remarks,
        "left_out": _left_out(case),
    }
    if case.broken:
        return LayoutPage(**common, python=_rules_in_python(case))
    times, memory = _time(case), _memory(case)
    ends = {
        "headline": _headline(case),
        "misfit": _misfit(case),
        "memory_address": _memory_address(form, case),
        "planner_address": _planner_address(form, case),
        "python": python_call(composed, case.shape, **case.asked),
    }
    if not case.axes:
        return LayoutPage(**common, **ends, charts=(times, memory))
    families = {name: of_a_rank(case, name) for name in case.axes}
    explained, unexplained = _explained(families)
    return LayoutPage(
        **common,
        **ends,
        axes=_axes(case),
        calls=_calls(case),
        busiest=_busiest(case),
        pairs=_pairs(case),
        explained=explained,
        unexplained=unexplained,
        charts=(_tiers(case), times, memory),
        runs=tuple(_runs(form, case, families)),
    )


# --- in words ---------------------------------------------------------------------------------------------------------


def _follows(case: LayoutCase) -> str:
    """How many replicas there are, and why so many."""
    layout, devices = case.layout, case.cluster.devices
    replica = layout.tp * layout.cp * layout.pp
    product = f"tp {layout.tp} × cp {layout.cp} × pp {layout.pp} = {counted(replica, 'device')}"
    if devices % replica:
        return f"A replica takes {product}, and {counted(devices, 'device')} do not make a whole number of those."
    return f"A replica takes {product}, so {counted(devices, 'device')} make dp = {plain(devices / replica)}."


def _headline(case: LayoutCase) -> SafeString:
    moved = (
        format_html(
            'for each {} the busiest rank sends <strong class="num"><span class="swatch predicted"></span> {}</strong>',
            case.phase.unit,
            iec_bytes(case.sent_bytes),
        )
        if case.axes
        else "one device has all of it, so nothing travels"
    )
    return format_html(
        "{}: {}. {}; {} <strong>{}</strong> of its {}.",
        case.says,
        moved,
        _speed(case),
        "the device holds" if case.cluster.devices == 1 else "the fullest device holds",
        iec_bytes(case.memory_bytes),
        iec_bytes(case.cluster.device.memory_bytes),
    )


def _speed(case: LayoutCase) -> SafeString:
    rate = plain(round(case.tokens_per_second, 1 if case.tokens_per_second < 100 else None))
    if case.phase is Phase.DECODE:
        each = 1 / case.seconds
        return format_html(
            "A token takes <strong>{}</strong>, so {} gets {} tokens a second{}",
            seconds(case.seconds),
            "each sequence" if case.batch > 1 else "the sequence",
            plain(round(each, 1 if each < 100 else None)),
            f", and all {case.batch:,} together {rate}" if case.batch > 1 else "",
        )
    what = "The step takes" if case.is_training else "Reading the prompts takes"
    return format_html(
        "{} <strong>{}</strong>, which is {} tokens a second", what, seconds(case.seconds), rate
    )


def _misfit(case: LayoutCase) -> str:
    if case.fits:
        return ""
    return (
        f"It does not fit: {iec_bytes(case.memory_bytes)} is more than the {iec_bytes(max(case.limit_bytes, 0))} "
        f"that {case.cluster.device.name} has beside the reserve. What follows is what it would do if it did."
    )


def _left_out(case: LayoutCase) -> str:
    if case.is_training:
        return ""
    return (
        "Micro-batches, chunks, recomputation, ZeRO stages and optimizers belong to training"
        + (", and one token cannot be cut as sequence parallelism does" if case.phase is Phase.DECODE else "")
        + ": what the form says of them is not read."
    )


def _busiest(case: LayoutCase) -> str:
    """Which ranks send most, where stages differ."""
    sent = case.sent_by_stage
    if len(sent) == 1:
        return "There is one stage, so every rank has the same calls to make."
    most, least = int(sent.argmax()), int(sent.argmin())
    if sent[most] - sent[least] < 0.005 * sent[most]:
        return f"All {len(sent)} stages are equally busy."
    return (
        f"Stages differ: ranks of stage {most} send most, {iec_bytes(sent[most])}, those of stage {least} least, "
        f"{iec_bytes(sent[least])}."
    )


def _instead(form: LayoutForm, violation: Violation) -> tuple[Change, ...]:
    """States of this page in which the rule is kept."""
    found = []
    for name, sizes in ((violation.axis, violation.nearest), *violation.or_else):
        if name not in form.fields:
            continue
        for size in sizes:
            said = ("off", "on")[size] if name == "sp" else str(size)
            found.append(Change(says=f"{name} {said}", address=form.address_with(**{name: said})))
    return tuple(found)


def _rules_in_python(case: LayoutCase) -> str:
    known: dict[str, Any] = {"phase": case.phase, "devices": case.cluster.devices}
    if case.phase is not Phase.DECODE:
        known["tokens"] = case.tokens
    if case.is_training:
        known |= {"batch": case.batch, "micro_batch": case.micro_batch}
    if case.uneven_stages:
        known["uneven_stages"] = True
    return python_call(check, case.shape, case.layout, **known)


# --- ways on ----------------------------------------------------------------------------------------------------------


def _memory_address(form: LayoutForm, case: LayoutCase) -> str:
    """The page *Memory* in the same state, as far as it has it."""
    values = form.cleaned_data
    axes = {name: getattr(case.layout, name) for name in ("tp", "pp", "cp", "dp", "ep", "etp", "vpp", "zero")}
    share = min(99.0, 100 * case.reserve / case.cluster.device.memory_bytes)
    state = {
        "model": form.fields["model"].said(case.shape),  # type: ignore[attr-defined]
        "phase": "training" if case.is_training else "serving",
        "device": values["device"],
        **axes,
        "sp": "on" if case.layout.sp else "off",
        "tokens": case.tokens,
        "reserve": f"{share:.4g}",
    }
    if case.is_training:
        state |= {
            "micro_batch": case.micro_batch,
            "micro_batches": round(case.micro_batches),
            "recompute": values["recompute"],
            "optimizer": values["optimizer"],
        }
    else:
        state["batch"] = case.sequences_of_a_replica
    return f"{reverse('calculators:memory')}?{urlencode(state)}"


def _planner_address(form: LayoutForm, case: LayoutCase) -> str:
    """The planner for the same model, cluster and work; it plans no prompts."""
    if case.phase is Phase.PREFILL:
        return ""
    values = form.cleaned_data
    shared = ("phase", "tokens", "batch", "optimizer", "stages", *ClusterForm.CLUSTER)
    state = {name: values[name] for name in shared} | {"reserve": f"{values['reserve']:.12g}"}
    state["model"] = form.fields["model"].said(case.shape)  # type: ignore[attr-defined]
    return f"{reverse('calculators:planner')}?{urlencode(state)}"


def _runs(form: LayoutForm, case: LayoutCase, families: Mapping[str, Traffic | None]) -> Iterator[RunIt]:
    back = LAYOUT.at(form.address)
    for name, traffic in families.items():
        found = run_of(case, name, traffic)
        if found is None:
            continue
        if name == "tp" and case.layout.sp:
            gathers = (
                "It makes all-reduces: sequence parallelism makes a gather and a scatter of each, which move as many "
                "bytes, and gathers once more on the way back."
            )
            found = replace(found, differences=(*found.differences, gathers))
        yield from run_it(
            found,
            label=f"Run it for real: {name.upper()}",
            family=AXIS_FAMILIES[name],
            back=back,
        )


# --- what moves -------------------------------------------------------------------------------------------------------


def _badge(name: str) -> SafeString:
    return format_html('<span class="badge family-{}">{}</span>', AXIS_FAMILIES[name], name.upper())


def _axes(case: LayoutCase) -> Table:
    """Each axis on which anything moves, and all of them."""
    rows = [
        Row(
            cells=(
                _badge(name),
                ", ".join(dict.fromkeys(str(part.share.kind) for part in moved.parts)),
                _reach(case, name),
                plain(moved.calls),
                plain(moved.rounds),
                iec_bytes(float(moved.handed.max())),
                iec_bytes(moved.sent_bytes),
            )
        )
        for name, moved in case.axes.items()
    ]
    total = Row(
        cells=(
            "All",
            "",
            "",
            plain(sum(moved.calls for moved in case.axes.values())),
            plain(sum(moved.rounds for moved in case.axes.values())),
            iec_bytes(case.handed_bytes),
            iec_bytes(case.sent_bytes),
        ),
        is_total=True,
    )
    return Table(
        name="axes",
        caption=(
            f"Predicted for each {case.phase.unit}. Calls and rounds are those of all stages, bytes those of the "
            "rank that is busiest on this axis; the last line is the rank that is busiest on all together."
        ),
        heads=("Axis", "Calls are", "Among", "Calls", "Rounds", "Handed over", "Busiest rank sends"),
        texts=3,
        rows=(*rows, total),
    )


def _reach(case: LayoutCase, name: str) -> str:
    """How many ranks call together, and over which link."""
    layouts = case.layouts
    ranks = case.axes[name].ranks
    start = placement.stride(layouts, "cp" if name == "dp" else name).item()
    inside = int(case.cluster.tier_of(start * ranks)) == 0 and case.cluster.devices_per_host > 1
    where = "inside a host" if inside else "between hosts"
    return f"{plain(ranks)} {'stages' if name == 'pp' else 'ranks'} {where}"


def _calls(case: LayoutCase) -> Table:
    """The calls of each axis by their purpose."""
    return Table(
        name="calls",
        caption=f"The same call by call, for each {case.phase.unit}.",
        heads=("Axis", "Call", "Of what", "As", "Calls", "Bytes in a call", "Busiest rank sends"),
        texts=4,
        rows=tuple(
            Row(
                cells=(
                    _badge(name),
                    str(part.share.kind),
                    part.share.what,
                    part.share.algorithm,
                    plain(part.calls),
                    both_bytes(part.bytes_per_call),
                    iec_bytes(float(part.sent.max())),
                )
            )
            for name, moved in case.axes.items()
            for part in moved.parts
        ),
    )


def _tiers(case: LayoutCase) -> Chart:
    """What crosses each kind of link, by axis. Links that join nobody, where each host has one device, are left out."""
    found = tier_bytes(case.composition, case.cluster)
    joining = [number for number, tier in enumerate(case.cluster.tiers) if tier.devices > 1]
    names = [case.cluster.tiers[number].link.name for number in joining]
    sent = {name: [float(found.axes[name][number]) for number in joining] for name in case.axes}
    data = [
        predicted_bar(
            name.upper(),
            names,
            [value or None for value in values],  # type: ignore[misc]
            colour=AXIS_FAMILIES[name],
            pattern="/" if name in ("etp", "edp") else "",
            says=[iec_bytes(value) for value in values],
        )
        for name, values in sent.items()
    ]
    drawn = [value for values in sent.values() for value in values if value]
    return Chart(
        name="tiers",
        figure=figure(
            data,
            x=axis("") | {"type": "category"},
            y=axis(f"bytes per {case.phase.unit}") | log_byte_ticks(drawn),
            barmode="group",
        ),
        caption=(
            f"What all ranks together send over each kind of link for each {case.phase.unit}, predicted. The scale "
            "counts in powers of two."
        ),
        table=_tier_table(case, sent, [case.cluster.tiers[number] for number in joining]),
    )


def _tier_table(case: LayoutCase, sent: Mapping[str, list[float]], tiers: list[Tier]) -> Table:
    whole = [sum(values[number] for values in sent.values()) for number in range(len(tiers))]
    each = [value / case.cluster.devices for value in whole]
    least = [
        transfer_seconds(
            value, 0, bytes_per_second=tier.link.bytes_per_second, latency_seconds=tier.link.latency_seconds
        ).item()
        for value, tier in zip(each, tiers, strict=True)
    ]
    return Table(
        name="tiers",
        caption="The same numbers, and how long a link takes at least for what its device sends on average.",
        heads=("", *(tier.link.name for tier in tiers)),
        rows=(
            *(Row(cells=(_badge(name), *map(iec_bytes, values))) for name, values in sent.items()),
            Row(cells=("All ranks together", *map(iec_bytes, whole)), is_total=True),
            Row(cells=("A device, on average", *map(iec_bytes, each))),
            Row(cells=("Its link takes", *map(seconds, least))),
        ),
    )


# --- from rank to rank ------------------------------------------------------------------------------------------------


def _pairs(case: LayoutCase) -> Pairs:
    """Who sends to whom: ranks while they can be drawn, then hosts, then a sentence."""
    devices, in_a_host = case.cluster.devices, case.cluster.devices_per_host
    hosts = -(-devices // in_a_host)
    if any(share.algorithm == "in-switch" and share.ranks > 1 for share in case.composition.shares):
        return Pairs(
            says=f"With {case.backend.name} ranks send to the switch, which adds and copies, not to each other: there "
            "are no pairs to show."
        )
    if devices <= MOST_IN_A_PICTURE:
        found = HeatMap(matrices=block_matrices(case.composition, devices=1))
        if devices <= MOST_IN_A_TABLE:
            says = f"What each rank (row) sends to each other for each {case.phase.unit}, in {found.unit}"
            return Pairs(says=says, table=found.table(says=says, name="pairs"), keys=_keys(found))
        return _drawn(case, found, what="rank", every=in_a_host)
    if hosts == 1:
        return Pairs(
            says=f"Pairs of ranks are shown for up to {MOST_IN_A_PICTURE} devices, pairs of hosts beyond. Here all "
            f"{devices:,} share one host."
        )
    if hosts > MOST_HOSTS:
        return Pairs(
            says=f"Pairs of ranks are shown for up to {MOST_IN_A_PICTURE} devices, and pairs of hosts for up to "
            f"{MOST_HOSTS}. Of {hosts:,} hosts the totals of each link above are all that is calculated."
        )
    found = HeatMap(matrices=block_matrices(case.composition, devices=in_a_host))
    return _drawn(case, found, what="host", every=1, draws=hosts <= MOST_IN_A_PICTURE)


def _drawn(case: LayoutCase, found: HeatMap, *, what: str, every: int, draws: bool = True) -> Pairs:
    shown_pairs = (
        f"What each {what} (row) sends to each other for each {case.phase.unit}, predicted. "
        if draws
        else f"More than {MOST_IN_A_PICTURE} {what}s are not drawn; these are the kinds of pairs. "
    )
    more = (
        f"With {case.cluster.devices:,} ranks, pairs of hosts stand for pairs of ranks; on the diagonal is what stays "
        "inside a host."
        if what == "host"
        else "A line begins each host."
        if 1 < case.cluster.devices_per_host < case.cluster.devices
        else ""
    )
    return Pairs(
        says=f"{shown_pairs}{more}".strip(),
        svg=found.svg(what=what, every=every) if draws else "",
        keys=_keys(found) if draws else (),
        kinds=_kinds(found, what),
    )


def _keys(found: HeatMap) -> tuple[tuple[str, str], ...]:
    """Family and name of each axis that leads somewhere, in the order of the axes."""
    leading = found.leading[found.total > 0]
    return tuple(
        (AXIS_FAMILIES[name], name.upper())
        for index, name in enumerate(found.axes)
        if (leading == index).any()
    )


def _kinds(found: HeatMap, what: str) -> Table:
    kinds = found.kinds
    left = len(kinds) - MOST_KINDS
    more = f" {counted(left, 'kind')} that send less are left out." if left > 0 else ""
    return Table(
        name="kinds",
        caption=f"Pairs of {what}s that send the same, the busiest first.{more}",
        heads=("Pairs", "Mostly", "For example", "Each sends"),
        texts=3,
        rows=tuple(
            Row(
                cells=(
                    plain(kind.pairs),
                    _badge(kind.axis),
                    f"inside {what} {kind.sender}"
                    if kind.sender == kind.receiver
                    else f"{what} {kind.sender} to {kind.receiver}",
                    iec_bytes(kind.each_bytes),
                )
            )
            for kind in kinds[:MOST_KINDS]
        ),
    )


# --- time and memory --------------------------------------------------------------------------------------------------


def _strip(
    parts: Mapping[str, float],
    names: Mapping[str, str],
    paint: Mapping[str, tuple[str, str]],
    says: Mapping[str, str],
    title: str,
    *,
    most: float | None = None,
    **more: Any,
) -> Figure:
    """One bar that lies, part after part; `most` is where its axis ends, if not with the bar."""
    data = [
        predicted_bar(
            names[part],
            [value],
            [""],  # type: ignore[list-item]
            colour=paint[part][0],
            pattern=paint[part][1],
            says=[says[part]],
            orientation="h",
            hovertemplate=f"{names[part]}: %{{text}}<extra></extra>",
        )
        for part, value in parts.items()
    ]
    ticks = {"showticklabels": False, "showgrid": False}
    return figure(
        data,
        x=axis(title) | ({"range": [0, most]} if most else {"rangemode": "tozero"}),
        y=axis("") | ticks,
        height=180,
        barmode="stack",
        bargap=0.35,
        **more,
    )


def _time(case: LayoutCase) -> Chart:
    found = {name: getattr(case.time, name).item() for name in TIME_PARTS}
    parts = {name: value for name, value in found.items() if value > 0}
    says = {name: seconds(value) for name, value in parts.items()}
    what = {"decode": "a token", "prefill": "reading the prompts", "training": "a step"}[case.phase.value]
    return Chart(
        name="time",
        figure=_strip(parts, TIME_PARTS, TIME_PAINT, says, f"seconds of {what}"),
        caption=f"What {what} waits for, predicted. Exchanges count only where nothing hides them.",
        table=Table(
            name="time",
            caption="The same numbers.",
            heads=("Part", "Time", "Share"),
            rows=(
                *(
                    Row(cells=(_first_up(TIME_PARTS[name]), says[name], _share(value / case.seconds)))
                    for name, value in parts.items()
                ),
                Row(cells=("Together", seconds(case.seconds), "100 %"), is_total=True),
            ),
        ),
    )


def _memory(case: LayoutCase) -> Chart:
    found = {name: getattr(case.memory, name).item() for name in MEMORY_PARTS}
    parts = {name: value for name, value in found.items() if value > 0}
    device = case.cluster.device
    line = {
        "type": "line",
        "xref": "x",
        "yref": "paper",
        "x0": case.limit_bytes / GIB,
        "x1": case.limit_bytes / GIB,
        "y0": 0,
        "y1": 1,
        "line": {"color": "var(--bad)", "width": 1.5, "dash": "dash"},
    }
    return Chart(
        name="memory",
        figure=_strip(
            {name: value / GIB for name, value in parts.items()},
            MEMORY_PARTS,
            MEMORY_PAINT,
            {name: iec_bytes(value) for name, value in parts.items()},
            "GiB on the fullest device; the line is what is there",
            most=1.04 * max(case.limit_bytes, case.memory_bytes) / GIB,
            shapes=[line],
        ),
        caption=(
            f"What the fullest device holds, predicted, beside the {iec_bytes(max(case.limit_bytes, 0))} that "
            f"{device.name} has without the reserve."
            + (
                " A prompt that is read in one piece needs more activations than are counted here."
                if case.phase is Phase.PREFILL
                else ""
            )
        ),
        table=Table(
            name="memory",
            caption="The same numbers.",
            heads=("Part", "Bytes", "Share of the device"),
            rows=(
                *(
                    Row(
                        cells=(
                            _first_up(MEMORY_PARTS[name]),
                            both_bytes(value),
                            _share(value / device.memory_bytes),
                        )
                    )
                    for name, value in parts.items()
                ),
                Row(
                    cells=(
                        "Together",
                        both_bytes(case.memory_bytes),
                        whole_percent(case.memory_bytes / device.memory_bytes),
                    ),
                    is_total=True,
                ),
            ),
        ),
    )


def _share(part: float) -> str:
    return "under 1 %" if 0 < part < 0.005 else whole_percent(part)


def _first_up(text: str) -> str:
    return text[0].upper() + text[1:]


# --- why --------------------------------------------------------------------------------------------------------------


def _explained(families: Mapping[str, Traffic | None]) -> tuple[tuple[AxisFormulas, ...], str]:
    """Each axis by its family's formulas, and the axes that no family speaks for."""
    explained, silent = [], []
    for name, found in families.items():
        if found is None or not found.formulas:
            silent.append(name.upper())
            continue
        explained.append(
            AxisFormulas(
                family=AXIS_FAMILIES[name],
                name=_first_up(AXIS_NAMES[name]),
                formulas=shown(found.formulas),
            )
        )
    unexplained = (
        f"{' and '.join(silent)} {'makes' if len(silent) == 1 else 'make'} calls here that no family alone has, so no "
        "single formula gives them; the table of calls above does."
        if silent
        else ""
    )
    return tuple(explained), unexplained


LAYOUT = Calculator(
    name="layout",
    title="One layout",
    asks="Everything about one way to lay a model out on a cluster: the rules it keeps, what travels and over which "
    "link, what a step waits for and what a device holds.",
    form=LayoutForm,
    answer=_answer,
    presets=(
        Preset(label="Llama 3.1 70B on 64 H100", query=""),
        Preset(label="Tensor parallelism across hosts", query="tp=16&pp=2"),
        Preset(
            label="DeepSeek-V3 on 2,048 H200",
            query="device=h200&devices=2048&model=deepseek-v3&tp=1&pp=16&ep=64&sp=off&tokens=4096&batch=15360&stages=uneven",
        ),
        Preset(
            label="Mixtral on 16",
            query="devices=16&model=mixtral-8x7b&tp=2&pp=1&ep=8&tokens=4096",
        ),
        Preset(
            label="One long document",
            query="devices=8&model=llama-3.1-8b&tp=1&cp=8&pp=1&sp=off&recompute=full&tokens=131072&batch=1",
        ),
        Preset(
            label="Two boxes at home",
            query="device=dgx-spark&devices=2&devices_per_host=1&between=connectx-7-spark&phase=decode&tp=2&pp=1&tokens=4096"
            "&batch=1",
        ),
        Preset(label="A layout that cannot be", query="tp=6&pp=3"),
    ),
    lessons=(
        LessonLink(slug="tp-or-pp", title="TP or PP?"),
        LessonLink(slug="tensor-parallelism", title="Tensor parallelism"),
        LessonLink(slug="pipeline-parallelism", title="Pipeline parallelism"),
    ),
)
