"""One quantity is one number, whichever module says it: where two formulas stay, both say the same of random cases.

Two of a kind stay where one is quick and the other tells where everything goes (`timing` beside `traffic`), or where
one takes any schedule and the other what a layout says (`stages` beside `schedules`).
"""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calculators.predict import stages
from calculators.predict.clusters import Cluster, Link, Tier
from calculators.predict.collectives import Kind, all_reduce_bytes, sent_bytes, transfer_seconds
from calculators.predict.compute import (
    attended_tokens,
    attention_matmuls,
    attention_width,
    decode_flops,
    feed_forward_matmuls,
    forward_flops,
    training_flops,
)
from calculators.predict.devices import DEVICES, Device
from calculators.predict.exchanges import exchanges
from calculators.predict.implementations import MEGATRON, MEGATRON_2021
from calculators.predict.memory import MIXED_ADAM, serving_memory, training_memory
from calculators.predict.memory.kv_cache import kv_cache_bytes
from calculators.predict.memory.states import rank_parameters
from calculators.predict.models import parameters
from calculators.predict.models.catalogue import MODELS
from calculators.predict.placement import size, span
from calculators.predict.planner import Space, Task, evaluate
from calculators.predict.reading import distinct_experts, reading
from calculators.predict.rules import Case, masks, minimum_devices
from calculators.predict.schedules import (
    bubble_over_ideal,
    bubble_seconds,
    in_flight,
    sends_per_micro_batch,
)
from calculators.predict.serving import decode_work
from calculators.predict.shapes import (
    Experts,
    LatentAttention,
    Layout,
    Layouts,
    ModelShape,
    Phase,
    Recompute,
    SlidingWindow,
)
from calculators.predict.timing import PEAK, decode_step, prefill, training_step
from calculators.predict.traffic import (
    composed,
    expected_ranks,
    expert_parallel,
    pipeline_parallel,
    tensor_parallel,
)
from calculators.predict.traffic.overlap import data_parallel_link
from calculators.predict.traffic.routing import route, uniform

SPEED = (
    1e9  # bytes/s of the only link, which answers at once: seconds × this are the bytes that are waited for
)
DENSE = ModelShape(
    name="dense",
    hidden_size=64,
    layers=12,
    attention_heads=8,
    kv_heads=2,
    head_dim=8,
    ffn_width=96,
    vocab_size=320,
    bytes_per_element=2,
    source="made up",
)
SPARSE = replace(DENSE, name="sparse", experts=Experts(routed=16, per_token=3, width=32, shared_width=48))
UNSHARED = replace(DENSE, name="unshared", experts=Experts(routed=16, per_token=3, width=32))
LATENT = replace(
    SPARSE, name="latent", latent=LatentAttention(kv_rank=16, rope_dim=4, query_rank=24, value_dim=12)
)
WINDOWED = replace(DENSE, name="windowed", window=SlidingWindow(tokens=50, layers=8))
TIED = replace(DENSE, name="tied", tied_embeddings=True, positions=128)
SHAPES = (DENSE, SPARSE, UNSHARED, LATENT, WINDOWED, TIED)
SIZES = st.sampled_from([1, 2, 4])
NOTHING_HIDDEN = {
    "overlapped_tensor": False,
    "overlapped_sends": False,
    "overlapped_data": False,
    "gathered_context": True,
}


@st.composite
def split(draw, shapes=SHAPES, *, chunks=True):
    """A shape of equal layers, and a layout that its rules allow, with stages of equal depth."""
    shape = draw(st.sampled_from(shapes))
    tp, cp, dp, pp = draw(SIZES), draw(SIZES), draw(SIZES), draw(st.sampled_from([1, 2, 3, 4]))
    ep, etp = 1, tp
    if shape.experts:
        ep = draw(st.sampled_from([n for n in (1, 2, 4, 8) if tp * cp * dp % n == 0]))
        etp = draw(st.sampled_from([n for n in (1, 2, 4) if tp * cp * dp % (n * ep) == 0]))
        etp = tp if ep == 1 and draw(st.booleans()) else etp
    vpp = draw(st.sampled_from([1, 3])) if chunks and pp in (2, 4) else 1
    sp = draw(st.booleans()) and tp > 1
    return shape, Layout(
        dp=dp, tp=tp, pp=pp, cp=cp, ep=ep, etp=etp, vpp=vpp, sp=sp, zero=draw(st.integers(0, 3))
    )


