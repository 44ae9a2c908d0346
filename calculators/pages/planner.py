"""The page *Planner*: every legal layout of a model on a cluster, the best of them, and why not the others."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from django.utils.html import format_html
from django.utils.safestring import SafeString

from calculators.cluster_fields import ClusterForm
from calculators.fields import Choice, Decimal, ModelField, WholeNumber, model_key
from calculators.figures import Figure, axis, figure, level, predicted_bar
from calculators.lab.spec import Job
from calculators.layouts import TIME_PAINT, TIME_PARTS, describe, details_of, sizes_of
from calculators.pages.layout import address_of
from calculators.predict.memory import OPTIMIZERS
from calculators.predict.planner import Evaluated, Kind, OfAKind, Plan, Task, plan
from calculators.predict.shapes import Phase, Recompute
from calculators.predict.traffic import Formula
from calculators.predict.traffic.figures import tex
from calculators.python_calls import python_call
from calculators.trials import Calculation, trial
from calculators.units import counted, iec_bytes, plain, seconds, whole_percent
from calculators.workbench import (
    Answer,
    Calculator,
    Chart,
    LessonLink,
    Preset,
    Row,
    RunIt,
    Table,
    run_it,
    shown,
)

SHOWN = 10
MOST_MARKS = 20
LEAST_APART = 0.01
"""Marks of the frontier that are nearer to each other than this share of the picture are drawn as one."""
MOST_BEYOND = 4
"""It ends at this many times the memory that is there."""
GIB = 2**30


class PlannerForm(ClusterForm):
    """A model, a cluster, and what a step is to do."""

    DEFAULTS = ClusterForm.CLUSTER | {
        "model": "llama-3.1-70b",
        "phase": "training",
        "tokens": "8192",
        "batch": "1024",
        "optimizer": "mixed-adam",
        "reserve": "4",
        "stages": "equal",
        "devices": "1024",
    }

    model = ModelField()
    phase = Choice(
        label="For",
        choices=[(Phase.TRAINING.value, "training"), (Phase.DECODE.value, "decode: serving tokens")],
    )
    tokens = WholeNumber(
        label="Tokens", low=1, high=10_000_000, help_text="in a sequence; in decode, its context"
    )
    batch = WholeNumber(label="Sequences", low=1, high=1_000_000, help_text="in a step, over all devices")
    optimizer = Choice(label="Optimizer", choices=[(key, found.name) for key, found in OPTIMIZERS.items()])
    reserve = Decimal(
        label="Reserved, GiB", low=0, high=1_000, help_text="of each device, for what is not counted"
    )
    stages = Choice(label="Stages", choices=[("equal", "equally deep"), ("uneven", "may differ by a layer")])

    @property
    def task(self) -> Task:
        """What is to be planned. Raises ValueError for what cannot be."""
        values = self.cleaned_data
        return Task(
            shape=values["model"],
            cluster=self.cluster,
            tokens=values["tokens"],
            batch=values["batch"],
            phase=Phase(values["phase"]),
            optimizer=OPTIMIZERS[values["optimizer"]],
            reserve=values["reserve"] * GIB,
            uneven_stages=values["stages"] == "uneven",
        )


@dataclass(frozen=True, kw_only=True)
class PlannerPage(Answer):
    """What came of the search, in words and figures."""

    plan: Plan
    headline: SafeString | str
    searched: str
    best: Table | None = None
    reasons: tuple[str, ...] = ()
    instead: Table | None = None
    layout_address: str = ""


def _answer(form: PlannerForm) -> PlannerPage:
    task = form.task
    kinds = _kinds(task)
    found = plan(task, count=SHOWN, kinds=kinds)
    python = python_call(plan, task)
    if not len(found.best):
        return PlannerPage(
            plan=found,
            headline=_nothing(found),
            searched=_searched(found),
            layout_address=_address(form, found.smallest, 0) if found.smallest else "",
            charts=(_frontier(form, found),) if found.legal else (),
            python=python,
        )
    return PlannerPage(
        plan=found,
        best=_best(form, found),
        headline=_headline(found),
        searched=_searched(found),
        reasons=found.reasons,
        instead=_instead(form, found, kinds),
        layout_address=_address(form, found.best, 0),
        charts=(_parts(found), _frontier(form, found)),
        formulas=shown(_formulas(found)),
        python=python,
        runs=tuple(_runs(form, found)),
    )


# --- in words ---------------------------------------------------------------------------------------------------------


def _headline(found: Plan) -> SafeString:
    task, best = found.task, found.best
    rate = _rate(best["tokens_per_second"][0])
    does = (
        format_html("trains on <strong>{}</strong> tokens a second", rate)
        if task.phase is Phase.TRAINING
        else format_html("writes <strong>{}</strong> tokens a second", rate)
        if task.batch == 1
        else format_html(
            "writes <strong>{}</strong> tokens a second, {} for each of {} sequences",
            rate,
            _rate(1 / best["step_seconds"][0]),
            f"{task.batch:,}",
        )
    )
    return format_html(
        "The quickest layout that fits {}: <strong>{}</strong>. {} takes {}, and the fullest device needs {} of its "
        "{}.",
        does,
        _says(best, 0),
        "A step" if task.phase is Phase.TRAINING else "A token",
        seconds(best["step_seconds"][0]),
        iec_bytes(best["memory_bytes"][0]),
        iec_bytes(task.cluster.device.memory_bytes),
    )


def _searched(found: Plan) -> str:
    if not found.legal:
        return ""
    return (
        f"{counted(found.legal, 'layout')} kept every rule and {plain(found.fitting)} of them "
        f"{'fits' if found.fitting == 1 else 'fit'}. All were calculated; none was guessed or sampled."
    )


def _nothing(found: Plan) -> str:
    """Why there is no plan, and what would help."""
    task = found.task
    if found.smallest is None:
        sizes = (
            f"{counted(task.shape.layers, 'layer')}, {counted(task.shape.attention_heads, 'attention head')}"
            + (f", {counted(task.batch, 'sequence')}" if task.phase is Phase.TRAINING else "")
        )
        even = "" if task.uneven_stages else ", or let stages differ by a layer"
        return (
            f"No layout of {counted(task.cluster.devices, 'device')} keeps every rule: {sizes} do not share out among "
            f"so many. Change the number of devices{' or of sequences' if task.phase is Phase.TRAINING else ''}{even}."
        )
    least, limit = found.smallest["memory_bytes"][0], max(0.0, task.limit_bytes)
    shorter = "shorter sequences" if task.phase is Phase.TRAINING else "fewer or shorter sequences"
    return (
        f"{counted(found.legal, 'layout')} {'keeps' if found.legal == 1 else 'keep'} every rule, but none fits: the "
        f"one that needs least, {_says(found.smallest, 0)}, takes {iec_bytes(least)} of each device, and "
        f"{iec_bytes(limit)} is there. Take more devices, larger ones, or {shorter}."
    )


def _says(found: Evaluated, row: int) -> str:
    return describe(_sizes(found, row))


def _sizes(found: Evaluated, row: int) -> dict[str, float]:
    return {name: float(found[name][row]) for name in _DESCRIBED}


_DESCRIBED = (
    "dp",
    "tp",
    "cp",
    "pp",
    "ep",
    "etp",
    "sp",
    "vpp",
    "zero",
    "recompute",
    "micro_batch",
    "micro_batches",
)


def _rate(tokens_per_second: float) -> str:
    """Tokens a second, with a digit behind the point where there are few."""
    return plain(round(tokens_per_second, 1 if tokens_per_second < 100 else None))


# --- the best ---------------------------------------------------------------------------------------------------------


def _address(form: PlannerForm, found: Evaluated, row: int) -> str:
    """The page of this very layout."""
    values = form.cleaned_data
    shared = ("phase", "tokens", "batch", "optimizer", "stages", *ClusterForm.CLUSTER)
    sizes = {name: str(int(found[name][row])) for name in ("tp", "cp", "pp", "ep", "etp")}
    state = {name: str(values[name]) for name in shared} | sizes
    state |= {"model": model_key(values["model"]), "reserve": f"{values['reserve']:.12g}"}
    if values["phase"] == Phase.TRAINING:
        state |= {name: str(int(found[name][row])) for name in ("zero", "vpp", "micro_batch")}
        state["sp"] = "on" if found["sp"][row] else "off"
        state["recompute"] = Recompute(int(found["recompute"][row])).name.lower()
    return address_of(state)


def _link(form: PlannerForm, found: Evaluated, row: int) -> SafeString:
    sizes = _sizes(found, row)
    return format_html(
        '<a href="{}">{}</a>{}',
        _address(form, found, row),
        sizes_of(sizes),
        format_html(' <span class="details">{}</span>', details) if (details := details_of(sizes)) else "",
    )


def _best(form: PlannerForm, found: Plan) -> Table:
    best, task = found.best, found.task
    training = task.phase is Phase.TRAINING
    several = not training and task.batch > 1
    heads = ("", "Layout", "Step" if training else "A token", "Tokens a second")
    return Table(
        name="best",
        caption=_caption(found),
        heads=(*heads, *(("For each",) if several else ()), "Memory", "Most of it"),
        texts=2,
        rows=tuple(
            Row(
                cells=(
                    row + 1,
                    _link(form, best, row),
                    seconds(best["step_seconds"][row]),
                    _rate(best["tokens_per_second"][row]),
                    *((_rate(1 / best["step_seconds"][row]),) if several else ()),
                    iec_bytes(best["memory_bytes"][row]),
                    _most(best, row),
                ),
                is_chosen=row == 0,
            )
            for row in range(len(best))
        ),
    )


def _caption(found: Plan) -> str:
    if found.fitting == 1:
        return "The only one that fits. It leads to all about it."
    which = (
        f"All {found.fitting} that fit, the quickest first."
        if found.fitting == len(found.best)
        else f"The {len(found.best)} quickest of {plain(found.fitting)} that fit."
    )
    return f"{which} A layout leads to all about it."


def _most(best: Evaluated, row: int) -> str:
    part = max(TIME_PARTS, key=lambda name: best[f"{name}_seconds"][row])
    share = best[f"{part}_seconds"][row] / best["step_seconds"][row]
    return f"{TIME_PARTS[part]}, {whole_percent(share)}"


# --- why not ----------------------------------------------------------------------------------------------------------


def _kinds(task: Task) -> dict[str, Kind]:
    """The kinds of layouts that somebody may expect, by their names on the page."""
    one = (1, 1)
    devices, in_a_host = task.cluster.devices, task.cluster.devices_per_host
    if devices == 1:
        return {}
    alone = dict.fromkeys(("tp", "cp", "pp", "ep", "etp"), one)
    training = task.phase is Phase.TRAINING
    kinds: dict[str, Kind] = {}
    if training:
        kinds["Plain replicas, nothing cut"] = alone | {"zero": (0, 0)}
        kinds["Sharded replicas alone (ZeRO-3, FSDP)"] = alone | {"zero": (3, 3)}
    else:
        kinds["A whole model on each device"] = alone
    kinds["No tensor parallelism"] = {"tp": one}
    if in_a_host == devices:
        kinds["Tensor parallelism over all devices"] = {"tp": (devices, devices)}
    else:
        if in_a_host > 1:
            kinds["Tensor parallelism inside hosts"] = {"tp": (2, in_a_host)}
        kinds["Tensor parallelism across hosts"] = {"tp": (in_a_host + 1, devices)}
    kinds["No pipeline"] = {"pp": one}
    if training:
        kinds["No context parallelism"] = {"cp": one}
        kinds["No recomputation"] = {"recompute": (0, 0)}
    if task.shape.experts:
        kinds["No expert parallelism"] = {"ep": one}
    return kinds


def _instead(form: PlannerForm, found: Plan, kinds: dict[str, Kind]) -> Table | None:
    """The best layout of each kind that the quickest is not of, and what it loses."""
    rows = [
        Row(cells=(name, *_loses(form, found, found.kinds[name])))
        for name, kind in kinds.items()
        if not _is_of(found.best, kind)
    ]
    if not rows:
        return None
    return Table(
        name="instead",
        caption="The quickest of each kind that somebody may expect here, beside the quickest of all.",
        heads=("Kind", "Its quickest that fits", "Takes", "Longer by", "Most of that"),
        texts=2,
        rows=tuple(rows),
    )


def _is_of(best: Evaluated, kind: Kind) -> bool:
    return all(least <= best[name][0] <= most for name, (least, most) in kind.items())


def _loses(form: PlannerForm, found: Plan, kind: OfAKind) -> tuple[Any, ...]:
    """The cells of its row."""
    if kind.smallest is None:
        return "none keeps every rule", "–", "–", "–"
    if kind.best is None:
        least = iec_bytes(kind.smallest["memory_bytes"][0])
        says = format_html(
            'none fits: <a href="{}">the smallest</a> needs {}', _address(form, kind.smallest, 0), least
        )
        return says, "–", "–", "–"
    best, other = found.best, kind.best
    loses = {name: other[f"{name}_seconds"][0] - best[f"{name}_seconds"][0] for name in TIME_PARTS}
    longer = other["step_seconds"][0] / best["step_seconds"][0] - 1
    return (
        _link(form, other, 0),
        seconds(other["step_seconds"][0]),
        "under 1 %"
        if longer < 0.005
        else whole_percent(longer)
        if longer < 10
        else f"{longer + 1:,.0f} times",
        TIME_PARTS[max(loses, key=lambda name: loses[name])],
    )


# --- why these numbers ------------------------------------------------------------------------------------------------


def _formulas(found: Plan) -> tuple[Formula, ...]:
    """How the first's numbers hang together."""
    best, task = found.best, found.task
    size = {name: best[name][0].item() for name in ("dp", "tp", "cp", "pp", "micro_batch", "micro_batches")}
    step = _three(best["step_seconds"][0])
    devices = Formula(
        gives="Devices",
        symbols=r"d \cdot t \cdot c \cdot p",
        numbers=rf"{tex(size['dp'])} \cdot {tex(size['tp'])} \cdot {tex(size['cp'])} \cdot {tex(size['pp'])} = "
        rf"{tex(task.cluster.devices)}",
        legend=(
            ("d", "replicas, dp"),
            ("t", "ranks that share each layer, tp"),
            ("c", "ranks that share each sequence, cp"),
            ("p", "stages, pp"),
        ),
    )
    if task.phase is Phase.DECODE:
        rate = Formula(
            gives="Tokens a second",
            symbols=r"\frac{B}{T}",
            numbers=rf"\frac{{{tex(task.batch)}}}{{{step}\,\text{{s}}}} = {tex(_short(best['tokens_per_second'][0]))}",
            legend=(("B", "sequences in flight"), ("T", "time of a token")),
        )
        return devices, rate
    micro = Formula(
        gives="Micro-batches of a replica",
        symbols=r"\frac{B}{d \cdot b}",
        numbers=rf"\frac{{{tex(task.batch)}}}{{{tex(size['dp'])} \cdot {tex(size['micro_batch'])}}} = "
        rf"{tex(size['micro_batches'])}",
        legend=(("B", "sequences in a step"), ("d", "replicas"), ("b", "sequences in a micro-batch")),
    )
    rate = Formula(
        gives="Tokens a second",
        symbols=r"\frac{B \cdot s}{T}",
        numbers=rf"\frac{{{tex(task.batch)} \cdot {tex(task.tokens)}}}{{{step}\,\text{{s}}}} = "
        rf"{tex(round(best['tokens_per_second'][0]))}",
        legend=(("B", "sequences in a step"), ("s", "tokens in each"), ("T", "time of a step")),
    )
    return devices, micro, rate


