"""The process groups of a run: one that jobs talk over, counted call by call, and a quiet one for the meters.

`MeteredGroup` stands where PyTorch expects a process group, so every collective and send reaches it: those of
the tensor-parallel and pipelining APIs, of autograd, of C++. It counts what it is handed and passes the call
on. When ranks compute on a GPU but talk through gloo it also stages the tensors through host memory.
"""

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

BACKEND = "metered"
"""The name under which PyTorch knows groups that count."""


class MeteredGroup(dist.ProcessGroup):
    """A process group that counts calls and handed bytes, then asks `inner` to do the work.

    `calls` and `handed_bytes` only ever grow. A receive is the other end of a send and is not counted.
    """

    def __init__(self, inner: Any, rank: int, size: int, *, staged: bool = False) -> None:
        super().__init__(rank, size)
        self.inner = inner
        self.is_staged = staged
        self.calls = 0
        self.handed_bytes = 0
        self.staging_seconds = 0.0
        self._name = ""

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        return self._in_place(self.inner.allreduce, tensors, opts)

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Any:
        return self._in_place(self.inner.allreduce_coalesced, tensors, opts)

    def broadcast(self, tensors: Any, opts: Any = None) -> Any:
        return self._in_place(self.inner.broadcast, tensors, opts)

    def all_gather_single(self, output: Tensor, given: Tensor, opts: Any = None) -> Any:
        return self._into(self.inner._allgather_base, output, given, opts)

    def reduce_scatter_single(self, output: Tensor, given: Tensor, opts: Any = None) -> Any:
        return self._into(self.inner._reduce_scatter_base, output, given, opts)

    def all_to_all_single(
        self, output: Tensor, given: Tensor, taken: list[int], sent: list[int], opts: Any = None
    ) -> Any:
        def call(output: Tensor, given: Tensor, *more: Any) -> Any:
            return self.inner.alltoall_base(output, given, taken, sent, *more)

        return self._into(call, output, given, opts)

    def send(self, tensors: Any, destination: int, tag: int = 0) -> Any:
        tensors = _listed(tensors)
        self._count(tensors)
        if not self.is_staged:
            return self.inner.send(tensors, destination, tag)
        host = self._to_host(tensors)
        return StagedWork(self, self.inner.send(host, destination, tag), [], host)

    def recv(self, tensors: Any, source: int, tag: int = 0) -> Any:
        tensors = _listed(tensors)
        if not self.is_staged:
            return self.inner.recv(tensors, source, tag)
        host = [torch.empty(t.shape, dtype=t.dtype) for t in tensors]
        return StagedWork(self, self.inner.recv(host, source, tag), tensors, host)

    def barrier(self, opts: Any = None) -> Any:
        self.calls += 1
        return self.inner.barrier() if opts is None else self.inner.barrier(opts)

    def _in_place(self, call: Callable[..., Any], tensors: Any, opts: Any) -> Any:
        tensors = _listed(tensors)
        self._count(tensors)
        more = () if opts is None else (opts,)
        if not self.is_staged:
            return call(tensors, *more)
        host = self._to_host(tensors)
        return StagedWork(self, call(host, *more), tensors, host)

    def _into(self, call: Callable[..., Any], output: Tensor, given: Tensor, opts: Any) -> Any:
        """A call with a tensor of its own for the result, which is handed nothing and not counted."""
        self._count([given])
        more = () if opts is None else (opts,)
        if not self.is_staged:
            return call(output, given, *more)
        result = torch.empty(output.shape, dtype=output.dtype)
        return StagedWork(self, call(result, *self._to_host([given]), *more), [output], [result])

    def _count(self, tensors: Sequence[Tensor]) -> None:
        self.calls += 1
        for tensor in tensors:
            self.handed_bytes += tensor.nbytes

    def _to_host(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        started = time.perf_counter()
        host = [tensor.detach().to("cpu", copy=True) for tensor in tensors]
        self.staging_seconds += time.perf_counter() - started
        return host

    # What PyTorch asks of a group that is written in Python.

    def _set_group_name(self, name: str) -> None:
        self._name = name

    @property
    def group_name(self) -> str:
        return self._name

    def getBackendName(self) -> str:
        return BACKEND


class StagedWork(dist.Work):
    """A call on host copies; waiting for it brings the results back to the device."""

    def __init__(self, group: MeteredGroup, inner: Any, device: list[Tensor], host: list[Tensor]) -> None:
        super().__init__()
        self._group, self._inner, self._device, self._host = group, inner, device, host

    def wait(self, timeout: timedelta | None = None) -> bool:
        self._inner.wait() if timeout is None else self._inner.wait(timeout)
        started = time.perf_counter()
        for tensor, copy in zip(self._device, self._host, strict=False):
            tensor.detach().copy_(copy)  # a pipeline receives into leaves that require gradients
        self._group.staging_seconds += time.perf_counter() - started
        self._device = []  # waiting twice copies once
        return True

    def is_completed(self) -> bool:
        return bool(self._inner.is_completed())


def join(
    store: dist.Store, *, rank: int, size: int, backend: str, staged: bool, timeout_seconds: float
) -> MeteredGroup:
    """Enter the job's group as PyTorch's default group, over `backend` (gloo or nccl)."""
    timeout = timedelta(seconds=timeout_seconds)

    def create(store: dist.Store, rank: int, size: int, timeout: timedelta) -> MeteredGroup:
        inner = (on_nccl if backend == "nccl" else on_gloo)(store, rank, size, timeout)
        return MeteredGroup(inner, rank, size, staged=staged)

    if BACKEND.upper() not in dist.Backend._plugins:
        dist.Backend.register_backend(BACKEND, create, devices=["cpu", "cuda"])
    dist.init_process_group(BACKEND, store=store, rank=rank, world_size=size, timeout=timeout)
    group: MeteredGroup = dist.group.WORLD
    return group


def on_gloo(store: dist.Store, rank: int, size: int, timeout: timedelta) -> Any:
    """A bare gloo group whose sockets stay on this machine's loopback address."""
    options = dist.ProcessGroupGloo._Options()
    options._devices = [_loopback()]
    options._timeout = timeout
    return dist.ProcessGroupGloo(store, rank, size, options)


def on_nccl(store: dist.Store, rank: int, size: int, timeout: timedelta) -> Any:
    """A bare NCCL group; each rank has a GPU of its own."""
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timeout
    return dist.ProcessGroupNCCL(store, rank, size, options)


@cache
def _loopback() -> Any:
    """gloo's device on the loopback address, one for all groups of this process: each has a thread."""
    return dist.ProcessGroupGloo.create_device(hostname="127.0.0.1")


def _listed(tensors: Any) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)
