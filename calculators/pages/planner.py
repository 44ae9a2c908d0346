"""The page *Planner*: every legal layout of a model on a cluster, the best of them, and why."""

from dataclasses import dataclass

from calculators.cluster_fields import ClusterForm
from calculators.fields import Choice, Decimal, ModelField, WholeNumber
from calculators.figures import Figure, axis, figure, level, predicted_bar
from calculators.lab.spec import Job
from calculators.predict import planner
from calculators.predict.memory import OPTIMIZERS
from calculators.predict.planner import Evaluated, Plan, Task, plan
from calculators.predict.shapes import Phase, Recompute
from calculators.python_calls import python_call
from calculators.trials import Calculation, trial
from calculators.units import counted, iec_bytes, plain, seconds, whole_percent
from calculators.workbench import Answer, Calculator, Chart, LessonLink, Preset, Row, RunIt, Table, run_it

SHOWN = 10
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
    best: Table | None
    headline: str
    reasons: tuple[str, ...] = ()


def _answer(form: PlannerForm) -> PlannerPage:
    task = form.task
    found = plan(task, count=SHOWN)
    if not len(found.best):
        return PlannerPage(plan=found, best=None, headline=_nothing(found), python=python_call(plan, task))
    return PlannerPage(
        plan=found,
        best=_best(found),
        headline=_headline(found),
        reasons=found.reasons,
        charts=(_parts(found), _frontier(found)),
        python=python_call(plan, task),
        runs=_runs(form, found),
    )


def _runs(form: PlannerForm, found: Plan) -> tuple[RunIt, ...]:
    """The best layout's tensor-parallel groups and its pipeline, each alone: the lab runs one family at a time."""
    best, shape = found.best, found.task.shape
    given = {
        "phase": found.task.phase,
        "hidden_size": shape.hidden_size,
        "bytes_per_element": shape.bytes_per_element,
        "layers": shape.layers,
        "batch": int(best["micro_batch"][0]),
        "tokens": found.task.tokens,
        "micro_batches": int(best["micro_batches"][0]),
    }
    return tuple(
        run
        for name, job in (("tp", Job.TENSOR), ("pp", Job.PIPELINE))
        for run in run_it(
            trial(Calculation(job=job, devices=int(best[name][0]), **given)),
            label=f"Run the {name.upper()} of the first for real",
            family=name,
            back=PLANNER.at(form.address),
        )
    )


def _headline(found: Plan) -> str:
    task, best = found.task, found.best
    what = "trains on" if task.phase is Phase.TRAINING else "serves"
    return (
        f"The quickest layout that fits {what} {plain(round(best['tokens_per_second'][0]))} tokens a second: "
        f"{describe(best, 0)}. A step takes {seconds(best['step_seconds'][0])}, each device needs "
        f"{iec_bytes(best['memory_bytes'][0])} of its {iec_bytes(task.cluster.device.memory_bytes)}."
    )


def _nothing(found: Plan) -> str:
    """Why there is no plan, and what would help."""
    if found.smallest is None:
        return (
            "No layout keeps every rule: the sizes do not divide. Change the number of devices or of sequences, or let "
            "stages differ by a layer."
        )
    least = found.smallest["memory_bytes"][0]
    return (
        f"{counted(found.legal, 'layout')} keep every rule, but none fits: the one that needs least, "
        f"{describe(found.smallest, 0)}, takes {iec_bytes(least)} of each device, and "
        f"{iec_bytes(found.task.limit_bytes)} is there. Take more devices, larger ones, or shorter sequences."
    )


def describe(found: Evaluated, row: int) -> str:
    """A layout in a few words: the axes that are split, and what is switched on."""
    sizes = [
        f"{axis.upper()} {plain(found[axis][row])}"
        for axis in ("tp", "cp", "pp", "ep", "etp", "dp")
        if found[axis][row] > 1
    ]
    chosen = []
    if found["sp"][row]:
        chosen.append("SP")
    if found["vpp"][row] > 1:
        chosen.append(f"{plain(found['vpp'][row])} chunks a stage")
    if found["zero"][row]:
        chosen.append(f"ZeRO-{plain(found['zero'][row])}")
    if found["recompute"][row]:
        chosen.append(f"{Recompute(int(found['recompute'][row])).name.lower()} recomputation")
    if found["micro_batches"][row] > 1 or found["micro_batch"][row] > 1:
        many = found["micro_batches"][row]
        chosen.append(
            f"{plain(many)} micro-batch{'es' if many > 1 else ''} of {plain(found['micro_batch'][row])}"
        )
    return ", ".join([" × ".join(sizes) or "one device", *chosen])


