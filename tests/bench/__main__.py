"""`make bench`: every promise about speed, in one table and in build/bench.json.

`make bench ARGS="pages metering"` measures only those parts.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from tests.bench import experiments, launching, ledger, metering, pages, planner, product, reference
from tests.bench.results import Result, table, write

PARTS: dict[str, Callable[[], list[Result]]] = {
    "reference": reference.measure,
    "pages": pages.measure,
    "planner": planner.measure,
    "product": product.measure,
    "ledger": ledger.measure,
    "launching": launching.measure,
    "metering": metering.measure,
    "experiments": experiments.measure,
}


def main(wanted: list[str]) -> int:
    """Measure the parts; 1 when a goal was missed."""
    if unknown := set(wanted) - set(PARTS):
        print(
            f"There is no part {', '.join(sorted(unknown))}. Parts are {', '.join(PARTS)}.", file=sys.stderr
        )
        return 2
    results: list[Result] = []
    for name, measure in PARTS.items():
        if not wanted or name in wanted or name == "reference":
            print(f"measuring {name} …", file=sys.stderr, flush=True)
            before = reference.slowness()
            part = measure()
            slowness = (before + reference.slowness()) / 2
            results += [result.judged_at(slowness) for result in part]
    print(table(results))
    write(results, Path("build/bench.json"))
    return 1 if any(result.met is False for result in results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
