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
    least_rate: float | None = None

    def judged_at(self, slowness: float) -> Self:
        """A time judged beside the reference loop: on a machine `slowness` times slower it may take that much more.

        A rate may be that much lower. Both limits are printed. A machine that is quicker than the goals were set for
        gets no less time, and reaches no lower a rate.
        """
        judged = replace(self, time_limit=None, least_rate=None)
        if slowness <= 1:
            return judged
        if self.time_limit is not None:
            limit = self.time_limit * slowness
            goal = f"≤ {self.time_limit:g}; {limit:.3g} at {slowness:.2f} × the loop"
            return replace(judged, goal=goal, met=self.value <= limit)
        if self.least_rate is not None:
            least = self.least_rate / slowness
            goal = f"≥ {self.least_rate:g}; {least:.3g} at {slowness:.2f} × the loop"
            return replace(judged, goal=goal, met=self.value >= least)
        return self  # neither, or judged already


def at_most(name: str, value: float, limit: float, unit: str, *, note: str = "") -> Result:
    """A figure that must not exceed `limit`, whatever the machine."""
    return Result(name=name, value=value, unit=unit, goal=f"≤ {limit:g}", met=value <= limit, note=note)


def within(name: str, value: float, limit: float, unit: str, *, note: str = "") -> Result:
    """A time that must not exceed `limit` on the machine that the goals are for."""
    return replace(at_most(name, value, limit, unit, note=note), time_limit=limit)


def at_least(name: str, value: float, limit: float, unit: str, *, note: str = "") -> Result:
    """A figure that must reach `limit`."""
    return Result(name=name, value=value, unit=unit, goal=f"≥ {limit:g}", met=value >= limit, note=note)


def rate(name: str, value: float, least: float, unit: str, *, note: str = "") -> Result:
    """How much is done in a second, which must reach `least` on the machine that the goals are for."""
    return replace(at_least(name, value, least, unit, note=note), least_rate=least)


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
