"""Tensor parallelism: every rank holds a slice of every layer; each block ends in one all-reduce.

Columns first, rows second. A column slice of `qkv` or `up` gives whole heads or whole channels, so nothing is
exchanged between the two matrices; a row slice of `out` or `down` gives partial sums, and those are
all-reduced. PyTorch's own tensor-parallel API does it (`torch.distributed.tensor.parallel`).
"""

from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from calculators.lab.jobs import transformer
from calculators.lab.jobs.base import RankJob
from calculators.lab.limits import VERIFIED_TOKENS
from calculators.lab.measurements import Verified
from calculators.lab.spec import Qkv, Spec


class TensorJob(RankJob):
    """One rank's slice of the model, and its decode or training step."""

    def __init__(self, spec: Spec, *, rank: int, group: Any, device: torch.device) -> None:
        self.spec, self.rank, self.device = spec, rank, device
        self.whole: transformer.Stack | None = transformer.whole_model(spec, device=device)
        mesh = DeviceMesh.from_group(group, device.type)
        copy = transformer.copy_of(self.whole, spec)
        self.model = parallelize_module(copy, mesh, _cuts(spec), src_data_rank=None)
        self.modules = (self.model,)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, foreach=False)
        self.tokens = transformer.some_tokens(spec, device=device)
        self.targets = transformer.some_tokens(spec, device=device, salt=1)

    def step(self) -> None:
        """Decode one token of every sequence, or take one training step."""
        if self.spec.is_training:
            self._train()
            self.optimizer.step()
        else:
            self.tokens = transformer.sample(self._decode())

    def verify(self) -> Verified:
        """Compare with the unsharded model: logits of two tokens, or loss and every gradient."""
        whole, self.whole = self.whole, None  # nobody needs it again
        if whole is None:
            raise RuntimeError("a job is verified once, before its first step")
        worst = self._verify_training(whole) if self.spec.is_training else self._verify_decode(whole)
        return Verified(rank=self.rank, worst=worst, tolerance=transformer.tolerance(self.spec))

    @torch.no_grad()
    def _decode(self) -> Tensor:
        return self.model(self.tokens)

    def _train(self) -> Tensor:
        self.optimizer.zero_grad()
        loss = transformer.language_loss(self.model(self.tokens), self.targets)
        loss.backward()
        return loss

    @torch.no_grad()
    def _verify_decode(self, whole: transformer.Stack) -> float:
        first, worst = self.tokens, 0.0
        for _ in range(VERIFIED_TOKENS):
            logits = self._decode()
            expected = whole(self.tokens)
            worst = max(worst, transformer.relative_difference(logits, expected))
            self.tokens = transformer.sample(expected)
        self.tokens = first
        self.model.forget()
        return worst

    def _verify_training(self, whole: transformer.Stack) -> float:
        loss = self._train()
        expected = transformer.language_loss(whole(self.tokens), self.targets)
        expected.backward()
        differences = [transformer.relative_difference(loss.detach(), expected.detach())]
        for (name, mine), theirs in zip(self.model.named_parameters(), whole.parameters(), strict=True):
            if mine.grad is None or theirs.grad is None:
                raise RuntimeError(f"{name} has no gradient after a training step")
            differences.append(
                transformer.relative_difference(_local(mine.grad), _slice(theirs.grad, mine.grad))
            )
        self.optimizer.zero_grad()
        return max(differences)


def _cuts(spec: Spec) -> dict[str, ColwiseParallel | RowwiseParallel]:
    """How each matrix of each layer is cut; norms, embedding and head stay whole on every rank."""
    projections = ["qkv"] if spec.qkv is Qkv.FUSED else ["q", "k", "v"]
    cuts: dict[str, ColwiseParallel | RowwiseParallel] = {}
    for number in range(spec.layers):
        cuts |= {f"layers.{number}.attention.{name}": ColwiseParallel() for name in projections}
        cuts |= {
            f"layers.{number}.attention.out": RowwiseParallel(),
            f"layers.{number}.feed_forward.up": ColwiseParallel(),
            f"layers.{number}.feed_forward.down": RowwiseParallel(),
        }
    return cuts


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _slice(whole: Tensor, like: Tensor) -> Tensor:
    """The part of the unsharded `whole` that this rank holds of `like`."""
    if not isinstance(like, DTensor):
        return whole
    (placement,), mesh = like.placements, like.device_mesh
    if not placement.is_shard():
        return whole
    return whole.chunk(mesh.size(), dim=placement.dim)[mesh.get_local_rank()]
