"""What expressions of packs and lessons can call: thin scalar doors into `calculators.predict`, without formulas."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calculators.predict.shapes import ModelShape
    from calculators.predict.traffic import Traffic


def activation_bytes(batch: float, tokens: float, hidden_size: float, bytes_per_element: float) -> float:
    """The tensor that one layer hands to the next [B]."""
    from calculators.predict import shapes

    return float(shapes.activation_bytes(batch, tokens, hidden_size, bytes_per_element))


def all_reduce_bytes(full_size: float, ranks: float) -> float:
    """Bytes that one of `ranks` sends in a ring all-reduce of a tensor of `full_size` [B]."""
    from calculators.predict import collectives

    return float(collectives.all_reduce_bytes(full_size, ranks))


def reduce_scatter_bytes(full_size: float, ranks: float) -> float:
    """The same in a reduce-scatter [B]."""
    from calculators.predict import collectives

    return float(collectives.reduce_scatter_bytes(full_size, ranks))


def all_gather_bytes(full_size: float, ranks: float) -> float:
    """The same in an all-gather; `full_size` is what all ranks have in the end [B]."""
    from calculators.predict import collectives

    return float(collectives.all_gather_bytes(full_size, ranks))


def all_to_all_bytes(full_size: float, ranks: float) -> float:
    """The same in an all-to-all; `full_size` is what one rank puts in [B]."""
    from calculators.predict import collectives

    return float(collectives.all_to_all_bytes(full_size, ranks))


def all_reduce_rounds(ranks: float) -> float:
    """Serial steps of a ring all-reduce."""
    from calculators.predict import collectives

    return float(collectives.all_reduce_rounds(ranks))


def transfer_seconds(
    sent_bytes: float, rounds: float, bytes_per_second: float, latency_seconds: float
) -> float:
    """Rounds times latency, and bytes over bandwidth [s]."""
    from calculators.predict import collectives

    return float(
        collectives.transfer_seconds(
            sent_bytes, rounds, bytes_per_second=bytes_per_second, latency_seconds=latency_seconds
        )
    )


def tensor_parallel_calls(layers: float, ranks: float = 2) -> float:
    """All-reduces of one forward pass."""
    return float(_tensor_parallel(1, layers, ranks).calls)


def tensor_parallel_bytes(
    hidden_size: float, layers: float, ranks: float, batch: float = 1, bytes_per_element: float = 2
) -> float:
    """Bytes each rank sends per token in decode [B]."""
    return float(_tensor_parallel(hidden_size, layers, ranks, batch, bytes_per_element).wire_bytes)


def tensor_parallel_training_calls(layers: float, ranks: float = 2, micro_batches: float = 1) -> float:
    """All-reduces of one training step."""
    from calculators.predict.shapes import Phase
    from calculators.predict.traffic import tensor_parallel

    traffic = tensor_parallel(
        hidden_size=1, layers=layers, ranks=ranks, micro_batches=micro_batches, phase=Phase.TRAINING
    )
    return float(traffic.calls)


def pipeline_parallel_calls(stages: float) -> float:
    """Activation sends of one forward pass, all boundaries together."""
    return float(_pipeline_parallel(1, stages).calls)


def pipeline_parallel_bytes(
    hidden_size: float, stages: float, batch: float = 1, bytes_per_element: float = 2
) -> float:
    """Bytes the busiest stage sends per token in decode [B]."""
    return float(_pipeline_parallel(hidden_size, stages, batch, bytes_per_element).wire_bytes)


def tensor_parallel_prompt_bytes(
    hidden_size: float,
    layers: float,
    ranks: float,
    tokens: float,
    batch: float = 1,
    bytes_per_element: float = 2,
) -> float:
    """Bytes each rank sends while `batch` prompts of `tokens` tokens are read [B]."""
    return float(
        _tensor_parallel(
            hidden_size, layers, ranks, batch, bytes_per_element, phase="prefill", tokens=tokens
        ).wire_bytes
    )


def tensor_parallel_training_bytes(
    hidden_size: float,
    layers: float,
    ranks: float,
    tokens: float,
    batch: float = 1,
    bytes_per_element: float = 2,
    micro_batches: float = 1,
) -> float:
    """Bytes each rank sends in a training step, all-reduces without sequence parallelism [B]."""
    return float(
        _tensor_parallel(
            *(hidden_size, layers, ranks, batch, bytes_per_element),
            phase="training",
            tokens=tokens,
            micro_batches=micro_batches,
        ).wire_bytes
    )


def sequence_parallel_prompt_bytes(
    hidden_size: float,
    layers: float,
    ranks: float,
    tokens: float,
    batch: float = 1,
    bytes_per_element: float = 2,
) -> float:
    """Bytes each rank sends in a forward pass under tensor and Megatron-style sequence parallelism [B]."""
    return float(
        _tensor_parallel(
            *(hidden_size, layers, ranks, batch, bytes_per_element),
            phase="prefill",
            tokens=tokens,
            sequence_parallel="kept",
        ).wire_bytes
    )


def sequence_parallel_training_bytes(
    hidden_size: float,
    layers: float,
    ranks: float,
    tokens: float,
    batch: float = 1,
    bytes_per_element: float = 2,
    regather: float = 1,
) -> float:
    """Bytes each rank sends in a training step under tensor and Megatron-style sequence parallelism [B].

    With `regather` 1 the backward pass gathers each block's input again, as Megatron-LM does; with 0 it was kept.
    """
    return float(
        _tensor_parallel(
            *(hidden_size, layers, ranks, batch, bytes_per_element),
            phase="training",
            tokens=tokens,
            sequence_parallel="regather" if regather else "kept",
        ).wire_bytes
    )


def pipeline_parallel_training_bytes(
    hidden_size: float,
    stages: float,
    tokens: float,
    batch: float = 1,
    bytes_per_element: float = 2,
    micro_batches: float = 1,
) -> float:
    """Bytes the busiest stage sends in a training step of `micro_batches`, each of `batch` sequences [B]."""
    return float(
        _pipeline_parallel(
            *(hidden_size, stages, batch, bytes_per_element),
            phase="training",
            tokens=tokens,
            micro_batches=micro_batches,
        ).wire_bytes
    )


def pipeline_parallel_prompt_bytes(
    hidden_size: float, stages: float, tokens: float, batch: float = 1, bytes_per_element: float = 2
) -> float:
    """Bytes the busiest stage sends while `batch` prompts of `tokens` tokens are read [B]."""
    return float(
        _pipeline_parallel(
            hidden_size, stages, batch, bytes_per_element, phase="prefill", tokens=tokens
        ).wire_bytes
    )


def bubble_share(stages: float, micro_batches: float, chunks: float = 1) -> float:
    """Share of a training step in which a stage waits, 1F1B or, with `chunks`, interleaved."""
    from calculators.predict import schedules

    kind = "1f1b" if chunks == 1 else "interleaved"
    return float(schedules.idle_share(kind, stages=stages, micro_batches=micro_batches, chunks=chunks))


def bubble_over_ideal(stages: float, micro_batches: float, chunks: float = 1) -> float:
    """The same wait over the time that a step without it would take."""
    from calculators.predict import schedules

    kind = "1f1b" if chunks == 1 else "interleaved"
    return float(schedules.bubble_over_ideal(kind, stages=stages, micro_batches=micro_batches, chunks=chunks))


def data_parallel_bytes(parameters: float, ranks: float, bytes_per_element: float = 2) -> float:
    """Bytes each plain replica sends in a training step: its gradients' all-reduce [B]."""
    return _data_parallel("ddp", parameters, ranks, bytes_per_element)


