"""Whatever is given to a calculation, its answer is finite, or its refusal names what was given.

Every public function and every value that checks itself stands in a table with a call that works. A new one that is
in neither table fails the first test here.
"""

import importlib
import inspect
import math
import pkgutil
import re
import warnings
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import calculators.predict
from calculators.predict import (
    advisor,
    calibration,
    clusters,
    collectives,
    compute,
    devices,
    exchanges,
    gloo,
    links,
    memory,
    placement,
    planner,
    reading,
    routes,
    rules,
    schedules,
    serving,
    serving_formulas,
    shapes,
    stages,
    timing,
    traffic,
)
from calculators.predict.clusters import Cluster, Link, Tier, two_tiers
from calculators.predict.memory import activations, kv_cache, levers
from calculators.predict.memory import formulas as memory_formulas
from calculators.predict.memory import states as model_states
from calculators.predict.models import catalogue, codes, configs, parameters
from calculators.predict.models import formulas as model_formulas
from calculators.predict.rules import checks as rule_checks
from calculators.predict.schedules import formulas as schedule_formulas
from calculators.predict.shapes import (
    Experts,
    LatentAttention,
    Layout,
    Layouts,
    ModelShape,
    Phase,
    SlidingWindow,
)
from calculators.predict.timing import Efficiency
from calculators.predict.traffic import overlap, routing, routing_formulas
from calculators.predict.traffic import pairs as traffic_pairs

DENSE = catalogue.MODELS["llama-3.1-8b"].shape
SPARSE = catalogue.MODELS["mixtral-8x7b"].shape
H100 = devices.DEVICES["h100"]
FAST = Link(name="fast", bytes_per_second=450e9, latency_seconds=2e-6)
SLOW = Link(name="slow", bytes_per_second=50e9, latency_seconds=10e-6)
CLUSTER = two_tiers(H100, devices=16, devices_per_host=8, inside=FAST, between=SLOW)
MANY = Layouts(tp=[1, 2], pp=2, dp=2)
ONE = Layouts(dp=2, tp=2, pp=2)
CASE = levers.Training(shape=DENSE, layout=Layout(tp=2), tokens=512)
WORK = serving.decode_work(DENSE, Layouts(tp=2), device=H100)
MOVED = traffic.composed(DENSE, Layout(tp=2, pp=2), phase=Phase.DECODE)
TASK = planner.Task(shape=DENSE, cluster=CLUSTER, tokens=2048, batch=32)
SPACE = planner.Space(tp=(2, 4), pp=(1, 2))
EVALUATED = next(planner.evaluate(TASK, SPACE))
ROUTED = routing.route(routing.uniform(8), tokens=16, experts_per_token=2, ranks=4)
LAYER = routing.skewed_layer(experts=8, experts_per_token=2, hidden_size=64, ranks=4, tokens=64, skew=0.5)
RNG = np.random.default_rng(3)
SIZES = [0, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000]
SECONDS = [50e-6 + size / 1e9 for size in SIZES]
LINK_WORK = {"tokens": 4_096, "ranks": 8, "flops_per_second": 989e12, "bytes_per_element": 2}

CONFIG = (
    '{"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, '
    '"vocab_size": 32000, "intermediate_size": 11008}'
)

