"""How fast a split writes: the ceiling of memory, what the link adds, and the link speed you can buy."""

from dataclasses import replace
from math import comb, inf

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from calculators.predict.clusters import Cluster, Link, Tier
from calculators.predict.collectives import ALL_REDUCE_ALGORITHMS
from calculators.predict.devices import DEVICES, device
from calculators.predict.exchanges import (
    Q80_BYTES_PER_ELEMENT,
    exchanges,
    expert_exchange_bytes,
    star_all_reduce_bytes,
)
from calculators.predict.links import LADDER, rung
from calculators.predict.memory import serving_memory
from calculators.predict.models.catalogue import MODELS
from calculators.predict.models.parameters import (
    attention_parameters,
    computed_parameters,
    expert_parameters,
    feed_forward_parameters,
    norm_parameters,
    router_parameters,
    total_parameters,
)
from calculators.predict.reading import distinct_experts, reading
from calculators.predict.serving import Limit, Verdict, decode_ceiling, decode_work, link_speed
from calculators.predict.serving_formulas import decode_formulas
from calculators.predict.shapes import Experts, Layouts, ModelShape, Phase, SlidingWindow
from calculators.predict.timing import decode_step
from calculators.predict.traffic import pipeline_parallel, tensor_parallel
from tests.predict.sentences import exactly

LESSON = MODELS["lesson"].shape
LLAMA_8B = MODELS["llama-3.1-8b"].shape
LLAMA_70B = MODELS["llama-3.1-70b"].shape
SPARK = device("dgx-spark")
ON_THE_LADDER = [step for step in LADDER if step.joins_devices]
SPEEDS = [step.bytes_per_second for step in ON_THE_LADDER]
LATENCIES = [step.typical_latency_seconds for step in ON_THE_LADDER]


def dense(**sizes) -> ModelShape:
    return replace(LESSON, name="made for this test", **sizes)


def sparse(*, dense_layers=0, shared_width=0, routed=8, per_token=2) -> ModelShape:
    experts = Experts(
        routed=routed, per_token=per_token, width=96, shared_width=shared_width, dense_layers=dense_layers
    )
    return dense(
        hidden_size=64,
        layers=4,
        attention_heads=8,
        kv_heads=4,
        head_dim=8,
        ffn_width=256,
        vocab_size=1000,
        experts=experts,
    )


# Oracle 12: 70 B in bf16 (141 GB) on two devices of 273 GB/s that read in parallel; latencies of 128 all-reduces.


def test_oracle_12_two_devices_of_273_gb_per_s_write_3_9_tokens_of_a_70b_model_a_second():
    assert decode_ceiling(273e9 * 2, 141e9).item() == pytest.approx(3.9, rel=0.02)

    work = decode_work(LLAMA_70B, Layouts(tp=2), device=SPARK)

    assert total_parameters(LLAMA_70B) * 2 == pytest.approx(141e9, rel=0.002)
    assert work.device_ceiling.item() == pytest.approx(3.9, rel=0.02)


# at the digits that are printed, which is closer than 2 % but for the first: 0.768 is printed as 0.8
@pytest.mark.parametrize(("microseconds", "printed"), [(6, "0.8"), (54, "6.9"), (300, "38")])
def test_oracle_12_the_latency_of_128_all_reduces_for_each_token(microseconds, printed):
    work = decode_work(LESSON, Layouts(tp=2))
    speed = work.over(bytes_per_second=1e15, latency_seconds=microseconds * 1e-6)

    milliseconds = speed.latency_seconds.item() * 1e3
    assert milliseconds == pytest.approx(128 * microseconds / 1e3, rel=1e-12)
    assert f"{milliseconds:.{len(printed.partition('.')[2])}f}" == printed


def test_oracle_12_at_300_microseconds_no_cable_gives_more_than_26_tokens_a_second():
    assert decode_work(LESSON, Layouts(tp=2)).latency_ceiling(300e-6).item() == pytest.approx(26, rel=0.02)


# O-17: distributed-llama pull requests 64, 44, 108 and 136 print what the root sends and receives for each token.


