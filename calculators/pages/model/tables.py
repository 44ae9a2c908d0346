"""The tables of the page *Model*: the splits that divide it, and what a sequence keeps."""

from django.utils.html import format_html
from django.utils.safestring import SafeString

from calculators.predict.reading import reading
from calculators.predict.rules import sizes_that_work
from calculators.predict.shapes import Layouts, ModelShape
from calculators.units import both_bytes, iec_bytes, plain
from calculators.workbench import Row, Table

_CONTEXTS = (1_024, 8_192, 32_768, 131_072)
_MOST_SIZES_LISTED = 16


def splits_table(shape: ModelShape) -> Table:
    """The sizes of each axis that divide the model, and what the axis does."""
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


def cache_table(shape: ModelShape, one_token: float) -> Table:
    """What a sequence keeps at several lengths; `one_token` keeps so much without a window [bytes]."""
    cached = reading(shape, Layouts(), context_tokens=_CONTEXTS).kv_bytes.tolist()
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
