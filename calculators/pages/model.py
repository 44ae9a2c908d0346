"""The page *Model*: what a config.json says, how many parameters that makes, and how they can be split."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from urllib.parse import urlencode

from django.utils.html import format_html
from django.utils.safestring import SafeString

from calculators.fields import AddressForm, Decimal, ModelField, model_key
from calculators.figures import Figure, axis, figure, predicted_bar
from calculators.lab.spec import Job
from calculators.predict.models.catalogue import Model, preset_of
from calculators.predict.models.formulas import cache_formula, parameter_formulas
from calculators.predict.models.parameters import Parts, active_parameters, parameter_parts
from calculators.predict.reading import reading
from calculators.predict.rules import sizes_that_work
from calculators.predict.shapes import Layouts, ModelShape, Phase
from calculators.python_calls import python_call
from calculators.trials import Calculation, trial
from calculators.units import both_bytes, counted, iec_bytes, plain
from calculators.workbench import (
    Answer,
    Calculator,
    Change,
    Chart,
    LessonLink,
    Preset,
    Row,
    Table,
    run_it,
    shown,
)

AGREES = 0.01
"""A count within this share of the published one was made of the right sizes; biases and the like are less."""

_UNITS = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"))
_CONTEXTS = (1_024, 8_192, 32_768, 131_072)
_MOST_SIZES_LISTED = 16
_PARTS = {
    "embedding": "Embedding",
    "attention": "Attention",
    "feed_forward": "Feed-forward",
    "experts": "Experts",
    "shared_experts": "Shared experts",
    "router": "Routers",
    "norms": "Norms",
    "output": "Output matrix",
}


class ModelForm(AddressForm):
    """A model, and the number of parameters that whoever made it states."""

    DEFAULTS = {"model": "llama-3.1-8b", "published": ""}  # noqa: RUF012

    model = ModelField()
    published = Decimal(
        label="Published parameters",
        low=0.001,
        high=1_000_000,
        instead="the catalogue's",
        help_text="in billions, to compare with; empty for the catalogue’s own",
    )


@dataclass(frozen=True, kw_only=True)
class Recount:
    """A published count beside the one that the sizes make [parameters]."""

    published: float
    counted: int

    @property
    def off_by(self) -> float:
        """The difference as a share of the published count."""
        return self.counted / self.published - 1

    @property
    def agrees(self) -> bool:
        return abs(self.off_by) <= AGREES

    @property
    def says(self) -> str:
        """Both counts and how far they are apart."""
        gap = f"{abs(self.off_by):.2%}".replace("%", " %")
        apart = (
            "less than 0.01 % apart" if gap == "0.00 %" else f"{gap} {'more' if self.off_by > 0 else 'less'}"
        )
        return f"Published: {people(self.published)}. These sizes make {people(self.counted, digits=5)}, {apart}."


@dataclass(frozen=True, kw_only=True)
class ModelPage(Answer):
    """A model by its parts."""

    shape: ModelShape
    preset: Model | None
    headline: str
    sizes: tuple[tuple[str, str], ...]
    recount: Recount | None
    published_active: str
    splits: Table
    cache: Table
    cached_bytes: int
    onward: tuple[Change, ...]


def people(parameters: float, *, digits: int = 3) -> str:
    """A count of parameters as people say it.

    >>> people(46_702_792_704), people(46_702_792_704, digits=5), people(124_337_664), people(1.026e12)
    ('46.7 billion', '46.703 billion', '124 million', '1.03 trillion')
    """
    for unit, name in _UNITS:
        if parameters >= unit:
            whole = len(f"{parameters / unit:.0f}")
            text = f"{parameters / unit:,.{max(0, digits - whole)}f}"
            return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {name}"
    return plain(parameters)


def _answer(form: ModelForm) -> ModelPage:
    shape = form.cleaned_data["model"]
    parts, active, preset = parameter_parts(shape), active_parameters(shape), preset_of(shape)
    published = form.cleaned_data["published"]
    stated = published * 1e9 if published else preset.published_parameters if preset else None
    bytes_cached = reading(shape, Layouts(), context_tokens=_CONTEXTS).kv_bytes.tolist()
    every_layer = reading(shape, Layouts(), context_tokens=1).kv_bytes.item()
    return ModelPage(
        shape=shape,
        preset=preset,
        headline=_headline(shape, parts.total, active),
        sizes=tuple(_sizes(shape)),
        recount=Recount(published=stated, counted=parts.total) if stated else None,
        published_active=people(preset.published_active) if preset and preset.published_active else "",
        splits=_splits(shape),
        cache=_cache(shape, bytes_cached, every_layer),
        cached_bytes=int(every_layer),
        onward=_onward(shape),
        charts=(_chart(shape, parts),),
        formulas=shown((*parameter_formulas(shape), cache_formula(shape))),
        python=python_call(parameter_parts, shape),
        runs=run_it(
            trial(_calculation(shape)),
            label="Run it for real: one token, two ranks",
            family="tp",
            back=MODEL.at(form.address),
        ),
    )


def _headline(shape: ModelShape, total: int, active: int) -> str:
    if shape.experts is None:
        return f"{people(total)} parameters, and every token uses all of them."
    return f"{people(total)} parameters, of which one token uses {people(active)}."


def _sizes(shape: ModelShape) -> Iterable[tuple[str, str]]:
    """What was read, in words."""
    matrices = "three matrices" if shape.gated else "two matrices"
    yield "Hidden size", plain(shape.hidden_size)
    yield "Layers", plain(shape.layers)
    if latent := shape.latent:
        yield (
            "Attention heads",
            (f"{shape.attention_heads}, with keys of {shape.head_dim} + {latent.rope_dim} elements"),
        )
        yield "Cached for each token", f"one vector of {latent.kv_rank} + {latent.rope_dim} for all heads"
    else:
        yield "Attention heads", f"{shape.attention_heads}, each {shape.head_dim} wide"
        yield "Key-value heads", f"{shape.kv_heads}{_sharing(shape)}"
    if shape.window:
        yield "Window", f"{shape.window.layers} layers look back {plain(shape.window.tokens)} tokens"
    if shape.dense_layers:
        where = f" in the first {counted(shape.dense_layers, 'layer')}" if shape.experts else ""
        yield "Feed-forward width", f"{plain(shape.ffn_width)}, {matrices}{where}"
    if experts := shape.experts:
        yield (
            "Experts in a layer",
            (
                f"{experts.routed}, each {plain(experts.width)} wide, {matrices}; a token visits {experts.per_token}"
            ),
        )
        if experts.shared_width:
            yield "Shared expert", f"{plain(experts.shared_width)} wide, visited by every token"
    yield "Vocabulary", plain(shape.vocab_size)
    yield "Output matrix", "the embedding again" if shape.tied_embeddings else "its own"
    if shape.positions:
        yield "Learned positions", plain(shape.positions)
    yield "Read from", shape.source


def _sharing(shape: ModelShape) -> str:
    heads, kv = shape.attention_heads, shape.kv_heads
    if heads == kv:
        return ", one for each head"
    return f", each for {heads // kv} heads" if heads % kv == 0 else ""


def _chart(shape: ModelShape, parts: Parts) -> Chart:
    names = [(name, label) for name, label in _PARTS.items() if getattr(parts, name)]
    held = [getattr(parts, name) for name, _ in names]
    used = [_used(shape, name, count) for (name, _), count in zip(names, held, strict=True)]
    labels = [label for _, label in names]
    sideways = {"orientation": "h", "hovertemplate": "%{y}: %{text}<extra></extra>"}
    bars = [predicted_bar("held", held, labels, colour="accent", says=[people(n) for n in held], **sideways)]
    heads = ["Part", "Parameters", "Share"]
    rows = [
        [label, plain(count), _share(count, parts.total)] for label, count in zip(labels, held, strict=True)
    ]
    rows.append(["All", plain(parts.total), "100\N{NO-BREAK SPACE}%"])
    if shape.experts:
        bars.append(
            predicted_bar(
                "used by one token",
                used,
                labels,
                colour="ep",
                says=[people(n) for n in used],
                pattern="/",
                **sideways,
            )
        )
        heads.append("One token uses")
        for row, count in zip(rows, [*used, sum(used)], strict=True):
            row.append(plain(count))
    return Chart(
        name="parts",
        figure=figure(
            bars,
            x=_ticks(max(held)),
            y=axis("") | {"autorange": "reversed", "showgrid": False},
            height=110 + 42 * len(names),
            barmode="group",
            bargap=0.3,
        ),
        caption=_caption(shape, parts),
        table=Table(
            name="parts",
            caption="The same numbers, over all layers.",
            heads=tuple(heads),
            rows=tuple(Row(cells=tuple(row), is_total=row[0] == "All") for row in rows),
        ),
    )


def _ticks(top: int) -> Figure:
    """An axis from 0 in the unit that people say the largest count in; “B” would be taken for bytes."""
    unit, name = next((each for each in _UNITS if top >= 4 * each[0]), (1, ""))
    steps = (nice * 10**power for power in count() for nice in (1, 2, 5))
    step = next(step for step in steps if 4.5 * step * unit >= top)
    ticks = [step * i for i in range(int(top / unit / step) + 2)]
    return axis(f"{name} parameters".strip()) | {
        "tickvals": [tick * unit for tick in ticks],
        "ticktext": [plain(tick) for tick in ticks],
        "range": [0, top * 1.06],
    }


def _used(shape: ModelShape, part: str, count: int) -> int:
    if part != "experts" or shape.experts is None:
        return count
    return count // shape.experts.routed * shape.experts.per_token


def _caption(shape: ModelShape, parts: Parts) -> str:
    counts = {label: getattr(parts, name) for name, label in _PARTS.items()}
    largest = max(counts, key=lambda label: counts[label])
    said = f"{largest}: {_share(counts[largest], parts.total)} of all parameters."
    if shape.experts is None:
        return f"Where the parameters are. {said}"
    return f"Where the parameters are, and how many of them one token uses. {said}"


def _share(count: float, total: float) -> str:
    share = count / total
    return (
        "< 0.1\N{NO-BREAK SPACE}%"
        if 0 < share < 0.001
        else f"{share:.1%}".replace("%", "\N{NO-BREAK SPACE}%")
    )


def _splits(shape: ModelShape) -> Table:
    notes = {"tp": _tensor_note(shape), "pp": _pipeline_note(shape)}
    if shape.experts:
        notes["ep"] = f"Shares out the {shape.experts.routed} experts of a layer equally."
    return Table(
        name="splits",
        caption="Sizes of each axis that divide this model, while the other axes are whole.",
        heads=("Axis", "Sizes that work", "What it does"),
        rows=tuple(
            Row(cells=(_badge(axis_name), _listed(sizes_that_work(shape, axis_name)), note))
            for axis_name, note in notes.items()
        ),
        texts=3,
    )


def _badge(axis_name: str) -> SafeString:
    return format_html('<span class="badge family-{}">{}</span>', axis_name, axis_name.upper())


def _listed(sizes: tuple[int, ...]) -> str:
    said = [plain(size) for size in sizes]
    if len(said) > _MOST_SIZES_LISTED:
        said = [*said[: _MOST_SIZES_LISTED - 2], "…", said[-1]]
    return ", ".join(said)


def _tensor_note(shape: ModelShape) -> str:
    cuts = "Shares out the heads and the width of the blocks."
    if shape.latent:
        return f"{cuts} Every rank caches the whole vector of a token: there is one for all heads."
    if shape.kv_heads == shape.attention_heads:
        return cuts
    return f"{cuts} Above {shape.kv_heads}, ranks hold copies of the same key-value heads."


def _pipeline_note(shape: ModelShape) -> str:
    if shape.layers > 2 and len(sizes_that_work(shape, "pp")) <= 2:
        return f"{plain(shape.layers)} layers make no equal stages of several: give the stages a layout of their own."
    return "Shares out the layers. Other sizes need stages of unequal depth."


def _cache(shape: ModelShape, cached: list[float], one_token: float) -> Table:
    heads = ["Tokens", "KV cache of one sequence"]
    rows = [[plain(tokens), both_bytes(size)] for tokens, size in zip(_CONTEXTS, cached, strict=True)]
    if shape.window:
        heads.append("Without the window")
        for row, tokens in zip(rows, _CONTEXTS, strict=True):
            row.append(iec_bytes(one_token * tokens))
    return Table(
        name="cache",
        caption="What one sequence keeps in 16 bits, on all devices together.",
        heads=tuple(heads),
        rows=tuple(Row(cells=tuple(row)) for row in rows),
    )


def _onward(shape: ModelShape) -> tuple[Change, ...]:
    """Every calculator that takes a model, with this one in its address."""
    from calculators.pages import CALCULATORS  # which lists this page, too

    key = model_key(shape)
    return tuple(
        Change(says=page.title, address=page.at(urlencode({"model": key})))
        for page in CALCULATORS
        if page is not MODEL and isinstance(page.form.base_fields.get("model"), ModelField)
    )


def _calculation(shape: ModelShape) -> Calculation:
    return Calculation(
        job=Job.TENSOR,
        phase=Phase.DECODE,
        hidden_size=shape.hidden_size,
        bytes_per_element=shape.bytes_per_element,
        layers=shape.layers,
        batch=1,
        tokens=1,
        devices=2,
    )


MODEL = Calculator(
    name="model",
    title="A model by its parts",
    asks="From a config.json or a name: how many parameters, where they are, what a token uses of them, and which "
    "splits divide them.",
    form=ModelForm,
    answer=_answer,
    presets=(
        Preset(label="Llama 3.1 8B", query=""),
        Preset(label="Mixtral 8x7B", query="model=mixtral-8x7b"),
        Preset(label="DeepSeek-V3", query="model=deepseek-v3"),
        Preset(label="gpt-oss 120B", query="model=gpt-oss-120b"),
        Preset(label="GPT-3 175B", query="model=gpt-3-175b"),
    ),
    lessons=(
        LessonLink(slug="tensor-parallelism", title="Tensor parallelism"),
        LessonLink(slug="tp-or-pp", title="TP or PP?"),
    ),
)
