"""What a training or serving program does besides the arithmetic that every program must do.

How many bytes its element-wise operations move, what it fuses, and which exchanges it hides behind arithmetic. The
bytes are counted from the operations in its published code: each reads its inputs and writes its outputs once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class Implementation:
    """One program. Bytes are for one element and one layer, in the forward and in the backward pass.

    beside       of the hidden state, outside the parts that tensor parallelism cuts: norms, dropout, residuals
    projected    of all heads' queries, keys and values: rotary positions, copies, biases
    inner        of the feed-forward block's inner width: its activation
    scores       of the attention scores, where attention is not one fused kernel
    logit_bytes      of the logits, loss and gradient included
    accumulate_bytes  of a weight, for adding each micro-batch's gradient; 0 where the matrix product does it itself
    gradient_bytes, optimizer_bytes  of a weight: its gradient as exchanged; all that updating it reads and writes
    fused_attention      one kernel that skips what causal attention masks and keeps no scores (FlashAttention)
    overlapped_tensor    backward, tensor-parallel exchanges run beside the matrix products that do not need them
    overlapped_sends     sends between stages run beside other chunks of layers, where there are several a stage
    overlapped_data      gradients travel during the backward pass, sharded weights ahead of the layers
    scattered_sends      without sequence parallelism, each tensor-parallel rank sends a part of what crosses between
                         stages, and the next stage gathers it (Narayanan 2021 §4.1); else each sends all of it
    gathered_context     context parallelism gathers all keys and values first, instead of passing them around a ring
                         behind attention
    """

    name: str
    beside: tuple[float, float]
    projected: tuple[float, float]
    inner: tuple[float, float]
    scores: tuple[float, float] = (0, 0)
    logit_bytes: float = 52
    accumulate_bytes: float = 0
    gradient_bytes: float = 4
    optimizer_bytes: float
    fused_attention: bool = True
    overlapped_tensor: bool = True
    overlapped_sends: bool = True
    overlapped_data: bool = True
    scattered_sends: bool = False  # Megatron Core's p2p_communication.py has no such gather any more
    gathered_context: bool = False
    source: str


# Counted, 2 bytes an element, r what is read and w what is written:
# beside     two norms r2 w2; two bias-dropout-adds r4 w2 and a mask of 1. Back: norm r4 w2 (and r4 again for its own
#            weights, in a pass of its own until 2022); dropout r2 w2 and the mask, bias r2; sum at the residual r4 w2
# projected  result of attention brought into order, r2 w2 of a third of them; the bias first written, then read and
#            added (PyTorch 1.8 addmm). Back: gradients of the three parts joined r2 w2, a third once more
# inner      bias and GELU r2 w2. Back r4 w2, bias r2
# scores     causal softmax reads half and writes all; dropout r2 w2 and the mask. Back r2 w2 and the mask, then half of
#            r4, and w2
# logits     to 32 bits r2 w4, maximum r4, subtract r4 w4, exponential r4 w4, sum r4, divide r4 w4; back r4 w4, r4 w2
# weights    16-bit gradients: added r4 w2 once the matrix product has written them. Update: to 32 bits r2 w4, unscaled
#            r4 w4, norm r4, clipped r4 w4, Adam r16 w12, copied to 16 bits r4 w2, zeroed w2
MEGATRON_2021 = Implementation(
    name="Megatron-LM of 2021",
    beside=(22, 46),
    projected=(4 / 3 + 4, 16 / 3),
    inner=(4, 8),
    scores=(8, 9),
    accumulate_bytes=6,
    gradient_bytes=2,
    optimizer_bytes=62,
    fused_attention=False,
    overlapped_tensor=False,
    overlapped_sends=False,
    scattered_sends=True,
    source="Narayanan 2021 (arXiv 2104.04473) §4.2 and Megatron-LM 2.5",
)
# 32-bit gradients (their 18 bytes a parameter), summed by the matrix product itself; one pass back through a norm; the
# bias added by the matrix product
MEGATRON_2022 = replace(
    MEGATRON_2021,
    name="Megatron-LM of 2022",
    beside=(22, 38),
    projected=(4 / 3, 16 / 3),
    accumulate_bytes=0,
    gradient_bytes=4,
    optimizer_bytes=58,
    overlapped_tensor=True,
    source="Korthikanti 2022 (arXiv 2205.05198) and Megatron-LM core/tensor_parallel/layers.py",
)
# no dropout, no biases: norm r2 w2 and sum r4 w2, twice; rotary r2 w2; gated activation r4 w2, back r6 w4; bf16 needs
# no unscaling
MEGATRON = Implementation(
    name="Megatron Core",
    beside=(20, 24),
    projected=(4, 4),
    inner=(6, 10),
    optimizer_bytes=50,
    source="Megatron-LM core, with Transformer Engine's fused norm, rotary and activation",
)
# The same layers out of PyTorch's elementary operations, as Meta's published model has them: RMSNorm in 32 bits by six
# (r20 w16; back 68), rotary on complex numbers (r10 w10), SiLU and product apart; the gradient to 32 bits and added; no
# exchange of tensor parallelism hidden
ELEMENTARY = replace(
    MEGATRON,
    name="PyTorch's elementary operations",
    beside=(84, 148),
    projected=(20, 20),
    inner=(10, 18),
    accumulate_bytes=10,
    overlapped_tensor=False,
    gathered_context=True,
    source="meta-llama/llama llama/model.py; Llama 3 (arXiv 2407.21783) §3.3.2: gathered keys and values",
)
