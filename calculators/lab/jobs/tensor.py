"""Tensor parallelism: every rank holds a slice of every layer; each block ends in one sum over all ranks.

Columns first, rows second. A column slice of `qkv` or `up` gives whole heads or whole channels, so nothing is
exchanged between the two matrices; a row slice of `out` or `down` gives partial sums, and those are
all-reduced. The way back is the mirror image: the gradient of a block's input is all-reduced. With sequence
parallelism the ranks also share out the tokens between the blocks (`sequence.py`).

The slices are plain tensors, and the only calls are those written here: through DTensor
(`torch.distributed.tensor.parallel`) the same calls cost each rank 1 ms of Python a matrix (docs/lab.md).
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from calculators.lab.jobs import sequence, transformer
from calculators.lab.jobs.base import RankJob
from calculators.lab.limits import VERIFIED_TOKENS
from calculators.lab.measurements import Verified
from calculators.lab.spec import Spec

Multiply = Callable[[Tensor, Tensor, Any], Tensor]
"""Hidden states, a slice of a matrix and the group to their product, exchange included."""


def columns(x: Tensor, weight: Tensor, group: Any) -> Tensor:
    """`x`, which every rank has, times the columns of this rank."""
    return F.linear(_Copy.apply(x, group), weight)


def rows(x: Tensor, weight: Tensor, group: Any) -> Tensor:
    """The sum over all ranks of `x` times the rows of each."""
    return _Sum.apply(F.linear(x, weight), group)


class Slice(nn.Module):
    """This rank's slice of a matrix: of its columns (dimension 0 of a weight) or of its rows (1)."""

    def __init__(self, whole: nn.Linear, multiply: Multiply, *, dim: int, group: Any) -> None:
        super().__init__()
        self.multiply, self.dim, self.group = multiply, dim, group
        self.weight = nn.Parameter(self.of(whole.weight.detach()).clone())

    def forward(self, x: Tensor) -> Tensor:
        return self.multiply(x, self.weight, self.group)

    def of(self, whole: Tensor) -> Tensor:
        """The part of `whole` that this rank holds."""
        return whole.chunk(self.group.size(), dim=self.dim)[self.group.rank()]


def cut(stack: transformer.Stack, group: Any, *, by_tokens: bool = False, regather: bool = False) -> None:
    """Leave `stack` this rank's slice of every matrix of every layer; norms, embedding and head stay whole.

    With `by_tokens` it takes and gives this rank's tokens (`sequence.own_tokens`). A group of one cuts nothing.
    """
    if group.size() == 1:
        return
    before: Multiply = columns
    after: Multiply = rows
    if by_tokens:
        before = sequence.columns_gathering_again if regather else sequence.columns
        after = sequence.rows
    for layer in stack.layers.values():
        for block in (layer.attention, layer.feed_forward):
            for name, matrix in list(block.named_children()):
                is_last = name in ("out", "down")
                multiply, dim = (after, 1) if is_last else (before, 0)
                setattr(block, name, Slice(matrix, multiply, dim=dim, group=group))


def part_of(whole: Tensor, name: str, stack: transformer.Stack) -> Tensor:
    """What `stack` holds of `whole`, a tensor of the unsharded model's parameter `name`."""
    module = stack.get_submodule(name.rpartition(".")[0])
    return module.of(whole) if isinstance(module, Slice) else whole


