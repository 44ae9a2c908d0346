"""Expert parallelism: every rank holds some experts; tokens go to them and come back."""

from collections.abc import Iterable, Iterator

from calculators.lab.calls import Call
from calculators.lab.measurements import Prediction
from calculators.lab.problems import Problem
from calculators.lab.spec import Spec


def contradictions(spec: Spec) -> Iterator[Problem]:
    """Not to be run yet."""
    yield Problem("job", f"The job “{spec.job}” is not built yet. Take another.")


def calls(spec: Spec) -> Iterator[Call]:
    """None yet."""
    yield from ()


def layers_by_rank(spec: Spec) -> tuple[range, ...]:
    """All of them."""
    return (range(spec.layers),) * spec.ranks


def memory(spec: Spec) -> Iterable[Prediction]:
    """Nothing is predicted yet."""
    return ()
