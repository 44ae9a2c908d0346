"""What the meter says about a program that ran: calls, wires, prediction, guess; and what it could not see."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from calculators.lab.foreign import expected, families, wires
from calculators.lab.foreign.expected import Expected, GroupCalls
from calculators.lab.foreign.families import Guess
from calculators.lab.foreign.launching import Ran
from calculators.lab.foreign.records import RECEIVE, Record
from calculators.lab.foreign.wires import Wires

NO_RANKS = (
    "No ranks were found: no process of the program called torch.distributed.init_process_group. The meter looks in "
    "every Python process that the program starts, but not in one started with -I, -E or -S, nor in a container or "
    "on another machine that does not see this environment."
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Metered:
    """One set of ranks that spoke to each other."""

    records: tuple[Record, ...]
    world_size: int
    groups: tuple[GroupCalls, ...]
    guesses: tuple[Guess, ...]
    wires: Wires
    expected: Expected
    notes: tuple[str, ...]

    @property
    def unexplained(self) -> Any:
        """Measured less everything that is predicted, rank × rank [bytes]."""
        said = self.expected
        return self.wires.between_ranks - said.formula - said.backend - said.framing - self.wires.opening


def metered(ran: Ran) -> list[Metered]:
    """Each set of ranks: programs that start their ranks again, or twice, have more than one."""
    found = []
    for records in _sets(ran.records):
        world_size = max(max(record.world_size, record.rank + 1) for record in records)
        groups = tuple(expected.by_group(records))
        found.append(
            Metered(
                records=records,
                world_size=world_size,
                groups=groups,
                guesses=tuple(map(families.guess, groups)),
                wires=wires.join(records),
                expected=expected.expect(groups, world_size),
                notes=tuple(_notes(records, world_size, groups, ended=ran.ended)),
            )
        )
    return found


def _sets(records: Sequence[Record]) -> Iterator[tuple[Record, ...]]:
    """The first process of each rank, then the second of each, and so on."""
    by_rank: defaultdict[int, list[Record]] = defaultdict(list)
    for record in records:
        by_rank[record.rank].append(record)
    for index in range(max(map(len, by_rank.values()), default=0)):
        yield tuple(mine[index] for _, mine in sorted(by_rank.items()) if index < len(mine))


def _notes(
    records: Sequence[Record], world_size: int, groups: Sequence[GroupCalls], *, ended: float
) -> Iterator[str]:
    missing = sorted(set(range(world_size)) - {record.rank for record in records})
    if missing:
        yield (
            f"Nothing was heard of {_ranks(missing)} of {world_size}: they ended before they had joined, or ran where "
            "the meter does not reach."
        )
    for record in records:
        if not record.is_final:
            yield (
                f"Rank {record.rank} ended without a last word (killed, or crashed below Python). Its numbers are "
                f"from its last look, {max(0.0, ended - record.written):.1f} s before the program ended."
            )
        if record.left_out:
            yield (
                f"Rank {record.rank} made {record.left_out} calls beyond the number of different ones that are "
                "told apart; they are in no figure but the wire's."
            )
        yield from (f"Rank {record.rank}: {note}." for note in record.notes)
        known = {(one.world, one.name) for one in record.groups}
        strangers = sum(call.times for call in record.calls if (call.world, call.group) not in known)
        if strangers:
            yield (
                f"Rank {record.rank} made {strangers} calls on groups that torch.distributed does not list; they are "
                "in no figure but the wire's."
            )
    backends = {backend for one in groups for backend in one.group.backends.values()} - {"gloo"}
    if backends:
        yield (
            f"{', '.join(sorted(backends))} may move bytes over NVLink, PCIe, shared memory or InfiniBand, where no "
            "TCP counter sees them."
        )


def as_dict(ran: Ran) -> dict[str, Any]:
    """Everything, for JSON; matrices are lists of rows, sender by receiver [bytes]."""
    return {
        "command": list(ran.command),
        "exit_code": ran.exit_code,
        "seconds": ran.seconds,
        "note": None if ran.records else NO_RANKS,
        "rank_sets": [_set_as_dict(one) for one in metered(ran)],
    }


def _set_as_dict(one: Metered) -> dict[str, Any]:
    return {
        "world_size": one.world_size,
        "ranks": [
            {
                "rank": record.rank,
                "pid": record.pid,
                "host": record.host,
                "is_complete": record.is_final,
                "backward_passes": record.backward_passes,
                "elsewhere_bytes": one.wires.elsewhere[record.rank],
            }
            for record in one.records
        ],
        "groups": [
            {
                **asdict(group.group),
                "size": group.size,
                "family": guess.family,
                "reason": guess.reason,
                "calls": [
                    {"rank": rank, "kind": kind, "calls": calls, "handed_bytes": handed}
                    for rank, kind, calls, handed in _by_rank_and_kind(group)
                ],
            }
            for group, guess in zip(one.groups, one.guesses, strict=True)
        ],
        "wire": {
            "connections": one.wires.connections,
            "measured": one.wires.between_ranks.tolist(),
            "formula": one.expected.formula.tolist(),
            "backend": one.expected.backend.tolist(),
            "framing": one.expected.framing.tolist(),
            "opening": one.wires.opening.tolist(),
            "unexplained": one.unexplained.tolist(),
            "store": one.wires.store.tolist(),
            "not_predicted": list(one.expected.left_out),
        },
        "notes": list(one.notes),
    }


def _by_rank_and_kind(one: GroupCalls) -> Iterator[tuple[int, str, int, int]]:
    for rank, calls in zip(one.group.ranks, one.calls, strict=True):
        times: Counter[str] = Counter()
        handed: Counter[str] = Counter()
        for call in calls:
            if call.kind == RECEIVE:
                continue
            times[call.kind] += call.times
            handed[call.kind] += call.handed_bytes
        for kind in sorted(times):
            yield rank, kind, times[kind], handed[kind]


def as_text(ran: Ran) -> str:
    """The report for a terminal."""
    lines = [f"Metered: {' '.join(ran.command)} (exit code {ran.exit_code}, {ran.seconds:.1f} s)"]
    if not ran.records:
        return "\n".join([*lines, NO_RANKS])
    sets = metered(ran)
    for number, one in enumerate(sets, 1):
        if len(sets) > 1:
            lines += ["", f"Ranks, set {number} of {len(sets)}:"]
        lines += _set_text(one)
    return "\n".join(lines)


def _set_text(one: Metered) -> Iterator[str]:
    worlds = {group.group.world for group in one.groups}
    for group, guess in zip(one.groups, one.guesses, strict=True):
        rows = list(_by_rank_and_kind(group))
        if group.size == 1 and not rows:
            continue  # an axis of a mesh that has no extent
        named = (
            group.group.description if group.group.description not in ("", "undefined") else group.group.name
        )
        world = f", world {group.group.world}" if len(worlds) > 1 else ""
        backends = "/".join(sorted(set(group.group.backends.values())))
        yield ""
        yield f"Group {named}{world}: {group.size} ranks ({_listed(group.group.ranks)}), {backends}"
        yield f"  {guess.family}: {guess.reason}"
        if rows:
            yield f"  {'rank':>5}  {'call':<15}{'calls':>9}{'handed [B]':>18}"
        yield from (f"  {rank:>5}  {kind:<15}{calls:>9,}{handed:>18,}" for rank, kind, calls, handed in rows)
    told = list(
        dict.fromkeys(g.family for g in one.guesses if g.family not in ("none", families.CANNOT_TELL))
    )
    if len(told) > 1:
        yield ""
        yield f"Together: {' × '.join(told)}."
    yield ""
    if one.wires.between_ranks.any():
        yield "On the wire, all connections between two ranks [B]:"
        yield (
            f"  {'pair':<9}{'measured':>15}{'formula':>15}{'backend':>13}{'framing':>12}{'opening':>9}"
            f"{'unexplained':>13}"
        )
        said, unexplained = one.expected, one.unexplained
        columns = (one.wires.between_ranks, said.formula, said.backend, said.framing, one.wires.opening)
        for sender, receiver in np.ndindex(unexplained.shape):
            if any(matrix[sender, receiver] for matrix in (*columns, unexplained)):
                values = [float(matrix[sender, receiver]) for matrix in (*columns, unexplained)]
                widths = (15, 15, 13, 12, 9, 13)
                cells = "".join(f"{value:>{width},.0f}" for value, width in zip(values, widths, strict=True))
                yield f"  {f'{sender} → {receiver}':<9}{cells}"
    else:
        yield "No bytes went from one rank to another over TCP."
    if one.wires.store.any():
        yield f"Left out: {one.wires.store.sum():,.0f} B of the rendezvous store between ranks."
    if any(one.wires.elsewhere):
        yield (
            f"Left out: {sum(one.wires.elsewhere):,} B on connections whose other end is no rank (a launcher's store, "
            "or anything else the program speaks to)."
        )
    yield from (f"Not predicted: {line}." for line in one.expected.left_out)
    yield from one.notes


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {_listed(ranks)}"


def _listed(ranks: Sequence[int]) -> str:
    """0, 2 and 4 to 7 as `0, 2, 4–7`."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)