@pytest.mark.parametrize(
    ("hidden", "layers", "nodes", "kilobytes"), [(4096, 32, 2, 272), (4096, 32, 4, 816), (3072, 28, 2, 178)]
)
def test_o17_the_root_of_a_star_sends_and_receives_what_distributed_llama_prints(
    hidden, layers, nodes, kilobytes
):
    shape = dense(hidden_size=hidden, layers=layers)
    sent = 2 * layers * star_all_reduce_bytes(hidden * Q80_BYTES_PER_ELEMENT, nodes).item()

    both_ways = exchanges(
        shape, Layouts(tp=nodes), algorithm="star", wire_bytes_per_element=Q80_BYTES_PER_ELEMENT
    )

    assert int(sent / 1024) == kilobytes
    assert both_ways.tensor_bytes.item() == pytest.approx(2 * sent, rel=1e-12)
    assert both_ways.tensor_rounds.item() == 2 * 2 * layers


# O-20: DeepSeek's bound for expert parallelism (arXiv 2505.09343): "7K" is 7,000, 8 bits there and 16 back.


@pytest.mark.parametrize(
    ("bytes_per_second", "microseconds", "milliseconds"), [(50e9, 120.96, 14.76), (900e9, 6.72, 0.82)]
)
def test_o20_expert_exchanges_of_32_tokens_to_9_destinations(bytes_per_second, microseconds, milliseconds):
    seconds = expert_exchange_bytes(tokens=32, destinations=9, hidden_size=7_000).item() / bytes_per_second

    assert seconds * 1e6 == pytest.approx(microseconds, rel=1e-9)
    assert 2 * 61 * seconds * 1e3 == pytest.approx(milliseconds, abs=0.005)


def test_o20_the_bound_is_67_tokens_a_second_on_infiniband_and_1200_on_nvlink_5():
    seconds = 2 * 61 * expert_exchange_bytes(tokens=32, destinations=9, hidden_size=7_000).item()

    assert int(1 / (seconds / rung("infiniband-ndr").bytes_per_second)) == 67
    assert 1 / (seconds / rung("nvlink-5").bytes_per_second) == pytest.approx(1_200, rel=0.02)


# O-22: defilantech/LLMKube issue 1423: h = 12288, 96 layers, bf16, two devices, 109 Gbit/s.


@pytest.mark.parametrize(
    ("batch", "tokens", "megabytes", "milliseconds"),
    [(1, 1, 4.7, None), (32, 1, 151, 11.1), (1, 2048, 9_660, 709)],
)
def test_o22_what_two_ranks_of_tensor_parallelism_send(batch, tokens, megabytes, milliseconds):
    shape = dense(hidden_size=12_288, layers=96)

    found = exchanges(shape, Layouts(tp=2), batch=batch, tokens=tokens)

    assert found.calls.item() == 192
    assert found.tensor_bytes.item() / 1e6 == pytest.approx(megabytes, rel=0.005)
    if milliseconds is not None:
        assert found.tensor_bytes.item() / (109e9 / 8) * 1e3 == pytest.approx(milliseconds, rel=0.005)


@pytest.mark.parametrize(("batch", "kilobytes"), [(1, 25), (32, 786)])
def test_o22_two_stages_hand_over_once(batch, kilobytes):
    found = exchanges(dense(hidden_size=12_288, layers=96), Layouts(pp=2), batch=batch)

    assert found.calls.item() == 1
    assert found.pipeline_bytes.item() / 1e3 == pytest.approx(kilobytes, abs=0.5)
    assert found.control_bytes.item() == 8 * batch


def test_the_lessons_example_is_128_exchanges_against_1_and_a_mebibyte_against_8_kib():
    tensor, pipeline = (exchanges(LESSON, layout) for layout in (Layouts(tp=2), Layouts(pp=2)))

    assert (tensor.calls.item(), pipeline.calls.item()) == (128, 1)
    assert (tensor.tensor_bytes.item(), pipeline.pipeline_bytes.item()) == (1_048_576, 8_192)