def one_link(layout, *, latency=1e-30, device=DEVICES["h100"]):
    link = Link(name="link", bytes_per_second=SPEED, latency_seconds=latency)
    return Cluster(device=device, tiers=(Tier(devices=layout.world_size, link=link),))


def waited(shape, layout, *, batch, tokens=48, recompute=0, program=MEGATRON):
    """Bytes that a training step waits for, by what takes them; nothing of it hidden."""
    step = training_step(
        shape,
        Layouts.of(layout, recompute=recompute),
        one_link(layout),
        tokens=tokens,
        batch=batch,
        implementation=replace(program, **NOTHING_HIDDEN),
        efficiency=PEAK,
    )
    return {part.name: getattr(step, part.name) * SPEED for part in fields(step)}


def axes_of(shape, layout, *, phase, **more):
    return composed(
        shape, layout if isinstance(layout, Layouts) else Layouts.of(layout), phase=phase, **more
    ).axes


# --- What timing waits for is what traffic sends ----------------------------------------------------------------------


@settings(deadline=None, max_examples=200)
@given(case=split(), micro_batches=st.integers(1, 4), recompute=st.sampled_from(list(Recompute)))
def test_a_training_step_waits_for_the_bytes_that_its_layers_send(case, micro_batches, recompute):
    shape, layout = case
    batch = layout.dp * micro_batches

    found = waited(shape, layout, batch=batch, recompute=recompute)

    sent = axes_of(
        shape,
        Layouts.of(layout, recompute=recompute),
        phase=Phase.TRAINING,
        tokens=48,
        batch=batch,
        context="all-gather",
    )
    assert found["tensor"] == pytest.approx(sent["tp"].wire_bytes, abs=1e-6)
    assert found["context"] == pytest.approx(sent["cp"].wire_bytes, abs=1e-6)
    assert found["expert"] == pytest.approx(sent["ep"].wire_bytes + sent["etp"].wire_bytes, abs=1e-6)


@settings(deadline=None, max_examples=100)
@given(case=split(), way=st.sampled_from([False, True]))
def test_the_ring_of_context_parallelism_sends_what_gathering_does(case, way):
    shape, layout = case

    gathered, passed_on = (
        axes_of(shape, layout, phase=Phase.TRAINING, tokens=48, batch=layout.dp, context=kind)["cp"]
        for kind in ("all-gather", "ring")
    )

    assert gathered.wire_bytes == pytest.approx(passed_on.wire_bytes)


@settings(deadline=None, max_examples=200)
@given(
    case=split((DENSE, SPARSE, UNSHARED, LATENT, WINDOWED)), more=st.integers(1, 4), scattered=st.booleans()
)
def test_each_further_micro_batch_waits_for_the_sends_of_a_stage_between_two_others(case, more, scattered):
    shape, layout = case
    program = replace(MEGATRON, scattered_sends=scattered)

    once, again = (
        waited(shape, layout, batch=layout.dp * m, program=program)["pipeline"] for m in (1, 1 + more)
    )

    sent = axes_of(
        shape, layout, phase=Phase.TRAINING, tokens=48, batch=layout.dp * more, scatter_gather=scattered
    )
    plain = axes_of(shape, layout, phase=Phase.TRAINING, tokens=48, batch=layout.dp * more)
    between = sent["pp"].wire_bytes
    if layout.pp == 2:  # each is at an end: the last sends its last chunk nowhere
        between = between * 2 * layout.vpp / (2 * layout.vpp - 1)
    arrived = (
        sent["tp"].group_wire_bytes - plain["tp"].group_wire_bytes
    )  # gathered on all stages, of all hops
    hops = max(layout.pp * layout.vpp - 1, 1)
    gathered = arrived / layout.tp / hops * layout.vpp
    assert again - once == pytest.approx(between + gathered, abs=1e-6)