CALLS = [
    (activations.kept_tensors, {"shape": DENSE}),
    (
        activations.layer_activations,
        {"shape": DENSE, "tokens": 2048, "batch": 1, "tp": 2, "cp": 2, "sp": True, "etp": 1, "recompute": 1},
    ),
    (advisor.advise, {"facts": advisor.Facts(phase="training")}),
    (advisor.ask_next, {"facts": advisor.Facts(phase="training")}),
    (calibration.algorithm_bandwidth, {"full_bytes": 1e9, "seconds": 0.1}),
    (calibration.bus_bandwidth, {"call": "all-reduce", "full_bytes": 1e9, "seconds": 0.1, "ranks": 8}),
    (calibration.fit_link, {"full_bytes": SIZES, "seconds": SECONDS, "ranks": 2, "call": "all-reduce"}),
    (calibration.fit_rounds_and_bytes, {"rounds": 2, "sent_bytes": SIZES, "seconds": SECONDS}),
    (catalogue.model, {"key": "phi-4"}),
    (catalogue.preset_of, {"shape": DENSE}),
    (
        clusters.two_tiers,
        {"device": H100, "devices": 16, "devices_per_host": 8, "inside": FAST, "between": SLOW},
    ),
    (codes.code_of, {"shape": DENSE}),
    (codes.shape_of, {"code": codes.code_of(DENSE)}),
    (collectives.all_reduce_bytes, {"full_size": 1_000, "ranks": 4}),
    (collectives.all_reduce_rounds, {"ranks": 4}),
    (collectives.reduce_scatter_bytes, {"full_size": 1_000, "ranks": 4}),
    (collectives.reduce_scatter_rounds, {"ranks": 4}),
    (collectives.all_gather_bytes, {"full_size": 1_000, "ranks": 4}),
    (collectives.all_gather_rounds, {"ranks": 4}),
    (collectives.all_to_all_bytes, {"send_buffer": 1_000, "ranks": 4}),
    (collectives.all_to_all_rounds, {"ranks": 4}),
    (collectives.broadcast_bytes, {"full_size": 1_000, "ranks": 4}),
    (collectives.broadcast_rounds, {"ranks": 4}),
    (collectives.send_bytes, {"size": 1_000}),
    (collectives.send_rounds, {}),
    (
        collectives.sent_bytes,
        {"kind": collectives.Kind.ALL_REDUCE, "full_size": 1_000, "ranks": 4, "algorithm": "ring"},
    ),
    (
        collectives.group_bytes,
        {"kind": collectives.Kind.ALL_REDUCE, "full_size": 1_000, "ranks": 4, "algorithm": "ring"},
    ),
    (
        collectives.call_figures,
        {"kind": collectives.Kind.ALL_REDUCE, "full_size": 1_000, "ranks": 4, "algorithm": "ring"},
    ),
    (collectives.rounds, {"kind": collectives.Kind.ALL_REDUCE, "ranks": 4, "algorithm": "ring"}),
    (collectives.algorithms, {"kind": collectives.Kind.ALL_REDUCE}),
    (
        collectives.transfer_seconds,
        {"sent_bytes": 1e6, "rounds": 1, "bytes_per_second": 1e9, "latency_seconds": 5e-5},
    ),
    (
        compute.gpt_step_flops,
        {"hidden_size": 12288, "layers": 96, "vocab_size": 51200, "tokens": 2048, "batch": 1536},
    ),
    (compute.forward_flops, {"shape": DENSE, "tokens": 8192}),
    (compute.training_flops, {"shape": DENSE, "tokens": 8192, "batch": 2}),
    (compute.decode_flops, {"shape": DENSE, "context_tokens": 4096}),
    (
        compute.training_days,
        {"tokens": 300e9, "parameters": 175e9, "devices": 1024, "flops_per_second": 140e12},
    ),
    (
        compute.roofline_seconds,
        {"flops": 1e12, "moved_bytes": 1e12, "flops_per_second": 1e14, "bytes_per_second": 2e12},
    ),
    (compute.attended_tokens, {"shape": DENSE, "tokens": 8192}),
    (compute.attention_width, {"shape": DENSE}),
    (compute.attention_matmuls, {"shape": DENSE}),
    (configs.read_config, {"text": CONFIG}),
    (devices.device, {"key": "h100"}),
    (
        exchanges.exchanges,
        {
            "shape": DENSE,
            "layouts": ONE,
            "batch": 2,
            "tokens": 3,
            "wire_bytes_per_element": 2,
            "tensors_per_boundary": 1,
        },
    ),
    (exchanges.star_all_reduce_bytes, {"full_size": 1_000, "ranks": 4}),
    (exchanges.expert_exchange_bytes, {"tokens": 32, "destinations": 9, "hidden_size": 7_000}),
    (gloo.no_bytes, {"ranks": 4}),
    (gloo.all_reduce, {"payload_bytes": 8_192, "ranks": 4, "bytes_per_element": 4}),
    (gloo.send, {"payload_bytes": 8_192, "ranks": 4, "source": 0, "destination": 1}),
    (gloo.broadcast, {"payload_bytes": 1_000, "ranks": 4, "root": 0}),
    (gloo.all_gather, {"shard_bytes": 1_000, "ranks": 4}),
    (gloo.all_to_all, {"send_buffer_bytes": 1_000, "ranks": 4}),
    (gloo.all_to_all_v, {"parts_bytes": [[7, 100], [0, 7]]}),
    (gloo.reduce_scatter, {"full_bytes": 8_192, "ranks": 4, "bytes_per_element": 4}),
    (gloo.barrier, {"ranks": 4}),
    (kv_cache.kv_bytes_per_token, {"shape": DENSE, "tp": 4, "bytes_per_element": 2}),
    (
        kv_cache.kv_cache_bytes,
        {
            "shape": DENSE,
            "context_tokens": 1_000,
            "batch": 2,
            "tp": 4,
            "pp": 2,
            "cp": 2,
            "dcp": 1,
            "stage": 1,
            "bytes_per_element": 2,
        },
    ),
    (levers.largest_part, {"memory": CASE.memory}),
    (levers.levers, {"case": CASE, "device": H100, "reserve": 0.1}),
    (levers.together, {"case": CASE, "device": H100, "reserve": 0.1}),
    (levers.memories, {"cases": [CASE]}),
    (links.rung, {"key": "nvlink-4"}),
    (links.bus_bytes_per_second, {"call": "all-reduce", "hosts": 8}),
    (memory.training_memory, {"shape": DENSE, "layouts": MANY, "tokens": 2048, "micro_batches": 4}),
    (
        memory.serving_memory,
        {
            "shape": DENSE,
            "layouts": MANY,
            "batch": 2,
            "context_tokens": 2048,
            "kv_bytes_per_element": 2,
            "weight_bytes_per_element": 1,
            "dcp": 1,
        },
    ),
    (memory.fits, {"memory": CASE.memory, "device": H100, "reserve": 0.1}),
    (memory.room, {"device": H100, "reserve": 0.1}),
    (memory_formulas.memory_formulas, {"case": CASE}),
    (model_formulas.parameter_formulas, {"shape": DENSE}),
    (model_formulas.cache_formula, {"shape": DENSE, "bytes_per_element": 2}),
    (model_states.optimizer, {"key": "mixed-adam"}),
    (model_states.model_states, {"parameters": 7.5e9, "zero": 1, "replicas": 64}),
    (model_states.rank_parameters, {"shape": DENSE, "layouts": MANY, "stage": 0}),
    (model_states.largest_unit, {"shape": DENSE, "layouts": MANY}),
    (model_states.attention_of_rank, {"shape": DENSE, "tp": 2}),
    (
        model_states.deepspeed_zero2,
        {"parameters": 7e9, "gpus": 8, "offload_optimizer": True, "buffer_factor": 1.5},
    ),
    (
        model_states.deepspeed_zero3,
        {
            "parameters": 7e9,
            "largest_layer": 1e8,
            "gpus": 8,
            "offload_optimizer": True,
            "buffer_factor": 1.5,
        },
    ),
    (overlap.data_parallel_link, LINK_WORK),
    (overlap.sharded_data_parallel_link, LINK_WORK),
    (overlap.tensor_parallel_link, {"hidden_size": 8_192, "ranks": 8, "flops_per_second": 989e12}),
    (
        overlap.pipeline_parallel_link,
        {"hidden_size": 8_192, "stage_parameters": 3.5e9, "flops_per_second": 989e12},
    ),
    (placement.size, {"layouts": ONE, "axis": "tp"}),
    (placement.stride, {"layouts": ONE, "axis": "pp"}),
    (placement.span, {"layouts": ONE, "axis": "pp"}),
    (placement.groups, {"layout": Layout(tp=2, pp=2), "axis": "pp"}),
    (planner.space_of, {"task": TASK}),
    (planner.evaluate, {"task": TASK, "space": SPACE, "chunk": 10}),
    (planner.plan, {"task": TASK, "space": SPACE, "count": 2}),
    (planner.why, {"found": EVALUATED, "row": 0, "other": 1}),
    (
        reading.reading,
        {
            "shape": SPARSE,
            "layouts": ONE,
            "batch": 2,
            "context_tokens": 100,
            "weight_bytes_per_element": 1,
            "kv_bytes_per_element": 2,
        },
    ),
    (reading.distinct_experts, {"routed": 128, "per_token": 8, "tokens": 16}),
    (routes.routes, {"kind": collectives.Kind.ALL_REDUCE, "ranks": 4, "algorithm": "ring"}),
    (routing.uniform, {"experts": 8}),
    (routing.power_law, {"experts": 8, "exponent": 1.0}),
    (routing.histogram, {"loads": [30, 10]}),
    (
        routing.skewed_layer,
        {
            "experts": 8,
            "experts_per_token": 2,
            "hidden_size": 64,
            "ranks": 4,
            "tokens": 64,
            "skew": 0.5,
            "capacity_factor": 1.25,
        },
    ),
    (
        routing.route,
        {
            "shares": [0.25, 0.25, 0.25, 0.25],
            "tokens": 16,
            "experts_per_token": 2,
            "ranks": 2,
            "capacity_factor": 1.25,
        },
    ),
    (
        routing.draw_choices,
        {"shares": [0.25, 0.25, 0.25, 0.25], "tokens": 16, "experts_per_token": 2, "rng": RNG},
    ),
    (
        routing.route_choices,
        {"choices": [[0, 1], [0, 2], [3, 1], [0, 3]], "experts": 4, "ranks": 2, "capacity_factor": 1.25},
    ),
    (
        routing.exchange,
        {
            "routed": ROUTED,
            "hidden_size": 64,
            "dispatch_bytes_per_element": 2,
            "combine_bytes_per_element": 2,
        },
    ),
    (routing_formulas.routing_formulas, {"layer": LAYER}),
    (
        rules.check,
        {
            "shape": DENSE,
            "layout": Layout(tp=2, pp=2, vpp=2),
            "tokens": 2048,
            "batch": 8,
            "devices": 4,
            "devices_per_host": 8,
            "micro_batch": 1,
        },
    ),
    (rules.remarks, {"shape": DENSE, "layout": Layout(tp=2), "devices_per_host": 8}),
    (rules.legal, {"case": rules.Case(shape=DENSE, layouts=ONE)}),
    (rules.masks, {"case": rules.Case(shape=DENSE, layouts=ONE)}),
    (rules.violations, {"case": rules.Case(shape=DENSE, layouts=ONE)}),
    (rules.nearest_sizes, {"shape": DENSE, "axis": "tp", "size": 3}),
    (rule_checks.case_of, {"shape": DENSE, "layout": Layout(tp=2), "tokens": 2048}),
    (rules.minimum_devices, {"tp": 2, "pp": 2, "cp": 1, "ep": 2, "etp": 1}),
    (rules.padded_vocabulary, {"vocab_size": 50_257, "tp": 8, "divisor": 128}),
    (rules.sizes_that_work, {"shape": DENSE, "axis": "tp"}),
    (rules.tool, {"key": "megatron"}),
    (
        schedules.bubble_seconds,
        {
            "schedule": "interleaved",
            "stages": 4,
            "micro_batches": 8,
            "chunks": 2,
        },
    ),
    (schedules.ideal_seconds, {"micro_batches": 8}),
    (
        schedules.bubble_over_ideal,
        {"schedule": "interleaved", "stages": 4, "micro_batches": 8, "chunks": 2},
    ),
    (
        schedules.idle_share,
        {"schedule": "interleaved", "stages": 4, "micro_batches": 8, "chunks": 2},
    ),
    (schedules.in_flight, {"schedule": "1f1b", "stages": 4, "micro_batches": 8, "stage": 1, "chunks": 1}),
    (schedules.peak_in_flight, {"schedule": "interleaved", "stages": 4, "micro_batches": 8, "chunks": 2}),
    (schedules.sends_per_micro_batch, {"schedule": "interleaved", "stages": 4, "chunks": 2}),
    (schedules.parameter_copies, {"schedule": "1f1b"}),
    (
        schedule_formulas.formulas,
        {"schedule": "interleaved", "stages": 4, "micro_batches": 8, "chunks": 2},
    ),
    (schedules.kind_of, {"schedule": "1f1b"}),
    (
        schedules.problems,
        {"schedule": "interleaved", "stages": 4, "micro_batches": 8, "chunks": 2, "group": 4},
    ),
    (schedules.check, {"schedule": "interleaved", "stages": 4, "micro_batches": 8, "chunks": 2, "group": 4}),
    (
        schedules.timetable,
        {
            "schedule": "interleaved",
            "stages": 4,
            "micro_batches": 8,
            "chunks": 2,
            "group": 4,
            "send": 0.1,
        },
    ),
    (serving.decode_ceiling, {"memory_bytes_per_second": 273e9, "bytes_read": 141e9}),
    (
        serving.decode_work,
        {
            "shape": DENSE,
            "layouts": ONE,
            "device": H100,
            "inside": FAST,
            "batch": 2,
            "context_tokens": 100,
            "weight_bytes_per_element": 1,
            "kv_bytes_per_element": 2,
            "wire_bytes_per_element": 2,
            "tensors_per_boundary": 1,
        },
    ),
    (
        serving.link_speed,
        {
            "shape": DENSE,
            "layouts": ONE,
            "device": H100,
            "tokens_per_second": 20,
            "latency_seconds": 1e-6,
            "batch": 2,
            "context_tokens": 100,
            "weight_bytes_per_element": 1,
            "kv_bytes_per_element": 2,
        },
    ),
    (serving_formulas.decode_formulas, {"work": WORK, "device": H100, "link": FAST, "wanted": 20.0}),
    (shapes.activation_bytes, {"batch": 1, "tokens": 1, "hidden_size": 4096, "bytes_per_element": 2}),
    (stages.layers_of_stage, {"shape": DENSE, "stage": 1, "pp": 2, "vpp": 1}),
    (stages.fullest_stages, {"shape": DENSE, "pp": 2, "vpp": 1}),
    (stages.in_flight, {"stage": 1, "pp": 2, "micro_batches": 4, "vpp": 1, "schedule": "1f1b"}),
    (timing.prefill, {"shape": SPARSE, "layouts": ONE, "cluster": CLUSTER, "tokens": 2048, "batch": 2}),
    (
        timing.decode_step,
        {
            "shape": SPARSE,
            "layouts": ONE,
            "cluster": CLUSTER,
            "batch": 2,
            "context_tokens": 100,
            "weight_bytes_per_element": 1,
        },
    ),
    (
        timing.training_step,
        {"shape": SPARSE, "layouts": ONE, "cluster": CLUSTER, "tokens": 2048, "batch": 8},
    ),
    (
        traffic.composed,
        {
            "shape": SPARSE,
            "layouts": ONE,
            "phase": Phase.TRAINING,
            "tokens": 2048,
            "batch": 8,
            "micro_batches": 2,
            "dispatch_bytes_per_element": 1.0,
            "combine_bytes_per_element": 2.0,
            "weight_bytes_per_element": 2.0,
        },
    ),
    (
        traffic.context_parallel,
        {
            "attention_heads": 64,
            "kv_heads": 8,
            "head_dim": 128,
            "layers": 1,
            "ranks": 4,
            "tokens": 8192,
            "phase": Phase.TRAINING,
            "value_dim": 128,
        },
    ),
    (traffic.ulysses_crossover, {"attention_heads": 32, "kv_heads": 8}),
    (
        traffic.hiding_block_tokens,
        {"flop_per_second": 312e12, "bytes_per_second": 300e9, "attention_heads": 32, "kv_heads": 8},
    ),
    (traffic.data_parallel, {"parameters": 1_000, "ranks": 4, "stage": "hsdp", "replica_groups": 2}),
    (
        traffic.expert_parallel,
        {
            "hidden_size": 7168,
            "layers": 1,
            "tokens": 128,
            "experts": 256,
            "experts_per_token": 8,
            "ranks": 8,
            "phase": Phase.TRAINING,
            "capacity_factor": 1.25,
        },
    ),
    (traffic.capacity, {"tokens": 1024, "experts_per_token": 2, "experts": 8, "factor": 1.25}),
    (traffic.expected_ranks, {"experts": 256, "experts_per_token": 8, "ranks": 8}),
    (traffic.host_copies, {"experts_per_token": 8, "hosts": 8, "most_hosts": 4}),
    (traffic.pair_matrix, {"composition": MOVED}),
    (traffic.block_matrix, {"composition": MOVED, "devices": 2}),
    (traffic_pairs.block_matrices, {"composition": MOVED, "devices": 2}),
    (traffic.tier_bytes, {"composition": MOVED, "cluster": CLUSTER}),
    (
        traffic.pipeline_parallel,
        {"hidden_size": 4096, "stages": 2, "phase": Phase.TRAINING, "micro_batches": 4},
    ),
    (
        traffic.tensor_parallel,
        {"hidden_size": 4096, "layers": 64, "ranks": 2, "phase": Phase.TRAINING, "vocab_size": 32_000},
    ),
    *(
        (getattr(parameters, name), {"shape": SPARSE})
        for name in vars(parameters)
        if name.endswith("_parameters")
    ),
    (parameters.parameter_parts, {"shape": SPARSE}),
]