# A second way: traffic's own functions, and plain loops.


@settings(deadline=None)
@given(
    tp=st.sampled_from([1, 2, 4, 8]),
    pp=st.sampled_from([1, 2, 4]),
    batch=st.integers(1, 64),
    tokens=st.integers(1, 512),
    algorithm=st.sampled_from(["ring", "tree", "one-shot", "recursive-doubling", "in-switch"]),
)
def test_exchanges_are_those_that_traffic_counts(tp, pp, batch, tokens, algorithm):
    found = exchanges(LESSON, Layouts(tp=tp, pp=pp), batch=batch, tokens=tokens, algorithm=algorithm)

    common = {"hidden_size": 4096, "phase": Phase.PREFILL, "batch": batch, "tokens": tokens}
    tensor = tensor_parallel(layers=64, ranks=tp, algorithm=algorithm, **common)
    pipeline = pipeline_parallel(stages=pp, **common)
    assert found.tensor_calls == tensor.calls
    assert found.tensor_rounds == tensor.rounds
    assert found.tensor_bytes == pytest.approx(tensor.wire_bytes.item())
    assert found.pipeline_calls == pipeline.calls
    assert found.pipeline_bytes == pytest.approx(pipeline.group_wire_bytes.item())


@settings(deadline=None)
@given(
    tp=st.sampled_from([1, 2, 4]),
    ep=st.sampled_from([1, 2, 4]),
    etp=st.sampled_from([1, 2]),
    dense_layers=st.integers(0, 3),
)
def test_a_sparse_layer_exchanges_tokens_with_experts_instead_of_adding_up_whole_ones(
    tp, ep, etp, dense_layers
):
    shape = sparse(dense_layers=dense_layers)

    found = exchanges(shape, Layouts(tp=tp, ep=ep, etp=etp, dp=8), batch=8)

    on_tp, all_to_alls, bytes_to_experts, sliced, sliced_bytes = 0, 0, 0.0, 0, 0.0
    for layer in range(shape.layers):
        on_tp += tp > 1  # after attention
        if layer < dense_layers:
            on_tp += tp > 1
            continue
        if ep == 1 and etp == tp:  # a block that this group adds up
            sliced += etp > 1
            sliced_bytes += 2 * (etp - 1) / etp * 8 * 64 * 2
            continue
        on_tp += tp > 1  # the results, gathered
        if ep > 1:
            all_to_alls += 2
            bytes_to_experts += 2 * (8 / tp) * 2 * 64 * 2 * (ep - 1) / ep
        if etp > 1:  # copies gathered, results scattered
            sliced += 2
            sliced_bytes += 2 * (etp - 1) * (8 / tp) * 2 * 64 * 2
    assert found.tensor_calls == on_tp
    assert found.expert_calls == all_to_alls
    assert found.expert_bytes == pytest.approx(bytes_to_experts)
    assert found.sliced_calls == sliced
    assert found.sliced_bytes == pytest.approx(sliced_bytes)


def test_one_rank_sends_nothing_and_waits_for_nothing():
    found = exchanges(sparse(), Layouts())

    assert (found.calls, found.rounds, found.sent_bytes) == (0, 0, 0)


def test_two_tensors_at_a_boundary_double_what_a_pipeline_sends_and_nothing_else():
    one, two = (exchanges(LESSON, Layouts(pp=2), tensors_per_boundary=n) for n in (1, 2))

    assert two.pipeline_bytes == 2 * one.pipeline_bytes
    assert two.control_bytes == one.control_bytes


# What is read.


def test_distinct_experts_is_the_mean_of_routing_at_random():
    rng = np.random.default_rng(3)
    routed, per_token, tokens, trials = 16, 4, 5, 4_000
    chosen = rng.random((trials, tokens, routed)).argsort(axis=-1)[..., :per_token]
    counted = np.array([len(np.unique(trial)) for trial in chosen])

    predicted = distinct_experts(routed, per_token, tokens).item()

    error = counted.std() / np.sqrt(trials)
    assert abs(counted.mean() - predicted) < 4 * error
    assert error < 0.05