def sharded_bytes(parameters: float, ranks: float, zero: float = 3, bytes_per_element: float = 2) -> float:
    """Bytes each rank of sharded data parallelism (ZeRO stage 1, 2 or 3) sends in a training step [B]."""
    return _data_parallel(f"zero-{zero:g}", parameters, ranks, bytes_per_element)


def state_bytes(parameters: float, zero: float = 0, replicas: float = 1) -> float:
    """Weights, gradients and Adam's state of a rank, mixed precision: 16 bytes a parameter, cut by ZeRO [B]."""
    from calculators.predict import memory

    return float(memory.model_states(parameters, zero=zero, replicas=replicas).total)


def ring_bytes(
    kv_heads: float,
    head_dim: float,
    layers: float,
    ranks: float,
    tokens: float,
    batch: float = 1,
    bytes_per_element: float = 2,
) -> float:
    """Bytes each rank of context parallelism sends in a forward pass, keys and values going around a ring [B]."""
    return _context_parallel(
        "ring", "prefill", kv_heads, kv_heads, head_dim, layers, ranks, tokens, batch, bytes_per_element
    )


def ring_training_bytes(
    kv_heads: float,
    head_dim: float,
    layers: float,
    ranks: float,
    tokens: float,
    batch: float = 1,
    bytes_per_element: float = 2,
) -> float:
    """The same in a training step: forward, again backward, and the gradients of keys and values; weights apart [B]."""
    return _context_parallel(
        "ring", "training", kv_heads, kv_heads, head_dim, layers, ranks, tokens, batch, bytes_per_element
    )


