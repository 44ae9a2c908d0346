"""The calls of each family alone: right results, and every byte of theirs explained, on ranks that really run."""

from collections.abc import Callable

import pytest

from calculators.lab.devices import Placement
from calculators.lab.measurements import Log, Quantity
from calculators.lab.plan import make_plan
from calculators.lab.spec import Pattern, Spec
from calculators.lab.splits import calls_of
from calculators.lab.splits.exchange import routed_rows
from calculators.predict import collectives
from tests.lab.conftest import ON_CPU, Outcome

SIZES = {"job": "exchange", "repeats": 2, "steps": 10}


def exchange(**given: object) -> Spec:
    return Spec.parse({**SIZES, **given})


def by_pair(outcome: Outcome) -> dict[tuple[int, int], float]:
    return {
        (c.rank, c.peer): c.unexplained
        for c in outcome.comparisons
        if c.quantity is Quantity.PAIR and c.peer is not None
    }


@pytest.mark.distributed
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("pattern", list(Pattern))
def test_every_call_gives_what_it_must_and_no_pair_has_a_byte_unexplained(
    run: Callable[..., Outcome], pattern: Pattern, ranks: int
) -> None:
    outcome = run(**SIZES, pattern=pattern, ranks=ranks, skew=1.5)

    assert outcome.is_verified
    assert by_pair(outcome) == {(i, j): 0 for i in range(ranks) for j in range(ranks) if i != j}
    others = [c for c in outcome.comparisons if c.quantity is not Quantity.PAIR]
    assert {c.quantity for c in others} == {Quantity.CALLS, Quantity.HANDED, Quantity.WIRE, Quantity.IDLE}
    assert [c for c in others if c.unexplained] == []
    assert [c.measured for c in others if c.quantity is Quantity.IDLE] == [0] * ranks


@pytest.mark.distributed
@pytest.mark.parametrize(
    "given",
    [
        {"pattern": "gradients", "ranks": 3, "call_bytes": 1_004},
        {"pattern": "zero-3", "ranks": 3, "call_bytes": 12},
        {"pattern": "ring", "ranks": 3, "call_bytes": 4},
        {"pattern": "ulysses", "ranks": 3, "dtype": "bfloat16", "call_bytes": 1_002},
        {"pattern": "key-value-gather", "ranks": 2, "call_bytes": 3 * 2**20},
        {"pattern": "experts", "ranks": 4, "skew": 8.0, "hidden_size": 8, "call_bytes": 32 * 5},
        {"pattern": "experts", "ranks": 4, "skew": 0.0, "hidden_size": 8, "call_bytes": 32},
    ],
    ids=lambda given: f"{given['pattern']} {given['call_bytes']} B",
)
def test_odd_sizes_and_empty_messages_are_explained_to_the_byte_too(
    run: Callable[..., Outcome], given: dict[str, object]
) -> None:
    outcome = run(**SIZES, **given)

    assert outcome.is_verified
    assert set(by_pair(outcome).values()) == {0}


@pytest.mark.distributed
@pytest.mark.parametrize("pattern", ["zero-3", "ring", "ulysses", "experts"])
def test_staging_through_host_memory_changes_neither_results_nor_bytes(
    run: Callable[..., Outcome], pattern: str
) -> None:
    staged = Placement(device="cpu", backend="gloo", staged=True, note="")

    outcome = run(staged, **SIZES, pattern=pattern)

    assert outcome.is_verified
    assert set(by_pair(outcome).values()) == {0}
    assert any("staging through host memory took" in log.text for log in outcome.all(Log))