VALUES = [
    (
        advisor.Facts,
        {"hosts": 2, "zero": 1, "redundant_experts": 1, "device_busy": 0.5, "hottest_over_mean": 1.5},
    ),
    (Cluster, {"device": H100, "tiers": (Tier(devices=8, link=FAST),)}),
    (Efficiency, {"matmul": 1.0, "bandwidth": 1.0}),
    (Experts, {"routed": 8, "per_token": 2, "width": 64, "shared_width": 1, "dense_layers": 1}),
    (LatentAttention, {"kv_rank": 512, "rope_dim": 64, "query_rank": 1536, "value_dim": 128}),
    (Layout, {"tp": 2}),
    (Layouts, {"tp": 2}),
    (Link, {"name": "mine", "bytes_per_second": 1e9, "latency_seconds": 1e-6}),
    (ModelShape, {field.name: getattr(DENSE, field.name) for field in fields(DENSE)}),
    (SlidingWindow, {"tokens": 128, "layers": 12}),
    (Tier, {"devices": 8, "link": FAST}),
    (collectives.Backend, {"name": "mine", "all_reduce": "tree"}),
    (levers.Serving, {"shape": DENSE, "layout": Layout(), "tokens": 512, "kv_bytes": 1, "weight_bytes": 2}),
    (levers.Training, {"shape": DENSE, "layout": Layout(), "tokens": 512}),
    (planner.Space, {"tp": (1, 2)}),
    (planner.Task, {"shape": DENSE, "cluster": CLUSTER, "tokens": 2048, "batch": 32}),
    (
        rules.Case,
        {
            "shape": SPARSE,
            "layouts": ONE,
            "tokens": 2048,
            "batch": 8,
            "given_micro_batches": 4,
            "micro_batch_group": 2,
            "devices": 8,
            "devices_per_host": 8,
            "quantisation_block": 128,
            "redundant_experts": 0,
            "decode_cp": 1,
        },
    ),
]
"""Every value that checks itself, in the same way."""