def gather_kv_bytes(
    kv_heads: float,
    head_dim: float,
    layers: float,
    ranks: float,
    tokens: float,
    batch: float = 1,
    bytes_per_element: float = 2,
) -> float:
    """Bytes each rank of context parallelism sends in a forward pass that all-gathers keys and values [B]."""
    return _context_parallel(
        "all-gather", "prefill", kv_heads, kv_heads, head_dim, layers, ranks, tokens, batch, bytes_per_element
    )


def ulysses_bytes(
    attention_heads: float,
    kv_heads: float,
    head_dim: float,
    layers: float,
    ranks: float,
    tokens: float,
    batch: float = 1,
    bytes_per_element: float = 2,
) -> float:
    """Bytes each rank sends in a forward pass that swaps tokens for heads (Ulysses) [B]."""
    return _context_parallel(
        "ulysses",
        "prefill",
        attention_heads,
        kv_heads,
        head_dim,
        layers,
        ranks,
        tokens,
        batch,
        bytes_per_element,
    )


def expert_parallel_bytes(
    hidden_size: float,
    layers: float,
    tokens: float,
    experts: float,
    experts_per_token: float,
    ranks: float,
    bytes_per_element: float = 2,
) -> float:
    """Bytes each rank sends in a forward pass of its `tokens`: dispatch and combine, uniform routing [B]."""
    return float(
        _expert_parallel(
            "prefill", hidden_size, layers, tokens, experts, experts_per_token, ranks, bytes_per_element
        ).wire_bytes
    )


def expert_parallel_training_bytes(
    hidden_size: float,
    layers: float,
    tokens: float,
    experts: float,
    experts_per_token: float,
    ranks: float,
    bytes_per_element: float = 2,
) -> float:
    """The same in a training step: forward, and their gradients the same ways back [B]."""
    return float(
        _expert_parallel(
            "training", hidden_size, layers, tokens, experts, experts_per_token, ranks, bytes_per_element
        ).wire_bytes
    )


def expert_parallel_calls(layers: float, ranks: float = 2) -> float:
    """All-to-alls of one forward pass."""
    return float(_expert_parallel("prefill", 1, layers, 1, ranks, 1, ranks, 2).calls)


def expert_parallel_training_calls(layers: float, ranks: float = 2) -> float:
    """All-to-alls of one training step."""
    return float(_expert_parallel("training", 1, layers, 1, ranks, 1, ranks, 2).calls)


def kv_bytes_per_token(
    layers: float, kv_heads: float, head_dim: float, bytes_per_element: float = 2, ranks: float = 1
) -> float:
    """What one more token adds to the KV cache of one of `ranks` tensor-parallel devices [B]."""
    from calculators.predict.memory import kv_cache

    shape = _shape(layers=layers, attention_heads=kv_heads, head_dim=head_dim)
    return float(kv_cache.kv_bytes_per_token(shape, tp=ranks, bytes_per_element=bytes_per_element))


def latent_bytes_per_token(
    layers: float, kv_rank: float, rope_dim: float, bytes_per_element: float = 2
) -> float:
    """The same for latent attention (MLA), whole on every tensor-parallel device [B]."""
    from calculators.predict.memory import kv_cache
    from calculators.predict.shapes import LatentAttention

    latent = LatentAttention(
        kv_rank=_whole("kv_rank", kv_rank), rope_dim=_whole("rope_dim", rope_dim), query_rank=0, value_dim=1
    )
    shape = _shape(layers=layers, latent=latent)
    return float(kv_cache.kv_bytes_per_token(shape, bytes_per_element=bytes_per_element))


def layer_parameters(hidden_size: float, ffn_width: float, ranks: float = 1) -> float:
    """What one of `ranks` tensor-parallel devices holds of a layer: four square projections, two feed-forward
    matrices, two norms (whole everywhere); as many key-value as attention heads.
    """
    from calculators.predict.memory.states import attention_of_rank
    from calculators.predict.models.parameters import feed_forward_parameters, norm_parameters

    shape = _shape(attention_heads=hidden_size, ffn_width=ffn_width)
    return float(
        attention_of_rank(shape, ranks) + feed_forward_parameters(shape) / ranks + norm_parameters(shape)
    )