@settings(deadline=None, max_examples=200)
@given(case=split(chunks=False), micro_batches=st.integers(1, 4))
def test_gradients_and_slices_of_weights_are_those_of_the_first_stage(case, micro_batches):
    shape, layout = case
    batch = layout.dp * micro_batches

    found = waited(shape, layout, batch=batch)["data"]

    total = composed(
        shape,
        Layouts.of(layout),
        phase=Phase.TRAINING,
        tokens=48,
        batch=batch,
        gradient_bytes_per_element=MEGATRON.gradient_bytes,
    )
    first = total.on_stage(0)
    between_ends = [share for share in total.shares if share.axis == "pp" and share.kind == Kind.ALL_REDUCE]
    replicas = [share for share in total.shares if share.axis in ("dp", "edp")]
    sent = sum(share.sent * first.of(share.full) for share in (*replicas, *between_ends))
    assert found == pytest.approx(sent, abs=1e-6)


@settings(deadline=None, max_examples=200)
@given(case=split(), batch=st.integers(1, 3))
def test_reading_a_prompt_waits_for_the_bytes_that_prefill_sends(case, batch):
    shape, layout = case
    layout = replace(layout, zero=0)

    step = prefill(
        shape,
        Layouts.of(layout, micro_batch=batch),
        one_link(layout),
        tokens=48,
        batch=batch,
        implementation=replace(MEGATRON, **NOTHING_HIDDEN),
        efficiency=PEAK,
    )

    sent = axes_of(shape, layout, phase=Phase.PREFILL, tokens=48, batch=batch, context="all-gather")
    assert step.tensor * SPEED == pytest.approx(sent["tp"].wire_bytes, abs=1e-6)
    assert step.context * SPEED == pytest.approx(sent["cp"].wire_bytes, abs=1e-6)
    assert step.expert * SPEED == pytest.approx(sent["ep"].wire_bytes + sent["etp"].wire_bytes, abs=1e-6)


# --- What decoding exchanges ------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=200)
@given(case=split(chunks=False), batch=st.integers(1, 9))
def test_a_token_exchanges_what_traffic_counts_call_by_call_and_byte_by_byte(case, batch):
    shape, layout = case
    layout = replace(layout, zero=0, sp=False)  # one token cannot be cut along the tokens (R7)

    found = exchanges(shape, Layouts.of(layout), batch=batch)

    total = composed(shape, Layouts.of(layout), phase=Phase.DECODE, batch=batch)
    named = {"tp": "tensor", "cp": "context", "ep": "expert", "etp": "sliced", "pp": "pipeline"}
    for axis, name in named.items():
        assert getattr(found, f"{name}_calls") == pytest.approx(total.axes[axis].calls), axis
    # All stages one after another: a rank of each. Of the pipeline, every stage but the last sends.
    for axis, name in named.items():
        one_of_each = sum(
            share.sent * total.on_stage(stage).of(share.full)
            for stage in range(layout.pp)
            for share in total.shares
            if share.axis == axis
        )
        assert getattr(found, f"{name}_bytes") == pytest.approx(one_of_each), axis
    assert found.control_bytes == total.control_bytes
    assert found.calls + total.control_calls == total.exchanges


@settings(deadline=None, max_examples=200)
@given(
    case=split(chunks=False),
    batch=st.integers(1, 9),
    context=st.integers(0, 500),
    latency=st.floats(1e-7, 1e-2),
)
def test_a_token_at_the_data_sheet_s_speeds_takes_what_serving_says(case, batch, context, latency):
    shape, layout = case
    layouts, cluster = Layouts.of(layout), one_link(layout, latency=latency)

    step = decode_step(shape, layouts, cluster, batch=batch, context_tokens=context, efficiency=PEAK)

    work = decode_work(shape, layouts, device=cluster.device, batch=batch, context_tokens=context)
    speed = work.over(bytes_per_second=SPEED, latency_seconds=latency)
    assert step.total == pytest.approx(speed.seconds)
    assert step.compute == pytest.approx(work.device_seconds)


