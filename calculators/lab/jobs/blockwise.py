"""Attention to keys and values that come in blocks: each block's answer is right for that block alone, and answers
merge exactly, because each carries the log of the sum its softmax was divided by.

A kernel would work in tiles that fit its fast memory; here the scores of a block are there whole for a moment, and
none is kept.

Tensor names end in their shape: B sequences, A heads, T tokens, D elements of a head. Everything is summed in float32.
"""

import math

import torch
from torch import Tensor


def attend(q_BATD: Tensor, k_BATD: Tensor, v_BATD: Tensor, *, is_causal: bool) -> tuple[Tensor, Tensor]:
    """What the queries take from one block, and the log of each query's softmax sum (B, A, T)."""
    scores_BATT = _scores(q_BATD, k_BATD, is_causal=is_causal)
    log_sum_BAT = scores_BATT.logsumexp(dim=-1)
    weights_BATT = scores_BATT.sub_(log_sum_BAT[..., None]).exp_()
    return weights_BATT @ v_BATD.float(), log_sum_BAT


def merge(mixed_BATD: Tensor, log_sum_BAT: Tensor, more_BATD: Tensor, log_sum_of_more_BAT: Tensor) -> None:
    """Let a block's answer into the answer so far, in place: each counts by its share of the whole softmax sum."""
    whole_BAT = torch.logaddexp(log_sum_BAT, log_sum_of_more_BAT)
    mixed_BATD *= (log_sum_BAT - whole_BAT).exp()[..., None]
    mixed_BATD += more_BATD * (log_sum_of_more_BAT - whole_BAT).exp()[..., None]
    log_sum_BAT.copy_(whole_BAT)


def gradients(
    q_BATD: Tensor,
    k_BATD: Tensor,
    v_BATD: Tensor,
    *,
    is_causal: bool,
    log_sum_BAT: Tensor,
    out_gradient_BATD: Tensor,
    shift_BAT: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the queries, keys and values of one block.

    `log_sum_BAT` is that of all blocks together, and with it the block's weights are the whole softmax's, calculated
    anew, not kept. `shift_BAT` is each query's output times its gradient, summed (arXiv 2205.14135 §B.2).
    """
    scale = 1 / math.sqrt(q_BATD.size(-1))
    weights_BATT = _scores(q_BATD, k_BATD, is_causal=is_causal).sub_(log_sum_BAT[..., None]).exp_()
    of_values_BATD = weights_BATT.transpose(-1, -2) @ out_gradient_BATD
    of_weights_BATT = out_gradient_BATD @ v_BATD.float().transpose(-1, -2)
    of_scores_BATT = of_weights_BATT.sub_(shift_BAT[..., None]).mul_(weights_BATT).mul_(scale)
    return (
        of_scores_BATT @ k_BATD.float(),
        of_scores_BATT.transpose(-1, -2) @ q_BATD.float(),
        of_values_BATD,
    )


def _scores(q_BATD: Tensor, k_BATD: Tensor, *, is_causal: bool) -> Tensor:
    """How well each query meets each key; with `is_causal` no key after it."""
    scores_BATT = (q_BATD.float() @ k_BATD.float().transpose(-1, -2)) / math.sqrt(q_BATD.size(-1))
    if is_causal:
        later = torch.ones(scores_BATT.shape[-2:], dtype=torch.bool, device=scores_BATT.device).triu(1)
        scores_BATT.masked_fill_(later, -math.inf)
    return scores_BATT
