"""The process groups of a run: one that jobs talk over, counted call by call, and a quiet one for the meters.

`MeteredGroup` stands where PyTorch expects a process group, so every collective and send reaches it: those of
the tensor-parallel and pipelining APIs, of autograd, of C++. It counts what it is handed and passes the call
on. When ranks compute on a GPU but talk through gloo it also stages the tensors through host memory.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from calculators.lab import cores
from calculators.lab.measurements import Doing
from calculators.lab.meters.timeline import Recorder
from calculators.predict.collectives import Kind

BACKEND = "metered"
"""The name under which PyTorch knows groups that count."""
RECEIVE = "receive"
"""How a timeline calls the other end of a send."""


class MeteredGroup(dist.ProcessGroup):
    """A process group that counts calls and handed bytes, then asks `inner` to do the work.

    `calls`, `handed_bytes` and `log`, which says how often each kind was called with how many bytes, only ever
    grow. Handed is what a rank puts in. A receive is the other end of a send and is not counted.

    `axis` is the family whose calls it carries. With `sums_after_all_to_all` a reduce-scatter is made of an
    all-to-all and a sum on each rank, which moves what the formula says on any backend.
    """

    def __init__(self, inner: dist.ProcessGroup, rank: int, size: int, *, staged: bool = False) -> None:
        super().__init__(rank, size)
        self.inner = inner
        self.is_staged = staged
        self.calls = 0
        self.handed_bytes = 0
        self.log: Counter[tuple[str, int]] = Counter()
        self.staging_seconds = 0.0
        self.axis = "dp"
        self.sums_after_all_to_all = False
        self._name = ""

    # Of the collectives, torch's C++ asks for those with these names; its Python for the others as well.

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        return self._in_place(Kind.ALL_REDUCE, self.inner.allreduce, tensors, opts)

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Any:
        return self._in_place(Kind.ALL_REDUCE, self.inner.allreduce_coalesced, tensors, opts)

    def broadcast(self, tensors: Any, opts: Any = None) -> Any:
        return self._in_place(Kind.BROADCAST, self.inner.broadcast, tensors, opts)

    def reduce(self, tensors: Any, opts: Any = None) -> Any:
        return self._in_place("reduce", self.inner.reduce, tensors, opts)

    def allgather(self, outputs: Any, given: Any, opts: Any = None) -> Any:
        return self._into(Kind.ALL_GATHER, self.inner.allgather, outputs, given, opts)

    def allgather_coalesced(self, outputs: Any, given: Any, opts: Any = None) -> Any:
        return self._into(Kind.ALL_GATHER, self.inner.allgather_coalesced, outputs, given, opts)

    def all_gather_single(self, output: Tensor, given: Tensor, opts: Any = None) -> Any:
        return self._into(Kind.ALL_GATHER, self.inner.all_gather_single, output, given, opts)

    def all_gather_single_coalesced(self, outputs: Any, given: Any, opts: Any = None) -> Any:
        return self._into(Kind.ALL_GATHER, self.inner.all_gather_single_coalesced, outputs, given, opts)

    def gather(self, outputs: Any, given: Any, opts: Any = None) -> Any:
        return self._into("gather", self.inner.gather, outputs, given, opts)

    def scatter(self, outputs: Any, given: Any, opts: Any = None) -> Any:
        return self._into("scatter", self.inner.scatter, outputs, given, opts)

    def reduce_scatter(self, outputs: Any, given: Any, opts: Any = None) -> Any:
        return self._into(Kind.REDUCE_SCATTER, self.inner.reduce_scatter, outputs, given, opts)

    def reduce_scatter_single(self, output: Tensor, given: Tensor, opts: Any = None) -> Any:
        call = self._all_to_all_and_sum if self.sums_after_all_to_all else self.inner.reduce_scatter_single
        return self._into(Kind.REDUCE_SCATTER, call, output, given, opts)

    def reduce_scatter_single_coalesced(self, outputs: Any, given: Any, opts: Any = None) -> Any:
        return self._into(
            Kind.REDUCE_SCATTER, self.inner.reduce_scatter_single_coalesced, outputs, given, opts
        )

    def all_to_all_single(
        self, output: Tensor, given: Tensor, taken: list[int], sent: list[int], opts: Any = None
    ) -> Any:
        def call(output: Tensor, given: Tensor, *more: Any) -> Any:
            return self.inner.all_to_all_single(output, given, taken, sent, *more)

        return self._into(Kind.ALL_TO_ALL, call, output, given, opts)

    def alltoall(self, outputs: Any, given: Any, opts: Any = None) -> Any:
        return self._into(Kind.ALL_TO_ALL, self.inner.alltoall, outputs, given, opts)

    def send(self, tensors: Any, destination: int, tag: int = 0) -> Any:
        tensors = _listed(tensors)
        self._count(Kind.SEND, tensors)
        if not self.is_staged:
            return self._watched(Kind.SEND, self.inner.send(tensors, destination, tag))
        host = self._to_host(tensors)
        return self._watched(Kind.SEND, StagedWork(self, self.inner.send(host, destination, tag), [], host))

    def recv(self, tensors: Any, source: int, tag: int = 0) -> Any:
        return self._receive(self.inner.recv, tensors, source, tag)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Any:
        return self._receive(self.inner.recv_anysource, tensors, tag)

    def barrier(self, opts: Any = None) -> Any:
        self._count("barrier", [])
        return self.inner.barrier() if opts is None else self.inner.barrier(opts)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        self._count("barrier", [])
        self.inner.monitored_barrier(timeout or timedelta(milliseconds=-1), wait_all_ranks)

    def _in_place(self, kind: str, call: Callable[..., Any], tensors: Any, opts: Any) -> Any:
        tensors = _listed(tensors)
        self._count(kind, tensors)
        more = () if opts is None else (opts,)
        if not self.is_staged:
            return self._watched(kind, call(tensors, *more))
        host = self._to_host(tensors)
        return self._watched(kind, StagedWork(self, call(host, *more), tensors, host))

    def _into(self, kind: str, call: Callable[..., Any], output: Any, given: Any, opts: Any) -> Any:
        """A call with tensors of their own for the result, which are handed nothing and not counted.

        `output` and `given` are a tensor, a list of tensors, or a list of lists of them.
        """
        self._count(kind, _flat(given))
        more = () if opts is None else (opts,)
        if not self.is_staged:
            return self._watched(kind, call(output, given, *more))
        result = _mapped(lambda tensor: torch.empty(tensor.shape, dtype=tensor.dtype), output)
        work = call(result, self._to_host(given), *more)
        return self._watched(kind, StagedWork(self, work, _flat(output), _flat(result)))

    def _receive(self, call: Callable[..., Any], tensors: Any, *of: int) -> Any:
        tensors = _listed(tensors)
        if not self.is_staged:
            return self._watched(RECEIVE, call(tensors, *of))
        host = [torch.empty(t.shape, dtype=t.dtype) for t in tensors]
        return self._watched(RECEIVE, StagedWork(self, call(host, *of), tensors, host))

    def _count(self, kind: str, tensors: Sequence[Tensor]) -> None:
        handed = sum(tensor.nbytes for tensor in tensors)
        self.calls += 1
        self.handed_bytes += handed
        self.log[str(kind), handed] += 1

    def _watched(self, kind: str, work: Any) -> Any:
        """The same work, whose wait a recorder notes where one watches."""
        return work if _recorder is None else WatchedWork(_recorder, f"{self.axis} {kind}", work)

    def _all_to_all_and_sum(self, output: Tensor, given: Tensor, *more: Any) -> Any:
        parts = torch.empty_like(given)
        sent = self.inner.all_to_all_single(parts, given, [], [])
        return SummedWork(sent, output, parts.view(self.size(), -1))

    def _to_host(self, given: Any) -> Any:
        started = time.perf_counter()
        host = _mapped(lambda tensor: tensor.detach().to("cpu", copy=True), given)
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

    def _source_rank(self) -> int:
        return int(self._inner._source_rank())


class WatchedWork(dist.Work):
    """A call whose wait is noted: a receive leaves its rank idle, any other call leaves it waiting."""

    def __init__(self, recorder: Recorder, what: str, inner: Any) -> None:
        super().__init__()
        self._recorder, self._what, self._inner = recorder, what, inner
        self._doing = Doing.IDLE if what.endswith(RECEIVE) else Doing.WAITING

    def wait(self, timeout: timedelta | None = None) -> bool:
        with self._recorder.wait(self._doing, self._what):
            return bool(self._inner.wait() if timeout is None else self._inner.wait(timeout))

    def is_completed(self) -> bool:
        return bool(self._inner.is_completed())

    def get_future(self) -> Any:
        """What DistributedDataParallel waits for itself, in C++, when all gradients are there.

        It does so in a callback at the end of the backward pass. One queued here comes first, and its wait is noted.
        """
        with suppress(RuntimeError):  # nothing is queued outside of a backward pass
            torch.autograd.Variable._execution_engine.queue_callback(self.wait)
        return self._inner.get_future()

    def _source_rank(self) -> int:
        return int(self._inner._source_rank())


class SummedWork(dist.Work):
    """An all-to-all whose parts, one from each rank, are summed when it has been waited for."""

    def __init__(self, inner: Any, output: Tensor, parts: Tensor) -> None:
        super().__init__()
        self._inner, self._output, self._parts = inner, output, parts
        self._is_summed = False

    def wait(self, timeout: timedelta | None = None) -> bool:
        self._inner.wait() if timeout is None else self._inner.wait(timeout)
        if not self._is_summed:
            torch.sum(self._parts, dim=0, out=self._output.detach().view(-1))
            self._is_summed = True
        return True

    def is_completed(self) -> bool:
        return bool(self._inner.is_completed())


_recorder: Recorder | None = None


def watch(recorder: Recorder | None) -> None:
    """Have `recorder` note the waits of every metered group of this process; None: nobody does."""
    global _recorder
    _recorder = recorder


_made: list[MeteredGroup] = []


def made() -> list[MeteredGroup]:
    """The metered groups of this process's job, the first of them of all ranks."""
    return list(_made)


