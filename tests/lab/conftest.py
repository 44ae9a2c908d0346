"""One warm launcher for all tests that start ranks, and a way to run a spec to its end."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from calculators.lab.compare import Comparison, compare
from calculators.lab.devices import Placement
from calculators.lab.launch import LocalLauncher
from calculators.lab.measurements import Event, Failed, Measurement, Verified
from calculators.lab.plan import Plan, make_plan
from calculators.lab.spec import Spec

collect_ignore_glob = ["programs/*"]
"""Somebody else's programs: they run when they are imported, and --doctest-modules would import them."""

ON_CPU = Placement(device="cpu", backend="gloo", staged=False, note="")


@dataclass
class Outcome:
    """Everything that one run said."""

    plan: Plan
    events: list[Event] = field(default_factory=list)

    def all(self, kind: type) -> list:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def failed(self) -> Failed | None:
        return next(iter(self.all(Failed)), None)

    @property
    def is_verified(self) -> bool:
        verdicts = self.all(Verified)
        return bool(verdicts) and all(verdict.holds for verdict in verdicts)

    @property
    def comparisons(self) -> list[Comparison]:
        return compare(self.plan.predictions, self.all(Measurement))


@pytest.fixture(scope="session")
def launcher() -> Iterator[LocalLauncher]:
    with LocalLauncher() as launcher:
        launcher.warm_up()
        yield launcher


@pytest.fixture
def run(launcher: LocalLauncher) -> Callable[..., Outcome]:
    def run(placement: Placement = ON_CPU, **given: object) -> Outcome:
        outcome = Outcome(make_plan(Spec.parse(given), placement))
        outcome.events = [event for event in launcher.run(outcome.plan) if event is not None]
        assert outcome.failed is None, outcome.failed
        return outcome

    return run