def sum_gradients(stack: transformer.Stack, group: Any) -> None:
    """Add up the gradients of what every rank holds whole, in one call: each saw its own tokens alone."""
    slices = {id(module.weight) for module in stack.modules() if isinstance(module, Slice)}
    gradients = [p.grad for p in stack.parameters() if id(p) not in slices and p.grad is not None]
    together = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(together, group=group)
    for gradient, summed in zip(gradients, together.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(summed.view_as(gradient))


class TensorJob(RankJob):
    """One rank's slice of the model, and its step: a token, a prompt, or one of training."""

    def __init__(self, spec: Spec, *, rank: int, group: Any, device: torch.device) -> None:
        self.spec, self.rank, self.group, self.device = spec, rank, group, device
        self.shares_tokens = spec.sequence and group.size() > 1
        self.whole: transformer.Stack | None = transformer.whole_model(spec, device=device)
        self.model = transformer.copy_of(self.whole, spec)
        cut(self.model, group, by_tokens=spec.sequence, regather=spec.regather)
        self.modules = (self.model,)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, foreach=False)
        self.tokens = transformer.some_tokens(spec, device=device)
        self.mine = self._own(self.tokens)
        self.my_targets = self._own(transformer.some_tokens(spec, device=device, salt=1))

    def step(self) -> None:
        """Decode one token of every sequence, read one prompt, or take one training step."""
        if self.spec.is_training:
            self._train()
            self.optimizer.step()
        elif self.spec.is_decode:
            self.mine = transformer.sample(self._read(self.mine))
        else:
            self._read(self.mine)

    def verify(self) -> Verified:
        """Compare with the unsharded model: logits of two tokens or a prompt, or loss and every gradient."""
        whole, self.whole = self.whole, None  # nobody needs it again
        if whole is None:
            raise RuntimeError("a job is verified once, before its first step")
        worst = self._verify_training(whole) if self.spec.is_training else self._verify_reading(whole)
        return Verified(rank=self.rank, worst=worst, tolerance=transformer.tolerance(self.spec))

    def _own(self, tokens_BT: Tensor) -> Tensor:
        """Those of all tokens that this rank reads."""
        return sequence.own_tokens(tokens_BT, self.group) if self.shares_tokens else tokens_BT

    @torch.no_grad()
    def _read(self, tokens_BT: Tensor) -> Tensor:
        logits: Tensor = self.model(tokens_BT)
        return logits

    def _train(self) -> Tensor:
        """One pass forward and backward; what this rank's tokens add to the loss."""
        self.optimizer.zero_grad()
        loss = transformer.language_loss(self.model(self.mine), self.my_targets)
        if self.shares_tokens:
            loss = loss / self.group.size()  # the mean is over all ranks' tokens
        loss.backward()
        if self.shares_tokens:
            sum_gradients(self.model, self.group)
        return loss.detach()

    @torch.no_grad()
    def _verify_reading(self, whole: transformer.Stack) -> float:
        tokens, worst = self.tokens, 0.0
        for _ in range(VERIFIED_TOKENS if self.spec.is_decode else 1):
            expected = whole(tokens)
            logits = self._read(self._own(tokens))
            worst = max(worst, transformer.relative_difference(logits, self._own(expected)))
            tokens = transformer.sample(expected)
        self.model.forget()
        return worst

    def _verify_training(self, whole: transformer.Stack) -> float:
        loss = self._train()
        if self.shares_tokens:
            dist.all_reduce(loss, group=self.group)
        targets = transformer.some_tokens(self.spec, device=self.device, salt=1)
        expected = transformer.language_loss(whole(self.tokens), targets)
        expected.backward()
        differences = [transformer.relative_difference(loss, expected.detach())]
        theirs = dict(whole.named_parameters())
        for name, mine in self.model.named_parameters():
            wanted = theirs[name].grad
            if mine.grad is None or wanted is None:
                raise RuntimeError(f"{name} has no gradient after a training step")
            differences.append(transformer.relative_difference(mine.grad, part_of(wanted, name, self.model)))
        self.optimizer.zero_grad()
        return max(differences)


class _Copy(torch.autograd.Function):
    """Every rank has the input already; back, each has a part of its gradient, and all are summed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        summed = gradients[0].clone(memory_format=torch.contiguous_format)
        dist.all_reduce(summed, group=ctx.group)
        return summed, None


class _Sum(torch.autograd.Function):
    """Each rank has partial sums, and all are summed; back, every rank has the gradient already."""

    @staticmethod
    def forward(ctx: Any, partial: Tensor, group: Any) -> Tensor:
        ctx.mark_dirty(partial)
        dist.all_reduce(partial, group=group)
        return partial

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return gradients[0], None
