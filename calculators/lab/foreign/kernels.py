"""Sees every call of every process group, on its way through PyTorch's dispatcher.

A process group's methods, whoever calls them (Python, C++, autograd, DDP's reducer, functional collectives), reach its
backend through an operator of the `c10d` namespace. A kernel in front of the backends' own notes the call and passes
it on, so groups, backends, names, options, splits and work objects stay exactly the program's own.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from calculators.lab.foreign.records import BARRIER, GATHER, RECEIVE, REDUCE, SCATTER
from calculators.predict.collectives import Kind


class Handed(NamedTuple):
    """What one call was given: its group, its tensors' bytes, and who else it is about."""

    sizes: tuple[int, ...]
    element_bytes: int
    device: str
    peer: int | None = None
    parts: tuple[int, ...] | None = None

    @classmethod
    def tensors(cls, nested: Any, *, peer: int | None = None) -> "Handed":
        flat = _flat(nested)
        if not flat:
            return cls((), 1, "cpu", peer)
        sizes = tuple(tensor.nbytes for tensor in flat)
        return cls(sizes, flat[0].element_size(), flat[0].device.type, peer)


class Operator(NamedTuple):
    """One operator: the kind of call, where in its arguments the group stands, and what it is handed."""

    kind: str
    group_at: int
    read: Callable[[tuple[Any, ...]], Handed]


def _first(given: tuple[Any, ...]) -> Handed:
    return Handed.tensors(given[0])


def _second(given: tuple[Any, ...]) -> Handed:
    return Handed.tensors(given[1])


def _nothing(given: tuple[Any, ...]) -> Handed:
    return Handed((), 1, given[0].device.type)


def _sent(given: tuple[Any, ...]) -> Handed:
    return Handed.tensors(given[0], peer=given[2])


def _all_to_all_parts(given: tuple[Any, ...]) -> Handed:
    handed, rows = given[1], given[4]
    if not rows or len(set(rows)) == 1:
        return Handed.tensors(handed)
    row = handed.nbytes // max(1, handed.shape[0])
    parts = tuple(count * row for count in rows)
    return Handed((), handed.element_size(), handed.device.type, parts=parts)


def _all_to_all_list(given: tuple[Any, ...]) -> Handed:
    parts, first = tuple(tensor.nbytes for tensor in given[1]), given[1][0]
    if len(set(parts)) == 1:
        return Handed((sum(parts),), first.element_size(), first.device.type)
    return Handed((), first.element_size(), first.device.type, parts=parts)


OPERATORS = {
    "allreduce_": Operator(Kind.ALL_REDUCE, 1, _first),
    "allreduce_coalesced_": Operator(Kind.ALL_REDUCE, 1, _first),
    "broadcast_": Operator(Kind.BROADCAST, 1, lambda given: Handed.tensors(given[0], peer=given[2])),
    "reduce_": Operator(REDUCE, 1, lambda given: Handed.tensors(given[0], peer=given[3])),
    "allgather_": Operator(Kind.ALL_GATHER, 2, _second),
    "_allgather_base_": Operator(Kind.ALL_GATHER, 2, _second),
    "allgather_coalesced_": Operator(Kind.ALL_GATHER, 2, _second),
    "allgather_into_tensor_coalesced_": Operator(Kind.ALL_GATHER, 2, _second),
    "reduce_scatter_": Operator(Kind.REDUCE_SCATTER, 2, _second),
    "_reduce_scatter_base_": Operator(Kind.REDUCE_SCATTER, 2, _second),
    "reduce_scatter_tensor_coalesced_": Operator(Kind.REDUCE_SCATTER, 2, _second),
    "alltoall_": Operator(Kind.ALL_TO_ALL, 2, _all_to_all_list),
    "alltoall_base_": Operator(Kind.ALL_TO_ALL, 2, _all_to_all_parts),
    "gather_": Operator(GATHER, 2, lambda given: Handed.tensors(given[1], peer=given[3])),
    "scatter_": Operator(SCATTER, 2, lambda given: Handed.tensors(given[1], peer=given[3])),
    "send": Operator(Kind.SEND, 1, _sent),
    "recv_": Operator(RECEIVE, 1, lambda given: Handed((), 1, given[0][0].device.type, peer=given[2])),
    "recv_any_source_": Operator(RECEIVE, 1, lambda given: Handed((), 1, given[0][0].device.type)),
    "barrier": Operator(BARRIER, 1, _nothing),
    "monitored_barrier_": Operator(BARRIER, 1, _nothing),
}

_kept: list[Any] = []  # a library's kernels last as long as it does


def install(recorder: Any) -> None:
    """Stand in front of every operator that this PyTorch has, whatever the device.

    BackendSelect is the last stop of the dispatcher before the backends, and, unlike autograd's, never skipped.
    """
    library = torch.library.Library("c10d", "IMPL")
    _kept.append(library)
    rest = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)
    for name, operator in OPERATORS.items():
        overloads = getattr(torch.ops.c10d, name, None)
        if overloads is not None:
            kernel = _in_front(overloads.default, name, operator, rest, recorder)
            library.impl(name, kernel, "BackendSelect", with_keyset=True)


def _in_front(overload: Any, name: str, operator: Operator, rest: Any, recorder: Any) -> Callable[..., Any]:
    kind, at, read = str(operator.kind), operator.group_at, operator.read
    onward = overload._handle.redispatch_boxed

    def kernel(keys: Any, *given: Any) -> Any:
        try:
            recorder.note(given[at], kind, name, read(given))
        except Exception as error:
            recorder.trouble(f"a call of {name} was not counted: {type(error).__name__}: {error}")
        # Lets go of Python's lock, as a kernel's own call_boxed does not: gloo's threads need it to end a call.
        return onward(keys & rest, *given)

    return kernel


def _flat(nested: Any) -> list[Any]:
    if isinstance(nested, torch.Tensor):
        return [nested]
    return [tensor for part in nested for tensor in _flat(part)]
