"""What a rank does, whatever the job: prove that its results are right, then step."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from calculators.lab.measurements import Verified
from calculators.lab.spec import Spec


class RankJob(ABC):
    """One rank's part of a job. `modules` and `optimizer` are what the memory meter looks at."""

    modules: Sequence[nn.Module] = ()
    """What this rank holds of the model; none where no model computes."""
    optimizer: Any = None

    @abstractmethod
    def __init__(self, spec: Spec, *, rank: int, group: Any, device: torch.device) -> None:
        """This rank's part of the job that `spec` names, talking over `group`."""

    @abstractmethod
    def verify(self) -> Verified | None:
        """How far its result is from what it must be (None: this rank has none to compare).

        Leaves the job ready to step.
        """

    def verify_again(self) -> Verified | None:
        """The same after the measured steps, from a job whose verdict had to wait for what happens in them."""
        return None

    @abstractmethod
    def step(self) -> None:
        """One token, one prompt or one training step; returns when this rank is through with it."""

    def series(self) -> Mapping[str, Sequence[float]]:
        """Numbers that it followed through the measured steps, by name: one value for each step."""
        return {}