def _best(found: Plan) -> Table:
    best = found.best
    return Table(
        name="best",
        caption=f"The {len(best)} quickest of {plain(found.fitting)} layouts that fit.",
        heads=("", "Layout", "Step", "Tokens a second", "Memory", "Most of the step"),
        texts=2,
        rows=tuple(
            Row(
                cells=(
                    row + 1,
                    describe(best, row),
                    seconds(best["step_seconds"][row]),
                    plain(round(best["tokens_per_second"][row])),
                    iec_bytes(best["memory_bytes"][row]),
                    _most(best, row),
                ),
                is_chosen=row == 0,
            )
            for row in range(len(best))
        ),
    )


def _most(best: Evaluated, row: int) -> str:
    part = max(planner.TIME_COLUMNS, key=lambda name: best[name][row])
    share = best[part][row] / best["step_seconds"][row]
    return f"{_PARTS[part.removesuffix('_seconds')]}, {whole_percent(share)}"


_PARTS = {
    "compute": "arithmetic",
    "recompute": "recomputation",
    "tensor": "TP exchanges",
    "context": "CP exchanges",
    "expert": "EP exchanges",
    "pipeline": "PP sends",
    "bubble": "PP bubble",
    "data": "DP exchanges",
    "optimizer": "optimizer",
}
_COLOURS = {
    "compute": ("ink", ""),
    "recompute": ("ink", "/"),
    "tensor": ("tp", ""),
    "context": ("cp", ""),
    "expert": ("ep", ""),
    "pipeline": ("pp", ""),
    "bubble": ("pp", "/"),
    "data": ("dp", ""),
    "optimizer": ("ink", "."),
}


def _parts(found: Plan) -> Chart:
    """What a step of each of the best waits for, stacked."""
    best = found.best
    names = [f"{row + 1}" for row in range(len(best))]
    shown = [part for part in _PARTS if best[f"{part}_seconds"].max() > 0]
    data = [
        predicted_bar(
            _PARTS[part],
            names,
            best[f"{part}_seconds"].tolist(),
            colour=_COLOURS[part][0],
            pattern=_COLOURS[part][1],
            says=[seconds(value) for value in best[f"{part}_seconds"]],
        )
        for part in shown
    ]
    return Chart(
        name="parts",
        figure=figure(
            data,
            x=axis("rank in the table above") | {"type": "category"},
            y=axis("seconds of a step"),
            barmode="stack",
        ),
        caption="What a step of each waits for, predicted. Exchanges are counted only where nothing hides them.",
        table=Table(
            caption="The same numbers.",
            heads=("", *(_PARTS[part] for part in shown), "Step"),
            rows=tuple(
                Row(
                    cells=(
                        names[row],
                        *(seconds(best[f"{part}_seconds"][row]) for part in shown),
                        seconds(best["step_seconds"][row]),
                    )
                )
                for row in range(len(best))
            ),
        ),
    )


def _frontier(found: Plan) -> Chart:
    """The layouts that no other beats in both memory and speed."""
    edge = found.frontier
    limit = found.task.limit_bytes
    says = [describe(edge, row) for row in range(len(edge))]
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
        ),
        table=Table(
            caption="The same layouts.",
            heads=("Layout", "Memory", "Tokens a second", "Fits"),
            rows=tuple(
                Row(
                    cells=(
                        says[row],
                        iec_bytes(edge["memory_bytes"][row]),
                        plain(round(edge["tokens_per_second"][row])),
                        "yes" if edge["memory_bytes"][row] <= limit else "no",
                    )
                )
                for row in range(len(edge))
            ),
        ),
    )


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
            query="model=deepseek-v3&device=h200&devices=2048&batch=4096&stages=uneven",
        ),
        Preset(
            label="Two boxes at home",
            query="model=llama-3.1-70b&phase=decode&tokens=4096&batch=1&device=dgx-spark&devices=2&devices_per_host=1"
            "&between=connectx-7-spark",
        ),
    ),
    lessons=(LessonLink(slug="tp-or-pp", title="TP or PP?"),),
)