def test_distinct_experts_agrees_with_counting_every_routing_of_two_tokens():
    routed, per_token = 5, 2
    ways = comb(routed, per_token)
    # Two tokens share j experts in C(k, j)·C(E−k, k−j) of the second one's C(E, k) ways.
    mean = sum((2 * per_token - j) * comb(2, j) * comb(3, 2 - j) / ways for j in range(3))

    assert distinct_experts(routed, per_token, 2).item() == pytest.approx(mean)


def test_one_token_touches_its_own_experts_and_many_touch_all():
    assert distinct_experts(256, 8, 1).item() == pytest.approx(8)
    assert distinct_experts(256, 8, 10_000).item() == pytest.approx(256)
    assert distinct_experts(8, 8, 3).item() == 8


def test_more_experts_a_token_than_there_are_is_refused():
    with pytest.raises(
        ValueError, match=exactly("per_token is 9, but there are only 8 experts. Use as many or fewer.")
    ):
        distinct_experts(8, 9, 1)


@pytest.mark.parametrize("model", ["llama-3.1-8b", "llama-3.1-70b", "phi-4", "gpt-3-175b"])
@pytest.mark.parametrize("tp", [1, 2, 4])
def test_a_dense_model_reads_every_matrix_once_and_the_embedding_not(model, tp):
    shape = MODELS[model].shape

    read = reading(shape, Layouts(tp=tp), context_tokens=100)

    sliced, whole = shape.vocab_size * shape.hidden_size, shape.hidden_size
    cache = 0.0
    for _ in range(shape.layers):
        sliced += attention_parameters(shape) + feed_forward_parameters(shape)
        whole += norm_parameters(shape)
        cache += 100 * 2 * shape.head_dim * shape.kv_heads * 2 / min(tp, shape.kv_heads)
    assert read.weight_bytes.item() == pytest.approx(2 * (sliced / tp + whole))
    assert read.kv_bytes.item() == pytest.approx(cache)


@pytest.mark.parametrize(("tp", "ep", "etp", "dp"), [(1, 1, 1, 1), (4, 1, 4, 1), (1, 4, 1, 4), (2, 4, 1, 2)])
@pytest.mark.parametrize("batch", [1, 3, 50])
def test_experts_are_read_where_tokens_touch_them(tp, ep, etp, dp, batch):
    shape = sparse(dense_layers=1, shared_width=32)

    read = reading(shape, Layouts(tp=tp, ep=ep, etp=etp, dp=dp), batch=batch)

    copies = dp * tp / (ep * etp)
    touched = 8 * (1 - (1 - 2 / 8) ** (batch * dp / copies))
    sliced, whole = 1000 * 64, 64
    experts = 0.0
    for layer in range(4):
        sliced += attention_parameters(shape)
        whole += norm_parameters(shape)
        if layer == 0:
            sliced += feed_forward_parameters(shape)
        else:
            sliced += 3 * 64 * 32
            whole += router_parameters(shape)
            experts += expert_parameters(shape) * max(touched / ep, 1) / etp
    assert read.weight_bytes.item() == pytest.approx(2 * (sliced / tp + whole + experts))


def test_tied_embeddings_are_read_as_the_output_matrix_and_multiplied_by():
    untied, tied = (dense(tied_embeddings=both) for both in (False, True))

    assert reading(tied, Layouts()).weight_bytes == reading(untied, Layouts()).weight_bytes
    assert computed_parameters(tied) == computed_parameters(untied)
    assert computed_parameters(untied) == total_parameters(untied) - untied.vocab_size * untied.hidden_size


def test_latent_attention_keeps_its_cache_whole_on_every_tensor_rank():
    shape = MODELS["deepseek-v3"].shape

    alone, eight = (reading(shape, Layouts(tp=tp), context_tokens=1_000) for tp in (1, 8))

    assert alone.kv_bytes.item() == 61 * (512 + 64) * 2 * 1_000  # 70.272 KB a token, arXiv 2505.09343 table 1
    assert eight.kv_bytes == alone.kv_bytes