def join(
    store: dist.Store,
    *,
    rank: int,
    size: int,
    backend: str,
    staged: bool,
    timeout_seconds: float,
    axis: str = "dp",
    sums_after_all_to_all: bool = False,
) -> MeteredGroup:
    """Enter the job's group as PyTorch's default group, over `backend` (gloo or nccl).

    Groups that PyTorch makes from it later are metered, too, and begin with the same `axis` and way to
    reduce-scatter.
    """
    timeout = timedelta(seconds=timeout_seconds)

    def create(store: dist.Store, rank: int, size: int, timeout: timedelta) -> MeteredGroup:
        group = MeteredGroup(bare(store, rank, size, timeout, backend), rank, size, staged=staged)
        group.axis, group.sums_after_all_to_all = axis, sums_after_all_to_all
        _made.append(group)
        return group

    _made.clear()
    if BACKEND.upper() not in dist.Backend._plugins:
        dist.Backend.register_backend(BACKEND, create, devices=["cpu", "cuda"])
    else:  # a second job of one process: PyTorch registers a name once, and would make the first one's groups
        dist.Backend._plugins[BACKEND.upper()] = dist.Backend._BackendPlugin(create, False)
    dist.init_process_group(BACKEND, store=store, rank=rank, world_size=size, timeout=timeout)
    group: MeteredGroup = dist.group.WORLD
    return group


