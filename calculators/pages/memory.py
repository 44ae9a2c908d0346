"""The page *Memory*: what the fullest device of a layout holds, whether it fits, and what to change."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from calculators.cluster_fields import MOST_DEVICES, device_field
from calculators.families import WAYS
from calculators.families import Case as FamilyCase
from calculators.fields import AddressForm, Choice, Decimal, ModelField, WholeNumber
from calculators.figures import Figure, axis, figure, level, linear_byte_ticks, predicted_bar
from calculators.predict.devices import Device, device
from calculators.predict.memory import (
    OPTIMIZERS,
    PARTS,
    Memory,
    optimizer,
    room,
    serving_memory,
    training_memory,
)
from calculators.predict.memory.formulas import memory_formulas
from calculators.predict.memory.levers import Case, Lever, Serving, Training, largest_part, levers, together
from calculators.predict.rules import Violation, check
from calculators.predict.shapes import Layout, Layouts, Phase, Recompute
from calculators.python_calls import python_call
from calculators.units import both_bytes, counted, iec_bytes, whole_percent
from calculators.workbench import (
    Answer,
    Calculator,
    Change,
    Chart,
    LessonLink,
    Preset,
    Row,
    RunIt,
    Table,
    run_it,
    shown,
)

MOST_BARS = 9  # more would not be read at 390 px


class MemoryForm(AddressForm):
    """A model and a layout, what it is to do, and the device that is to hold it."""

    DEFAULTS = {  # noqa: RUF012
        "model": "llama-3.1-70b",
        "phase": "training",
        "device": "h100",
        "tp": "8",
        "pp": "1",
        "cp": "1",
        "dp": "8",
        "ep": "1",
        "etp": "1",
        "vpp": "1",
        "sp": "off",
        "zero": "0",
        "tokens": "8192",
        "micro_batch": "1",
        "micro_batches": "16",
        "recompute": "none",
        "optimizer": "mixed-adam",
        "batch": "16",
        "kv_bytes": "2",
        "weight_bytes": "released",
        "reserve": "10",
    }
    AXES = ("dp", "tp", "pp", "cp", "ep", "etp", "vpp")

    model = ModelField()
    phase = Choice(
        label="For", choices=[("training", "training"), ("serving", "serving: decode, one token at a time")]
    )
    device = device_field()
    tp = WholeNumber(label="Tensor, tp", low=1, high=1_024)
    pp = WholeNumber(label="Pipeline, pp", low=1, high=1_024)
    dp = WholeNumber(label="Data, dp", low=1, high=MOST_DEVICES)
    cp = WholeNumber(label="Context, cp", low=1, high=1_024)
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
    tokens = WholeNumber(
        label="Tokens", low=1, high=10_000_000, help_text="in a sequence; when serving, its context"
    )
    micro_batch = WholeNumber(label="Micro-batch", low=1, high=100_000, help_text="sequences at a time")
    micro_batches = WholeNumber(
        label="Micro-batches", low=1, high=1_000_000, help_text="of a replica in a step"
    )
    recompute = Choice(
        label="Recompute",
        choices=[
            ("none", "nothing: keep all"),
            ("selective", "attention scores, as flash attention does"),
            ("full", "all but each layer’s input"),
        ],
    )
    optimizer = Choice(label="Optimizer", choices=[(key, found.name) for key, found in OPTIMIZERS.items()])
    batch = WholeNumber(label="Sequences", low=1, high=1_000_000, help_text="at once, on one replica")
    kv_bytes = Choice(
        label="KV cache in", choices=[("2", "16 bits"), ("1", "8 bits"), ("0.5", "4 bits"), ("4", "32 bits")]
    )
    weight_bytes = Choice(
        label="Weights in",
        choices=[("released", "the model’s own width"), ("2", "16 bits"), ("1", "8 bits"), ("0.5", "4 bits")],
    )
    reserve = Decimal(
        label="Left free, %", low=0, high=99, help_text="of a device, for what is not counted here"
    )

    @property
    def case(self) -> Case:
        """What is to be held."""
        values = self.cleaned_data
        shape = values["model"]
        axes = {axis: values[axis] for axis in self.AXES}
        if values["phase"] == "serving":
            width = values["weight_bytes"]
            return Serving(
                shape=shape,
                layout=Layout(**axes | {"vpp": 1}),
                tokens=values["tokens"],
                batch=values["batch"],
                kv_bytes=float(values["kv_bytes"]),
                weight_bytes=None if width == "released" else float(width),
            )
        return Training(
            shape=shape,
            layout=Layout(**axes, sp=values["sp"] == "on", zero=int(values["zero"])),
            tokens=values["tokens"],
            micro_batch=values["micro_batch"],
            micro_batches=values["micro_batches"],
            recompute=Recompute[values["recompute"].upper()],
            optimizer=optimizer(values["optimizer"]),
        )

    def address_of(self, case: Case) -> str:
        """The address of another case with the same model, device and reserve."""
        layout = case.layout
        changes = {axis: str(getattr(layout, axis)) for axis in self.AXES}
        if isinstance(case, Training):
            changes |= {
                "sp": "on" if layout.sp else "off",
                "zero": str(layout.zero),
                "micro_batch": str(case.micro_batch),
                "micro_batches": str(case.micro_batches),
                "recompute": case.recompute.name.lower(),
            }
        else:
            width = case.weight_bytes
            changes |= {
                "batch": str(case.batch),
                "kv_bytes": f"{case.kv_bytes:g}",
                "weight_bytes": "released" if width is None else f"{width:g}",
                "vpp": str(self.cleaned_data["vpp"]),
            }
        return self.address_with(tokens=str(case.tokens), **changes)


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
        verdict=_verdict(chosen, total=total, limit=limit),
        largest=_largest(case.memory),
        violations=_violations(case),
        parts=_parts(case),
        changes=_changes(form, found) if found else None,
        advice=_advice(fits=fits, alone=len(alone), pulled=len(pulled), any_lever=bool(found)),
        way=tuple(Change(says=_step(lever), address=form.address_of(lever.case)) for lever in pulled),
        left_out=case.optimizer.leaves_out if isinstance(case, Training) else "",
        charts=(_chart(case, found, chosen, limit),),
        formulas=shown(memory_formulas(case)),
        python=_python(case),
        runs=tuple(_runs(form, case)),
    )


def _verdict(chosen: Device, *, total: float, limit: float) -> str:
    free = f"{chosen.name} has {iec_bytes(chosen.memory_bytes)}, of which {iec_bytes(limit)} are to be filled"
    over = total - limit
    return f"{free}: {iec_bytes(abs(over))} {'too little' if over > 0 else 'to spare'}."


def _largest(memory: Memory) -> str:
    part = largest_part(memory)
    share = getattr(memory, part).item() / memory.total.item()
    percent = whole_percent(share).replace(" ", "\N{NO-BREAK SPACE}")
    return f"Most of it, {percent}, is {_NAMES[part].lower()}: {_MEANINGS[part]}."


def _violations(case: Case) -> tuple[Violation, ...]:
    training = isinstance(case, Training)
    return check(
        case.shape,
        case.layout,
        phase=Phase.TRAINING if training else Phase.DECODE,
        tokens=case.tokens if training else None,
        uneven_stages=True,  # which is what is calculated: earlier stages take a layer more
    )


_NAMES = {
    "weights": "Weights",
    "gradients": "Gradients",
    "optimizer": "Optimizer’s state",
    "activations": "Activations",
    "kv_cache": "KV cache",
    "working": "Working memory",
}
_HEADS = {"optimizer": "Optimizer", "working": "Working"}
_MEANINGS = {
    "weights": "the parameters of this device’s layers, or its slice of them",
    "gradients": "one for every weight",
    "optimizer": "what Adam remembers of every weight, and its master copy",
    "activations": "what layers keep for the backward pass",
    "kv_cache": "the keys and values of all tokens so far",
    "working": "a layer gathered whole, or computed again",
}
_LOOKS = {
    "weights": ("ink", ""),
    "gradients": ("ink", "/"),
    "optimizer": ("ink", "."),
    "activations": ("accent", "x"),
    "kv_cache": ("accent", "-"),
    "working": ("muted", "|"),
}


def _parts(case: Case) -> Table:
    memory = case.memory
    total = memory.total.item()
    sizes = {part: getattr(memory, part).item() for part in PARTS}
    in_serving = "what one token of each sequence is on its way"
    rows = [
        Row(
            cells=(
                format_html(
                    '{} <span class="costs">{}</span>',
                    _NAMES[part],
                    in_serving if part == "activations" and isinstance(case, Serving) else _MEANINGS[part],
                ),
                both_bytes(size),
                whole_percent(size / total),
            )
        )
        for part, size in sizes.items()
        if size
    ]
    return Table(
        name="parts",
        caption="Predicted, on the fullest device.",
        heads=("", "Bytes", "Share"),
        rows=(*rows, Row(cells=("Together", both_bytes(total), "100 %"), is_total=True)),
    )


def _changes(form: MemoryForm, found: Sequence[Lever]) -> Table:
    return Table(
        name="changes",
        caption="Each change alone, those that leave least first.",
        heads=("Change, and what it costs", "Then holds", "Fits"),
        rows=tuple(
            Row(
                cells=(
                    _line(form, lever),
                    iec_bytes(lever.memory.total.item()),
                    "yes" if lever.fits else "no",
                )
            )
            for lever in found
        ),
    )


def _line(form: MemoryForm, lever: Lever) -> SafeString:
    """The change as a link to its state, and what it costs."""
    more = f" It takes {counted(lever.devices, 'more device')}." if lever.devices else ""
    return format_html(
        '<a href="{}">{}</a> <span class="costs">{}{}</span>',
        form.address_of(lever.case),
        lever.does,
        lever.costs,
        more,
    )


def _advice(*, fits: bool, alone: int, pulled: int, any_lever: bool) -> str:
    if not any_lever:
        return "Nothing on this page would make it smaller."
    if fits:
        return (
            "It fits as it is. This would leave room for longer sequences, or let a smaller device hold it:"
        )
    if alone == 1:
        return "One of these changes alone makes it fit:"
    if alone:
        return f"Any of {alone} changes alone makes it fit:"
    if pulled:
        return "None of these changes alone makes it fit. One after another they do:"
    return "No change on this page makes it fit, nor do several: take more devices, larger ones, or a smaller model."


def _step(lever: Lever) -> str:
    return f"{lever.does} Leaves {iec_bytes(lever.memory.total.item())}."


def _chart(case: Case, found: Sequence[Lever], chosen: Device, limit: float) -> Chart:
    """This layout beside its neighbours: each lever's state as a bar of its parts."""
    neighbours = found[: MOST_BARS - 1]
    names = ["as it is", *(_short(lever) for lever in neighbours)]
    under = ["now", *(_under_bar(lever) for lever in neighbours)]
    held = [case.memory, *(lever.memory for lever in neighbours)]
    columns = {part: [getattr(memory, part).item() for memory in held] for part in PARTS}
    drawn = [part for part in PARTS if any(columns[part])]
    totals = [memory.total.item() for memory in held]
    data = [
        predicted_bar(
            _NAMES[part],
            under,
            columns[part],
            colour=_LOOKS[part][0],
            pattern=_LOOKS[part][1],
            says=[iec_bytes(size) for size in columns[part]],
        )
        for part in drawn
    ]
    data.append(_limit(f"{chosen.name}, {iec_bytes(limit)}"))
    return Chart(
        name="memory",
        figure=figure(
            data,
            x=axis("") | {"type": "category"},
            y=axis("bytes on the fullest device") | linear_byte_ticks(max(*totals, limit)),
            barmode="stack",
            bargap=0.35,
            height=400,
            meta={"narrowHeight": 480},
            shapes=level(limit, "")["shapes"],
        ),
        caption=(
            f"What the fullest device holds, predicted: this layout, and each change alone. The line is what "
            f"{chosen.name} has room for."
        ),
        table=Table(
            name="neighbours",
            caption="The same numbers.",
            heads=("", "Together", *(_HEADS.get(part, _NAMES[part]) for part in drawn)),
            rows=tuple(
                Row(
                    cells=(
                        name,
                        iec_bytes(totals[row]),
                        *(iec_bytes(columns[part][row]) for part in drawn),
                    ),
                    is_chosen=row == 0,
                )
                for row, name in enumerate(names)
            ),
        ),
    )