@settings(deadline=None, max_examples=50)
@given(case=split(chunks=False), batch=st.integers(1, 9), context=st.integers(1, 500))
def test_the_link_inside_and_the_link_between_share_out_the_same_exchanges(case, batch, context):
    shape, layout = case
    link = Link(name="link", bytes_per_second=SPEED, latency_seconds=1e-5)
    given_work = {"device": DEVICES["h100"], "batch": batch, "context_tokens": context}

    whole = decode_work(shape, Layouts.of(layout), **given_work)
    shared = decode_work(shape, Layouts.of(layout), inside=link, **given_work)

    over = {"bytes_per_second": SPEED, "latency_seconds": 1e-5}
    assert shared.over(**over).seconds == pytest.approx(whole.over(**over).seconds)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_small_exchange_takes_one_latency_however_many_ranks_and_a_large_one_a_round_s_for_each_step(ranks):
    layout, alpha = Layout(tp=ranks), 1e-3
    cluster = one_link(layout, latency=alpha)
    free = replace(
        cluster, tiers=(Tier(devices=ranks, link=replace(cluster.tiers[0].link, bytes_per_second=1e18)),)
    )

    token = decode_step(DENSE, Layouts.of(layout), free, batch=1, context_tokens=0)
    prompt = prefill(DENSE, Layouts.of(layout), free, tokens=48)

    calls = 2 * DENSE.layers
    family = tensor_parallel(
        hidden_size=64, layers=DENSE.layers, ranks=ranks, phase=Phase.PREFILL, tokens=48, algorithm="ring"
    )
    assert token.tensor == pytest.approx(calls * alpha)
    assert prompt.tensor == pytest.approx(family.rounds * alpha)
    assert family.rounds == calls * 2 * (ranks - 1)
    assert prompt.tensor == pytest.approx(
        transfer_seconds(family.wire_bytes, family.rounds, bytes_per_second=1e18, latency_seconds=alpha)
    )


def test_tokens_a_second_of_the_planner_are_those_of_serving():
    cluster = one_link(Layout(tp=4, pp=2, dp=2), latency=1e-5)
    task = Task(shape=DENSE, cluster=cluster, tokens=100, batch=8, phase=Phase.DECODE)

    found = next(iter(evaluate(task, Space(tp=(4,), pp=(2,)))))

    layouts = Layouts(tp=4, pp=2, dp=2)
    step = decode_step(DENSE, layouts, cluster, batch=4, context_tokens=100)
    at_peak = decode_step(DENSE, layouts, cluster, batch=4, context_tokens=100, efficiency=PEAK)
    work = decode_work(DENSE, layouts, device=cluster.device, batch=4, context_tokens=100)
    over = work.over(bytes_per_second=SPEED, latency_seconds=1e-5)
    assert found["tokens_per_second"] == pytest.approx(8 / step.total)
    assert over.total_tokens_per_second == pytest.approx(8 / at_peak.total)


# --- Parameters and memory --------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(shape=st.sampled_from([*SHAPES, *(model.shape for model in MODELS.values())]), pp=st.integers(1, 12))
def test_the_stages_of_a_pipeline_hold_all_parameters_and_a_tied_output_twice(shape, pp):
    held = sum(rank_parameters(shape, Layouts(pp=pp), stage=stage).total for stage in range(pp))

    again = parameters.table_parameters(shape) if shape.tied_embeddings and pp > 1 else 0
    assert held == parameters.total_parameters(shape) + again


@settings(deadline=None)
@given(
    shape=st.sampled_from([*SHAPES, *(model.shape for model in MODELS.values())]),
    layers=st.integers(1, 3),
)
def test_weights_in_memory_are_parameters_times_their_width(shape, layers):
    width = MIXED_ADAM.weight_bytes

    trained = training_memory(shape, Layouts(), tokens=16, micro_batches=1).weights
    served = serving_memory(
        shape, Layouts(), batch=1, context_tokens=16, weight_bytes_per_element=width
    ).weights

    assert trained == served == width * parameters.total_parameters(shape)


@settings(deadline=None, max_examples=200)
@given(case=split(chunks=False))
def test_a_rank_s_parameters_are_the_same_in_memory_traffic_and_reading(case):
    shape, layout = case
    layouts = Layouts.of(layout)

    held = [rank_parameters(shape, layouts, stage=stage) for stage in range(layout.pp)]

    total = composed(shape, replace(layouts, zero=0, dp=8, cp=8), phase=Phase.TRAINING, tokens=64, batch=8)
    for stage, rank in enumerate(held):
        has = total.on_stage(stage)
        full = {
            axis: sum(share.full and has.of(share.full) for share in total.shares if share.axis == axis)
            for axis in ("dp", "edp")
        }
        assert full["dp"] == pytest.approx(2 * rank.rest)
        if shape.experts:
            assert full["edp"] == pytest.approx(2 * rank.experts)
    # A token reads all of it but the rows of the embedding that it does not look up.
    read = reading(shape, layouts, batch=10**6, weight_bytes_per_element=1).weight_bytes
    table = parameters.table_parameters(shape) / layout.tp
    looked_up = table * (not shape.tied_embeddings or layout.pp > 1) + shape.positions * shape.hidden_size
    assert read == pytest.approx(sum(rank.total for rank in held) - looked_up)


