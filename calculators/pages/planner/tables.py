"""The tables of the page *Planner*: the quickest layouts, and the quickest of each kind that they are not of."""

from typing import Any

from django.utils.html import format_html

from calculators.pages.layout.words import TIME_PARTS
from calculators.pages.planner.form import PlannerForm
from calculators.pages.planner.found import address, link
from calculators.pages.planner.kinds import is_of
from calculators.pages.planner.numbers import rate
from calculators.predict.planner import Evaluated, Kind, OfAKind, Plan
from calculators.predict.shapes import Phase
from calculators.units import iec_bytes, plain, seconds, whole_percent
from calculators.workbench import Row, Table


def best_table(form: PlannerForm, found: Plan) -> Table:
    """The quickest that fit: how long a step takes, how much it holds, and what it waits for most."""
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
                    link(form, best, row),
                    seconds(best["step_seconds"][row]),
                    rate(best["tokens_per_second"][row]),
                    *((rate(1 / best["step_seconds"][row]),) if several else ()),
                    iec_bytes(best["memory_bytes"][row]),
                    _most(best, row),
                ),
                is_chosen=row == 0,
            )
            for row in range(len(best))
        ),
    )


def instead_table(form: PlannerForm, found: Plan, kinds: dict[str, Kind]) -> Table | None:
    """The best layout of each kind that the quickest is not of, and what it loses."""
    rows = [
        Row(cells=(name, *_loses(form, found, found.kinds[name])))
        for name, kind in kinds.items()
        if not is_of(found.best, kind)
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


def _loses(form: PlannerForm, found: Plan, kind: OfAKind) -> tuple[Any, ...]:
    """The cells of its row."""
    if kind.smallest is None:
        return "none keeps every rule", "–", "–", "–"
    if kind.best is None:
        least = iec_bytes(kind.smallest["memory_bytes"][0])
        says = format_html(
            'none fits: <a href="{}">the smallest</a> needs {}', address(form, kind.smallest, 0), least
        )
        return says, "–", "–", "–"
    best, other = found.best, kind.best
    loses = {name: other[f"{name}_seconds"][0] - best[f"{name}_seconds"][0] for name in TIME_PARTS}
    longer = other["step_seconds"][0] / best["step_seconds"][0] - 1
    return (
        link(form, other, 0),
        seconds(other["step_seconds"][0]),
        "under 1 %"
        if longer < 0.005
        else whole_percent(longer)
        if longer < 10
        else f"{longer + 1:,.0f} times",
        TIME_PARTS[max(loses, key=lambda name: loses[name])],
    )
