"""R1 to R19, one entry each: what it says, who enforces it, when it holds, and why not otherwise.

Every `holds` takes a Case and works on all of its layouts at once; what depends on one axis stays as small as it is.
Every `why` goes on a sentence that starts "tp is 6, but …", about a case of one layout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from calculators.predict.arrays import Floats, floats
from calculators.predict.rules.case import Case, Mask, divides
from calculators.predict.rules.sizes import minimum_devices, padded_vocabulary
from calculators.predict.rules.tools import EVERY, MEGATRONS


class Kind(StrEnum):
    """What breaking a rule means."""

    REFUSED = "refused"  # the program stops, hangs, or calculates something else
    ADVICE = "advice"  # it runs, slower than it could
    NOTE = "note"  # the program changes the number by itself


@dataclass(frozen=True, kw_only=True)
class Clause:
    """One condition of a rule.

    axes    what can be changed to keep it, the one that a sentence names first
    needs   what must be known of the case; the clause is silent otherwise
    reads   the sizes of the model that it looks at
    tools   whose check it is
    """

    axes: tuple[str, ...]
    holds: Callable[[Case], Mask]
    why: Callable[[Case], str]
    needs: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    tools: frozenset[str] = EVERY

    def applies(self, case: Case) -> bool:
        """Whether the case's tool checks this, and all that it needs is known."""
        return case.tool in self.tools and (not self.needs or all(map(case.knows, self.needs)))


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule: its number, what it says in a sentence, its conditions, and where it is written."""

    id: str
    says: str
    clauses: tuple[Clause, ...]
    source: str
    kind: Kind = Kind.REFUSED

    @property
    def axes(self) -> tuple[str, ...]:
        """Everything that it limits, in the order in which it is named."""
        return tuple(dict.fromkeys(axis for clause in self.clauses for axis in clause.axes))

    @property
    def axis(self) -> str:
        """What it limits first of all."""
        return self.axes[0]

    @property
    def tools(self) -> frozenset[str]:
        """Whose checks it repeats."""
        return frozenset().union(*(clause.tools for clause in self.clauses))

    def holds(self, case: Case) -> Mask:
        """Where the case keeps this rule; an array no larger than the axes that the rule looks at."""
        mask = np.asarray(True)
        for clause in self.clauses:
            if clause.applies(case):
                mask = mask & clause.holds(case)
        return np.asarray(mask)


def _n(values: object) -> str:
    return f"{float(np.asarray(values, dtype=float)):,.10g}"


def _slices(case: Case) -> Mask:
    """Quantised blocks fill every rank's slice of an expert, and of the expert that each token visits."""
    experts = case.shape.experts
    if experts is None or not case.quantisation_block:
        return np.asarray(True)
    whole = divides(case["etp"] * case.quantisation_block, experts.width)
    if experts.shared_width:
        whole = whole & divides(case["tp"] * case.quantisation_block, experts.shared_width)
    return whole


def _slice_width(case: Case) -> str:
    experts = case.shape.experts
    if experts is None:
        return "0"
    routed, shared = experts.width / case["etp"], experts.shared_width / case["tp"]
    fills = divides(case.quantisation_block or 1, routed)
    return _n(shared if fills else routed)


def _interleaved_groups(case: Case) -> Mask:
    group = case["pp"] if case.micro_batch_group is None else case["micro_batch_group"]
    m = case.micro_batches
    left = m - np.floor(m / group) * group
    fits = (group >= case["pp"]) & (group <= m) & ((left == 0) | (left >= case["pp"]))
    return np.asarray((case["vpp"] == 1) | fits)


def _rounds(case: Case) -> Mask:
    # torch 2.13 ScheduleInterleaved1F1B: micro-batches are dealt out in max(1, m // p) equal rounds.
    m = case.micro_batches
    return np.asarray((case["vpp"] == 1) | divides(np.maximum(1, np.floor(m / case["pp"])), m))


def _cp_share(case: Case) -> Mask:
    """Tokens make 2·cp equal pieces, each of them tp equal ones where sequence parallelism is on."""
    pieces = 2 * case["cp"] * np.where(case.sp, case["tp"], 1)
    return np.asarray((case["cp"] == 1) | divides(pieces, case["tokens"]))