WITHIN = {
    "memory.activations": "bytes_per_token beside_the_matrices first_stage_bytes_per_token last_stage_bytes_per_token",
    "advisor.rejections": "rejected",
    "advisor.steps.broken": "broken_rules",
    "advisor.steps.exchanges": "in_time bandwidth_is_used faster_link_helps",
    "advisor.steps.fit": "one_fits",
    "advisor.steps.pieces": "what_does_not_fit",
    "advisor.steps.places": "hosts_are_together what_there_is by_topology",
    "advisor.steps.rules": "are_kept sequence_goes_further",
    "advisor.steps.sharding": "hosts_slow_it_down memory_falls",
    "advisor.steps.sizes": "in_use tensor_sizes tensor_size either",
    "advisor.steps.work": "experts_are_balanced memory_is_busy devices_are_busy stages_are_filled split_is_faster",
    "arrays": "floats counts amounts positive products numbers whole is_whole said check_broadcast check_group "
    "everywhere anywhere",
    "compute": "feed_forward_matmuls",
    "models.text": "read_object shown listed",
    "exchanges": "sizes",
    "formulas": "tex tex_short tex_scaled tex_bytes tex_product legend_of",
    "memory.kv_cache": "cache_of_rank check_dcp layers_without_window tokens_in_layers layer_bytes",
    "stages": "check_stage depth_of_stage layers_at",
    "planner.blocks": "asked blocks",
    "planner.columns": "joined",
    "planner.kinds": "checked",
    "planner.ranking": "frontier order worth_keeping",
    "rules.case": "divides",
    "schedules.closed": "sends_per_pass",
    "schedules.kinds": "chunks_of",
    "schedules.orders": "routes plan",
    "shapes": "check_zero check_recompute",
    "timing.layers": "products logits logits_and_loss",
    "timing.steps": "summed",
    "timing.waits": "ring all_to_all outermost exposed hidden_state tensor keys_and_values context_forward context "
    "tensor_forward results expert sends data tied_embedding update",
    "traffic.composition.context": "context_shares",
    "traffic.composition.data": "data_shares",
    "traffic.composition.experts": "expert_shares expert_tensor_shares",
    "traffic.composition.pipeline": "pipeline_shares",
    "traffic.composition.stages": "stage_has busiest_candidates",
    "traffic.composition.tensor": "tensor_shares",
    "traffic.context": "check_context",
    "traffic.expert": "check_experts",
    "traffic.figures": "calls_of_one_kind summed number product legend in_flight",
    "traffic.tensor": "check_sequence_parallel",
}
"""Functions that other modules of the package call with what was checked, or that do the checking."""

