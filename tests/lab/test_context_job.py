"""Sequences cut among ranks: what each holds and computes, what attention moves, and no byte of it unexplained."""

import math
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

from calculators.lab.jobs import blockwise
from calculators.lab.jobs.ring_attention import Share
from calculators.lab.measurements import Quantity
from calculators.lab.plan import make_plan
from calculators.lab.spec import Spec, SpecError
from calculators.lab.splits import calls_of, split_of
from calculators.predict.collectives import TEXTBOOK, sent_bytes
from calculators.predict.traffic.context import context_parallel
from tests.lab.conftest import ON_CPU, Outcome

SMALL = {
    "job": "context",
    "layers": 1,
    "hidden_size": 256,
    "attention_heads": 4,
    "ffn_width": 64,
    "vocab_size": 64,
    "steps": 10,
}
MEBIBYTE = 2**20
# Sequences of 256 tokens a rank: each call's full size is 1 MiB or more.
EXCHANGES = {
    "ring": {"attention": "ring", "batch": 2},
    "key-value-gather": {"attention": "key-value-gather", "batch": 2},
    "ulysses": {"attention": "ulysses", "batch": 4},
}


def context(**given: object) -> Spec:
    return Spec.parse({**SMALL, "phase": "training", **given})


def refused(**given: object) -> list[str]:
    with pytest.raises(SpecError) as refusal:
        context(**given)
    return [problem.message for problem in refusal.value.problems]


@pytest.mark.distributed
@pytest.mark.parametrize("phase", ["prefill", "training"])
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("exchange", list(EXCHANGES))
def test_sharded_equals_unsharded_and_no_byte_of_a_mebibyte_call_is_unexplained(
    run: Callable[..., Outcome], exchange: str, ranks: int, phase: str
) -> None:
    outcome = run(**SMALL, phase=phase, ranks=ranks, tokens=256 * ranks, **EXCHANGES[exchange])

    assert all(call.payload_bytes >= MEBIBYTE for call in outcome.plan.calls)
    assert outcome.is_verified
    assert [c for c in outcome.comparisons if c.unexplained] == []
    assert [c.measured for c in outcome.comparisons if c.quantity is Quantity.IDLE] == [0] * ranks
    wire = [c for c in outcome.comparisons if c.quantity is Quantity.WIRE]
    assert len(wire) == ranks
    assert all(c.measured > 0 for c in wire)  # forward too


@pytest.mark.distributed
@pytest.mark.parametrize(
    "given",
    [
        {"attention": "ring", "ranks": 3, "zigzag": True},
        {"attention": "key-value-gather", "ranks": 3, "zigzag": True, "reduce_scatter": "all-to-all"},
        {"attention": "ulysses", "ranks": 4},
    ],
    ids=lambda given: given["attention"],
)
def test_half_precision_and_zigzags_are_right_and_nothing_of_them_is_unexplained(
    run: Callable[..., Outcome], given: dict[str, object]
) -> None:
    sizes = {**SMALL, "hidden_size": 64, "batch": 1, "tokens": 48, "layers": 2, "dtype": "bfloat16"}

    outcome = run(**sizes, phase="training", **given)

    assert outcome.is_verified
    assert [c for c in outcome.comparisons if c.unexplained] == []
    parts = {c.detail for c in outcome.comparisons if c.quantity is Quantity.MEMORY}
    assert parts == {"weights", "gradients", "optimizer", "saved for backward"}


@pytest.mark.distributed
def test_one_rank_has_the_whole_sequence_and_speaks_to_nobody(run: Callable[..., Outcome]) -> None:
    outcome = run(**{**SMALL, "hidden_size": 64}, phase="training", ranks=1, tokens=16, batch=1)

    assert outcome.plan.calls == ()
    assert outcome.is_verified
    assert [c.measured for c in outcome.comparisons if c.quantity is Quantity.CALLS] == [0]


@pytest.mark.parametrize(
    ("attention", "kind"),
    [("ring", "ring"), ("key-value-gather", "all-gather"), ("ulysses", "ulysses")],
)
@pytest.mark.parametrize("phase", ["prefill", "training"])
def test_attention_moves_what_the_formulas_say(attention: str, kind: str, phase: str) -> None:
    spec = context(attention=attention, phase=phase, ranks=4, tokens=64, batch=3, layers=2)
    formula = context_parallel(
        attention_heads=4,
        kv_heads=4,
        head_dim=64,
        layers=2,
        ranks=4,
        phase=phase,
        kind=kind,
        batch=3,
        tokens=64,
        bytes_per_element=4,
    )
    calls = [call for call in calls_of(spec) if call.axis == "cp" and call.is_made_by(0)]

    each = [
        sent_bytes(call.op, call.payload_bytes, 4, algorithm=TEXTBOOK.algorithm_of(call.op)) for call in calls
    ]
    assert sum(call.times * sent for call, sent in zip(calls, each, strict=True)) == formula.wire_bytes.item()
    assert sum(call.times for call in calls) == formula.calls.item()


def test_ranks_of_a_sequence_sum_their_weights_gradients_once_a_training_step() -> None:
    spec = context(ranks=4, tokens=64)

    (weights,) = [call for call in calls_of(spec) if call.axis == "dp"]
    assert (weights.op, weights.times) == ("all-reduce", 1)
    assert weights.payload_bytes == 4 * spec.parameters
    assert [
        call for call in calls_of(context(ranks=4, tokens=64, phase="prefill")) if call.axis == "dp"
    ] == []


