"""Decoding through the stages of a pipeline: requests go around them like beads on a ring.

Every rank takes one request after the other: receive, compute, send. The last stage sends token ids to the first,
which is what that request's next token starts from. No request waits for another, and no rank for a token of all.
"""

import copy
import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from calculators.lab.jobs import transformer
from calculators.lab.limits import VERIFIED_TOKENS
from calculators.lab.spec import Spec
from calculators.lab.splits.pipeline import LATENCY, THROUGHPUT


class Ring:
    """One stage of the ring: `stage` on rank `place` of `ranks` in `group`; `tokens` are where requests begin.

    The requests share the stage's weights; each has keys and values of its own.
    """

    def __init__(
        self, spec: Spec, stage: transformer.Stack, tokens: Tensor, *, place: int, ranks: int, group: Any
    ) -> None:
        self.place, self.ranks, self.group = place, ranks, group
        self.is_first, self.is_last = place == 0, place == ranks - 1
        self._prompts = tokens.chunk(spec.microbatches)
        self._ids = [ids.clone() for ids in self._prompts]
        weights = {id(parameter): parameter for parameter in stage.parameters()}
        self._stacks = [copy.deepcopy(stage, dict(weights)) for _ in self._prompts]
        self._hidden = torch.empty(
            *self._prompts[0].shape,
            spec.hidden_size,
            dtype=getattr(torch, spec.dtype.value),
            device=tokens.device,
        )
        self._sent: list[tuple[Any, Tensor] | None] = [None] * len(self._prompts)
        self._come_back = [False] * len(self._prompts)  # whether ids of a request are on their way to stage 0
        self._starts: list[float] = []

    def step(self) -> None:
        """Take every request one token further."""
        for request in range(len(self._prompts)):
            self._turn(request)

    @torch.no_grad()
    def verify(self, whole: transformer.Stack) -> float | None:
        """The largest difference of the last stage's logits from those of `whole`; None on other stages."""
        requests, worst = len(self._prompts), 0.0
        tokens = torch.cat(self._prompts)
        for _ in range(VERIFIED_TOKENS):
            expected = whole(tokens)
            # Sent home in place of what the last stage sampled, so that rounding does not part the two.
            tokens = transformer.sample(expected)
            for request in range(requests):
                got = self._turn(request, tokens.chunk(requests)[request])
                if got is not None:
                    wanted = expected.chunk(requests)[request]
                    worst = max(worst, transformer.relative_difference(got, wanted))
        self._begin_again()
        return worst if self.is_last else None

    def series(self, steps: int) -> Mapping[str, Sequence[float]]:
        """How long a token of the first request took, in each of the last `steps`, and how many came a second."""
        if not self.is_first:
            return {}
        starts, sequences = self._starts[-steps - 1 :], sum(map(len, self._prompts))
        seconds = [after - before for before, after in itertools.pairwise(starts)]
        return {
            LATENCY: seconds,
            THROUGHPUT: [sequences / one for one in seconds],
        }

    @torch.no_grad()
    def _turn(self, request: int, ids: Tensor | None = None) -> Tensor | None:
        """One token of one request; the last stage samples it, or says `ids`, and has the logits to return."""
        given = self._receive(request)
        if self.is_first and request == 0:
            self._starts.append(time.perf_counter())
        result = self._stacks[request](given)
        if not self.is_last:
            self._send(request, result, self.place + 1)
            return None
        ids = transformer.sample(result) if ids is None else ids
        if self.is_first:
            self._ids[request] = ids
        else:
            self._send(request, ids.contiguous(), 0)
        return result

    def _receive(self, request: int) -> Tensor:
        """What the request's next token starts from on this stage."""
        if not self.is_first:
            dist.recv(self._hidden, group=self.group, group_src=self.place - 1)
            return self._hidden
        if self._come_back[request]:
            dist.recv(self._ids[request], group=self.group, group_src=self.ranks - 1)
        self._come_back[request] = self.ranks > 1
        return self._ids[request]

    def _send(self, request: int, tensor: Tensor, to: int) -> None:
        """Send on without waiting: that it has arrived is certain when the request comes around again."""
        self._settle(request)
        self._sent[request] = dist.isend(tensor, group=self.group, group_dst=to), tensor

    def _settle(self, request: int) -> None:
        sent, self._sent[request] = self._sent[request], None
        if sent is not None:
            sent[0].wait()

    def _begin_again(self) -> None:
        """Take in what is under way, and start from the prompts with nothing remembered."""
        for request, stack in enumerate(self._stacks):
            if self.is_first and self._come_back[request]:
                dist.recv(self._ids[request], group=self.group, group_src=self.ranks - 1)
            self._come_back[request] = False
            self._ids[request] = self._prompts[request].clone()
            stack.forget()
        for request in range(len(self._stacks)):
            self._settle(request)
        self._starts.clear()