def _three(value: float) -> str:
    """A number of seconds to six digits, never in powers of ten."""
    return f"{float(f'{value:.6g}'):f}".rstrip("0").rstrip(".")


def _short(rate: float) -> float:
    return round(rate, 1) if rate < 100 else round(rate)


# --- run it -----------------------------------------------------------------------------------------------------------


def _runs(form: PlannerForm, found: Plan) -> Iterator[RunIt]:
    """Each axis of the best layout alone: the lab runs one family at a time."""
    best, task = found.best, found.task
    shape, training = task.shape, task.phase is Phase.TRAINING
    sequences = int(best["micro_batch"][0]) if training else -(-task.batch // int(best["dp"][0]))
    for name, job in (("tp", Job.TENSOR), ("pp", Job.PIPELINE)):
        calculation = Calculation(
            job=job,
            phase=task.phase,
            hidden_size=shape.hidden_size,
            bytes_per_element=shape.bytes_per_element,
            layers=shape.layers,
            batch=sequences,
            tokens=max(1, task.tokens // int(best["cp"][0])),
            devices=int(best[name][0]),
            micro_batches=int(best["micro_batches"][0]),
        )
        yield from run_it(
            trial(calculation),
            label=f"Run the {name.upper()} of the first for real",
            family=name,
            back=PLANNER.at(form.address),
        )


# --- charts -----------------------------------------------------------------------------------------------------------


def _parts(found: Plan) -> Chart:
    """What a step of each of the best waits for, stacked."""
    best = found.best
    what = "step" if found.task.phase is Phase.TRAINING else "token"
    names = [f"{row + 1}" for row in range(len(best))]
    shown = [part for part in TIME_PARTS if best[f"{part}_seconds"].max() > 0]
    data = [
        predicted_bar(
            TIME_PARTS[part],
            names,
            best[f"{part}_seconds"].tolist(),
            colour=TIME_PAINT[part][0],
            pattern=TIME_PAINT[part][1],
            says=[seconds(value) for value in best[f"{part}_seconds"]],
        )
        for part in shown
    ]
    return Chart(
        name="parts",
        figure=figure(
            data,
            x=axis("place in the table above") | {"type": "category"},
            y=axis(f"seconds of a {what}"),
            barmode="stack",
        ),
        caption=f"What a {what} of each waits for, predicted. Exchanges count only where nothing hides them.",
        table=Table(
            name="parts",
            caption="The same numbers.",
            heads=("", *(TIME_PARTS[part] for part in shown), "Together"),
            rows=tuple(
                Row(
                    cells=(
                        names[row],
                        *(seconds(best[f"{part}_seconds"][row]) for part in shown),
                        seconds(best["step_seconds"][row]),
                    ),
                    is_chosen=row == 0,
                )
                for row in range(len(best))
            ),
        ),
    )


def _frontier(form: PlannerForm, found: Plan) -> Chart:
    """The layouts that no other beats in both memory and speed."""
    edge, left_out = _thinned(found)
    limit = found.task.limit_bytes
    says = [_says(edge, row) for row in range(len(edge))]
    memory = (edge["memory_bytes"] / GIB).tolist()
    marks: Figure = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": "no layout beats it in both, predicted",
        "x": memory,
        "y": edge["tokens_per_second"].tolist(),
        "text": says,
        "hovertemplate": "%{text}<br>%{x:.1f} GiB, %{y:,.0f} tokens a second<extra></extra>",
        "line": {"color": "var(--accent)", "width": 1.5, "dash": "dot", "shape": "hv"},
        "marker": {"symbol": "circle-open", "size": 9, "color": "var(--accent)", "line": {"width": 2}},
    }
    across = level(0, f"{limit / GIB:.0f} GiB are there")
    line = across["shapes"][0] | {
        "xref": "x",
        "yref": "paper",
        "x0": limit / GIB,
        "x1": limit / GIB,
        "y0": 0,
        "y1": 1,
    }
    word = across["annotations"][0] | {
        "xref": "x",
        "yref": "paper",
        "x": limit / GIB,
        "y": 0,
        "xanchor": "left",
    }
    return Chart(
        name="frontier",
        figure=figure(
            [marks],
            x=axis("GiB on the fullest device") | {"rangemode": "tozero"},
            y=axis("tokens a second") | {"rangemode": "tozero"},
            shapes=[line],
            annotations=[word],
        ),
        caption=(
            "More memory buys speed: each mark is a layout that none beats in both. Left of the line they fit; right "
            "of it is what a larger device would allow."
            + (
                f" {counted(left_out, 'mark')} that hardly differ, or need far more memory than there is, are left out."
                if left_out
                else ""
            )
        ),
        table=Table(
            name="frontier",
            caption="The same layouts.",
            heads=("Layout", "Memory", "Tokens a second", "Fits"),
            rows=tuple(
                Row(
                    cells=(
                        _link(form, edge, row),
                        iec_bytes(edge["memory_bytes"][row]),
                        _rate(edge["tokens_per_second"][row]),
                        "yes" if edge["memory_bytes"][row] <= limit else "no",
                    )
                )
                for row in range(len(edge))
            ),
        ),
    )


def _thinned(found: Plan) -> tuple[Evaluated, int]:
    """The frontier without marks that lie on one another or far beyond the limit, and how many were left out.

    The quickest that fits always stays, and both ends of the rest.
    """
    limit = max(found.task.limit_bytes, 1.0)
    whole = found.frontier["memory_bytes"]
    edge = found.frontier.rows(np.flatnonzero(whole <= MOST_BEYOND * max(limit, whole.min())))
    up = edge["tokens_per_second"] / edge["tokens_per_second"].max()
    across = edge["memory_bytes"] / max(limit, edge["memory_bytes"].min())
    always = {0, len(edge) - 1, int(np.count_nonzero(edge["memory_bytes"] <= limit)) - 1}
    apart, kept = LEAST_APART, list(range(len(edge)))
    while len(kept) > MOST_MARKS:
        kept = [0]
        for row in range(1, len(edge)):
            distance = abs(up[row] - up[kept[-1]]) + abs(across[row] - across[kept[-1]])
            if row in always or distance >= apart:
                kept.append(row)
        apart *= 1.5
    return edge.rows(np.array(kept)), len(whole) - len(kept)


PLANNER = Calculator(
    name="planner",
    title="Planner",
    asks="Every legal layout of a model on your cluster, evaluated at once: the quickest that fit, and why.",
    form=PlannerForm,
    answer=_answer,
    presets=(
        Preset(label="Llama 3.1 70B on 1,024 H100", query=""),
        Preset(
            label="DeepSeek-V3 on 2,048 H200",
            query="device=h200&devices=2048&model=deepseek-v3&tokens=4096&batch=4096&stages=uneven",
        ),
        Preset(
            label="Llama 3.1 405B on 16,384 H100",
            query="devices=16384&model=llama-3.1-405b&batch=2048&stages=uneven",
        ),
        Preset(
            label="Serving 70B to 64 from one host",
            query="devices=8&phase=decode&batch=64",
        ),
        Preset(
            label="Two boxes at home",
            query="device=dgx-spark&devices=2&devices_per_host=1&between=connectx-7-spark&phase=decode&tokens=4096&batch=1",
        ),
        Preset(
            label="Four gaming cards",
            query="device=rtx-4090&devices=4&devices_per_host=4&inside=pcie-4&model=qwen3-32b&phase=decode&tokens=4096"
            "&batch=1&reserve=1",
        ),
    ),
    lessons=(
        LessonLink(slug="tp-or-pp", title="TP or PP?"),
        LessonLink(slug="tensor-parallelism", title="Tensor parallelism"),
        LessonLink(slug="pipeline-parallelism", title="Pipeline parallelism"),
    ),
)