def test_every_rank_saves_its_share_of_the_tokens_and_holds_all_weights() -> None:
    one, four = (held(context(ranks=ranks, tokens=64)) for ranks in (1, 4))

    assert four["weights"] == one["weights"]
    assert four["saved for backward"] == one["saved for backward"] / 4


def held(spec: Spec) -> dict[str, float]:
    """What the first rank should hold, by the textbook."""
    return {p.detail: p.formula for p in split_of(spec).memory(spec) if p.rank == 0}


@pytest.mark.parametrize("zigzag", [False, True])
def test_every_query_meets_each_key_up_to_its_own_once(zigzag: bool) -> None:
    met = torch.zeros(24, 24, dtype=torch.int)
    for mine in shares(tokens=24, zigzag=zigzag):
        for source in shares(tokens=24, zigzag=zigzag):
            for meeting in mine.meetings(source.rank):
                queries, keys = mine.positions()[meeting.queries], source.positions()[meeting.keys]
                block = torch.ones(len(queries), len(keys), dtype=torch.int)
                met[queries[:, None], keys] += block.tril() if meeting.is_causal else block

    assert torch.equal(met, torch.ones_like(met).tril())


def test_a_zigzag_gives_every_rank_the_same_work_and_a_plain_cut_gives_the_last_the_most() -> None:
    assert work(zigzag=True) == [work(zigzag=True)[0]] * 4
    assert work(zigzag=False) == sorted(work(zigzag=False))
    assert work(zigzag=False)[-1] > 2 * work(zigzag=False)[0]


def shares(*, tokens: int, zigzag: bool) -> list[Share]:
    return [Share(rank=rank, ranks=4, tokens=tokens, zigzag=zigzag) for rank in range(4)]


def work(*, zigzag: bool) -> list[int]:
    """Queries × keys that each rank's meetings need; half of a causal one's are skipped."""

    def needed(share: Share) -> int:
        held = range(share.tokens // share.ranks)
        meetings = [meeting for source in range(share.ranks) for meeting in share.meetings(source)]
        return sum(2 * len(held[m.queries]) * len(held[m.keys]) // (1 + m.is_causal) for m in meetings)

    return [needed(share) for share in shares(tokens=64, zigzag=zigzag)]


def test_answers_from_two_blocks_merge_into_attention_to_both() -> None:
    q, k, v = torch.randn(3, 2, 3, 8, 4).unbind()
    mixed, log_sum = blockwise.attend(q, k[:, :, :5], v[:, :, :5], is_causal=False)

    blockwise.merge(mixed, log_sum, *blockwise.attend(q, k[:, :, 5:], v[:, :, 5:], is_causal=False))

    torch.testing.assert_close(mixed, F.scaled_dot_product_attention(q, k, v))
    torch.testing.assert_close(log_sum, (q @ k.mT / math.sqrt(4)).logsumexp(-1))


def test_a_decode_step_has_nothing_to_cut() -> None:
    assert refused(phase="decode") == [
        "phase is “decode”, but a decode step has one new token of each sequence, and context parallelism cuts "
        "sequences: there is nothing to cut but the cache of keys and values, which this job does not do. "
        "Take “prefill” or “training”."
    ]


def test_every_rank_has_as_many_tokens_and_in_a_zigzag_two_pieces() -> None:
    assert refused(ranks=4, tokens=62) == [
        "62 tokens cannot be cut into 4 equal pieces. Context parallelism gives every rank as many. "
        "Take 60 or 64, or another number of ranks."
    ]
    assert refused(ranks=4, tokens=60, zigzag=True) == [
        "60 tokens cannot be cut into 8 equal pieces. In a zigzag each rank has an early and a late piece of every "
        "sequence (rule R9). Take 56 or 64, or another number of ranks."
    ]


def test_ulysses_deals_whole_heads() -> None:
    assert refused(ranks=3, tokens=48, attention="ulysses") == [
        "4 attention heads cannot be dealt to 3 ranks evenly. Ulysses swaps each rank's tokens for whole heads "
        "(rule R10). Take 3 or 6, or another number of ranks."
    ]
    assert context(ranks=3, tokens=48, attention="ring").ranks == 3


def test_blocks_whose_scores_do_not_fit_are_refused() -> None:
    assert refused(ranks=2, tokens=16_384, batch=4) == [
        "The scores of a block, 8,192 queries with as many keys, would need about 16.0 GiB on all ranks together, "
        "and the lab stops at 8 GiB. Take fewer tokens, sequences or heads, or more ranks."
    ]
    assert context(ranks=4, tokens=16_384, batch=4).tokens == 16_384
    assert context(ranks=2, tokens=16_384, batch=4, attention="ulysses").tokens == 16_384


def test_gradients_of_gathered_keys_and_values_can_move_what_the_formula_says_on_gloo_too() -> None:
    given = {"ranks": 4, "tokens": 64, "attention": "key-value-gather"}

    assert excess(**given) > 0
    assert excess(**given, reduce_scatter="all-to-all") == 0


def excess(**given: object) -> float:
    """What gloo should move beyond the formula, all ranks together."""
    predictions = make_plan(context(**given), ON_CPU).predictions
    return sum(p.backend_excess for p in predictions if p.quantity is Quantity.WIRE)