def test_key_value_heads_divide_the_cache_and_no_more_than_they():
    cache = reading(LLAMA_8B, Layouts(tp=[1, 2, 8, 16]), context_tokens=4_096).kv_bytes

    assert (cache[0] / cache).tolist() == [1, 2, 8, 8]


@pytest.mark.parametrize("model", ["llama-3.1-70b", "phi-4", "gpt-oss-120b", "gemma-3-27b", "deepseek-v3"])
@pytest.mark.parametrize("tp", [1, 2, 8])
def test_the_cache_that_is_read_is_the_cache_that_is_held(model, tp):
    shape = MODELS[model].shape
    sizes = {"batch": 3, "context_tokens": 5_000}

    held = serving_memory(shape, Layouts(tp=tp), **sizes)

    assert reading(shape, Layouts(tp=tp), **sizes).kv_bytes.item() == pytest.approx(held.kv_cache.item())


def test_a_window_bounds_what_its_layers_look_back_on():
    shape = dense(layers=6, window=SlidingWindow(tokens=128, layers=3))

    cache = reading(shape, Layouts(), context_tokens=[100, 1_000]).kv_bytes

    per_layer_and_token = 2 * 8 * 128 * 2
    assert cache.tolist() == [600 * per_layer_and_token, (3 * 1_000 + 3 * 128) * per_layer_and_token]


# How fast.


def test_tensor_parallelism_speeds_one_sequence_and_a_pipeline_does_not():
    ceilings = decode_work(LLAMA_70B, Layouts(tp=[1, 4, 1], pp=[1, 1, 4]), device=SPARK).device_ceiling

    assert ceilings[1] / ceilings[0] == pytest.approx(4, rel=0.001)
    assert ceilings[2] == pytest.approx(ceilings[0])


def test_a_pipeline_writes_more_in_all_once_it_has_a_sequence_for_every_stage():
    work = decode_work(LLAMA_8B, Layouts(pp=4), device=SPARK, batch=[1, 2, 4, 8], context_tokens=10)
    over = work.over(bytes_per_second=1.25e9, latency_seconds=1e-4)

    totals = over.total_tokens_per_second
    assert work.groups.tolist() == [1, 2, 4, 4]
    assert totals[2] / totals[0] == pytest.approx(4, rel=0.01)
    assert over.tokens_per_second[0] == pytest.approx(over.tokens_per_second[2], rel=1e-3)


def test_replicas_write_side_by_side_and_none_of_them_faster():
    one, four = (decode_work(LLAMA_8B, Layouts(dp=dp), device=SPARK, batch=2) for dp in (1, 4))
    over = {"bytes_per_second": 1e9, "latency_seconds": 1e-4}

    assert four.over(**over).tokens_per_second == one.over(**over).tokens_per_second
    assert four.over(**over).total_tokens_per_second == 4 * one.over(**over).total_tokens_per_second
    assert four.sent_bytes == 0


def test_with_enough_sequences_arithmetic_limits_instead_of_memory():
    few, many = (decode_work(LLAMA_8B, Layouts(), device=device("h100"), batch=batch) for batch in (1, 4_096))
    free = {"bytes_per_second": 1e15, "latency_seconds": 0.0}

    assert few.over(**free).limit == Limit.MEMORY
    assert many.over(**free).limit == Limit.ARITHMETIC
    parameters = total_parameters(LLAMA_8B) - 128_256 * 4_096
    assert many.arithmetic_seconds.item() == pytest.approx(2 * parameters * 4_096 / 989e12)


def test_what_takes_the_time_on_each_kind_of_link():
    work = decode_work(LESSON, Layouts(tp=2), device=DEVICES["h200"])

    over = work.over(bytes_per_second=[450e9, 1.25e9, 1e6, 450e9], latency_seconds=[4e-6, 1.2e-4, 1e-5, 1e-2])

    assert [Limit(int(value)) for value in over.limit] == [
        Limit.MEMORY,
        Limit.LATENCY,
        Limit.BANDWIDTH,
        Limit.LATENCY,
    ]