NOT_NUMBERS = {
    "not-a-number": math.nan,
    "infinity": math.inf,
    "minus infinity": -math.inf,
    "far too large": 1e308,
    "beyond a float": 10**400,
    "a word": "x",
    "nothing": None,
    "complex": 1 + 1j,
    "complex array": np.array([1j]),
    "ragged": [[1, 2], [3, 4, 5]],
    "an object": {"a": 1},
    "below zero": -1,
}
MAY_BE_UNKNOWN = {rules.check, rules.remarks, rules.checks.case_of}  # whose sizes may be None: not known


def named(given):
    return f"{given.__module__.removeprefix('calculators.predict.')}.{given.__name__}"


def with_numbers():
    """A case for every numeric argument of every call, defaults included."""
    for call, valid in CALLS + VALUES:
        parameters = inspect.signature(call).parameters
        usual = {name: each.default for name, each in parameters.items()}
        for name, value in {**usual, **valid}.items():
            if is_number(value):
                yield pytest.param(call, valid, name, id=f"{named(call)} {name}")


def is_number(value):
    if isinstance(value, list | tuple) and value:
        return is_number(value[0])
    return isinstance(value, int | float | np.ndarray) and not isinstance(value, bool | Enum)


def public():
    """Every public function and every class of the package, by its module."""
    for module in pkgutil.walk_packages(calculators.predict.__path__, "calculators.predict."):
        for name, found in vars(importlib.import_module(module.name)).items():
            if not name.startswith("_") and getattr(found, "__module__", "") == module.name:
                yield found


