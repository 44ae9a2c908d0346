"""Composed layouts: each axis alone is its family, pairs and tiers add up, and nothing is larger than it must be."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calculators.predict import placement
from calculators.predict.clusters import Cluster, Link, Tier
from calculators.predict.collectives import GLOO, NCCL_TREE, NVLS, TEXTBOOK, Kind
from calculators.predict.devices import DEVICES
from calculators.predict.models import parameters
from calculators.predict.models.catalogue import MODELS
from calculators.predict.shapes import Experts, LatentAttention, Layout, Layouts, ModelShape, Phase, Recompute
from calculators.predict.traffic import (
    block_matrices,
    block_matrix,
    composed,
    context_parallel,
    data_parallel,
    expert_parallel,
    pair_matrix,
    pipeline_parallel,
    tensor_parallel,
    tier_bytes,
)
from tests.predict.sentences import exactly

DENSE = ModelShape(
    name="small dense",
    hidden_size=64,
    layers=12,
    attention_heads=8,
    kv_heads=4,
    head_dim=8,
    ffn_width=96,
    vocab_size=320,
    bytes_per_element=2,
    source="made up",
    tied_embeddings=True,
)
SPARSE = replace(
    DENSE,
    name="small sparse",
    layers=13,
    tied_embeddings=False,
    experts=Experts(routed=16, per_token=3, width=32, shared_width=32, dense_layers=2),
)
LATENT = replace(
    SPARSE, name="small latent", latent=LatentAttention(kv_rank=16, rope_dim=4, query_rank=0, value_dim=8)
)
SHAPES = [DENSE, SPARSE, LATENT]
PHASES = st.sampled_from(Phase)
SIZES = st.sampled_from([1, 2, 4])


@st.composite
def legal(draw, *, most=64):
    """A shape and a layout that its rules allow, as far as traffic needs them."""
    shape = draw(st.sampled_from(SHAPES))
    tp, cp, dp, pp = (draw(SIZES) for _ in range(4))
    while tp * cp * dp * pp > most:
        dp, cp, pp = max(dp // 2, 1), (cp if dp > 1 else max(cp // 2, 1)), (pp if dp > 1 else max(pp // 2, 1))
    ep, etp = 1, tp
    if shape.experts:
        ep = draw(st.sampled_from([n for n in (1, 2, 4, 8) if (tp * cp * dp) % n == 0]))
        etp = draw(st.sampled_from([n for n in (1, 2, 4) if (tp * cp * dp) % (n * ep) == 0]))
    vpp = draw(st.sampled_from([1, 3])) if shape is DENSE and pp > 1 else 1
    sp = draw(st.booleans()) and tp > 1
    return shape, Layout(
        dp=dp, tp=tp, pp=pp, cp=cp, ep=ep, etp=etp, vpp=vpp, sp=sp, zero=draw(st.integers(0, 3))
    )


def moved(shape, layout, phase, **more):
    return composed(shape, layout, phase=phase, tokens=32, batch=16 if phase == Phase.TRAINING else 3, **more)


# --- one axis alone is its family -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phase", "t", "sp", "full"), list(product(Phase, [2, 4], [False, True], [False, True]))
)
def test_tensor_parallelism_alone_is_its_family(phase, t, sp, full):
    layouts = Layouts(tp=t, etp=t, sp=sp, micro_batch=2, recompute=Recompute.FULL if full else Recompute.NONE)
    alone = composed(DENSE, layouts, phase=phase, tokens=16, batch=8, vocabulary=True)

    family = tensor_parallel(
        hidden_size=64,
        layers=12,
        ranks=t,
        phase=phase,
        batch=2 if phase == Phase.TRAINING else 8,
        tokens=16,
        micro_batches=4,
        sequence_parallel="regather" if sp else "off",
        full_recompute=full,
        vocab_size=320,
    )

    same(alone.axes["tp"], family)
    assert alone.wire_bytes == pytest.approx(family.wire_bytes)
    assert alone.exchanges == family.calls


@pytest.mark.parametrize(("phase", "p", "v"), list(product(Phase, [2, 3, 4], [1, 3])))
def test_pipeline_parallelism_alone_is_its_family(phase, p, v):
    untied = replace(DENSE, tied_embeddings=False)
    alone = composed(untied, Layout(pp=p, vpp=v), phase=phase, tokens=16, batch=8)

    family = pipeline_parallel(
        hidden_size=64,
        stages=p,
        chunks=v,
        phase=phase,
        batch=1 if phase == Phase.TRAINING else 8,
        tokens=16,
        micro_batches=8,
    )

    same(alone.axes["pp"], family)
    assert alone.exchanges == family.exchanges


@pytest.mark.parametrize(
    ("phase", "kind", "backward"),
    list(product(Phase, ["ring", "all-gather", "ulysses"], ["megatron", "torch"])),
)
def test_context_parallelism_alone_is_its_family(phase, kind, backward):
    alone = composed(
        DENSE, Layout(cp=4, zero=0), phase=phase, tokens=16, batch=8, context=kind, context_backward=backward
    )

    family = context_parallel(
        attention_heads=8,
        kv_heads=4,
        head_dim=8,
        layers=12,
        ranks=4,
        phase=phase,
        kind=kind,
        backward=backward,
        batch=1 if phase == Phase.TRAINING else 8,
        tokens=16,
        micro_batches=8,
    )

    same(alone.axes["cp"], family)


@pytest.mark.parametrize("phase", Phase)
def test_expert_parallelism_alone_is_its_family(phase):
    alone = composed(
        SPARSE,
        Layout(dp=4, ep=4),
        phase=phase,
        tokens=16,
        batch=8,
        dispatch_bytes_per_element=1,
    )

    family = expert_parallel(
        hidden_size=64,
        layers=11,
        tokens={Phase.DECODE: 8, Phase.PREFILL: 8 * 16, Phase.TRAINING: 16}[phase],
        experts=16,
        experts_per_token=3,
        ranks=4,
        phase=phase,
        micro_batches=2,
        dispatch_bytes_per_element=1,
    )

    same(alone.axes["ep"], family)


@pytest.mark.parametrize(("stage", "zero"), [("ddp", 0), ("zero-1", 1), ("zero-2", 2), ("zero-3", 3)])
@pytest.mark.parametrize("phase", Phase)
def test_data_parallelism_alone_is_its_family(stage, zero, phase):
    alone = composed(DENSE, Layout(dp=4, zero=zero), phase=phase, tokens=16, batch=8)

    family = data_parallel(
        parameters=parameters.total_parameters(DENSE),
        ranks=4,
        stage=stage,
        phase=phase,
        micro_batches=2,
        units=12 if zero == 3 else 1,
    )

    same(alone.axes["dp"], family)


def same(axis, family):
    for name in (
        "calls",
        "bytes_per_call",
        "rounds",
        "handed_bytes",
        "wire_bytes",
        "group_wire_bytes",
        "control_bytes",
    ):
        assert getattr(axis, name) == pytest.approx(getattr(family, name)), name


# --- conservation -----------------------------------------------------------------------------------------------------


@settings(max_examples=150)
@given(
    case=legal(), phase=PHASES, backend=st.sampled_from([TEXTBOOK, GLOO, NCCL_TREE]), vocabulary=st.booleans()
)
def test_the_busiest_row_and_the_sum_of_the_matrix_are_what_the_totals_say(case, phase, backend, vocabulary):
    total = moved(*case, phase, backend=backend, vocabulary=vocabulary)

    table = pair_matrix(total)

    assert table.sum() == pytest.approx(total.world_wire_bytes)
    assert np.all(np.diag(table) == 0)
    if (
        backend is not NCCL_TREE
    ):  # ranks of a tree are not equally busy, and its busiest not the same on all axes
        assert table.sum(axis=1).max() == pytest.approx(total.wire_bytes)
    for axis, traffic in total.axes.items():
        own = pair_matrix(total, axis=axis)
        assert own.sum() == pytest.approx(total.world_wire_bytes_of(axis))
        assert own.sum(axis=1).max() == pytest.approx(traffic.wire_bytes)


@settings(max_examples=100)
@given(case=legal(), phase=PHASES)
def test_on_every_axis_but_the_pipeline_each_rank_sends_what_it_receives(case, phase):
    total = moved(*case, phase)

    for axis in total.axes:
        table = pair_matrix(total, axis=axis)
        if axis != "pp":
            assert table.sum(axis=0) == pytest.approx(table.sum(axis=1))


@settings(max_examples=100)
@given(case=legal(), phase=PHASES)
def test_bytes_stay_inside_the_groups_of_their_axis(case, phase):
    shape, layout = case
    total = moved(shape, layout, phase)

    for axis in total.axes:
        members = placement.groups(layout, axis)
        if axis == "dp":  # gradients are summed over the ranks that share a sequence, too
            whole = Layouts(dp=layout.dp * layout.cp, tp=layout.tp, pp=layout.pp)
            members = placement.groups(Layout(dp=whole.dp, tp=whole.tp, pp=whole.pp), "dp")
        inside = np.zeros((layout.world_size, layout.world_size), dtype=bool)
        for group in members:
            inside[np.ix_(group, group)] = True
        assert np.all(pair_matrix(total, axis=axis)[~inside] == 0)


def a_cluster(*sizes):
    link = Link(name="a link", bytes_per_second=1e9, latency_seconds=1e-6)
    return Cluster(device=DEVICES["h100"], tiers=tuple(Tier(devices=size, link=link) for size in sizes))


CLUSTERS = [
    a_cluster(64),
    a_cluster(4, 64),
    a_cluster(2, 8, 64),
    a_cluster(3, 66),
    a_cluster(6, 24, 72),
    a_cluster(5, 65),
]


def blocks_of(table, cluster):
    """Bytes of each tier, cell by cell: the innermost tier whose block holds both ranks."""
    found = [0.0] * len(cluster.tiers)
    for sender, receiver in zip(*np.nonzero(table), strict=True):
        tier = next(
            number
            for number, tier in enumerate(cluster.tiers)
            if sender // tier.devices == receiver // tier.devices
        )
        found[tier] += table[sender, receiver]
    return found


@settings(max_examples=150)
@given(
    case=legal(most=32),
    phase=PHASES,
    cluster=st.sampled_from(CLUSTERS),
    backend=st.sampled_from([TEXTBOOK, GLOO, NCCL_TREE]),
)
def test_tiers_are_the_matrix_s_blocks_and_add_up_to_the_total(case, phase, cluster, backend):
    total = moved(*case, phase, backend=backend)

    tiers = tier_bytes(total, cluster)

    assert tiers.total.sum() == pytest.approx(total.world_wire_bytes)
    for axis in total.axes:
        assert tiers.axes[axis].tolist() == pytest.approx(blocks_of(pair_matrix(total, axis=axis), cluster))


@settings(max_examples=150)
@given(
    case=legal(most=32),
    phase=PHASES,
    devices=st.sampled_from([1, 2, 3, 4, 8, 32, 64]),
    backend=st.sampled_from([TEXTBOOK, GLOO, NCCL_TREE]),
)
def test_blocks_of_devices_send_each_other_what_their_ranks_do(case, phase, devices, backend):
    total = moved(*case, phase, backend=backend)

    for axis in (None, *total.axes):
        table = block_matrix(total, devices=devices, axis=axis)

        pairs = pair_matrix(total, axis=axis)
        first = np.arange(0, len(pairs), devices)
        assert table == pytest.approx(np.add.reduceat(np.add.reduceat(pairs, first, axis=0), first, axis=1))


@settings(max_examples=50)
@given(case=legal(most=32), phase=PHASES)
def test_blocks_of_one_are_ranks_and_all_axes_at_once_are_each_axis_alone(case, phase):
    total = moved(*case, phase)

    at_once = block_matrices(total, devices=1)

    assert {axis for axis, traffic in total.axes.items() if traffic.calls > 0} == set(at_once)
    for axis, table in at_once.items():
        assert table == pytest.approx(pair_matrix(total, axis=axis))


@pytest.mark.parametrize("tp", [3, 6, 7])
def test_groups_that_do_not_fit_a_host_are_cut_where_its_border_is(tp):
    total = composed(
        replace(DENSE, layers=6), Layout(tp=tp, dp=3, etp=tp), phase=Phase.TRAINING, tokens=8, batch=3
    )
    cluster = a_cluster(4, 24)

    assert tier_bytes(total, cluster).total.tolist() == pytest.approx(blocks_of(pair_matrix(total), cluster))


def test_what_a_switch_adds_up_counts_for_the_tier_that_holds_the_group():
    total = composed(DENSE, Layout(tp=8, etp=8, dp=2), phase=Phase.PREFILL, tokens=8, batch=1, backend=NVLS)

    tiers = tier_bytes(total, a_cluster(8, 16))

    assert tiers.total.tolist() == [16 * total.wire_bytes, 0]


def test_16_384_ranks_have_tiers():
    shape = MODELS["llama-3.1-405b"].shape
    layout = Layout(tp=8, cp=16, pp=16, dp=8, sp=True, zero=1, etp=8)
    total = composed(shape, layout, phase=Phase.TRAINING, tokens=131_072, batch=128)

    tiers = tier_bytes(total, a_cluster(8, 16_384))

    assert tiers.total.sum() == pytest.approx(total.world_wire_bytes)
    assert tiers.axes["tp"][1] == 0
    assert tiers.axes["dp"][0] == 0


# --- what composes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "phase"), list(product(SHAPES, Phase)))
def test_one_rank_sends_nothing(shape, phase):
    alone = moved(shape, Layout(), phase, vocabulary=True)

    assert (alone.wire_bytes, alone.handed_bytes, alone.world_wire_bytes, alone.exchanges) == (0, 0, 0, 0)


@settings(max_examples=60)
@given(case=legal(), phase=PHASES)
def test_a_model_of_twice_the_hidden_size_sends_twice_the_activations(case, phase):
    shape, layout = case
    wide = replace(shape, hidden_size=2 * shape.hidden_size)
    narrow, doubled = moved(shape, layout, phase).axes, moved(wide, layout, phase).axes

    for axis in ("tp", "pp", "ep", "etp"):
        if not (axis == "pp" and shape.tied_embeddings):
            assert doubled[axis].wire_bytes == pytest.approx(2 * narrow[axis].wire_bytes)


def test_sequence_parallelism_makes_it_10_to_8_in_training_and_the_same_forward():
    def sent(phase, *, sp, **more):
        return moved(DENSE, Layout(tp=4, etp=4, sp=sp), phase, **more).axes["tp"].wire_bytes

    assert sent(Phase.TRAINING, sp=True) / sent(Phase.TRAINING, sp=False) == 10 / 8
    assert sent(Phase.TRAINING, sp=True, regather=False) == sent(Phase.TRAINING, sp=False)
    assert sent(Phase.PREFILL, sp=True) == sent(Phase.PREFILL, sp=False)


def test_section_5_4_the_playbook_says_sequence_parallelism_costs_nothing_more():
    # Ultra-Scale Playbook: same volume as tensor parallelism. It leaves the second gathering out: a quarter more
    playbook = moved(DENSE, Layout(tp=4, etp=4), Phase.TRAINING).axes["tp"].wire_bytes

    assert moved(DENSE, Layout(tp=4, etp=4, sp=True), Phase.TRAINING).axes["tp"].wire_bytes / playbook == 1.25


def test_with_sequence_parallelism_a_stage_hands_over_slices():
    whole, slices = (moved(DENSE, Layout(tp=4, pp=3, etp=4, sp=sp), Phase.PREFILL) for sp in (False, True))

    assert whole.axes["pp"].wire_bytes == 4 * slices.axes["pp"].wire_bytes


def test_scatter_gather_sends_slices_and_gathers_them_in_the_next_stage():
    plain, sliced = (
        moved(
            replace(DENSE, tied_embeddings=False),
            Layout(tp=4, pp=3, etp=4),
            Phase.TRAINING,
            scatter_gather=on,
        )
        for on in (False, True)
    )

    assert plain.axes["pp"].wire_bytes == 4 * sliced.axes["pp"].wire_bytes
    # 2 boundaries, both ways, 16 micro-batches: each message is gathered, 3/4 of 32·64·2 bytes
    extra = sliced.axes["tp"].group_wire_bytes - plain.axes["tp"].group_wire_bytes
    assert extra == 2 * 2 * 16 * 4 * (3 / 4 * 32 * 64 * 2)
    assert pair_matrix(sliced).sum() == sliced.world_wire_bytes


def test_experts_that_the_tensor_group_shares_are_blocks_like_any_other():
    total = moved(SPARSE, Layout(tp=4, etp=4), Phase.DECODE)

    # attention of 13 layers and feed-forward of 2 on tp, the experts of 11 on etp: 26 all-reduces
    assert (total.axes["tp"].calls, total.axes["etp"].calls) == (15, 11)
    assert total.axes["tp"].bytes_per_call == total.axes["etp"].bytes_per_call
    assert total.axes["ep"].calls == 0


def test_tokens_sent_to_experts_are_each_rank_s_own_share():
    whole = moved(SPARSE, Layout(dp=4, ep=4), Phase.PREFILL).axes["ep"]
    shared = moved(SPARSE, Layout(dp=2, tp=2, ep=4, sp=True), Phase.PREFILL).axes["ep"]

    assert shared.wire_bytes == whole.wire_bytes / 2


def test_without_sequence_parallelism_the_experts_results_are_gathered():
    off, on = (
        moved(SPARSE, Layout(tp=2, dp=2, ep=4, sp=sp), Phase.PREFILL).axes["tp"] for sp in (False, True)
    )

    assert [part.what for part in off.parts] == ["outputs of the blocks", "results of the experts"]
    assert off.wire_bytes_of(Kind.ALL_GATHER) == 11 * 3 * 32 * 64 * 2 / 2
    assert {part.kind for part in on.parts} == {Kind.ALL_GATHER, Kind.REDUCE_SCATTER}


def test_experts_gradients_are_summed_over_fewer_ranks_than_the_others():
    total = moved(SPARSE, Layout(dp=8, ep=4), Phase.TRAINING)
    held = 11 * 16 * parameters.expert_parameters(SPARSE) / 4

    assert total.axes["edp"].wire_bytes == 2 * 1 / 2 * held * 2
    rest = parameters.total_parameters(SPARSE) - 11 * 16 * parameters.expert_parameters(SPARSE)
    assert total.axes["dp"].wire_bytes == 2 * 7 / 8 * rest * 2


def test_ranks_that_share_a_sequence_share_gradients_too():
    together = moved(DENSE, Layout(dp=2, cp=4), Phase.TRAINING, micro_batches=1)
    plain = moved(DENSE, Layout(dp=8), Phase.TRAINING, micro_batches=1)

    assert together.axes["dp"].wire_bytes == plain.axes["dp"].wire_bytes


def test_a_tied_embedding_crosses_between_the_ends_of_a_pipeline():
    tied, untied = (
        moved(replace(DENSE, tied_embeddings=tied), Layout(pp=3), Phase.TRAINING) for tied in (True, False)
    )

    extra = pair_matrix(tied, axis="pp") - pair_matrix(untied, axis="pp")
    assert extra[0, 2] == extra[2, 0] == 320 * 64 * 2
    assert extra.sum() == 2 * 320 * 64 * 2
    assert tied.axes["pp"].calls == untied.axes["pp"].calls + 1


def test_deepseek_v3_s_published_layout_moves_most_between_experts():
    # Megatron Bridge: TP 2, PP 16, EP 64 on 1,024 devices (oracle 14's layout)
    total = composed(
        MODELS["deepseek-v3"].shape,
        Layout(tp=2, pp=16, dp=32, ep=64, sp=True, zero=1),
        phase=Phase.TRAINING,
        tokens=4096,
        batch=2048,
        dispatch_bytes_per_element=1,
    )

    assert total.layouts.world_size == 1024
    largest = max(total.axes, key=lambda axis: total.axes[axis].wire_bytes.item())
    assert largest == "ep"
    # the busiest stage has 4 sparse layers: 64 micro-batches × 2 passes × (1+2) B × 2,048 tokens × 8 × 7,168 × 63/64
    assert total.axes["ep"].wire_bytes == 4 * 64 * 2 * 3 * 2048 * 8 * 7168 * 63 / 64


@pytest.mark.parametrize("zero", [0, 1, 3])
@pytest.mark.parametrize("full", [False, True])
def test_walking_layer_by_layer_through_the_stages_gives_every_rank_s_bytes(zero, full):
    # 13 layers on 4 stages, the first 2 dense; tp 2 with sp, ep 4, dp 4, 8 micro-batches; written from the papers
    t, dp, ep, p, m, s, h, e = 2, 4, 4, 4, 8, 32, 64, 2
    passes = 3 if full else 2
    x = s * h * e
    attention, norms = 2 * 64 * 8 * (8 + 4), 2 * 64
    sent = []
    layers = iter(range(13))
    for stage, depth in enumerate((4, 3, 3, 3)):
        tensor = expert = 0.0
        common = 320 * h / t if stage in (0, 3) else 0.0
        common += h if stage == 3 else 0
        experts = 0.0
        for _ in range(depth):
            layer = next(layers)
            # gather and scatter around attention, and around feed-forward or the shared expert; inputs gathered again
            tensor += 2 * m * (2 * passes + 1) * (t - 1) / t * x
            common += attention / t + norms
            if layer < 2:
                common += 3 * 64 * 96 / t
            else:
                expert += m * passes * 2 * (ep - 1) / ep * (s / t) * 3 * h * e
                common += 64 * 16 + 3 * 64 * 32 / t
                experts += 16 * 3 * 64 * 32 / ep
        data = 0.0
        for held, n in ((common, dp), (experts, dp * t // ep)):
            volumes = {0: 2, 1: 2, 3: 3 * m}[zero]
            data += volumes * (n - 1) / n * held * e
        neighbours = (stage > 0) + (stage < p - 1)
        sent.append(tensor + expert + data + neighbours * m * x / t)

    layouts = Layouts(tp=t, dp=dp, pp=p, ep=ep, sp=True, zero=zero, recompute=2 if full else 0)
    total = composed(SPARSE, layouts, phase=Phase.TRAINING, tokens=s, batch=dp * m)

    assert total.wire_bytes == pytest.approx(max(sent))
    assert pair_matrix(total).sum(axis=1) == pytest.approx(np.repeat(sent, t * dp))


# --- many at once -----------------------------------------------------------------------------------------------------


def some_layouts(cases):
    return Layouts(**{axis: np.array([getattr(case, axis) for case in cases]) for axis in vars(cases[0])})


@settings(max_examples=40)
@given(data=st.data(), phase=PHASES)
def test_many_layouts_at_once_are_the_same_one_by_one(data, phase):
    shape = data.draw(st.sampled_from(SHAPES))
    cases = [
        layout
        for _, layout in data.draw(
            st.lists(legal().filter(lambda case: case[0] is shape), min_size=1, max_size=4)
        )
    ]

    together = moved(shape, some_layouts(cases), phase, vocabulary=True)

    one_by_one = [moved(shape, case, phase, vocabulary=True) for case in cases]
    for name in ("wire_bytes", "handed_bytes", "world_wire_bytes", "exchanges"):
        figures = np.broadcast_to(getattr(together, name), len(cases))
        assert figures == pytest.approx([float(getattr(one, name)) for one in one_by_one]), name
    for axis, traffic in together.axes.items():
        for name in ("calls", "rounds", "wire_bytes", "group_wire_bytes", "bytes_per_call"):
            figures = np.broadcast_to(getattr(traffic, name), len(cases))
            assert figures == pytest.approx([float(getattr(one.axes[axis], name)) for one in one_by_one]), (
                axis,
                name,
            )


def test_factored_layouts_stay_small_until_a_total_is_asked_for():
    layouts = Layouts(
        recompute=np.array([0, 2]).reshape(-1, 1, 1, 1, 1, 1),
        tp=np.array([1, 2, 4, 8]).reshape(-1, 1, 1, 1, 1),
        etp=np.array([1, 2, 4, 8]).reshape(-1, 1, 1, 1, 1),
        pp=np.array([1, 2, 4, 8, 16]).reshape(-1, 1, 1, 1),
        dp=2.0 ** np.arange(8).reshape(-1, 1, 1),
        micro_batch=np.array([1, 2, 4]).reshape(-1, 1),
        zero=np.arange(4),
    )

    total = composed(MODELS["llama-3.1-70b"].shape, layouts, phase=Phase.TRAINING, tokens=4096, batch=1024)

    everything = 2 * 4 * 5 * 8 * 3 * 4
    assert max(value.size for share in total.shares for value in share.full.values()) < everything
    assert total.axes["tp"].wire_bytes.size == 2 * 4 * 5 * 8 * 3
    assert total.axes["pp"].wire_bytes.size == 4 * 5 * 8 * 3
    assert total.axes["dp"].wire_bytes.size == 4 * 5 * 8 * 3 * 4
    assert total.wire_bytes.shape == (2, 4, 5, 8, 3, 4)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (
            lambda: pair_matrix(composed(DENSE, Layouts(tp=[1, 2]), phase=Phase.DECODE)),
            "There are 2 layouts, but matrices of pairs are of one each. Give one.",
        ),
        (
            lambda: pair_matrix(composed(DENSE, Layout(dp=2048), phase=Phase.DECODE)),
            "The layout has 2,048 ranks, but matrices of pairs go to 1,024. Ask for its bytes per tier.",
        ),
        (
            lambda: pair_matrix(composed(DENSE, Layout(dp=2), phase=Phase.DECODE), axis="sp"),
            "axis is 'sp', but traffic is on tp, cp, pp, ep, etp, dp, edp. Use one of those.",
        ),
        (
            lambda: block_matrix(composed(DENSE, Layout(dp=2), phase=Phase.DECODE), devices=0),
            "devices is 0, but a block has at least 1.",
        ),
        (
            lambda: block_matrix(composed(DENSE, Layout(dp=16_384), phase=Phase.DECODE), devices=8),
            "The layout has 2,048 blocks of 8, but matrices go to 1,024. Use larger blocks.",
        ),
        (
            lambda: tier_bytes(composed(DENSE, Layout(dp=32_768), phase=Phase.DECODE), a_cluster(8, 65_536)),
            "The layout has 32,768 ranks, but tiers go to 16,384. Use fewer.",
        ),
        (
            lambda: tier_bytes(composed(DENSE, Layout(dp=16), phase=Phase.DECODE), a_cluster(8)),
            "The layout has 16 ranks, but the cluster 8 devices. Use a smaller layout.",
        ),
        (
            lambda: composed(DENSE, Layouts(tp=0), phase=Phase.DECODE),
            "tp is 0, but it must be a number, 1 or more and at most 1e+18.",
        ),
        (
            lambda: composed(DENSE, Layouts(tp=[1, 2], zero=[0, 1, 2]), phase=Phase.DECODE),
            "The arrays do not broadcast: tp (2,), zero (3,). Give them one shape, or shapes that differ only where "
            "one of them is 1.",
        ),
        (
            lambda: composed(DENSE, Layout(cp=2), phase=Phase.DECODE, context="star"),
            "kind is 'star', which is not known here. Use one of: ring, all-gather, ulysses.",
        ),
    ],
)
def test_what_cannot_be_composed_is_refused_in_a_sentence(wrong, sentence):
    with pytest.raises(ValueError, match=exactly(sentence)):
        wrong()
