"""The formulas of a layout's axes, each in the words of its family."""

from collections.abc import Mapping
from dataclasses import dataclass

from calculators.pages.layout.words import AXIS_FAMILIES, AXIS_NAMES, first_up
from calculators.predict.traffic import Traffic
from calculators.workbench import ShownFormula, shown


@dataclass(frozen=True, kw_only=True)
class AxisFormulas:
    """What explains one axis."""

    family: str
    name: str
    formulas: tuple[ShownFormula, ...]


def explained_by(families: Mapping[str, Traffic | None]) -> tuple[tuple[AxisFormulas, ...], str]:
    """Each axis by its family's formulas, and the axes that no family speaks for."""
    explained, silent = [], []
    for name, found in families.items():
        if found is None or not found.formulas:
            silent.append(name.upper())
            continue
        explained.append(
            AxisFormulas(
                family=AXIS_FAMILIES[name],
                name=first_up(AXIS_NAMES[name]),
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
