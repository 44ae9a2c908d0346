"""Data, context and expert traffic: published figures, properties, and every message counted on real arrays."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculators.predict.collectives import GLOO, NVLS, Kind
from calculators.predict.shapes import Phase
from calculators.predict.traffic import (
    capacity,
    context_parallel,
    data_parallel,
    expected_ranks,
    expert_parallel,
    hiding_block_tokens,
    host_copies,
    ulysses_crossover,
)
from calculators.predict.traffic.context import KINDS
from calculators.predict.traffic.data import STAGES
from tests.predict.sentences import exactly
from tests.predict.test_traffic import value_of

SMALL = st.integers(min_value=1, max_value=12)
RANKS = st.integers(min_value=1, max_value=16)
PHASES = st.sampled_from(Phase)


# --- data -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stage", "multiple"),
    [("ddp", 2), ("zero-1", 2), ("zero-2", 2), ("zero-3", 3)],
    ids=lambda value: str(value),
)
def test_the_zero_paper_s_volumes_are_2_psi_and_for_stage_3_half_as_much_again(stage, multiple):
    # Rajbhandari 2020 §7: baseline 2Ψ, stages 1 and 2 2Ψ, stage 3 3Ψ elements, for many ranks
    step = data_parallel(parameters=7.5e9, ranks=1_000_000, stage=stage)

    assert step.wire_bytes / 2 / 7.5e9 == pytest.approx(multiple, rel=1e-5)


@given(psi=st.integers(1, 10**6), n=RANKS, g=st.sampled_from([2, 4]), w=st.sampled_from([1, 2]), m=SMALL)
def test_each_stage_moves_what_its_formula_says(psi, n, g, w, m):
    def sent(stage, **more):
        step = data_parallel(
            parameters=psi,
            ranks=n,
            stage=stage,
            micro_batches=m,
            gradient_bytes_per_element=g,
            weight_bytes_per_element=w,
            **more,
        )
        return step.wire_bytes

    share = (n - 1) / n * psi
    assert sent("ddp") == pytest.approx(2 * share * g)
    assert sent("zero-1") == sent("zero-2") == pytest.approx(share * (g + w))
    assert sent("zero-2", reduce_each_micro_batch=True) == pytest.approx(share * (m * g + w))
    assert sent("zero-3") == pytest.approx(m * share * (g + 2 * w))
    assert sent("zero-3", reshard_after_forward=False) == pytest.approx(m * share * (g + w))
    assert sent("hsdp", replica_groups=4) == pytest.approx(m * share * (g + 2 * w) + 2 * 3 / 4 * psi / n * g)


def test_o_14_aicb_s_distributed_optimizer_scatters_fp32_gradients_and_gathers_bf16_weights():
    # AICB, G13B, data group of 16: reduce-scatter 6,422,958,080 and all-gather 3,211,479,040 bytes
    step = data_parallel(
        parameters=1_605_739_520,
        ranks=16,
        stage="zero-1",
        gradient_bytes_per_element=4,
        weight_bytes_per_element=2,
    )

    assert [(part.kind, part.full_bytes) for part in step.parts] == [
        (Kind.REDUCE_SCATTER, 6_422_958_080),
        (Kind.ALL_GATHER, 3_211_479_040),
    ]


def test_o_14_aicb_s_7b_model_on_64_replicas():
    # AICB, L7B TP 2: reduce-scatter 10,366,697,472 and all-gather 5,183,348,736 bytes, so 2,591,674,368 parameters
    step = data_parallel(
        parameters=5_183_348_736 / 2,
        ranks=64,
        stage="zero-1",
        gradient_bytes_per_element=4,
        weight_bytes_per_element=2,
    )

    assert [part.full_bytes for part in step.parts] == [10_366_697_472, 5_183_348_736]


def test_o_36_ten_billion_parameters_in_slices_move_60_gb_a_step():
    # stas00/ml-engineering, ZeRO-3: a 10B model in bf16 moves 10·2·3 GB a step
    step = data_parallel(parameters=10e9, ranks=10_000, stage="zero-3")

    assert step.wire_bytes == pytest.approx(10 * 2 * 3 * 1e9, rel=1e-3)


def test_o_36_idefics_at_42_gb_a_second_takes_seconds_a_step():
    # the same text: 80B parameters, 42.5 GB/s between nodes: 480 GB, about 11 seconds
    step = data_parallel(parameters=80e9, ranks=512, stage="zero-3")

    assert step.wire_bytes / 42.5e9 == pytest.approx(11.3, rel=0.01)


def test_section_5_4_the_playbook_s_elements_are_not_bytes():
    # Ultra-Scale Playbook A3 compares the element count Ψ with a link's bytes per second: half of what bf16 moves
    elements = 2 * (64 - 1) / 64 * 7e9

    assert data_parallel(parameters=7e9, ranks=64).wire_bytes / elements == 2


def test_section_5_4_deepspeed_s_logger_takes_the_world_for_the_group():
    # DeepSpeed's communication logger puts the world's size into the bus-bandwidth factor of a sub-group's calls
    group, world = data_parallel(parameters=1e6, ranks=2), data_parallel(parameters=1e6, ranks=16)

    assert world.wire_bytes / group.wire_bytes == (2 * 15 / 16) / (2 * 1 / 2) == 1.875


def test_section_5_4_an_all_gather_s_size_is_the_whole_not_the_shard():
    # TraceLens's all-gather example takes the input, one rank's shard, for S: too small by the number of ranks
    shard = data_parallel(parameters=1e6 / 8, ranks=8, stage="zero-1").parts[1]
    whole = data_parallel(parameters=1e6, ranks=8, stage="zero-1").parts[1]

    assert whole.wire_bytes / shard.wire_bytes == 8
    assert whole.handed_bytes == shard.full_bytes


def test_a_tied_embedding_is_summed_between_the_first_and_the_last_stage():
    # 2·(2−1)/2·V·h/t gradients
    plain, tied = (
        data_parallel(parameters=1e6, ranks=4, tied_parameters=parameters)
        for parameters in (0, 32_000 * 64 / 2)
    )

    assert tied.wire_bytes - plain.wire_bytes == 32_000 * 64 / 2 * 2
    assert tied.calls == plain.calls + 1


def test_gloo_moves_a_third_more_of_zero_3():
    # AG 1 + AG 1 + RS 2 = 4 where a real reduce-scatter makes it 3
    textbook, gloo = (
        data_parallel(parameters=1e6, ranks=4, stage="zero-3", backend=backend)
        for backend in (data_parallel.__kwdefaults__["backend"], GLOO)
    )

    assert gloo.wire_bytes / textbook.wire_bytes == pytest.approx(4 / 3)


def test_in_the_switch_plain_data_parallelism_sends_its_gradients_once():
    assert data_parallel(parameters=1e6, ranks=64, backend=NVLS).wire_bytes == 2e6


@pytest.mark.parametrize("stage", STAGES)
def test_replicas_that_serve_never_speak_unless_their_weights_are_in_slices(stage):
    served = data_parallel(parameters=1e6, ranks=4, stage=stage, phase=Phase.DECODE, micro_batches=9)

    assert served.wire_bytes == (0.75 * 2e6 if stage in ("zero-3", "hsdp") else 0)


def test_a_cut_into_units_makes_more_calls_and_no_more_bytes():
    whole, layers = (data_parallel(parameters=1e6, ranks=4, stage="zero-3", units=units) for units in (1, 32))

    assert (whole.calls, layers.calls) == (3, 96)
    assert whole.wire_bytes == layers.wire_bytes
    assert layers.parts[0].bytes_per_call == 2e6 / 32


# --- context ----------------------------------------------------------------------------------------------------------

LLAMA = {"attention_heads": 64, "kv_heads": 8, "head_dim": 128, "layers": 1, "ranks": 4, "tokens": 8192}


def test_the_ring_s_published_example_comes_out():
    # calculators.md §4.5: c 4, s 8192, 8 KV heads of 128, bf16
    forward = context_parallel(**LLAMA, phase=Phase.PREFILL).wire_bytes
    megatron, torch = (
        context_parallel(**LLAMA, phase=Phase.TRAINING, backward=way).wire_bytes - forward
        for way in ("megatron", "torch")
    )

    assert (forward, megatron, torch) == (25_165_824, 50_331_648, 92_274_688)
    assert torch / megatron == pytest.approx(1.83, abs=0.005)


def attend_around(c, block_bytes, *, gradients):
    """Blocks of keys visit every rank; with gradients each block's sum of them travels along, and home at last.

    Returns the bytes that each rank sends, having checked that every query saw every block, once.
    """
    sent = np.zeros(c)
    seen = [{rank} for rank in range(c)]
    held = list(range(c))  # whose block a rank has now
    for _ in range(c - 1):
        sent += block_bytes
        held = [held[(rank - 1) % c] for rank in range(c)]
        for rank in range(c):
            seen[rank].add(held[rank])
        if gradients:
            sent += (
                block_bytes  # the sum so far, to where its block is now (first to be filled there) or home
            )
    assert all(blocks == set(range(c)) for blocks in seen)
    return sent


@given(c=RANKS, b=SMALL, block=SMALL, heads=SMALL, kv=SMALL, d=SMALL, layers=SMALL)
def test_passing_the_blocks_around_sends_what_the_ring_says(c, b, block, heads, kv, d, layers):
    size = 2 * b * block * kv * d * 2
    ring = {
        "attention_heads": heads,
        "kv_heads": kv,
        "head_dim": d,
        "layers": layers,
        "ranks": c,
        "batch": b,
        "tokens": block * c,
    }

    forward = context_parallel(**ring, phase=Phase.PREFILL)
    step = context_parallel(**ring, phase=Phase.TRAINING)

    lap, lap_with_gradients = (attend_around(c, size, gradients=g).max() for g in (False, True))
    assert forward.wire_bytes == pytest.approx(layers * lap)
    assert step.wire_bytes == pytest.approx(layers * (lap + lap_with_gradients))
    assert step.group_wire_bytes == pytest.approx(c * step.wire_bytes)


@given(c=RANKS, s=SMALL, kv=SMALL, phase=st.sampled_from([Phase.PREFILL, Phase.TRAINING]))
def test_gathering_all_keys_moves_the_ring_s_bytes(c, s, kv, phase):
    ring, gather = (
        context_parallel(
            attention_heads=kv,
            kv_heads=kv,
            head_dim=8,
            layers=2,
            ranks=c,
            tokens=s * c,
            phase=phase,
            kind=kind,
        )
        for kind in ("ring", "all-gather")
    )

    assert gather.wire_bytes == pytest.approx(ring.wire_bytes)


def test_section_5_4_simumax_counts_the_gather_of_keys_twice():
    # SimuMax's all-gather context parallelism has twice (c−1)/c·2·b·s·h_kv·B forward
    simumax = 2 * (4 - 1) / 4 * 2 * 8192 * 8 * 128 * 2
    ours = context_parallel(**LLAMA, kind="all-gather", phase=Phase.PREFILL).wire_bytes

    assert simumax / ours == 2


@given(kv=st.sampled_from([1, 2, 4, 8]), group=st.integers(1, 8), c=st.integers(2, 8))
def test_ulysses_moves_no_more_than_the_ring_from_one_plus_h_over_h_kv_ranks(kv, group, c):
    heads = kv * group
    ring, ulysses = (
        context_parallel(
            attention_heads=heads,
            kv_heads=kv,
            head_dim=16,
            layers=1,
            ranks=c,
            tokens=c * 8,
            phase=Phase.PREFILL,
            kind=kind,
        ).wire_bytes
        for kind in ("ring", "ulysses")
    )

    if c <= kv:  # else heads are repeated
        less = ulysses <= ring * (1 + 1e-12)
        assert less == (c >= ulysses_crossover(attention_heads=heads, kv_heads=kv))


def test_ulysses_exchanges_whole_tokens_for_whole_heads():
    # every rank has s/c tokens of all heads before, all tokens of a/c heads after: counted on real arrays
    c, s, a, kv, d = 4, 16, 8, 4, 2
    rng = np.random.default_rng(1)
    sent = 0
    for heads in (a, kv, kv, a):
        whole = rng.random((s, heads, d)).astype(np.float16)
        for rank in range(c):
            mine = whole[rank * s // c : (rank + 1) * s // c]
            parts = np.split(mine, c, axis=1)
            sent += sum(part.nbytes for other, part in enumerate(parts) if other != rank)
        after = [
            np.concatenate([np.split(block, c, axis=1)[rank] for block in np.split(whole, c)])
            for rank in range(c)
        ]
        assert np.array_equal(np.concatenate(after, axis=1), whole)

    traffic = context_parallel(
        attention_heads=a,
        kv_heads=kv,
        head_dim=d,
        layers=1,
        ranks=c,
        tokens=s,
        phase=Phase.PREFILL,
        kind="ulysses",
    )

    assert traffic.group_wire_bytes == sent
    assert traffic.calls == 4


def test_ulysses_repeats_key_value_heads_that_are_too_few():
    few, enough = (
        context_parallel(**{**LLAMA, "ranks": 16, "kv_heads": kv}, phase=Phase.PREFILL, kind="ulysses")
        for kv in (8, 16)
    )

    assert few.wire_bytes == enough.wire_bytes


def test_one_decoded_token_s_outputs_are_summed_and_no_cache_moves():
    short, long = (
        context_parallel(**{**LLAMA, "tokens": tokens}, phase=Phase.DECODE) for tokens in (1024, 131_072)
    )

    assert short.wire_bytes == long.wire_bytes == 2 * 3 / 4 * 64 * 128 * 2 + 3 * 64 * 4
    assert short.calls == 2


def test_oracle_16_ring_attention_s_minimal_blocks():
    # Liu 2023: A100, 312 TFLOP/s: 1,040 tokens over NVLink of 300 GB/s, 24,960 over 12.5 GB/s
    tokens = hiding_block_tokens(flop_per_second=312e12, bytes_per_second=[300e9, 12.5e9])

    assert tokens.tolist() == [1040, 24_960]
    grouped = hiding_block_tokens(
        flop_per_second=312e12, bytes_per_second=300e9, attention_heads=64, kv_heads=8
    )
    assert grouped == 130


# --- experts ----------------------------------------------------------------------------------------------------------

MIXTURE = {"hidden_size": 64, "layers": 3, "tokens": 32, "experts": 16, "experts_per_token": 4}


@given(n=st.sampled_from([1, 2, 4, 8, 16]), k=st.integers(1, 16), t=SMALL, phase=PHASES, m=SMALL)
def test_dispatch_and_combine_move_k_copies_of_what_leaves_the_rank(n, k, t, phase, m):
    traffic = expert_parallel(
        **{**MIXTURE, "tokens": t, "experts_per_token": k},
        ranks=n,
        phase=phase,
        micro_batches=m,
        dispatch_bytes_per_element=1,
        combine_bytes_per_element=2,
    )

    one_way = t * k * 64 * (n - 1) / n * 3
    assert traffic.wire_bytes == pytest.approx(one_way * (1 + 2) * (2 * m if phase == Phase.TRAINING else 1))
    assert traffic.calls == (n > 1) * 3 * 2 * (2 * m if phase == Phase.TRAINING else 1)


def test_o_20_deepseek_s_bound_on_tokens_a_second():
    # DeepSeek ISCA'25 (2505.09343): 32 tokens, 9 destinations, "7K" hidden, FP8 out and BF16 back, 61 layers
    # Each of very many experts on a device of its own, 9 of them visited, none of them at home.
    layer = expert_parallel(
        hidden_size=7000,
        layers=1,
        tokens=32,
        experts=10**9,
        experts_per_token=9,
        ranks=10**9,
        phase=Phase.DECODE,
        dispatch_bytes_per_element=1,
        combine_bytes_per_element=2,
    )
    moved = layer.wire_bytes

    assert moved == pytest.approx((1 + 2) * 32 * 9 * 7000, rel=1e-8)
    assert moved / 50e9 == pytest.approx(120.96e-6, rel=1e-8)
    assert 2 * 61 * moved / 50e9 == pytest.approx(14.76e-3, rel=1e-3)
    assert 1 / (2 * 61 * moved / 50e9) == pytest.approx(67, abs=1)
    assert moved / 900e9 == pytest.approx(6.72e-6, rel=1e-8)
    assert 2 * 61 * moved / 900e9 == pytest.approx(0.82e-3, rel=1e-3)


@pytest.mark.parametrize(("experts", "k", "n"), [(8, 2, 4), (8, 3, 2), (12, 4, 3), (6, 6, 3), (8, 1, 8)])
def test_counting_every_choice_of_experts_gives_the_expected_ranks(experts, k, n):
    visited = [
        len({expert // (experts // n) for expert in chosen}) for chosen in combinations(range(experts), k)
    ]

    assert expected_ranks(experts=experts, experts_per_token=k, ranks=n) == pytest.approx(np.mean(visited))


def test_one_copy_for_each_rank_saves_what_several_experts_on_a_rank_share():
    each, once = (
        expert_parallel(**MIXTURE, ranks=4, phase=Phase.PREFILL, copies=copies).wire_bytes
        for copies in ("expert", "rank")
    )

    assert once / each == pytest.approx(4 * (1 - math.comb(12, 4) / math.comb(16, 4)) / 4)


def test_a_router_limited_to_4_nodes_sends_at_most_4_copies_between_them():
    assert host_copies(experts_per_token=8, hosts=16, most_hosts=4) == 4 * 15 / 16
    assert host_copies(experts_per_token=2, hosts=16, most_hosts=4) == 2 * 15 / 16
    assert host_copies(experts_per_token=8, hosts=1, most_hosts=4) == 0


def test_gathering_all_tokens_moves_ranks_over_k_times_as_much():
    routed, gathered = (
        expert_parallel(**MIXTURE, ranks=8, phase=Phase.PREFILL, dispatcher=dispatcher)
        for dispatcher in ("all-to-all", "all-gather")
    )

    assert gathered.wire_bytes == 2 * 3 * 7 * 32 * 64 * 2
    assert gathered.wire_bytes / routed.wire_bytes == 8 / 4


def test_padded_buffers_move_their_whole_size_and_unpadded_ones_what_is_in_them():
    def sent(**more):
        return expert_parallel(**MIXTURE, ranks=4, phase=Phase.PREFILL, **more).wire_bytes

    assert sent(capacity_factor=1.5) == 1.5 * sent()
    assert sent(capacity_factor=1.5, padded=False) == sent()
    assert sent(capacity_factor=0.5) == sent(capacity_factor=0.5, padded=False) == 0.5 * sent()


def test_capacity_rounds_up_and_not_past_a_whole_number():
    assert capacity(30, 1, 1, 1.1) == 33
    assert capacity(10, 2, 8, 1.0) == 3


# --- all of them ------------------------------------------------------------------------------------------------------

HEADS = {"attention_heads": 8, "kv_heads": 4, "head_dim": 16, "layers": 2}


def every_family(n, phase, hidden=1, m=1):
    """Each family and variant among n ranks, all sizes that hidden is a factor of times `hidden`."""
    for stage in STAGES:
        yield data_parallel(parameters=1000 * hidden, ranks=n, stage=stage, phase=phase, micro_batches=m)
    for kind in KINDS:
        yield context_parallel(
            **{**HEADS, "head_dim": 16 * hidden},
            ranks=n,
            phase=phase,
            kind=kind,
            tokens=8 * n,
            micro_batches=m,
        )
    for dispatcher in ("all-to-all", "all-gather"):
        yield expert_parallel(
            **{**MIXTURE, "hidden_size": 64 * hidden},
            ranks=n,
            phase=phase,
            dispatcher=dispatcher,
            micro_batches=m,
        )
    yield expert_parallel(
        **{**MIXTURE, "hidden_size": 64 * hidden}, ranks=n, phase=phase, capacity_factor=1.25, micro_batches=m
    )


@pytest.mark.parametrize("phase", Phase)
def test_a_rank_alone_sends_nothing(phase):
    for traffic in every_family(1, phase):
        assert (traffic.calls, traffic.rounds, traffic.wire_bytes, traffic.group_wire_bytes) == (0, 0, 0, 0)
        assert (traffic.handed_bytes, traffic.formulas) == (0, ())


@given(n=st.sampled_from([2, 4, 8]), phase=PHASES)
def test_a_model_twice_as_wide_moves_twice_as_much(n, phase):
    for narrow, wide in zip(every_family(n, phase), every_family(n, phase, hidden=2), strict=True):
        if narrow.family != "context" or phase != Phase.DECODE:  # softmax sums are one a head
            assert wide.wire_bytes == pytest.approx(2 * narrow.wire_bytes)


@given(n=st.sampled_from([2, 4, 8]), phase=PHASES, m=SMALL)
def test_every_formula_comes_to_its_figure(n, phase, m):
    for traffic in every_family(n, phase, m=m):
        for formula, figure in zip(
            traffic.formulas, (traffic.calls, traffic.wire_bytes), strict=bool(traffic.formulas)
        ):
            left, right = value_of(formula.numbers)
            assert left == pytest.approx(right, abs=0.01)
            assert right == pytest.approx(figure, abs=0.01)
            assert formula.legend or formula.symbols in ("1", "1 + 1", "1 + 1 + 1")


def test_arguments_broadcast_and_every_figure_has_their_shape():
    n = np.array([1, 2, 4, 8])[:, None]
    grids = (
        data_parallel(parameters=[1e6, 2e6, 3e6], ranks=n, stage="hsdp", tied_parameters=[0, 1, 2]),
        context_parallel(**{**HEADS, "layers": [1, 2, 3]}, ranks=n, phase=Phase.TRAINING, tokens=8),
        expert_parallel(**{**MIXTURE, "tokens": [1, 2, 3]}, ranks=n, phase=Phase.TRAINING, copies="rank"),
    )

    for grid in grids:
        shapes = {
            getattr(grid, name).shape
            for name in (
                "calls",
                "bytes_per_call",
                "rounds",
                "handed_bytes",
                "wire_bytes",
                "group_wire_bytes",
            )
        }
        assert shapes == {(4, 3)}
        assert grid.formulas == ()


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (
            lambda: data_parallel(parameters=1, ranks=2, stage="zero-4"),
            "stage is 'zero-4', which is not known here. Use one of: ddp, zero-1, zero-2, zero-3, hsdp.",
        ),
        (
            lambda: data_parallel(parameters=1, ranks=2, gradient_bytes_per_element=0),
            "gradient_bytes_per_element is 0, but it must be a number, more than 0 and at most 1e+18.",
        ),
        (
            lambda: context_parallel(**HEADS, ranks=2, phase=Phase.PREFILL, kind="star"),
            "kind is 'star', which is not known here. Use one of: ring, all-gather, ulysses.",
        ),
        (
            lambda: context_parallel(**HEADS, ranks=2, phase=Phase.PREFILL, backward="ideal"),
            "backward is 'ideal', which is not known here. Use one of: megatron, torch.",
        ),
        (
            lambda: expert_parallel(**MIXTURE, ranks=2, phase=Phase.PREFILL, dispatcher="star"),
            "dispatcher is 'star', which is not known here. Use one of: all-to-all, all-gather.",
        ),
        (
            lambda: expert_parallel(**MIXTURE, ranks=2, phase=Phase.PREFILL, copies="node"),
            "copies is 'node', which is not known here. Use one of: expert, rank.",
        ),
        (
            lambda: expert_parallel(**{**MIXTURE, "experts_per_token": 17}, ranks=2, phase=Phase.PREFILL),
            "experts_per_token is 17, but a layer has only 16 experts. Use 16 or less.",
        ),
        (
            lambda: expert_parallel(**MIXTURE, ranks=[2, 3], phase=Phase.PREFILL),
            "ranks is 3, which cannot share 16 experts equally. Nearest that work: 2 or 4.",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(wrong, sentence):
    with pytest.raises(ValueError, match=exactly(sentence)):
        wrong()
