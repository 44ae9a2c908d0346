"""When an exchange hides behind arithmetic: found again from bytes and operations, and against what is published."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calculators.predict.collectives import all_gather_bytes, all_reduce_bytes
from calculators.predict.devices import device
from calculators.predict.links import rung
from calculators.predict.traffic import hiding_block_tokens
from calculators.predict.traffic.overlap import (
    data_parallel_link,
    pipeline_parallel_link,
    sharded_data_parallel_link,
    tensor_parallel_link,
)
from tests.predict.sentences import exactly

FLOPS = 312e12


# Oracle 16: an A100 over NVLink 3 and over 100 Gbit/s; exact by the formula.
@pytest.mark.parametrize(("link", "tokens"), [("nvlink-3", 1_040), ("roce-100", 24_960)])
def test_oracle_16_the_shortest_block_of_ring_attention_that_hides_its_transfer(link, tokens):
    found = hiding_block_tokens(
        flop_per_second=device("a100-80").flops_per_second, bytes_per_second=rung(link).bytes_per_second
    )

    assert found.item() == tokens


@settings(deadline=None)
@given(x=st.integers(1, 100_000), heads=st.sampled_from([8, 64]), groups=st.sampled_from([1, 8]))
def test_a_block_of_that_length_takes_as_long_to_send_as_to_attend_to(x, heads, groups):
    kv_heads, width = heads // groups, 128
    operations, sent = 4 * width * heads * x**2, 2 * x * width * kv_heads * 2
    speed = sent / (operations / FLOPS)

    block = hiding_block_tokens(
        flop_per_second=FLOPS, bytes_per_second=speed, attention_heads=heads, kv_heads=kv_heads
    )

    assert block.item() == pytest.approx(x)


def test_fewer_key_value_heads_shorten_the_block():
    eight_to_one = hiding_block_tokens(
        flop_per_second=FLOPS, bytes_per_second=300e9, attention_heads=64, kv_heads=8
    )

    assert eight_to_one.item() == 130


@settings(deadline=None)
@given(
    tokens=st.integers(1, 10**6),
    ranks=st.integers(1, 512),
    parameters=st.integers(10**6, 10**12),
    width=st.sampled_from([1, 2, 4]),
)
def test_gradients_take_as_long_as_the_backward_pass_on_such_a_link(tokens, ranks, parameters, width):
    link = data_parallel_link(
        tokens=tokens, ranks=ranks, flops_per_second=FLOPS, bytes_per_element=width
    ).item()

    backward_seconds = 4 * parameters * tokens / FLOPS
    assert all_reduce_bytes(parameters * width, ranks).item() == pytest.approx(link * backward_seconds)


@settings(deadline=None)
@given(tokens=st.integers(1, 10**6), ranks=st.integers(1, 512), parameters=st.integers(10**6, 10**12))
def test_weights_are_gathered_as_fast_as_the_layer_before_computes_on_such_a_link(tokens, ranks, parameters):
    link = sharded_data_parallel_link(tokens=tokens, ranks=ranks, flops_per_second=FLOPS).item()

    forward_seconds = 2 * parameters * tokens / FLOPS
    assert all_gather_bytes(parameters * 2, ranks).item() == pytest.approx(link * forward_seconds)


@settings(deadline=None)
@given(hidden=st.integers(64, 32_768), ranks=st.integers(1, 64), rows=st.integers(1, 10**6))
def test_half_an_all_reduce_takes_as_long_as_one_matrix_product_whatever_the_batch(hidden, ranks, rows):
    link = tensor_parallel_link(hidden_size=hidden, ranks=ranks, flops_per_second=FLOPS).item()

    product_seconds = 2 * rows * hidden**2 / ranks / FLOPS
    assert all_gather_bytes(rows * hidden * 2, ranks).item() == pytest.approx(link * product_seconds)


# Ultra-Scale Playbook, appendix A3, prints the ratios in elements and calls them bytes: in 16 bits they are half of
# what they should be. Its pipeline: F/(32·h·L·β), 16·h² parameters a layer.
@pytest.mark.parametrize("hidden", [2_048, 8_192])
def test_the_playbooks_ratios_leave_the_bytes_per_element_out(hidden):
    layers, ranks, tokens = 10, 8, 4_096
    playbook = {
        "dp": (ranks - 1) / ranks * FLOPS / (2 * tokens),
        "tp": (ranks - 1) * FLOPS / (2 * hidden),
        "pp": FLOPS / (32 * hidden * layers),
    }
    ours = {
        "dp": data_parallel_link(tokens=tokens, ranks=ranks, flops_per_second=FLOPS).item(),
        "tp": tensor_parallel_link(hidden_size=hidden, ranks=ranks, flops_per_second=FLOPS).item(),
        "pp": pipeline_parallel_link(
            hidden_size=hidden, stage_parameters=16 * hidden**2 * layers, flops_per_second=FLOPS
        ).item(),
    }

    for family, wrong in playbook.items():
        assert ours[family] / wrong == pytest.approx(2, rel=1e-12)


def test_one_rank_needs_no_link_and_arrays_keep_their_shapes():
    assert data_parallel_link(tokens=1, ranks=1, flops_per_second=FLOPS) == 0
    assert tensor_parallel_link(hidden_size=1, ranks=1, flops_per_second=FLOPS) == 0
    assert tensor_parallel_link(
        hidden_size=np.full((3, 1), 64), ranks=np.full((1, 4), 2), flops_per_second=FLOPS
    ).shape == (3, 4)


def test_what_cannot_be_is_refused():
    with pytest.raises(
        ValueError,
        match=exactly("flops_per_second is 0, but it must be a number, more than 0 and at most 1e+18."),
    ):
        pipeline_parallel_link(hidden_size=64, stage_parameters=1, flops_per_second=0)
    with pytest.raises(
        ValueError, match=exactly("tokens is 0.5, but it must be a number, 1 or more and at most 1e+18.")
    ):
        data_parallel_link(tokens=0.5, ranks=2, flops_per_second=1)
