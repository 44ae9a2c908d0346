"""Runs of data-parallel jobs that tests share, and what is asked of each."""

from collections.abc import Callable

import pytest

from calculators.lab.compare import Comparison, compare
from calculators.lab.launch import LocalLauncher
from calculators.lab.measurements import Measurement, Quantity, Series
from calculators.lab.plan import make_plan
from calculators.lab.spec import Spec
from tests.lab.conftest import ON_CPU, Outcome

# Head, embedding and layer have 1 MiB or more each.
WIDE = {"layers": 1, "hidden_size": 256, "attention_heads": 4, "ffn_width": 512, "vocab_size": 1_024}
# No number of ranks divides these.
UNEVEN = {"layers": 2, "hidden_size": 62, "attention_heads": 2, "ffn_width": 45, "vocab_size": 37}
SHORT = {"batch": 4, "tokens": 4, "steps": 10}

Runs = Callable[..., Outcome]


@pytest.fixture(scope="module")
def once(launcher: LocalLauncher) -> Runs:
    """Runs a spec to its end; the same one again is not run again."""
    done: dict[Spec, Outcome] = {}

    def run(**given: object) -> Outcome:
        spec = Spec.parse({**SHORT, **given})
        if spec not in done:
            outcome = done[spec] = Outcome(make_plan(spec, ON_CPU))
            outcome.events = [event for event in launcher.run(outcome.plan) if event is not None]
            assert outcome.failed is None, outcome.failed
        return done[spec]

    return run


def assert_nothing_is_unexplained(outcome: Outcome) -> None:
    """Every prediction of every rank was measured, and was right to the byte."""
    assert outcome.is_verified
    assert len(outcome.comparisons) == len(outcome.plan.predictions)
    assert [c for c in outcome.comparisons if c.unexplained] == []
    assert sum(c.quantity is Quantity.IDLE for c in outcome.comparisons) == outcome.plan.world_size


def of(outcome: Outcome, quantity: Quantity, detail: str = "") -> list[Comparison]:
    """One quantity of each rank, in order."""
    return [c for c in outcome.comparisons if (c.quantity, c.detail) == (quantity, detail)]


def moved(outcome: Outcome) -> float:
    """Bytes that all ranks together really sent."""
    return sum(
        c.measured
        for c in compare(outcome.plan.predictions, outcome.all(Measurement))
        if c.quantity is Quantity.WIRE
    )


def series(outcome: Outcome, name: str) -> dict[int, tuple[float, ...]]:
    """One series of each rank that told it."""
    return {event.rank: event.values for event in outcome.all(Series) if event.name == name}
