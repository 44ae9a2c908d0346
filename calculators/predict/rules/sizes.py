"""Two sizes that follow from others by rule: the fewest devices of a layout, and the padded vocabulary."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from calculators.predict.arrays import Floats, counts

_MOST_WAYS = 10**9  # the product of two is an integer of 64 bits


def minimum_devices(
    *, tp: ArrayLike = 1, pp: ArrayLike = 1, cp: ArrayLike = 1, ep: ArrayLike = 1, etp: ArrayLike = 1
) -> Floats:
    """The fewest devices on which these sizes fit together: pp · lcm(tp·cp, ep·etp).

    Experts share out the same devices of a stage that tensor and context parallelism share out among the other
    layers, so a stage counts once, not twice: it must be a whole multiple of both products. Where one divides the
    other, as in every published layout, that is pp · max(tp·cp, ep·etp) (R14). The product of all five is what many
    READMEs print, and wrong (Megatron-LM parallel_state.py; Megatron-Bridge, skill on parallelism strategies).

    DeepSeek-V3's layout needs 1,024 devices, not 2,048:

    >>> minimum_devices(tp=2, pp=16, ep=64).item()
    1024.0

    Raises ValueError where a size is below 1 or no whole number.
    """
    sizes = counts(tp=tp, pp=pp, cp=cp, ep=ep, etp=etp)
    for name, values in sizes.items():
        if np.any(values != np.floor(values)):
            wrong = values[values != np.floor(values)].flat[0]
            raise ValueError(
                f"{name} is {wrong:g}, but devices are shared in whole parts. Use a whole number."
            )
    for name in ("tp", "cp", "ep", "etp"):
        if np.any(sizes[name] > _MOST_WAYS):
            raise ValueError(
                f"{name} is {sizes[name].max():g}, but nothing is split more than {_MOST_WAYS:,} ways. Use fewer."
            )
    attention = (sizes["tp"] * sizes["cp"]).astype(np.int64)
    experts = (sizes["ep"] * sizes["etp"]).astype(np.int64)
    once = attention // np.gcd(attention, experts)  # times the other it may be too large for an integer
    return np.asarray(sizes["pp"] * (once.astype(np.float64) * experts), dtype=np.float64)


def padded_vocabulary(vocab_size: ArrayLike, tp: ArrayLike = 1, *, divisor: ArrayLike = 128) -> Floats:
    """Rows of the embedding after padding: the next multiple of divisor × tp (R18).

    Megatron-LM training/vocab_utils.py; GPT-3's 50,257 words on 8 ranks become 51,200 rows.

    >>> padded_vocabulary(50_257, [1, 8]).tolist()
    [50304.0, 51200.0]
    """
    sizes = counts(vocab_size=vocab_size, tp=tp, divisor=divisor)
    step = sizes["divisor"] * sizes["tp"]
    return np.asarray(np.ceil(sizes["vocab_size"] / step) * step)