def test_tensor_parallelism_inside_the_host_leaves_the_cable_to_the_pipeline():
    nvlink = Link(name="inside", bytes_per_second=450e9, latency_seconds=5e-6)
    cable = {"bytes_per_second": 1.25e9, "latency_seconds": 1.2e-4}
    layout = Layouts(tp=2, pp=2)

    inside = decode_work(LESSON, layout, device=DEVICES["h100"], inside=nvlink).over(**cable)
    across = decode_work(LESSON, layout, device=DEVICES["h100"]).over(**cable)

    assert inside.work.calls == 1
    assert inside.work.inside_seconds.item() == pytest.approx(128 * 5e-6 + 1_048_576 / 450e9)
    assert across.work.calls == 129
    assert inside.seconds + 0.01 < across.seconds


def test_a_faster_cable_hardly_helps_tensor_parallelism_over_tcp():
    work = decode_work(LLAMA_8B, Layouts(tp=2), device=device("rtx-4090"))
    speeds = {
        key: work.over(
            bytes_per_second=rung(key).bytes_per_second, latency_seconds=rung(key).typical_latency_seconds
        ).tokens_per_second.item()
        for key in ("ethernet-10", "ethernet-100", "roce-100")
    }

    assert speeds["ethernet-100"] / speeds["ethernet-10"] < 1.05
    assert speeds["roce-100"] / speeds["ethernet-100"] > 1.5


@pytest.mark.parametrize("split", [{"tp": 2}, {"pp": 2}, {"tp": 8}, {"pp": 4}])
@pytest.mark.parametrize("key", ["ethernet-10", "connectx-7-spark", "nvlink-4", "wifi-6"])
def test_a_ceiling_is_faster_than_what_timing_expects_but_not_out_of_its_reach(split, key):
    link = Link.on(rung(key))
    cluster = Cluster(device=SPARK, tiers=(Tier(devices=max(split.values()), link=link),))

    expected = decode_step(LLAMA_70B, Layouts(**split), cluster, batch=1, context_tokens=1_000).total
    ceiling = (
        decode_work(LLAMA_70B, Layouts(**split), device=SPARK, context_tokens=1_000)
        .over(bytes_per_second=link.bytes_per_second, latency_seconds=link.latency_seconds)
        .seconds
    )

    assert 0.5 * expected < ceiling < expected


def test_every_rung_at_once_is_each_rung_alone():
    work = decode_work(LLAMA_70B, Layouts(tp=[[2], [4]]), device=SPARK, batch=3, context_tokens=2_000)
    together = work.over(bytes_per_second=SPEEDS, latency_seconds=LATENCIES)

    for row, tp in enumerate((2, 4)):
        alone = decode_work(LLAMA_70B, Layouts(tp=tp), device=SPARK, batch=3, context_tokens=2_000)
        for column, step in enumerate(ON_THE_LADDER):
            over = alone.over(
                bytes_per_second=step.bytes_per_second, latency_seconds=step.typical_latency_seconds
            )
            assert together.tokens_per_second[row, column] == over.tokens_per_second
            assert together.limit[row, column] == over.limit
            assert together.verdict(2)[row, column] == over.verdict(2)


# The link speed you can buy.


@settings(deadline=None)
@given(
    split=st.sampled_from([{"tp": 2}, {"tp": 8}, {"pp": 2}, {"pp": 4}, {"tp": 2, "pp": 2}]),
    wanted=st.floats(0.1, 2_000),
    latency=st.floats(0, 1e-2),
    batch=st.integers(1, 32),
    device_key=st.sampled_from([None, *DEVICES]),
)
def test_a_link_of_the_needed_speed_gives_just_the_wanted_tokens(split, wanted, latency, batch, device_key):
    chosen = DEVICES[device_key] if device_key else None
    work = decode_work(LLAMA_8B, Layouts(**split), device=chosen, batch=batch, context_tokens=512)
    needed = work.link_needed(tokens_per_second=wanted, latency_seconds=latency)
    assume(abs(needed.seconds_left.item()) > 1e-9 / wanted)  # else rounding decides

    if needed.can_be_bought:
        over = work.over(bytes_per_second=needed.bytes_per_second, latency_seconds=latency)
        assert over.tokens_per_second.item() == pytest.approx(wanted, rel=1e-6)
        assert needed.latency_ceiling >= wanted * (1 - 1e-9)
    else:
        assert needed.latency_ceiling <= wanted * (1 + 1e-9)
        assert needed.latency_ceiling <= needed.device_ceiling