def activation_memory(
    hidden_size: float,
    attention_heads: float,
    tokens: float,
    batch: float = 1,
    ranks: float = 1,
    sequence_parallel: float = 0,
    recompute: float = 0,
) -> float:
    """What a GPT layer (16 bits, dropout) keeps for the backward pass on one of `ranks` tensor-parallel devices [B].

    `sequence_parallel` 1 shards the tokens beside the matrices too (Megatron-style). `recompute`: 0 keeps
    everything, 1 recomputes attention's scores (selective), 2 whole layers (full).
    """
    from calculators.predict.memory.activations import layer_activations

    shape = _shape(
        attention_heads=attention_heads, head_dim=hidden_size / attention_heads, ffn_width=4 * hidden_size
    )
    return float(
        layer_activations(
            shape, tokens=tokens, batch=batch, tp=ranks, sp=bool(sequence_parallel), recompute=recompute
        )
    )


def saved_layer_bytes(
    hidden_size: float,
    ffn_width: float,
    tokens: float,
    ranks: float = 1,
    sequence_parallel: float = 0,
    bytes_per_element: float = 2,
) -> float:
    """What a layer without dropout and without stored scores keeps of `tokens` tokens for the backward pass [B]."""
    from calculators.predict.memory.activations import layer_activations
    from calculators.predict.shapes import Recompute

    shape = _shape(attention_heads=hidden_size, ffn_width=ffn_width, bytes_per_element=bytes_per_element)
    return float(
        layer_activations(
            shape,
            tokens=tokens,
            tp=ranks,
            sp=bool(sequence_parallel),
            recompute=int(Recompute.SELECTIVE),
            dropout=False,
        )
    )


def saved_head_bytes(
    hidden_size: float, vocab_size: float, tokens: float, bytes_per_element: float = 2
) -> float:
    """What the last norm and the output matrix keep of `tokens` tokens: their inputs, and the logits in 4 bytes [B]."""
    from calculators.predict.arrays import floats
    from calculators.predict.memory.activations import last_stage_bytes_per_token

    shape = _shape(attention_heads=hidden_size, vocab_size=vocab_size, bytes_per_element=bytes_per_element)
    return tokens * float(last_stage_bytes_per_token(shape, tp=floats(1), beside=floats(1)))


def micro_batches_in_flight(stages: float, micro_batches: float) -> float:
    """Micro-batches whose activations the first stage of a 1F1B pipeline keeps at one time."""
    from calculators.predict import schedules

    return float(schedules.in_flight("1f1b", stages=stages, micro_batches=micro_batches).flat[0])


def decode_ceiling(memory_bytes_per_second: float, bytes_read: float) -> float:
    """Tokens/s that memory allows: bandwidth of all devices that read at the same time over bytes read for a token."""
    from calculators.predict import serving

    return float(serving.decode_ceiling(memory_bytes_per_second, bytes_read))


def _tensor_parallel(
    hidden_size: float,
    layers: float,
    ranks: float,
    batch: float = 1,
    bytes_per_element: float = 2,
    *,
    phase: str = "decode",
    **more: Any,
) -> "Traffic":
    from calculators.predict.shapes import Phase
    from calculators.predict.traffic import tensor_parallel

    return tensor_parallel(
        hidden_size=hidden_size,
        layers=layers,
        ranks=ranks,
        batch=batch,
        bytes_per_element=bytes_per_element,
        phase=Phase(phase),
        **more,
    )


def _pipeline_parallel(
    hidden_size: float,
    stages: float,
    batch: float = 1,
    bytes_per_element: float = 2,
    *,
    phase: str = "decode",
    **more: Any,
) -> "Traffic":
    from calculators.predict.shapes import Phase
    from calculators.predict.traffic import pipeline_parallel

    return pipeline_parallel(
        hidden_size=hidden_size,
        stages=stages,
        batch=batch,
        bytes_per_element=bytes_per_element,
        phase=Phase(phase),
        **more,
    )


def _data_parallel(stage: str, parameters: float, ranks: float, bytes_per_element: float) -> float:
    from calculators.predict.traffic import data_parallel

    return float(
        data_parallel(
            parameters=parameters,
            ranks=ranks,
            stage=stage,
            gradient_bytes_per_element=bytes_per_element,
            weight_bytes_per_element=bytes_per_element,
        ).wire_bytes
    )


def _context_parallel(
    kind: str,
    phase: str,
    attention_heads: float,
    kv_heads: float,
    head_dim: float,
    layers: float,
    ranks: float,
    tokens: float,
    batch: float,
    bytes_per_element: float,
) -> float:
    from calculators.predict.shapes import Phase
    from calculators.predict.traffic import context_parallel

    return float(
        context_parallel(
            attention_heads=attention_heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            layers=layers,
            ranks=ranks,
            phase=Phase(phase),
            kind=kind,
            batch=batch,
            tokens=tokens,
            bytes_per_element=bytes_per_element,
        ).wire_bytes
    )