@settings(deadline=None, max_examples=100)
@given(case=split(chunks=False), batch=st.integers(1, 9), context=st.integers(1, 200))
def test_a_token_reads_the_cache_that_memory_holds(case, batch, context):
    shape, layout = case
    if shape.window and layout.pp > 1:
        layout = replace(layout, pp=4)  # its windowed layers are then shared equally

    read = reading(shape, Layouts.of(layout), batch=batch, context_tokens=context).kv_bytes

    held = [
        kv_cache_bytes(
            shape, context_tokens=context, batch=batch, tp=layout.tp, pp=layout.pp, cp=layout.cp, stage=stage
        )
        for stage in range(layout.pp)
    ]
    assert read == pytest.approx(sum(held))
    memory = serving_memory(shape, Layouts.of(layout), batch=batch, context_tokens=context)
    assert memory.kv_cache == pytest.approx(max(held))


@settings(deadline=None, max_examples=100)
@given(case=split(), schedule=st.sampled_from(["1f1b", "interleaved"]), micro_batches=st.integers(1, 40))
def test_micro_batches_in_flight_are_those_of_their_schedule(case, schedule, micro_batches):
    stages_of = max(case[1].pp, 2)
    chunks = 3 if schedule == "interleaved" else 1

    for stage in range(stages_of):
        kept = stages.in_flight(stage, pp=stages_of, vpp=chunks, micro_batches=micro_batches)

        published = in_flight(
            schedule, stages=stages_of, chunks=chunks, micro_batches=micro_batches, stage=stage
        )
        assert kept == pytest.approx(published)


# --- Operations -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape", [*SHAPES, *(model.shape for model in MODELS.values())], ids=lambda s: s.name
)
def test_a_token_is_multiplied_by_every_matrix_and_the_norms_and_routers_besides(shape):
    def weights(matmuls):
        return sum(each.inner * each.outer for each in matmuls)

    attention = shape.layers * weights(attention_matmuls(shape))
    blocks = shape.dense_layers * weights(feed_forward_matmuls(shape, shape.ffn_width))
    beside = parameters.norm_parameters(shape) * shape.layers + shape.hidden_size
    if shape.experts:
        experts = shape.experts
        visited = experts.per_token * weights(feed_forward_matmuls(shape, experts.width))
        visited += weights(feed_forward_matmuls(shape, experts.shared_width))
        blocks += shape.sparse_layers * visited
        beside += shape.sparse_layers * parameters.router_parameters(shape)
    matrices = attention + blocks + parameters.table_parameters(shape)

    assert attention == shape.layers * parameters.attention_parameters(shape)
    assert parameters.computed_parameters(shape) == matrices + beside
    looked_at = 2 * shape.layers * attention_width(shape) * attended_tokens(shape, tokens=64)
    assert forward_flops(shape, tokens=64) == pytest.approx(64 * (2 * (matrices + beside) + looked_at))