def finite(result):
    if isinstance(result, np.ndarray):
        return result.dtype.kind not in "fc" or bool(np.all(np.isfinite(result)))
    if isinstance(result, float):
        return math.isfinite(result)
    if is_dataclass(result):
        return all(finite(getattr(result, field.name)) for field in fields(result))
    if isinstance(result, Mapping):
        return all(finite(value) for value in result.values())
    if isinstance(result, list | tuple):
        return all(finite(value) for value in result)
    return True


def answer_of(call, given):
    """What it gives, with every warning an error; a generator is read to its end, and problems are raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = call(**given)
        if call is schedules.problems and result:
            raise ValueError(result[0])
        return list(result) if inspect.isgenerator(result) else result


def test_every_public_function_is_in_one_of_the_tables():
    called = {call for call, _ in CALLS}
    within = {f"{module}.{name}" for module, names in WITHIN.items() for name in names.split()}

    functions = {found for found in public() if inspect.isroutine(inspect.unwrap(found))}

    assert {named(found) for found in functions if found not in called} == within


def test_every_value_that_checks_itself_is_in_its_table():
    checked = {found for found in public() if inspect.isclass(found) and "__post_init__" in vars(found)}

    assert checked == {value for value, _ in VALUES} - ({Tier, Layouts} - checked)


@pytest.mark.parametrize(("call", "valid"), CALLS + VALUES, ids=lambda each: getattr(each, "__name__", ""))
def test_the_call_of_the_table_has_a_finite_answer(call, valid):
    assert finite(answer_of(call, valid))


@pytest.mark.parametrize(("call", "valid", "name"), list(with_numbers()))
def test_what_is_no_such_number_is_refused_by_its_name(call, valid, name):
    parameter = inspect.signature(call).parameters.get(name)
    optional = call in MAY_BE_UNKNOWN or (parameter and parameter.default is None)

    for what, wrong in NOT_NUMBERS.items():
        if wrong is None and optional:
            continue
        with pytest.raises(ValueError, match=rf"\b{name}\b.*\.$") as refused:
            answer_of(call, {**valid, name: wrong})
        assert len(str(refused.value)) < 400, what


@pytest.mark.parametrize(("call", "valid", "name"), list(with_numbers()))
def test_zero_is_refused_by_its_name_or_has_a_finite_answer(call, valid, name):
    zero = np.zeros_like(valid[name]).tolist() if isinstance(valid.get(name), list) else 0

    refusal, answer = "", None
    try:
        answer = answer_of(call, {**valid, name: zero})
    except ValueError as refused:
        refusal = str(refused)

    assert re.search(rf"\b{name}\b.*\.$", refusal) if refusal else finite(answer), (call, refusal)


def pairs_of_arrays():
    """Every argument that may be an array beside the first one that may."""
    for call, valid in CALLS + VALUES:
        parameters = inspect.signature(call).parameters
        usual = {name: each.default for name, each in parameters.items()}
        given = {**usual, **valid}
        arrays = [
            name
            for name, each in parameters.items()
            if "ArrayLike" in str(each.annotation) and isinstance(given[name], int | float)
        ]
        for other in arrays[1:]:
            two, three = np.full(2, float(given[arrays[0]])), np.full(3, float(given[other]))
            yield pytest.param(
                call, {**valid, arrays[0]: two, other: three}, id=f"{named(call)} {arrays[0]} {other}"
            )


@pytest.mark.parametrize(("call", "given"), list(pairs_of_arrays()))
def test_arrays_that_do_not_broadcast_are_refused_by_name_and_shape(call, given):
    with pytest.raises(ValueError, match=r"^The arrays do not broadcast: ") as refused:
        answer_of(call, given)

    for name, value in given.items():
        if isinstance(value, np.ndarray):
            assert f"{name} {value.shape}" in str(refused.value)


def with_names():
    """A case for every argument that is one of several names."""
    for call, valid in CALLS + VALUES:
        parameters = inspect.signature(call).parameters
        usual = {name: each.default for name, each in parameters.items()}
        for name, value in {**usual, **valid}.items():
            if isinstance(value, str) and name not in ("name", "source", "text", "code"):
                yield pytest.param(call, valid, name, id=f"{named(call)} {name}")


@pytest.mark.parametrize(("call", "valid", "name"), list(with_names()))
@pytest.mark.parametrize("unknown", ["no such thing", "", "RING"])
def test_a_name_that_is_not_known_is_refused_with_those_there_are(call, valid, name, unknown):
    with pytest.raises(ValueError, match=r"(Use|Take|Give|Leave).*\.$") as refused:
        answer_of(call, {**valid, name: unknown})

    assert len(str(refused.value)) < 600


# Layouts that cannot be: sizes that share no factor with the model, more parts than there are things, and absurd ones.

SIZES_OF_AN_AXIS = st.sampled_from([1, 2, 3, 5, 8, 64, 1_000, 10**6, 10**12, 10**18])
SHAPES = st.sampled_from(
    [catalogue.MODELS[key].shape for key in ("llama-3.1-8b", "mixtral-8x7b", "deepseek-v3", "gpt-oss-20b")]
)
LAYOUTS = st.builds(
    Layout,
    **dict.fromkeys(("dp", "tp", "pp", "cp", "ep", "etp", "vpp"), SIZES_OF_AN_AXIS),
    sp=st.booleans(),
    zero=st.integers(0, 3),
)
HUGE = st.sampled_from([1, 2, 3, 4096, 10**7, 10**12, 10**18])


def finite_or_refused(call, **given):
    """The answer; None where it is refused in a sentence."""
    refusal, answer = "", None
    try:
        answer = answer_of(call, given)
    except ValueError as refused:
        refusal = str(refused)

    assert re.fullmatch(r"[^\n]{10,400}\.", refusal) if refusal else finite(answer), (call, refusal)
    return answer


@settings(max_examples=150, deadline=None)
@given(shape=SHAPES, layout=LAYOUTS, tokens=HUGE, batch=HUGE, micro_batch=HUGE, recompute=st.integers(0, 2))
def test_an_impossible_layout_is_refused_in_a_sentence_or_its_numbers_are_finite(
    shape, layout, tokens, batch, micro_batch, recompute
):
    layouts = Layouts.of(layout, micro_batch=micro_batch, recompute=recompute)
    here = {"shape": shape, "layouts": layouts}

    finite_or_refused(memory.training_memory, **here, tokens=tokens, micro_batches=batch)
    finite_or_refused(memory.serving_memory, **here, batch=batch, context_tokens=tokens)
    finite_or_refused(timing.training_step, **here, cluster=CLUSTER, tokens=tokens, batch=batch)
    finite_or_refused(timing.prefill, **here, cluster=CLUSTER, tokens=tokens, batch=batch)
    finite_or_refused(timing.decode_step, **here, cluster=CLUSTER, batch=batch, context_tokens=tokens)
    finite_or_refused(exchanges.exchanges, **here, batch=batch, tokens=tokens)
    finite_or_refused(
        serving.decode_work, **here, device=H100, inside=FAST, batch=batch, context_tokens=tokens
    )
    for phase in Phase:
        moved = finite_or_refused(traffic.composed, **here, phase=phase, tokens=tokens, batch=batch)
        if moved:
            assert finite(moved.wire_bytes), phase
            finite_or_refused(traffic.tier_bytes, composition=moved, cluster=CLUSTER)
            finite_or_refused(traffic.block_matrix, composition=moved, devices=8)


@settings(max_examples=60, deadline=None)
@given(
    shape=SHAPES,
    layout=LAYOUTS,
    tokens=HUGE,
    batch=HUGE,
    devices=HUGE,
    tool=st.sampled_from(list(rules.TOOLS)),
)
def test_an_impossible_layout_breaks_rules_in_sentences(shape, layout, tokens, batch, devices, tool):
    found = finite_or_refused(
        rules.check, shape=shape, layout=layout, tokens=tokens, batch=batch, devices=devices, tool=tool
    )

    for violation in found or ():
        assert violation.sentence.endswith(".")
        assert "nan" not in violation.sentence
        assert violation.axis == "sp" or all(size >= 1 for size in violation.nearest)


@settings(max_examples=40, deadline=None)
@given(shape=SHAPES, layout=LAYOUTS, tokens=HUGE, micro_batch=HUGE, micro_batches=HUGE)
def test_levers_of_an_impossible_layout_are_finite(shape, layout, tokens, micro_batch, micro_batches):
    case = levers.Training(
        shape=shape, layout=layout, tokens=tokens, micro_batch=micro_batch, micro_batches=micro_batches
    )

    finite_or_refused(levers.levers, case=case, device=H100)


@settings(max_examples=15, deadline=None)
@given(
    shape=SHAPES,
    devices=st.sampled_from([1, 3, 7, 24, 127]),
    tokens=st.sampled_from([1, 3, 4097, 10**12]),
    batch=st.sampled_from([1, 5, 10**12]),
    phase=st.sampled_from([Phase.TRAINING, Phase.DECODE]),
)
def test_a_task_that_no_layout_suits_has_an_empty_plan(shape, devices, tokens, batch, phase):
    cluster = two_tiers(H100, devices=devices, devices_per_host=devices, inside=FAST, between=SLOW)
    task = planner.Task(shape=shape, cluster=cluster, tokens=tokens, batch=batch, phase=phase)

    found = finite_or_refused(planner.plan, task=task, count=3)

    assert found is None or found.legal >= found.fitting


@pytest.mark.parametrize(("work", "send"), [(1e-275, 0.0), (1e-9, 1e5), (1e-300, 1e18)])
def test_work_that_would_be_lost_beside_a_message_is_refused(work, send):
    with pytest.raises(ValueError, match=r"^send is .* too short to tell from nothing beside it\."):
        schedules.timetable(
            "1f1b", stages=2, micro_batches=2, forward=0, backward_input=0, backward_weight=work, send=send
        )