def _limit(says: str) -> Figure:
    """The device's line in the legend: words beside the line itself would cover bars."""
    line = {"color": "var(--bad)", "width": 1.5, "dash": "dash"}
    return {"type": "scatter", "mode": "lines", "name": says, "x": ["now"], "y": [None], "line": line}


def _short(lever: Lever) -> str:
    """A lever in a few words."""
    key, _, size = lever.key.partition("-")
    if key in ("tp", "pp", "cp", "ep"):
        return f"{key.upper()} {size}"
    words = {
        "sp": "SP on",
        "zero": f"ZeRO-{size}",
        "recompute": f"recompute {'scores' if size == 'selective' else 'all'}",
        "kv": f"KV in {size} bits",
        "weights": f"weights in {size} bits",
        "micro": "half the micro-batch",
        "batch": "half the sequences",
        "context": "half the context",
    }
    return words[key]


def _under_bar(lever: Lever) -> str:
    """The same in what fits under a bar."""
    key, _, size = lever.key.partition("-")
    words = {
        "sp": "SP",
        "recompute": "scores" if size == "selective" else "recompute",
        "kv": f"KV {size} bit",
        "weights": f"{size} bit",
        "micro": "½ batch",
        "batch": "½ batch",
        "context": "½ context",
    }
    return words.get(key, _short(lever))


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