@settings(deadline=None, max_examples=60)
@given(case=split((DENSE, SPARSE, UNSHARED, LATENT), chunks=False))
def test_on_endless_memory_and_many_sequences_a_step_takes_its_operations_at_the_peak(case):
    shape, layout = case
    layout = replace(layout, pp=1, ep=1, etp=layout.tp)
    if shape.latent:
        layout = replace(layout, tp=1, etp=1)  # its compressing matrices are whole on each rank
    # So wide that no unit is idle at the end of a product
    wide = {
        name: 2**14 * getattr(shape, name) for name in ("hidden_size", "head_dim", "ffn_width", "vocab_size")
    }
    if shape.experts:
        inside = {name: 2**14 * getattr(shape.experts, name) for name in ("width", "shared_width")}
        wide["experts"] = replace(shape.experts, **inside)
    if shape.latent:
        ranks = {part.name: 2**14 * getattr(shape.latent, part.name) for part in fields(shape.latent)}
        wide["latent"] = LatentAttention(**ranks)
    shape = replace(shape, **wide)
    peak, batch, tokens = 1e15, 10**4, 64
    device = Device(
        key="x",
        name="x",
        memory_bytes=1e30,
        memory_bytes_per_second=1e18,
        flops_per_second=peak,
        source="made up",
    )

    step = training_step(
        shape,
        Layouts.of(layout, micro_batch=batch),
        one_link(layout, device=device),
        tokens=tokens,
        batch=layout.dp * batch,
        implementation=MEGATRON_2021,  # multiplies whole scores, and computes no exponentials apart
        efficiency=PEAK,
    )

    counted = training_flops(shape, tokens=tokens, batch=layout.dp * batch, causal=False)
    beside = parameters.norm_parameters(shape) * shape.layers + shape.hidden_size
    beside += shape.sparse_layers * parameters.router_parameters(shape)
    counted = counted - 6.0 * beside * tokens * layout.dp * batch
    assert step.compute * peak * layout.world_size == pytest.approx(counted, rel=1e-4)


@settings(deadline=None)
@given(shape=st.sampled_from(SHAPES), context=st.integers(1, 400), tp=SIZES, cp=SIZES)
def test_operations_of_tokens_written_one_by_one_are_those_of_a_prompt(shape, context, tp, cp):
    one_by_one = sum(decode_flops(shape, context_tokens=behind).item() for behind in range(context))

    # A prompt's means take the token itself as half a token looked at.
    windowed = shape.window.layers if shape.window else 0
    reach = min(context, shape.window.tokens) if shape.window else 0
    halves = attention_width(shape) * ((shape.layers - windowed) * context + windowed * reach)
    assert forward_flops(shape, tokens=context) - one_by_one == pytest.approx(halves)
    fixed = decode_flops(shape) / tp
    assert decode_flops(shape, context_tokens=context, tp=tp, cp=cp) == pytest.approx(
        fixed + (decode_flops(shape, context_tokens=context) - decode_flops(shape)) / tp / cp
    )


# --- Pipelines --------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=100)
@given(case=split((DENSE, SPARSE, LATENT)), rounds=st.integers(1, 5))
def test_the_bubble_of_a_step_is_that_of_its_schedule(case, rounds):
    shape, layout = case
    micro_batches = layout.pp * rounds
    step = training_step(
        shape,
        Layouts.of(layout),
        one_link(layout),
        tokens=48,
        batch=layout.dp * micro_batches,
        efficiency=PEAK,
    )
    schedule = "1f1b" if layout.vpp == 1 else "interleaved"
    sizes = {"stages": layout.pp, "micro_batches": micro_batches, "chunks": layout.vpp}

    # What a stage without logits does for one micro-batch, from a step of as many layers without any stages.
    flat = training_step(
        shape,
        Layouts.of(replace(layout, dp=layout.dp, pp=1, vpp=1)),
        one_link(replace(layout, pp=1)),
        tokens=48,
        batch=[layout.dp, 2 * layout.dp],
        efficiency=PEAK,
    )
    half = training_step(
        replace(shape, layers=2 * shape.layers),
        Layouts.of(replace(layout, pp=1, vpp=1)),
        one_link(replace(layout, pp=1)),
        tokens=48,
        batch=layout.dp,
        efficiency=PEAK,
    )
    layers = sum(
        getattr(half, part) - np.broadcast_to(getattr(flat, part), 2)[0]
        for part in ("compute", "recompute", "tensor", "context", "expert")
    )
    turn = layers / layout.pp
    times = {"forward": turn, "backward_input": 0.0, "backward_weight": 0.0}
    assert step.bubble == pytest.approx(bubble_seconds(schedule, **sizes, **times), abs=1e-15)
    assert step.bubble / (micro_batches * turn) == pytest.approx(
        bubble_over_ideal(schedule, **sizes, **times)
    )