def _expert_parallel(
    phase: str,
    hidden_size: float,
    layers: float,
    tokens: float,
    experts: float,
    experts_per_token: float,
    ranks: float,
    bytes_per_element: float,
) -> "Traffic":
    from calculators.predict.shapes import Phase
    from calculators.predict.traffic import expert_parallel

    return expert_parallel(
        hidden_size=hidden_size,
        layers=layers,
        tokens=tokens,
        experts=experts,
        experts_per_token=experts_per_token,
        ranks=ranks,
        phase=Phase(phase),
        dispatch_bytes_per_element=bytes_per_element,
        combine_bytes_per_element=bytes_per_element,
    )


def _shape(
    *,
    layers: float = 1,
    attention_heads: float = 1,
    head_dim: float = 1,
    ffn_width: float = 1,
    vocab_size: float = 1,
    bytes_per_element: float = 2,
    **more: Any,
) -> "ModelShape":
    """A GPT-like model of these sizes; what a formula does not read is left at 1."""
    from calculators.predict.shapes import ModelShape

    return ModelShape(
        name="the model of the expression",
        hidden_size=_whole("hidden_size", attention_heads * head_dim),
        layers=_whole("layers", layers),
        attention_heads=_whole("attention_heads", attention_heads),
        kv_heads=_whole("attention_heads", attention_heads),
        head_dim=_whole("head_dim", head_dim),
        ffn_width=_whole("ffn_width", ffn_width),
        vocab_size=_whole("vocab_size", vocab_size),
        bytes_per_element=_whole("bytes_per_element", bytes_per_element),
        gated=False,
        source="the expression",
        **more,
    )


def _whole(name: str, value: float) -> int:
    if value != int(value):
        raise ValueError(f"{name} is {value:g}, but it counts things: use a whole number.")
    return int(value)


def _smallest(first: float, *others: float) -> float:
    return min((first, *others))


def _largest(first: float, *others: float) -> float:
    return max((first, *others))


FUNCTIONS: dict[str, Callable[..., float]] = {
    "activation_bytes": activation_bytes,
    "all_reduce_bytes": all_reduce_bytes,
    "reduce_scatter_bytes": reduce_scatter_bytes,
    "all_gather_bytes": all_gather_bytes,
    "all_to_all_bytes": all_to_all_bytes,
    "all_reduce_rounds": all_reduce_rounds,
    "transfer_seconds": transfer_seconds,
    "tensor_parallel_calls": tensor_parallel_calls,
    "tensor_parallel_bytes": tensor_parallel_bytes,
    "tensor_parallel_training_calls": tensor_parallel_training_calls,
    "pipeline_parallel_calls": pipeline_parallel_calls,
    "pipeline_parallel_bytes": pipeline_parallel_bytes,
    "tensor_parallel_prompt_bytes": tensor_parallel_prompt_bytes,
    "tensor_parallel_training_bytes": tensor_parallel_training_bytes,
    "sequence_parallel_prompt_bytes": sequence_parallel_prompt_bytes,
    "sequence_parallel_training_bytes": sequence_parallel_training_bytes,
    "pipeline_parallel_training_bytes": pipeline_parallel_training_bytes,
    "pipeline_parallel_prompt_bytes": pipeline_parallel_prompt_bytes,
    "bubble_share": bubble_share,
    "bubble_over_ideal": bubble_over_ideal,
    "data_parallel_bytes": data_parallel_bytes,
    "sharded_bytes": sharded_bytes,
    "state_bytes": state_bytes,
    "ring_bytes": ring_bytes,
    "ring_training_bytes": ring_training_bytes,
    "gather_kv_bytes": gather_kv_bytes,
    "ulysses_bytes": ulysses_bytes,
    "expert_parallel_bytes": expert_parallel_bytes,
    "expert_parallel_training_bytes": expert_parallel_training_bytes,
    "expert_parallel_calls": expert_parallel_calls,
    "expert_parallel_training_calls": expert_parallel_training_calls,
    "kv_bytes_per_token": kv_bytes_per_token,
    "latent_bytes_per_token": latent_bytes_per_token,
    "layer_parameters": layer_parameters,
    "activation_memory": activation_memory,
    "saved_layer_bytes": saved_layer_bytes,
    "saved_head_bytes": saved_head_bytes,
    "micro_batches_in_flight": micro_batches_in_flight,
    "decode_ceiling": decode_ceiling,
    "min": _smallest,
    "max": _largest,
    "abs": math.fabs,
    "ceil": lambda x: float(math.ceil(x)),
    "floor": lambda x: float(math.floor(x)),
    "round": lambda x: float(round(x)),
    "sqrt": math.sqrt,
    "log2": math.log2,
}