def _runs(form: MemoryForm, case: Case) -> Iterator[RunIt]:
    """The widest splits of the layout, each alone, as the lab runs them."""
    layout, training = case.layout, isinstance(case, Training)
    data = "zero-3" if layout.zero == 3 else "dp"
    sizes = {"tp": layout.tp, "pp": layout.pp, "cp": layout.cp, "ep": layout.ep}
    if training:
        sizes[data] = layout.dp
    back = MEMORY.at(form.address)
    widest = sorted((key for key, size in sizes.items() if size > 1), key=lambda key: -sizes[key])
    for key in widest[:2]:
        way = WAYS[key]
        wanted = FamilyCase(
            shape=case.shape,
            phase=Phase.TRAINING if training else Phase.DECODE,
            devices=sizes[key],
            batch=case.micro_batch if isinstance(case, Training) else case.batch,
            tokens=case.tokens,
            micro_batches=case.micro_batches if isinstance(case, Training) else 1,
        )
        found = way.trial(wanted) if way.is_for(wanted) else None
        if found is not None:
            found = replace(found, differences=(*found.differences, _TRAFFIC_ONLY))
        yield from run_it(found, label=f"Run its {way.short} for real", family=way.family, back=back)


_TRAFFIC_ONLY = "It measures the bytes that cross between ranks, not yet the memory that each of them holds."

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
