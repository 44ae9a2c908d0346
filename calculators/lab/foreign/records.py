"""What one process of a metered program has to say: its groups, its calls and its sockets, as a file of JSON."""

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

SUFFIX = ".record.json"
BARRIER, GATHER, REDUCE, SCATTER, RECEIVE = "barrier", "gather", "reduce", "scatter", "receive"
"""Kinds of call that `predict.collectives.Kind` does not know. A receive is the other end of a send: it hands nothing
over and is in no table, but who begins with one waits for somebody."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """One process group as one of its ranks sees it; `world` counts the process's `init_process_group`s."""

    world: int
    name: str
    description: str
    ranks: tuple[int, ...]
    backends: dict[str, str]
    """By device."""


@dataclass(frozen=True, kw_only=True)
class Called:
    """Calls that were alike: how often, and what this rank handed them together [bytes].

    `sizes` are the tensors of one call [bytes]; calls whose parts differ are kept together, with no sizes, and
    `parts` then says what went to each rank of the group in all of them. `peer` is the receiver of a send and the
    root of a call that has one, counted within the group.
    """

    world: int
    group: str
    kind: str
    function: str
    device: str
    in_backward: bool
    sizes: tuple[int, ...]
    element_bytes: int
    peer: int | None
    times: int
    handed_bytes: int
    parts: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Socket:
    """One end of a TCP connection: its two addresses, who opened it, and what went out and came in [bytes]."""

    local: tuple[str, int]
    remote: tuple[str, int]
    opened_here: bool
    sent: int
    received: int


@dataclass(frozen=True, kw_only=True)
class Record:
    """All that one process knew when it wrote this, at `written` [s since 1970]."""

    rank: int
    world_size: int
    pid: int
    host: str
    started: float
    written: float
    is_final: bool
    worlds: int
    backward_passes: int
    left_out: int
    """Calls that were counted in no line of `calls`, because there would have been too many lines."""
    store_ports: tuple[int, ...]
    groups: tuple[Group, ...]
    calls: tuple[Called, ...]
    """In the order in which each was first made."""
    sockets: tuple[Socket, ...]
    notes: tuple[str, ...] = field(default=())

    def write(self, folder: Path) -> None:
        """Put it where the parent finds it, whole or not at all."""
        whole = folder / f"{self.host}-{self.pid}{SUFFIX}"
        partial = whole.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(self)))
        os.replace(partial, whole)

    @classmethod
    def read(cls, path: Path) -> Self:
        """One record, as it was written."""
        said: dict[str, Any] = json.loads(path.read_text())
        groups = tuple(Group(**{**one, "ranks": tuple(one["ranks"])}) for one in said.pop("groups"))
        calls = tuple(
            Called(
                **{
                    **one,
                    "sizes": tuple(one["sizes"]),
                    "parts": None if one["parts"] is None else tuple(one["parts"]),
                }
            )
            for one in said.pop("calls")
        )
        sockets = tuple(
            Socket(**{**one, "local": _address(one["local"]), "remote": _address(one["remote"])})
            for one in said.pop("sockets")
        )
        ports, notes = tuple(said.pop("store_ports")), tuple(said.pop("notes"))
        return cls(**said, store_ports=ports, notes=notes, groups=groups, calls=calls, sockets=sockets)


def _address(said: list[Any]) -> tuple[str, int]:
    return str(said[0]), int(said[1])


def read_all(folder: Path) -> list[Record]:
    """Every record in `folder`, the earliest process first."""
    return sorted(map(Record.read, folder.glob(f"*{SUFFIX}")), key=lambda record: record.started)
