"""The memory meter: what a rank holds of the model, and what its forward pass keeps for the backward pass.

Bytes are those of the storages behind tensors, each counted once however many views it has. Parameters that
autograd saves as well are weights, not saved for backward.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from calculators.lab.meters.problems import CannotSee

WEIGHTS = "weights"
GRADIENTS = "gradients"
OPTIMIZER = "optimizer"
SAVED = "saved for backward"
PEAK = "peak"


def weights(modules: Sequence[nn.Module]) -> int:
    """Bytes of the parameters that this rank holds."""
    return _bytes(parameter for module in modules for parameter in module.parameters())


def gradients(modules: Sequence[nn.Module]) -> int:
    """Bytes of the gradients that this rank holds at this moment."""
    parameters = (parameter for module in modules for parameter in module.parameters())
    return _bytes(parameter.grad for parameter in parameters if parameter.grad is not None)


def optimizer_state(optimizer: torch.optim.Optimizer | None) -> int:
    """Bytes of the tensors that the optimizer keeps; its step counters, single numbers, are left out."""
    if optimizer is None:
        return 0
    kept = (value for state in optimizer.state.values() for value in state.values())
    return _bytes(value for value in kept if isinstance(value, Tensor) and value.dim())


class SavedForBackward:
    """Counts what autograd keeps while it watches: `bytes`, once a step has run inside."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self._modules = modules
        self._storages: dict[int, int] = {}
        self._kept: list[Tensor] = []

    @property
    def bytes(self) -> int:
        own = {
            _local(p).untyped_storage().data_ptr() for module in self._modules for p in module.parameters()
        }
        return sum(size for address, size in self._storages.items() if address not in own)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Everything saved inside counts; storages are held on to meanwhile, so that none is counted twice."""
        with torch.autograd.graph.saved_tensors_hooks(self._pack, lambda kept: kept):
            yield
        self._kept.clear()

    def _pack(self, tensor: Tensor) -> Tensor:
        storage = _local(tensor).untyped_storage()
        self._storages[storage.data_ptr()] = storage.nbytes()
        self._kept.append(tensor)
        return tensor


def forget_peak(device: torch.device) -> None:
    """Begin to look for the highest point anew."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif sys.platform == "linux":
        Path("/proc/self/clear_refs").write_text("5")  # proc(5): resets VmHWM


def peak(device: torch.device) -> int:
    """The most bytes held since `forget_peak`: of tensors on a GPU, of the whole process on a CPU."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    if sys.platform != "linux":
        raise CannotSee(f"the peak of a process is read from /proc, and this is {sys.platform}")
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise CannotSee("this kernel's /proc/self/status has no VmHWM")


def _bytes(tensors: Iterable[Any]) -> int:
    storages = [_local(tensor).untyped_storage() for tensor in tensors]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def _local(tensor: Any) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
