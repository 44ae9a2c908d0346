"""The page *Memory*: what the fullest device of a layout holds, whether it fits, and what to change."""

from dataclasses import dataclass
from typing import Any

from calculators.pages.memory.chart import memory_chart
from calculators.pages.memory.form import MemoryForm
from calculators.pages.memory.runs import runs
from calculators.pages.memory.sentences import advice, largest, verdict
from calculators.pages.memory.tables import changes_table, parts_table
from calculators.predict.devices import device
from calculators.predict.memory import OPTIMIZERS, room, serving_memory, training_memory
from calculators.predict.memory.formulas import memory_formulas
from calculators.predict.memory.levers import Case, Lever, Serving, Training, levers, together
from calculators.predict.rules import Violation, check
from calculators.predict.shapes import Layouts, Phase
from calculators.python_calls import python_call
from calculators.units import iec_bytes
from calculators.workbench import Answer, Calculator, Change, LessonLink, Preset, Table


@dataclass(frozen=True, kw_only=True)
class MemoryPage(Answer):
    """What the fullest device holds, in words and tables.

    fits      whether it does, with the reserve left free
    holds     how much it holds, `verdict` how that compares with its device, `largest` where most of it goes
    changes   a line for each lever, `advice` what to make of them, `way` the levers that together make it fit
    """

    fits: bool
    holder: str
    holds: float
    verdict: str
    largest: str
    violations: tuple[Violation, ...]
    parts: Table
    changes: Table | None
    advice: str
    way: tuple[Change, ...] = ()
    left_out: str = ""


def _answer(form: MemoryForm) -> MemoryPage:
    case, chosen = form.case, device(form.cleaned_data["device"])
    reserve = form.cleaned_data["reserve"] / 100
    limit = room(chosen, reserve=reserve).item()
    total = case.memory.total.item()
    fits = total <= limit
    found = levers(case, chosen, reserve=reserve)
    alone = [lever for lever in found if lever.fits]
    pulled = () if fits or alone else together(case, chosen, reserve=reserve, known=found)
    return MemoryPage(
        fits=fits,
        holder=f"fullest of {devices:,} devices" if (devices := case.layout.world_size) > 1 else "device",
        holds=total,
        verdict=verdict(chosen, total=total, limit=limit),
        largest=largest(case.memory),
        violations=_violations(case),
        parts=parts_table(case),
        changes=changes_table(form, found) if found else None,
        advice=advice(fits=fits, alone=len(alone), pulled=len(pulled), any_lever=bool(found)),
        way=tuple(Change(says=_step(lever), address=form.address_of(lever.case)) for lever in pulled),
        left_out=case.optimizer.leaves_out if isinstance(case, Training) else "",
        charts=(memory_chart(case, found, chosen, limit),),
        explains=lambda: memory_formulas(case),
        python=_python(case),
        runs=tuple(runs(case, MEMORY.at(form.address))),
    )


def _step(lever: Lever) -> str:
    return f"{lever.does} Leaves {iec_bytes(lever.memory.total.item())}."


def _violations(case: Case) -> tuple[Violation, ...]:
    training = isinstance(case, Training)
    return check(
        case.shape,
        case.layout,
        phase=Phase.TRAINING if training else Phase.DECODE,
        tokens=case.tokens if training else None,
        uneven_stages=True,  # which is what is calculated: earlier stages take a layer more
    )


def _python(case: Case) -> str:
    layout = case.layout
    if isinstance(case, Serving):
        given: dict[str, Any] = {"batch": case.batch, "context_tokens": case.tokens}
        if case.kv_bytes != 2:
            given["kv_bytes_per_element"] = case.kv_bytes
        if case.weight_bytes:
            given["weight_bytes_per_element"] = case.weight_bytes
        return python_call(serving_memory, case.shape, Layouts.of(layout), **given)
    layouts = Layouts.of(layout, micro_batch=case.micro_batch, recompute=case.recompute)
    given = {"tokens": case.tokens, "micro_batches": case.micro_batches}
    if case.optimizer != OPTIMIZERS["mixed-adam"]:
        given["optimizer"] = case.optimizer
    return python_call(training_memory, case.shape, layouts, **given)


MEMORY = Calculator(
    name="memory",
    title="Memory",
    asks="What the fullest device of a layout has to hold, whether it fits, and what to change where it does not.",
    form=MemoryForm,
    answer=_answer,
    presets=(
        Preset(label="Train 70B on 64 H100", query=""),
        Preset(label="The same, made to fit", query="sp=on&zero=1&recompute=selective"),
        Preset(
            label="DeepSeek-V3 on 2,048",
            query="model=deepseek-v3&tp=2&pp=16&dp=64&ep=64&sp=on&zero=1&tokens=4096&micro_batches=120&recompute=full",
        ),
        Preset(
            label="Korthikanti’s 22B",
            query="model=megatron-22b&device=a100-80&dp=1&tokens=2048&micro_batch=4&micro_batches=1"
            "&optimizer=megatron-adam",
        ),
        Preset(label="Serve 70B on two", query="phase=serving&tp=2&dp=1"),
        Preset(
            label="A long context: 8B",
            query="model=llama-3.1-8b&phase=serving&tp=1&dp=1&tokens=131072&batch=8",
        ),
        Preset(
            label="Latent attention",
            query="model=deepseek-v3&phase=serving&device=h200&dp=1&ep=8&tokens=131072&batch=32&weight_bytes=1",
        ),
    ),
    lessons=(
        LessonLink(slug="tensor-parallelism", title="Tensor parallelism"),
        LessonLink(slug="pipeline-parallelism", title="Pipeline parallelism"),
        LessonLink(slug="tp-or-pp", title="TP or PP?"),
    ),
)
