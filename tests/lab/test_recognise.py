"""An algorithm is recognised by who sent how much to whom, and nothing that is not known is passed off as known."""

import pytest

from calculators.lab.compare import Comparison, compare
from calculators.lab.devices import Placement
from calculators.lab.measurements import Measurement
from calculators.lab.plan import make_plan
from calculators.lab.recognise import recognise
from calculators.lab.spec import Spec
from calculators.lab.splits import calls_of
from calculators.predict.collectives import Kind


def seen(spec: Spec, *, as_of: Spec | None = None, times: float = 1.0) -> list[Comparison]:
    """The plan of `spec` beside what a backend would have sent that works as the plan of `as_of` says."""
    placement = Placement(device="cpu", backend="gloo")
    moved = make_plan(as_of or spec, placement).predictions
    measured = [
        Measurement(
            quantity=p.quantity,
            rank=p.rank,
            peer=p.peer,
            detail=p.detail,
            value=times * p.predicted,
            steps=10,
        )
        for p in moved
    ]
    return compare(make_plan(spec, placement).predictions, measured)


def recognised(spec: Spec, comparisons: list[Comparison]) -> dict[Kind, tuple[tuple[str, ...], float]]:
    return {one.kind: (one.algorithms, one.factor) for one in recognise(spec, calls_of(spec), comparisons)}


SHARDED = {"job": "exchange", "pattern": "zero-1", "ranks": 4, "call_bytes": 2**20, "steps": 10}


def test_gloos_reduce_scatter_is_known_by_its_factor_of_two() -> None:
    spec = Spec.parse(SHARDED)

    found = recognised(spec, seen(spec))

    assert found[Kind.REDUCE_SCATTER] == (
        ("as an all-reduce of the whole tensor",),
        pytest.approx(2, rel=1e-4),
    )
    assert found[Kind.ALL_GATHER] == (("as a ring",), pytest.approx(1, rel=1e-4))


def test_a_reduce_scatter_made_of_an_all_to_all_is_told_from_a_ring_by_its_pairs() -> None:
    spec = Spec.parse({**SHARDED, "reduce_scatter": "all-to-all"})

    found = recognised(spec, seen(spec))

    assert found[Kind.REDUCE_SCATTER] == (("as an all-to-all and a sum",), pytest.approx(1, rel=1e-4))


def test_two_ranks_cannot_tell_a_ring_from_an_all_to_all_and_both_are_said() -> None:
    spec = Spec.parse({**SHARDED, "ranks": 2, "reduce_scatter": "all-to-all"})

    found = recognised(spec, seen(spec))

    assert found[Kind.REDUCE_SCATTER][0] == ("as a ring", "as an all-to-all and a sum")


def test_a_backend_that_surprises_the_plan_is_recognised_all_the_same() -> None:
    planned, moved = Spec.parse({**SHARDED, "reduce_scatter": "all-to-all"}), Spec.parse(SHARDED)

    found = recognised(planned, seen(planned, as_of=moved))

    assert found[Kind.REDUCE_SCATTER][0] == ("as an all-reduce of the whole tensor",)


def test_a_broadcast_down_a_binomial_tree_is_told_from_a_chain_and_a_star() -> None:
    spec = Spec.parse(
        {"job": "sharded", "phase": "training", "zero": 1, "ranks": 4, "layers": 2, "batch": 4, "steps": 10}
    )

    found = recognised(spec, seen(spec))

    assert found[Kind.BROADCAST] == (("down a binomial tree",), pytest.approx(1, rel=1e-3))


def test_what_no_algorithm_explains_is_said_to_be_nothing_known() -> None:
    spec = Spec.parse({"job": "tensor", "ranks": 4, "layers": 2, "steps": 10, "batch": 64})

    (found,) = recognise(spec, calls_of(spec), seen(spec, times=1.3))

    assert found.algorithms == ()
    assert found.sentence.startswith("All-reduce: as nothing that is known here; 1.3")


def test_without_a_wire_meter_nothing_is_recognised() -> None:
    spec = Spec.parse(SHARDED)

    assert recognise(spec, calls_of(spec), []) == []