def test_a_call_that_gives_other_numbers_is_not_verified() -> None:
    torch = pytest.importorskip("torch", reason="needs torch: pip install 'sixfold[lab]'")
    from calculators.lab.jobs.exchange import ExchangeJob

    job = ExchangeJob(exchange(), rank=0, group=None, device=torch.device("cpu"))
    ((_, musts),) = job.exchanges
    job.exchanges = ((lambda: iter([job.given]), musts),)  # an all-reduce that leaves what was there

    assert not job.verify().holds


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize(
    ("pattern", "factor"),
    [
        # formulas.md §2, DP and CP: of each full size S, as a multiple of (n−1)/n.
        ("gradients", 2),
        ("zero-1", 2),
        ("zero-2", 2),
        ("zero-3", 3),
        ("key-value-gather", 1),
        ("ulysses", 4),
    ],
)
def test_the_formula_part_is_the_textbooks(pattern: str, factor: int, ranks: int) -> None:
    plan = make_plan(exchange(pattern=pattern, ranks=ranks, call_bytes=24_000), ON_CPU)

    for wire in (p for p in plan.predictions if p.quantity is Quantity.WIRE):
        assert wire.formula == pytest.approx(10 * 2 * factor * 24_000 * (ranks - 1) / ranks, rel=1e-12)


def test_a_ring_sends_its_block_once_less_than_there_are_ranks() -> None:
    # formulas.md §2: (c−1)/c of all keys and values; a block is 1/c of them.
    plan = make_plan(exchange(pattern="ring", ranks=4, call_bytes=1_000), ON_CPU)

    assert [(c.source, c.destination, c.times) for c in plan.calls] == [(r, (r + 1) % 4, 6) for r in range(4)]
    assert {p.formula for p in plan.predictions if p.quantity is Quantity.WIRE} == {10 * 2 * 3 * 1_000.0}


def test_a_reduce_scatter_on_gloo_shows_the_other_half_as_the_backends() -> None:
    plan = make_plan(exchange(pattern="zero-1", ranks=2, call_bytes=8_192), ON_CPU)

    wire = next(p for p in plan.predictions if p.quantity is Quantity.WIRE)

    assert (wire.formula, wire.backend_excess) == (20 * 8_192, 20 * 4_096)
    assert wire.backend_excess == 20 * float(collectives.reduce_scatter_bytes(8_192, 2))


def test_a_rank_hands_its_slice_to_an_all_gather_and_the_whole_to_a_reduce_scatter() -> None:
    plan = make_plan(exchange(pattern="zero-1", ranks=4, call_bytes=8_000), ON_CPU)

    handed = next(p for p in plan.predictions if p.quantity is Quantity.HANDED)

    assert handed.predicted == 20 * (8_000 + 2_000)


def test_every_row_is_routed_and_comes_back_by_the_way_it_went() -> None:
    spec = exchange(pattern="experts", ranks=4, skew=1.0)

    rows, (dispatch, combine) = routed_rows(spec), calls_of(spec)

    assert [sum(row) for row in rows] == [256] * 4  # 256 KiB in rows of 1 KiB
    assert dispatch.parts == tuple(tuple(count * 1_024 for count in row) for row in rows)
    assert combine.parts == tuple(zip(*dispatch.parts, strict=True))
    assert combine.payload_bytes == max(sum(row) for row in combine.parts)


def test_the_same_seed_routes_alike_and_another_one_otherwise() -> None:
    first, again, other = (
        routed_rows(exchange(pattern="experts", ranks=4, skew=1.0, seed=seed)) for seed in (1, 1, 2)
    )

    assert first == again != other


def test_skew_sends_most_rows_to_the_first_expert_and_none_shares_them_out() -> None:
    loads = {
        skew: [
            sum(column)
            for column in zip(*routed_rows(exchange(pattern="experts", ranks=4, skew=skew)), strict=True)
        ]
        for skew in (0.0, 1.0, 8.0)
    }

    # Zipf: shares 1 : 1/2 : 1/3 : 1/4 of 1,024 rows are 491.5, 245.8, 163.8, 122.9; ± 5 standard deviations.
    assert loads[0.0] == pytest.approx([256] * 4, abs=70)
    assert loads[1.0] == pytest.approx([491.5, 245.8, 163.8, 122.9], abs=80)
    assert loads[8.0][0] > 1_000
    assert {sum(load) for load in loads.values()} == {1_024}