def _all_to_all(case: Case) -> bool:
    return case.exchange == "all-to-all"


def _query_heads_over_cp(case: Case) -> Mask:
    if not _all_to_all(case):
        return np.asarray(True)
    return np.asarray((case["cp"] == 1) | divides(case["tp"] * case["cp"], case.shape.attention_heads))


def _kv_heads(case: Case) -> int:
    """Heads whose keys and values an all-to-all hands round: latent ones have been unfolded by then."""
    return case.shape.attention_heads if case.shape.latent else case.shape.kv_heads


def _kv_heads_over_cp(case: Case) -> Mask:
    if not _all_to_all(case):
        return np.asarray(True)
    ranks = case["tp"] * case["cp"]
    shared = divides(ranks, _kv_heads(case))
    if case.replicated_kv:
        shared = shared | divides(_kv_heads(case), ranks)
    return np.asarray((case["cp"] == 1) | shared)


def _experts(case: Case) -> int:
    return case.shape.experts.routed if case.shape.experts else 1


def _slots(case: Case) -> Floats:
    return _experts(case) + floats(0 if case.redundant_experts is None else case["redundant_experts"])


def _minimum(case: Case) -> Floats:
    """R14 as it is published. Where neither product divides the other, R13 refuses all that lies between this and
    `minimum_devices`, the fewest that are whole both ways."""
    return case["pp"] * np.maximum(case["tp"] * case["cp"], case["ep"] * case["etp"])


def _fewest(case: Case) -> str:
    sizes = {axis: int(case[axis]) for axis in ("tp", "pp", "cp", "ep", "etp")}
    return _n(minimum_devices(**sizes))


