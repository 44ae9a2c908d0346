"""One measured promise, and the table and file that hold them all."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self


@dataclass(frozen=True, kw_only=True)
class Result:
    """A promise as it was measured; `met` None means the measurement was too noisy to tell, or has no goal."""

    name: str
    value: float
    unit: str
    goal: str = ""
    met: bool | None = None
    note: str = ""
    time_limit: float | None = None

    def judged_at(self, slowness: float) -> Self:
        """A time judged beside the reference loop: on a machine `slowness` times slower it may take that much more.

        Both limits are printed. A machine that is quicker than the goals were set for gets no less time.
        """
        if self.time_limit is None:
            return self  # no time, or judged already
        if slowness <= 1:
            return replace(self, time_limit=None)
        limit = self.time_limit * slowness
        goal = f"≤ {self.time_limit:g}; {limit:.3g} at {slowness:.2f} × the loop"
        return replace(self, goal=goal, met=self.value <= limit, time_limit=None)


def at_most(name: str, value: float, limit: float, unit: str, *, note: str = "") -> Result:
    """A figure that must not exceed `limit`, whatever the machine."""
    return Result(name=name, value=value, unit=unit, goal=f"≤ {limit:g}", met=value <= limit, note=note)


def within(name: str, value: float, limit: float, unit: str, *, note: str = "") -> Result:
    """A time that must not exceed `limit` on the machine that the goals are for."""
    return replace(at_most(name, value, limit, unit, note=note), time_limit=limit)


def at_least(name: str, value: float, limit: float, unit: str, *, note: str = "") -> Result:
    """A figure that must reach `limit`."""
    return Result(name=name, value=value, unit=unit, goal=f"≥ {limit:g}", met=value >= limit, note=note)


def table(results: Sequence[Result]) -> str:
    """The results as aligned text, a line each."""
    rows = [("what", "measured", "goal", "", "note")]
    rows += [(r.name, f"{r.value:,.4g} {r.unit}", r.goal, _verdict(r), r.note) for r in results]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]]).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "─" * max(map(len, lines)), *lines[1:]])


def write(results: Sequence[Result], path: Path) -> None:
    """The results as JSON: name, value, unit, goal, met and note of each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(result) for result in results], indent=2, ensure_ascii=False) + "\n")


def _verdict(result: Result) -> str:
    if result.met is None:
        return "too noisy" if result.goal else ""
    return "met" if result.met else "MISSED"
