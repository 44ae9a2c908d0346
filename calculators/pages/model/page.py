"""The page *Model*: what a config.json says, how many parameters that makes, and how they can be split."""

from dataclasses import dataclass
from urllib.parse import urlencode

from calculators.fields import ModelField, model_key
from calculators.lab.spec import Job
from calculators.pages.model.chart import parts_chart
from calculators.pages.model.counts import Recount, people
from calculators.pages.model.form import ModelForm
from calculators.pages.model.sizes import sizes_in_words
from calculators.pages.model.tables import cache_table, splits_table
from calculators.predict.models.catalogue import Model, preset_of
from calculators.predict.models.formulas import cache_formula, parameter_formulas
from calculators.predict.models.parameters import active_parameters, parameter_parts
from calculators.predict.reading import reading
from calculators.predict.shapes import Layouts, ModelShape, Phase
from calculators.python_calls import python_call
from calculators.trials import Calculation, trial
from calculators.workbench import Answer, Calculator, Change, LessonLink, Preset, Table, run_it


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


def _answer(form: ModelForm) -> ModelPage:
    shape = form.cleaned_data["model"]
    parts, active, preset = parameter_parts(shape), active_parameters(shape), preset_of(shape)
    published = form.cleaned_data["published"]
    stated = published * 1e9 if published else preset.published_parameters if preset else None
    one_token = reading(shape, Layouts(), context_tokens=1).kv_bytes.item()
    return ModelPage(
        shape=shape,
        preset=preset,
        headline=_headline(shape, parts.total, active),
        sizes=tuple(sizes_in_words(shape)),
        recount=Recount(published=stated, counted=parts.total) if stated else None,
        published_active=people(preset.published_active) if preset and preset.published_active else "",
        splits=splits_table(shape),
        cache=cache_table(shape, one_token),
        cached_bytes=int(one_token),
        onward=_onward(shape),
        charts=(parts_chart(shape, parts),),
        explains=lambda: (*parameter_formulas(shape), cache_formula(shape)),
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
