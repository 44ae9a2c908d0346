"""When an exchange hides behind arithmetic, and the link that is needed for it: one inequality for each family.

Each gives the least bytes/s in one direction at which the bytes take no longer than the arithmetic beside them, at the
device's peak. A device that reaches half of its peak needs half of the link. The Ultra-Scale Playbook (Hugging Face,
appendix A3) gives these ratios in elements; here they are in bytes, and the parameters of the model cancel. When the
ring of context parallelism hides is in `traffic.hiding_block_tokens`.
"""

from __future__ import annotations

from numpy.typing import ArrayLike

from calculators.predict.arrays import Floats, check_broadcast, counts, floats, positive


def data_parallel_link(
    *,
    tokens: ArrayLike,
    ranks: ArrayLike,
    flops_per_second: ArrayLike,
    bytes_per_element: ArrayLike = 2,
) -> Floats:
    """Bytes/s that hide the all-reduce of the gradients behind the backward pass: e·(n−1)/n·F ÷ (2·tokens).

    2·(n−1)/n·Ψ·e bytes against 4·Ψ·tokens operations, for the `tokens` of one replica.

    >>> data_parallel_link(tokens=4_096, ranks=8, flops_per_second=989e12).round(-8).item()
    211300000000.0
    """
    given = counts(tokens=tokens, ranks=ranks)
    speeds = positive(flops_per_second=flops_per_second, bytes_per_element=bytes_per_element)
    check_broadcast({**given, **speeds})
    n = given["ranks"]
    return floats(
        speeds["bytes_per_element"] * ((n - 1) / n) * speeds["flops_per_second"] / (2 * given["tokens"])
    )


def sharded_data_parallel_link(
    *,
    tokens: ArrayLike,
    ranks: ArrayLike,
    flops_per_second: ArrayLike,
    bytes_per_element: ArrayLike = 2,
) -> Floats:
    """Bytes/s that hide the gathering of a layer's weights behind the layer before it: e·(n−1)/n·F ÷ (2·tokens).

    (n−1)/n·Ψ·e bytes against 2·Ψ·tokens operations forward (ZeRO-3, FSDP): the same link as `data_parallel_link`.
    """
    return data_parallel_link(
        tokens=tokens, ranks=ranks, flops_per_second=flops_per_second, bytes_per_element=bytes_per_element
    )


def tensor_parallel_link(
    *,
    hidden_size: ArrayLike,
    ranks: ArrayLike,
    flops_per_second: ArrayLike,
    bytes_per_element: ArrayLike = 2,
) -> Floats:
    """Bytes/s that hide half an all-reduce behind one matrix product of a layer: e·(t−1)·F ÷ (2·h).

    (t−1)/t·b·s·h·e bytes against 2·b·s·h²/t operations: batch and length do not help, only a wider model.

    >>> tensor_parallel_link(hidden_size=8_192, ranks=8, flops_per_second=989e12).round(-9).item()
    845000000000.0
    """
    given = counts(hidden_size=hidden_size, ranks=ranks)
    speeds = positive(flops_per_second=flops_per_second, bytes_per_element=bytes_per_element)
    check_broadcast({**given, **speeds})
    return floats(
        speeds["bytes_per_element"]
        * (given["ranks"] - 1)
        * speeds["flops_per_second"]
        / (2 * given["hidden_size"])
    )


def pipeline_parallel_link(
    *,
    hidden_size: ArrayLike,
    stage_parameters: ArrayLike,
    flops_per_second: ArrayLike,
    bytes_per_element: ArrayLike = 2,
) -> Floats:
    """Bytes/s that hide a boundary's send behind a stage's forward pass: e·h·F ÷ (2·stage's parameters).

    b·s·h·e bytes against 2·P·b·s operations. The playbook's stages have 16·h² parameters a layer.

    >>> pipeline_parallel_link(hidden_size=4_096, stage_parameters=3.5e9, flops_per_second=989e12).round(-7).item()
    1160000000.0
    """
    given = counts(hidden_size=hidden_size, stage_parameters=stage_parameters)
    speeds = positive(flops_per_second=flops_per_second, bytes_per_element=bytes_per_element)
    check_broadcast({**given, **speeds})
    return floats(
        speeds["bytes_per_element"]
        * given["hidden_size"]
        * speeds["flops_per_second"]
        / (2 * given["stage_parameters"])
    )