@pytest.mark.parametrize("p", [1, 2, 3, 8])
@pytest.mark.parametrize("v", [1, 2, 4])
def test_sends_of_a_pipeline_are_those_of_its_schedule(p, v):
    schedule = "interleaved" if v > 1 else "1f1b"
    sizes = {"hidden_size": 8, "stages": p, "phase": Phase.TRAINING, "tokens": 4, "micro_batches": 5}

    in_a_line = pipeline_parallel(**sizes, chunks=v)
    folded = pipeline_parallel(**sizes, chunks=2, folded=True)

    assert in_a_line.calls == 5 * sends_per_micro_batch(schedule, stages=p, chunks=v)
    assert folded.calls == 5 * sends_per_micro_batch("zbv", stages=p)


@settings(deadline=None, max_examples=100)
@given(case=split(chunks=False), devices=st.integers(1, 96))
def test_devices_are_legal_where_the_fewest_go_into_them_in_whole_parts(case, devices):
    _, layout = case
    sizes = {axis: getattr(layout, axis) for axis in ("tp", "pp", "cp", "ep", "etp")}
    replica = layout.tp * layout.pp * layout.cp
    dp = max(devices // replica, 1)

    kept = masks(Case(shape=SPARSE, layouts=Layouts.of(replace(layout, dp=dp)), devices=devices))

    assert (kept["R13"] & kept["R14"]) == (devices % minimum_devices(**sizes).item() == 0)


# --- Experts ----------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(e=st.sampled_from([4, 8, 16, 64]), k=st.integers(1, 4))
def test_one_token_touches_as_many_experts_as_ranks_that_have_one_each(e, k):
    assert distinct_experts(e, k, 1) == pytest.approx(k)
    assert expected_ranks(experts=e, experts_per_token=k, ranks=e) == pytest.approx(k)
    assert expected_ranks(experts=e, experts_per_token=k, ranks=1) == pytest.approx(1)


@settings(deadline=None, max_examples=30)
@given(n=st.sampled_from([2, 4, 8]), k=st.integers(1, 6), copies=st.sampled_from(["expert", "rank"]))
def test_alike_experts_are_sent_what_the_uniform_formula_says(n, k, copies):
    routed = route(uniform(16), tokens=40, experts_per_token=k, ranks=n, copies=copies)
    own = routed.pairs(hidden_size=64)

    formula = expert_parallel(
        hidden_size=64,
        layers=1,
        tokens=40,
        experts=16,
        experts_per_token=k,
        ranks=n,
        phase=Phase.PREFILL,
        copies=copies,
    )

    dispatch = formula.parts[0]
    assert own.sum(axis=1) == pytest.approx(np.full(n, dispatch.wire_bytes.item()))
    each = k if copies == "expert" else expected_ranks(experts=16, experts_per_token=k, ranks=n).item()
    sent = sent_bytes(Kind.ALL_TO_ALL, 40 * each * 64 * 2, n, algorithm="pairwise")
    assert dispatch.wire_bytes == pytest.approx(sent)


# --- Links and devices ------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(ranks=st.sampled_from([2, 8, 64]), tokens=st.integers(1, 10**6))
def test_gradients_over_the_link_that_hides_them_take_as_long_as_the_backward_pass(ranks, tokens):
    peak, shape = 989e12, MODELS["llama-3.1-8b"].shape
    speed = data_parallel_link(tokens=tokens, ranks=ranks, flops_per_second=peak)

    psi = parameters.computed_parameters(shape)
    travelling = all_reduce_bytes(2 * psi, ranks) / speed

    assert travelling == pytest.approx(2 * 2 * psi * tokens / peak)


@settings(deadline=None, max_examples=200)
@given(case=split(chunks=False))
def test_the_fewest_devices_are_those_on_which_every_axis_is_whole(case):
    _, layout = case
    sizes = {axis: getattr(layout, axis) for axis in ("tp", "pp", "cp", "ep", "etp")}

    fewest = int(minimum_devices(**sizes).item())

    stage = fewest // layout.pp
    assert stage % (layout.tp * layout.cp) == 0
    dp = stage // (layout.tp * layout.cp)
    assert Layouts.of(replace(layout, dp=dp)).expert_dp % 1 == 0
    assert size(Layouts.of(replace(layout, dp=dp)), "edp") >= 1
    assert span(Layouts.of(replace(layout, dp=dp)), "pp") == fewest