def test_the_needed_speed_in_plain_arithmetic():
    needed = link_speed(
        LLAMA_8B, Layouts(tp=2), tokens_per_second=50, latency_seconds=2e-5, device=device("rtx-4090")
    )

    parameters = total_parameters(LLAMA_8B) - 128_256 * 4_096
    norms = (2 * 32 + 1) * 4_096
    device_seconds = 2 * ((parameters - norms) / 2 + norms) / 1.008e12
    left = 1 / 50 - device_seconds - 64 * 2e-5
    assert needed.seconds_left.item() == pytest.approx(left)
    assert needed.gbit_per_second.item() == pytest.approx(64 * 8_192 / left * 8 / 1e9)


def test_it_is_the_same_call_in_one_or_in_two():
    common = {"device": SPARK, "batch": 4, "context_tokens": 100, "weight_bytes_per_element": 0.5}

    at_once = link_speed(LESSON, Layouts(tp=2), tokens_per_second=10, latency_seconds=1e-5, **common)
    in_two = decode_work(LESSON, Layouts(tp=2), **common).link_needed(
        tokens_per_second=10, latency_seconds=1e-5
    )

    assert at_once.bytes_per_second == in_two.bytes_per_second


def test_where_latency_alone_takes_too_long_no_speed_can_be_bought():
    wifi = rung("wifi-6").typical_latency_seconds

    needed = link_speed(LESSON, Layouts(tp=2), tokens_per_second=20, latency_seconds=wifi)

    assert needed.bytes_per_second == inf
    assert not needed.can_be_bought
    assert needed.latency_ceiling.item() < 1


def test_one_device_needs_no_link_unless_it_is_too_slow_itself():
    needed = link_speed(LLAMA_70B, Layouts(), tokens_per_second=[1, 2], device=SPARK)

    assert needed.bytes_per_second.tolist() == [0, inf]


def test_the_verdict_names_what_has_to_change_first():
    work = decode_work(LESSON, Layouts(tp=2), device=DEVICES["h100"])
    over = work.over(bytes_per_second=[1e12, 1e7, 1e12], latency_seconds=[1e-6, 1e-6, 1e-3])

    assert over.verdict(100).tolist() == [Verdict.REACHES, Verdict.BANDWIDTH, Verdict.LATENCY]
    assert over.verdict(1_000).tolist() == [Verdict.DEVICES] * 3


def test_every_limit_and_verdict_has_words():
    assert len({limit.words for limit in Limit}) == len(Limit)
    assert len({verdict.words for verdict in Verdict}) == len(Verdict)


@settings(deadline=None)
@given(batch=st.integers(1, 64), factor=st.integers(2, 5))
def test_a_wider_model_moves_more_in_proportion(batch, factor):
    narrow, wide = (exchanges(dense(hidden_size=h), Layouts(tp=4), batch=batch) for h in (512, 512 * factor))

    assert wide.tensor_bytes == factor * narrow.tensor_bytes
    assert wide.tensor_calls == narrow.tensor_calls


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ({"batch": 0}, "batch is 0, but it must be a number, 1 or more and at most 1e+18."),
        (
            {"context_tokens": -1},
            "context_tokens is -1, but it must be a number, 0 or more and at most 1e+18.",
        ),
        (
            {"weight_bytes_per_element": 0},
            "weight_bytes_per_element is 0, but it must be a number, more than 0 and at most 1e+18.",
        ),
        (
            {"wire_bytes_per_element": float("nan")},
            "wire_bytes_per_element is nan, but it must be a number, more than 0 and at most 1e+18.",
        ),
        (
            {"algorithm": "telepathy"},
            "algorithm is 'telepathy', which is not an all-reduce known here. Use one of: best, star, "
            f"{', '.join(ALL_REDUCE_ALGORITHMS)}.",
        ),
    ],
)
def test_what_cannot_be_is_refused(bad, sentence):
    with pytest.raises(ValueError, match=exactly(sentence)):
        decode_work(LESSON, Layouts(tp=2), **bad)