RULES = (
    Rule(
        id="R1",
        says="The ranks of a tensor-parallel group share the attention heads equally.",
        clauses=(
            Clause(
                axes=("tp",),
                reads=("attention_heads",),
                holds=lambda c: divides(c["tp"], c.shape.attention_heads),
                why=lambda c: (
                    f"{_n(c['tp'])} ranks cannot share {_n(c.shape.attention_heads)} attention heads equally"
                ),
            ),
        ),
        source="Megatron-LM transformer_config.py: num_attention_heads; vLLM refuses to start",
    ),
    Rule(
        id="R2",
        says="They share the key-value heads equally, or hold equally many copies of them.",
        clauses=(
            Clause(
                axes=("tp",),
                reads=("kv_heads",),
                tools=frozenset({"megatron", "vllm", "deepspeed"}),
                holds=lambda c: (
                    np.asarray(True)  # every rank holds the one latent vector whole
                    if c.shape.latent
                    else divides(c["tp"], c.shape.kv_heads) | divides(c.shape.kv_heads, c["tp"])
                ),
                why=lambda c: (
                    f"{_n(c.shape.kv_heads)} key-value heads can neither be shared equally by {_n(c['tp'])} ranks "
                    "nor repeated equally on them"
                ),
            ),
            Clause(
                axes=("tp",),
                reads=("kv_heads",),
                tools=frozenset({"megatron-0.15", "torchtitan"}),
                holds=lambda c: np.asarray(True) if c.shape.latent else divides(c["tp"], c.shape.kv_heads),
                why=lambda c: (
                    f"{_n(c['tp'])} ranks cannot share {_n(c.shape.kv_heads)} key-value heads equally, and here none "
                    "may be repeated"
                ),
            ),
        ),
        source="Megatron-LM transformer_config.py: num_query_groups is a multiple or a divisor (0.15: a multiple, "
        "ms-swift issue 8219); torchtitan pull request 2577",
    ),
    Rule(
        id="R3",
        says="Blocks of weights that share one scale fill every rank's slice of a feed-forward matrix.",
        clauses=(
            Clause(
                axes=("tp",),
                reads=("ffn_width",),
                needs=("quantisation_block",),
                tools=frozenset({"vllm"}),
                holds=lambda c: (
                    divides(c["tp"] * (c.quantisation_block or 1), c.shape.ffn_width)
                    if c.shape.dense_layers
                    else np.asarray(True)
                ),
                why=lambda c: (
                    f"a rank's slice of the feed-forward matrices is then {_n(c.shape.ffn_width / c['tp'])} wide, "
                    f"which blocks of {_n(c.quantisation_block)} do not fill"
                ),
            ),
            Clause(
                axes=("tp", "ep"),
                reads=("expert_width",),
                needs=("quantisation_block",),
                tools=frozenset({"vllm"}),
                holds=_slices,
                why=lambda c: (
                    f"a rank's slice of an expert is then {_slice_width(c)} wide, which blocks of "
                    f"{_n(c.quantisation_block)} do not fill"
                ),
            ),
        ),
        source="vLLM, FP8 weights in blocks: issues 17569 and 54178",
    ),
    Rule(
        id="R4",
        says="Stages are equally deep, unless their layout is given.",
        clauses=(
            Clause(
                axes=("pp",),
                reads=("layers",),
                tools=MEGATRONS,
                holds=lambda c: (
                    c["pp"] <= c.shape.layers if c.uneven_stages else divides(c["pp"], c.shape.layers)
                ),
                why=lambda c: (
                    f"{_n(c.shape.layers)} layers do not make {_n(c['pp'])} stages "
                    f"{'of at least one layer' if c.uneven_stages else 'of equal depth'}"
                ),
            ),
            Clause(
                axes=("pp",),
                reads=("layers",),
                tools=EVERY - MEGATRONS,
                holds=lambda c: c["pp"] <= c.shape.layers,
                why=lambda c: (
                    f"{_n(c.shape.layers)} layers do not make {_n(c['pp'])} stages of at least one layer"
                ),
            ),
        ),
        source="Megatron-LM transformer_config.py, with pipeline_model_parallel_layout as its way out (older versions "
        "dropped layers instead: issues 468 and 1304); vLLM allows uneven stages",
    ),
    Rule(
        id="R5",
        says="Chunks interleave only in a pipeline, and are equally deep unless their layout is given.",
        clauses=(
            Clause(
                axes=("vpp", "pp"),
                holds=lambda c: (c["vpp"] == 1) | (c["pp"] > 1),
                why=lambda c: "a pipeline of one stage has nothing to interleave",
            ),
            Clause(
                axes=("vpp",),
                reads=("layers",),
                holds=lambda c: (
                    (c["vpp"] == 1)
                    | (
                        c["pp"] * c["vpp"] <= c.shape.layers
                        if c.uneven_stages or c.tool not in MEGATRONS
                        else divides(c["pp"] * c["vpp"], c.shape.layers)
                    )
                ),
                why=lambda c: (
                    f"{_n(c.shape.layers)} layers do not make {_n(c['pp'])} × {_n(c['vpp'])} chunks of "
                    f"{'at least one layer' if c.uneven_stages or c.tool not in MEGATRONS else 'equal depth'}"
                ),
            ),
        ),
        source="Megatron-LM parallel_state.py and moe/README.md",
    ),
    Rule(
        id="R6",
        says="An interleaved schedule deals out micro-batches in groups that fill the pipeline.",
        clauses=(
            Clause(
                axes=("micro_batches", "pp"),
                needs=("micro_batches",),
                tools=MEGATRONS,
                holds=_interleaved_groups,
                why=lambda c: (
                    f"an interleaved pipeline of {_n(c['pp'])} stages takes them in groups of "
                    f"{_n(c['pp'] if c.micro_batch_group is None else c['micro_batch_group'])}, and a group that is "
                    "left over must fill it too"
                ),
            ),
            Clause(
                axes=("micro_batches", "pp"),
                needs=("micro_batches",),
                tools=frozenset({"torchtitan"}),
                holds=lambda c: (
                    np.asarray(True)  # torch's GPipe takes any number
                    if c.schedule in ("gpipe", "naive")
                    else (c["vpp"] > 1) | (c.micro_batches >= c["pp"])
                ),
                why=lambda c: f"a pipeline of {_n(c['pp'])} stages needs at least as many to fill it",
            ),
            Clause(
                axes=("micro_batches", "pp"),
                needs=("micro_batches",),
                tools=frozenset({"torchtitan"}),
                holds=_rounds,
                why=lambda c: (
                    f"an interleaved pipeline of {_n(c['pp'])} stages takes them in equal rounds of at least as many"
                ),
            ),
        ),
        source="Megatron-LM pipeline_parallel/schedules.py; torch 2.13 distributed/pipelining/schedules.py, "
        "which torchtitan runs (issue 775)",
    ),
    Rule(
        id="R7",
        says="Sequence parallelism rides on tensor parallelism, whose ranks share the tokens equally.",
        clauses=(
            Clause(
                axes=("sp", "tp"),
                holds=lambda c: ~c.sp | (c["tp"] > 1),
                why=lambda c: "without tensor parallelism there is no group to share the tokens among",
            ),
            Clause(
                axes=("tokens", "tp"),
                needs=("tokens",),
                holds=lambda c: ~c.sp | divides(c["tp"], c["tokens"]),
                why=lambda c: f"{_n(c['tp'])} ranks cannot share {_n(c['tokens'])} tokens equally",
            ),
        ),
        source="Megatron-LM training/arguments.py switches it off with a warning; torchtitan parallel_dims.py",
    ),
    Rule(
        id="R8",
        says="Training with both expert and tensor parallelism needs sequence parallelism.",
        clauses=(
            Clause(
                axes=("sp", "tp"),
                tools=MEGATRONS,
                holds=lambda c: (
                    c.sp | (c["tp"] == 1) | (c["ep"] == 1)
                    if c.phase.value == "training"
                    else np.asarray(True)
                ),
                why=lambda c: (
                    f"each of the {_n(c['tp'])} tensor-parallel ranks would send the same tokens to the experts"
                ),
            ),
        ),
        source="Megatron-LM model_parallel_config.py and parallelism-guide.md",
    ),
    Rule(
        id="R9",
        says="Each rank of context parallelism gets two equal pieces of the sequence, an early and a late one.",
        clauses=(
            Clause(
                axes=("tokens", "cp"),
                needs=("tokens",),
                tools=MEGATRONS | {"torchtitan"},
                holds=_cp_share,
                why=lambda c: (
                    f"{_n(c['cp'])} ranks with two pieces each"
                    + (f", shared by {_n(c['tp'])} more," if c.sp and c["tp"] > 1 else "")
                    + f" cannot share {_n(c['tokens'])} tokens equally"
                ),
            ),
        ),
        source="Megatron-LM core/utils.py, Transformer Engine context_parallel.py; the pieces balance causal attention",
    ),
    Rule(
        id="R10",
        says="An all-to-all (Ulysses) swaps tokens for heads, so both must divide.",
        clauses=(
            Clause(
                axes=("cp",),
                reads=("attention_heads",),
                holds=_query_heads_over_cp,
                why=lambda c: (
                    f"an all-to-all cannot share {_n(c.shape.attention_heads)} attention heads among "
                    f"{_n(c['tp'] * c['cp'])} ranks"
                ),
            ),
            Clause(
                axes=("cp",),
                reads=("kv_heads",),
                holds=_kv_heads_over_cp,
                why=lambda c: (
                    f"an all-to-all cannot share {_n(_kv_heads(c))} key-value heads among {_n(c['tp'] * c['cp'])} "
                    f"ranks{' or repeat them equally' if c.replicated_kv else ''}"
                ),
            ),
            Clause(
                axes=("tokens", "cp"),
                needs=("tokens",),
                holds=lambda c: divides(c["cp"], c["tokens"]) if _all_to_all(c) else np.asarray(True),
                why=lambda c: f"{_n(c['cp'])} ranks cannot share {_n(c['tokens'])} tokens equally",
            ),
        ),
        source="Transformer Engine context_parallel.py; DeepSpeed sequence/layer.py, which was silently wrong for "
        "other lengths (issues 5177 and 7384)",
    ),
    Rule(
        id="R11",
        says="Only a model with experts has any to place, and every rank gets equally many.",
        clauses=(
            Clause(
                axes=("ep", "etp"),
                reads=("experts",),
                holds=lambda c: np.asarray(True) if c.shape.experts else (c["ep"] == 1) & (c["etp"] == 1),
                why=lambda c: "a dense model has no experts to place",
            ),
            Clause(
                axes=("ep",),
                reads=("experts",),
                tools=EVERY - {"vllm"},
                holds=lambda c: divides(c["ep"], _experts(c)) if c.shape.experts else np.asarray(True),
                why=lambda c: f"{_n(c['ep'])} ranks cannot share {_n(_experts(c))} experts equally",
            ),
            Clause(
                axes=("ep",),
                reads=("experts",),
                tools=frozenset({"vllm"}),
                holds=lambda c: c["ep"] <= _experts(c) if c.shape.experts else np.asarray(True),
                why=lambda c: f"{_n(_experts(c))} experts leave some of {_n(c['ep'])} ranks without one",
            ),
            Clause(
                axes=("redundant_experts", "ep"),
                reads=("experts",),
                needs=("redundant_experts",),
                tools=frozenset({"vllm"}),
                holds=lambda c: divides(c["ep"], _slots(c)),
                why=lambda c: (
                    f"{_n(c['ep'])} ranks cannot share {_n(_experts(c))} + {_n(c['redundant_experts'])} experts equally"
                ),
            ),
        ),
        source="Megatron-LM moe_layer.py; torchtitan pull request 4258; vLLM issue 52435 where its load balancer "
        "is on, and places remainders where it is off",
    ),
    Rule(
        id="R12",
        says="vLLM places experts on all tp × dp ranks of a stage, whole or in slices: the size is computed, not set.",
        clauses=(
            Clause(
                axes=("ep",),
                tools=frozenset({"vllm"}),
                holds=lambda c: (
                    (c["ep"] * c["etp"] == c["tp"] * c["dp"]) & ((c["ep"] == 1) | (c["etp"] == 1))
                    if c.shape.experts
                    else np.asarray(True)
                ),
                why=lambda c: (
                    f"vLLM spreads experts over all tp × dp = {_n(c['tp'] * c['dp'])} ranks: whole ones with "
                    "--enable-expert-parallel, slices of each without"
                ),
            ),
        ),
        source="vLLM docs/serving/expert_parallel_deployment.md and data_parallel_deployment.md",
    ),
    Rule(
        id="R13",
        says="Replicas are whole: of the model on all devices, and of the experts on the devices of a stage.",
        clauses=(
            Clause(
                axes=("devices",),
                needs=("devices",),
                holds=lambda c: divides(c.replica, c["devices"]),
                why=lambda c: f"replicas of tp × cp × pp = {_n(c.replica)} devices do not share them equally",
            ),
            Clause(
                axes=("dp",),
                needs=("devices",),
                holds=lambda c: ~divides(c.replica, c["devices"]) | (c["dp"] * c.replica == c["devices"]),
                why=lambda c: (
                    f"{_n(c['devices'])} devices make {_n(c['devices'] / c.replica)} "
                    f"{'replica' if c['devices'] == c.replica else 'replicas'} of tp × cp × pp = {_n(c.replica)}"
                ),
            ),
            Clause(
                axes=("ep", "etp", "dp"),
                holds=lambda c: (
                    divides(c["ep"] * c["etp"], c["dp"] * c["tp"] * c["cp"])
                    | (c["ep"] * c["etp"] > c["dp"] * c["tp"] * c["cp"])  # R14 speaks of those
                ),
                why=lambda c: (
                    f"the {_n(c['dp'] * c['tp'] * c['cp'])} devices of a stage do not make whole replicas of "
                    f"ep × etp = {_n(c['ep'] * c['etp'])}"
                ),
            ),
        ),
        source="Megatron-LM parallel_state.py: world ÷ (tp·pp·cp) and world ÷ (pp·ep·etp) are both whole",
    ),
    Rule(
        id="R14",
        says="Experts need pp × max(tp × cp, ep × etp) devices at least, not the product of all five.",
        clauses=(
            Clause(
                axes=("devices", "ep"),
                needs=("devices",),
                holds=lambda c: c["devices"] >= _minimum(c),
                why=lambda c: f"these sizes fit together on {_fewest(c)} devices at least",
            ),
            Clause(
                axes=("dp", "ep"),
                holds=lambda c: (
                    np.asarray(True)
                    if c.knows("devices")
                    else c["dp"] * c["tp"] * c["cp"] >= c["ep"] * c["etp"]
                ),
                why=lambda c: (
                    f"that makes {_n(c.world)} devices, and these sizes fit together on {_fewest(c)} at least"
                ),
            ),
        ),
        source="Megatron-Bridge, skill on parallelism strategies, which calls the product wrong; Megatron-LM "
        "parallelism-guide.md still prints the product",
    ),
    Rule(
        id="R15",
        says="Decode context parallelism reuses tensor-parallel ranks that would hold copies of the same heads.",
        clauses=(
            Clause(
                axes=("decode_cp",),
                needs=("decode_cp",),
                reads=("kv_heads",),
                tools=frozenset({"vllm"}),
                holds=lambda c: (
                    (c["decode_cp"] == 1)
                    | divides(c["decode_cp"], c["tp"]) & (c["decode_cp"] * c.cached_heads <= c["tp"])
                ),
                why=lambda c: (
                    f"it must divide tp = {_n(c['tp'])} and be no more than tp ÷ {_n(c.cached_heads)} cached "
                    f"{'head' if c.cached_heads == 1 else 'heads'}"
                ),
            ),
        ),
        source="vLLM docs/serving/context_parallel_deployment.md; it adds no devices",
    ),
    Rule(
        id="R16",
        says="The ranks that exchange tokens for experts share a host.",
        kind=Kind.ADVICE,
        clauses=(
            Clause(
                axes=("ep", "etp"),
                needs=("devices_per_host",),
                holds=lambda c: divides(c["ep"] * c["etp"], c["devices_per_host"]),
                why=lambda c: (
                    f"groups of ep × etp = {_n(c['ep'] * c['etp'])} reach beyond a host of "
                    f"{_n(c['devices_per_host'])}, over the slower link"
                ),
            ),
        ),
        source="Megatron-LM moe/README.md, guidelines 1 to 3: stages between hosts, data parallelism outermost",
    ),
    Rule(
        id="R17",
        says="The ranks of a tensor-parallel group share a host.",
        kind=Kind.ADVICE,
        clauses=(
            Clause(
                axes=("tp",),
                needs=("devices_per_host",),
                holds=lambda c: divides(c["tp"], c["devices_per_host"]),
                why=lambda c: (
                    f"such a group reaches beyond a host of {_n(c['devices_per_host'])}, where each all-reduce "
                    "waits for the slower link"
                ),
            ),
        ),
        source="Megatron-Bridge, skill on parallelism strategies; vLLM docs/serving/parallelism_scaling.md",
    ),
    Rule(
        id="R18",
        says="The vocabulary is padded until the ranks share it in whole blocks.",
        kind=Kind.NOTE,
        clauses=(
            Clause(
                axes=("tp",),
                reads=("vocab_size",),
                tools=MEGATRONS,
                holds=lambda c: divides(c.vocabulary_divisor * c["tp"], c.shape.vocab_size),
                why=lambda c: (
                    f"{_n(c.shape.vocab_size)} words do not share out in blocks of {c.vocabulary_divisor}: they are "
                    "padded to "
                    + _n(padded_vocabulary(c.shape.vocab_size, c["tp"], divisor=c.vocabulary_divisor))
                ),
            ),
        ),
        source="Megatron-LM training/vocab_utils.py",
    ),
    Rule(
        id="R19",
        says="Every replica gets a whole number of micro-batches.",
        clauses=(
            Clause(
                axes=("batch", "micro_batch", "dp"),
                needs=("batch",),
                holds=lambda c: divides(c["dp"] * c["micro_batch"], c["batch"]),
                why=lambda c: (
                    f"{_n(c['dp'])} {'replica' if c['dp'] == 1 else 'replicas'} with micro-batches of "
                    f"{_n(c['micro_batch'])} cannot share {_n(c['batch'])} sequences equally"
                ),
            ),
        ),
        source="Megatron-LM num_microbatches_calculator.py",
    ),
)
BY_ID = {rule.id: rule for rule in RULES}
