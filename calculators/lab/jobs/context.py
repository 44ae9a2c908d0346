"""Context parallelism: every rank holds the whole model and its share of each sequence.

All but attention works token by token and needs nobody. In attention queries must meet the keys and values of
all tokens: blocks of those go around in a ring, or all are gathered (`ring_attention`), or tokens are swapped
for heads and back, so that each rank has whole sequences of some heads (Ulysses). Forward, too.

Each rank's gradients of the weights are its own tokens' alone, so the ranks sum them, as replicas do.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed._functional_collectives import all_to_all_single, wait_tensor
from torch.nn import functional as F

from calculators.lab.choices import Attention
from calculators.lab.jobs import transformer
from calculators.lab.jobs.base import RankJob
from calculators.lab.jobs.ring_attention import BlockAttention, Gather, Ring, Share
from calculators.lab.jobs.shared_weights import group_for_weights, sum_gradients
from calculators.lab.measurements import Verified
from calculators.lab.spec import Spec


class ContextJob(RankJob):
    """One rank's share of every sequence, and its prompt or training step."""

    def __init__(self, spec: Spec, *, rank: int, group: Any, device: torch.device) -> None:
        self.spec, self.rank, self.group = spec, rank, group
        self.share = Share(rank=rank, ranks=spec.ranks, tokens=spec.tokens, zigzag=spec.zigzag)
        self.whole: transformer.Stack | None = transformer.whole_model(spec, device=device)
        self.model = transformer.copy_of(self.whole, spec)
        for layer in self.model.layers.values():
            layer.attention = SharedAttention.of(layer.attention, spec, share=self.share, group=group)
        self.modules = (self.model,)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, foreach=False)
        self.sums = spec.is_training and spec.ranks > 1
        self.weights_group = group_for_weights(range(spec.ranks)) if self.sums else None
        self.all_tokens = transformer.some_tokens(spec, device=device)
        self.all_targets = transformer.some_tokens(spec, device=device, salt=1)
        self.tokens, self.targets = self._mine(self.all_tokens), self._mine(self.all_targets)

    def step(self) -> None:
        """Read the prompts once, or take one training step."""
        if self.spec.is_training:
            self._train()
            self.optimizer.step()
        else:
            self._read()

    def verify(self) -> Verified:
        """Compare with the unsharded model: its own tokens' logits, or the loss and every gradient."""
        whole, self.whole = self.whole, None  # nobody needs it again
        if whole is None:
            raise RuntimeError("a job is verified once, before its first step")
        worst = self._verify_training(whole) if self.spec.is_training else self._verify_reading(whole)
        return Verified(rank=self.rank, worst=worst, tolerance=transformer.tolerance(self.spec))

    def _mine(self, whole_BT: Tensor) -> Tensor:
        """This rank's tokens of every sequence."""
        return whole_BT[:, self.share.positions().to(whole_BT.device)]

    @torch.no_grad()
    def _read(self) -> Tensor:
        return self.model(self.tokens)

    def _train(self) -> Tensor:
        """One pass forward and backward; the loss is this rank's part of the mean over all tokens."""
        self.optimizer.zero_grad()
        loss = transformer.language_loss(self.model(self.tokens), self.targets) / self.spec.ranks
        loss.backward()
        if self.sums:
            sum_gradients(self.model.parameters(), self.weights_group)
        return loss.detach()

    @torch.no_grad()
    def _verify_reading(self, whole: transformer.Stack) -> float:
        return transformer.relative_difference(self._read(), self._mine(whole(self.all_tokens)))

    def _verify_training(self, whole: transformer.Stack) -> float:
        loss = self._train()
        if self.sums:
            dist.all_reduce(loss, group=self.weights_group)
        expected = transformer.language_loss(whole(self.all_tokens), self.all_targets)
        expected.backward()
        differences = [transformer.relative_difference(loss, expected.detach())]
        for (name, mine), theirs in zip(self.model.named_parameters(), whole.parameters(), strict=True):
            if mine.grad is None or theirs.grad is None:
                raise RuntimeError(f"{name} has no gradient after a training step")
            differences.append(transformer.relative_difference(mine.grad, theirs.grad))
        self.optimizer.zero_grad()
        return max(differences)


class SharedAttention(transformer.Attention):
    """Causal self-attention among all tokens, of which this rank holds a share."""

    def __init__(self, spec: Spec, *, share: Share, group: Any) -> None:
        super().__init__(spec)
        self.share, self.group = share, group
        self.blocks: Ring | Gather | None = None
        if spec.attention is not Attention.ULYSSES:
            kind = Ring if spec.attention is Attention.RING else Gather
            self.blocks = kind(share.rank, share.ranks, group)

    @classmethod
    def of(
        cls, attention: transformer.Attention, spec: Spec, *, share: Share, group: Any
    ) -> "SharedAttention":
        """The same weights, shared tokens."""
        with torch.device("meta"):
            shared = cls(spec, share=share, group=group)
        shared.load_state_dict(attention.state_dict(), assign=True)
        return shared

    def forward(self, x_BTH: Tensor, position: int | None = None) -> Tensor:
        """Attend from this rank's tokens to all; there is no decoding, so `position` is None."""
        q_BATD, k_BATD, v_BATD = self._heads(x_BTH)
        if self.blocks is None:
            mixed_BATD = self._with_whole_sequences(q_BATD, k_BATD, v_BATD)
        else:
            mixed_BATD = BlockAttention.apply(q_BATD, k_BATD, v_BATD, self.share, self.blocks)
        return self.out(mixed_BATD.transpose(1, 2).flatten(2))

    def _with_whole_sequences(self, *mine_BATD: Tensor) -> Tensor:
        """Ulysses: all tokens of some heads come here, attention is as on one device, and answers go home."""
        q_BATD, k_BATD, v_BATD = map(self._to_heads, mine_BATD)
        return self._to_tokens(F.scaled_dot_product_attention(q_BATD, k_BATD, v_BATD, is_causal=True))

    def _to_heads(self, mine_BATD: Tensor) -> Tensor:
        """A share of the tokens, all heads → all tokens, a share of the heads."""
        by_rank = mine_BATD.unflatten(1, (self.share.ranks, -1)).permute(1, 3, 0, 2, 4)  # ranks, T, B, A, D
        return self._swap(by_rank).flatten(0, 1).permute(1, 2, 0, 3)

    def _to_tokens(self, some_BATD: Tensor) -> Tensor:
        """All tokens, a share of the heads → a share of the tokens, all heads."""
        by_rank = some_BATD.unflatten(2, (self.share.ranks, -1)).permute(2, 1, 3, 0, 4)  # ranks, A, T, B, D
        return self._swap(by_rank).flatten(0, 1).permute(2, 0, 1, 3)

    def _swap(self, by_rank: Tensor) -> Tensor:
        """Hand the r-th part to rank r, and take each rank's part for this one."""
        given = by_rank.contiguous()
        if self.share.ranks == 1:
            return given
        return wait_tensor(all_to_all_single(given, None, None, self.group))
