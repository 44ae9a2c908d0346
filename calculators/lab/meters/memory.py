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
from calculators.lab.splits.memory import GRADIENTS as GRADIENTS
from calculators.lab.splits.memory import OPTIMIZER as OPTIMIZER
from calculators.lab.splits.memory import PEAK as PEAK
from calculators.lab.splits.memory import SAVED as SAVED
from calculators.lab.splits.memory import WEIGHTS as WEIGHTS


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
    """Counts what autograd keeps while it watches. `bytes` is the most that it kept at one moment.

    A storage counts from when its first tensor is saved until autograd lets go of the last one, so micro-batches
    that never are in flight together are not added up. Nothing lives longer because it is watched.
    """

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self._modules = modules
        self._holders: dict[int, int] = {}
        self._now = 0
        self.bytes = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Everything saved inside counts."""
        with torch.autograd.graph.saved_tensors_hooks(self._pack, _Saved.tensor):
            yield

    def _pack(self, tensor: Tensor) -> "_Saved":
        storage = _storage(tensor)
        if storage.data_ptr() in self._of_parameters():
            return _Saved(tensor)
        address, size = storage.data_ptr(), storage.nbytes()
        holders = self._holders.get(address, 0)
        self._holders[address] = holders + 1
        if not holders:
            self._now += size
            self.bytes = max(self.bytes, self._now)
        return _Saved(tensor, self, address, size)

    def _of_parameters(self) -> set[int]:
        """Looked up at every tensor, since sharded parameters are whole for a while only."""
        return {_storage(p).data_ptr() for module in self._modules for p in module.parameters()}

    def let_go(self, address: int, size: int) -> None:
        """One saved tensor of this storage is no longer kept."""
        self._holders[address] -= 1
        if not self._holders[address]:
            del self._holders[address]
            self._now -= size


class _Saved:
    """One saved tensor in autograd's keeping; it dies when autograd has no more use for it."""

    def __init__(
        self, tensor: Tensor, meter: SavedForBackward | None = None, address: int = 0, size: int = 0
    ) -> None:
        self._tensor, self._meter, self._address, self._size = tensor, meter, address, size

    def tensor(self) -> Tensor:
        return self._tensor

    def __del__(self) -> None:
        if self._meter is not None:
            self._meter.let_go(self._address, self._size)


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
    storages = [_storage(tensor) for tensor in tensors]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def _storage(tensor: Any) -> torch.UntypedStorage:
    """What lies behind a tensor on this rank; a DTensor's own view of it would cost a tenth of a millisecond."""
    local: Tensor = tensor._local_tensor if isinstance(tensor, DTensor) else tensor
    return local.untyped_storage()