def test_speeds_that_cannot_be_are_refused():
    work = decode_work(LESSON, Layouts(tp=2))

    with pytest.raises(
        ValueError,
        match=exactly("bytes_per_second is 0, but it must be a number, more than 0 and at most 1e+18."),
    ):
        work.over(bytes_per_second=0, latency_seconds=0)
    with pytest.raises(
        ValueError,
        match=exactly("latency_seconds is -1, but it must be a number, 0 or more and at most 1e+18."),
    ):
        work.latency_ceiling(-1)
    with pytest.raises(
        ValueError,
        match=exactly("tokens_per_second is inf, but it must be a number, more than 0 and at most 1e+18."),
    ):
        work.link_needed(tokens_per_second=inf)


def test_arrays_that_do_not_broadcast_are_named():
    sentence = (
        "The arrays do not broadcast: batch (3,), tp (2,). Give them one shape, or shapes that differ only where "
        "one of them is 1."
    )

    with pytest.raises(ValueError, match=exactly(sentence)):
        decode_work(LESSON, Layouts(tp=[1, 2]), batch=[1, 2, 3])


# Put into formulas.


def test_the_formulas_end_in_what_is_calculated():
    link = Link(name="a cable", bytes_per_second=1.25e9, latency_seconds=2e-5)
    work = decode_work(LLAMA_8B, Layouts(tp=2), device=device("rtx-4090"), context_tokens=1_000)
    over = work.over(bytes_per_second=1.25e9, latency_seconds=2e-5)
    needed = work.link_needed(tokens_per_second=50, latency_seconds=2e-5)

    found = decode_formulas(work, device=device("rtx-4090"), link=link, wanted=50)

    ends = [formula.numbers.rpartition("= ")[2] for formula in found]
    assert ends == [
        rf"{work.device_seconds.item():.4g}\,\text{{s}}",
        f"{over.tokens_per_second.item():.4g}",
        f"{over.latency_ceiling.item():.4g}",
        rf"{needed.bytes_per_second.item() / 1e6:.4g} \cdot 10^{{6}}\,\text{{B/s}}",
    ]
    assert "a cable" in found[1].gives
    assert all(meaning for formula in found for _, meaning in formula.legend)


def test_where_no_time_is_left_the_formula_says_so():
    wifi = Link.on(rung("wifi-6"))
    work = decode_work(LESSON, Layouts(tp=2), device=device("rtx-4090"))

    last = decode_formulas(work, device=device("rtx-4090"), link=wifi, wanted=20)[-1]

    assert last.gives == "Seconds left for bytes: none, so no link of this latency is fast enough"
    left = work.link_needed(tokens_per_second=20, latency_seconds=wifi.latency_seconds).seconds_left.item()
    assert left < 0
    assert last.numbers.endswith(rf"= {left:.4g}\,\text{{s}}")


def test_one_device_has_one_formula_and_arithmetic_one_without_bytes():
    alone = decode_work(LLAMA_8B, Layouts(), device=device("h100"))
    busy = decode_work(LLAMA_8B, Layouts(), device=device("h100"), batch=4_096)
    link = Link.on(rung("nvlink-4"))

    [read] = decode_formulas(alone, device=device("h100"), link=link, wanted=20)
    [computed] = decode_formulas(busy, device=device("h100"), link=link, wanted=20)

    assert read.symbols == r"D = \frac{R + K}{M}"
    assert computed.gives == "Seconds of the devices"