def bare(store: dist.Store, rank: int, size: int, timeout: timedelta, backend: str) -> dist.ProcessGroup:
    """A plain process group over one backend: unlike a bare backend it has every call under every name."""
    group = dist.ProcessGroup(store, rank, size)
    if backend == "nccl":
        kind, bare = dist.ProcessGroup.BackendType.NCCL, on_nccl(store, rank, size, timeout)
    else:
        kind, bare = dist.ProcessGroup.BackendType.GLOO, on_gloo(store, rank, size, timeout)
    group._set_default_backend(kind)
    for device in ("cuda",) if backend == "nccl" else ("cpu", "cuda"):
        group._register_backend(torch.device(device), kind, bare)
    return group


def on_gloo(store: dist.Store, rank: int, size: int, timeout: timedelta) -> Any:
    """A bare gloo group whose sockets have this process's address: loopback, or its emulated host's."""
    options = dist.ProcessGroupGloo._Options()
    options._devices = [_gloo_device(_address)]
    options._timeout = timeout
    return dist.ProcessGroupGloo(store, rank, size, options)


def on_nccl(store: dist.Store, rank: int, size: int, timeout: timedelta) -> Any:
    """A bare NCCL group; each rank has a GPU of its own."""
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timeout
    return dist.ProcessGroupNCCL(store, rank, size, options)


_address = "127.0.0.1"


def talk_from(address: str) -> None:
    """Have every gloo group that this process makes from now on bind `address`."""
    global _address
    _address = address


@cache
def _gloo_device(address: str) -> Any:
    """gloo's device on an address, one for all groups of this process: each has a thread."""
    before = cores.threads()
    device = dist.ProcessGroupGloo.create_device(hostname=address)
    cores.give_way(cores.threads() - before)
    return device


def _listed(tensors: Any) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _flat(nested: Any) -> list[Tensor]:
    """The tensors of a tensor, a list or a list of lists, in order."""
    return [nested] if isinstance(nested, Tensor) else [tensor for part in nested for tensor in _flat(part)]


def _mapped(change: Callable[[Tensor], Tensor], nested: Any) -> Any:
    """The same nesting with each tensor changed."""
    return change(nested) if isinstance(nested, Tensor) else [_mapped(change, part) for part in nested]
