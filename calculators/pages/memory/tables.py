"""The tables of the page *Memory*: the parts of what is held, and what each change alone would leave."""

from collections.abc import Sequence

from django.utils.html import format_html
from django.utils.safestring import SafeString

from calculators.pages.memory.form import MemoryForm
from calculators.pages.memory.parts import MEANINGS, NAMES
from calculators.predict.memory import PARTS
from calculators.predict.memory.levers import Case, Lever, Serving
from calculators.units import both_bytes, counted, iec_bytes, whole_percent
from calculators.workbench import Row, Table


def parts_table(case: Case) -> Table:
    """What the fullest device holds, part by part."""
    memory = case.memory
    total = memory.total.item()
    sizes = {part: getattr(memory, part).item() for part in PARTS}
    in_serving = "what one token of each sequence is on its way"
    rows = [
        Row(
            cells=(
                format_html(
                    '{} <span class="costs">{}</span>',
                    NAMES[part],
                    in_serving if part == "activations" and isinstance(case, Serving) else MEANINGS[part],
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


def changes_table(form: MemoryForm, found: Sequence[Lever]) -> Table:
    """A line for each lever, which leads to its state."""
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
