"""The schedules themselves: what each is called, what it does, what it asks for, and where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from calculators.predict.arrays import MOST, said


class Schedule(StrEnum):
    """The order in which the stages of a pipeline do their forward and backward work."""

    NAIVE = "naive"
    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"
    INTERLEAVED = "interleaved"
    ZB_H1 = "zb-h1"
    ZB_H2 = "zb-h2"
    ZBV = "zbv"
    V_HALF = "v-half"
    V_MIN = "v-min"
    DUALPIPE = "dualpipe"
    DUALPIPE_V = "dualpipe-v"


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One schedule in words.

    chunks      that each stage holds by default; None means as many as wanted, from 2
    splits      whether the backward pass is cut into input gradient and weight gradient
    exact_when  the times for which its closed form is exact, as the end of a sentence; stages equal throughout
    idea        what it does, one sentence
    source      where it was published
    """

    schedule: Schedule
    name: str
    chunks: int | None
    splits: bool
    exact_when: str
    idea: str
    source: str


ALWAYS = "for any times"

_KINDS = (
    Kind(
        schedule=Schedule.NAIVE,
        name="Naive",
        chunks=1,
        splits=False,
        exact_when=ALWAYS,
        idea="One micro-batch at a time goes all the way forward and back; one stage works, the others wait.",
        source="Huang 2019, GPipe (arXiv:1811.06965), figure 2b",
    ),
    Kind(
        schedule=Schedule.GPIPE,
        name="GPipe",
        chunks=1,
        splits=False,
        exact_when=ALWAYS,
        idea="All micro-batches go forward, then all of them come back.",
        source="Huang 2019, GPipe (arXiv:1811.06965)",
    ),
    Kind(
        schedule=Schedule.ONE_F_ONE_B,
        name="1F1B",
        chunks=1,
        splits=False,
        exact_when=ALWAYS,
        idea="After a short start each stage does a forward and a backward in turn, so that few micro-batches "
        "are in flight.",
        source="Narayanan 2021 (arXiv:2104.04473) §2.2",
    ),
    Kind(
        schedule=Schedule.INTERLEAVED,
        name="Interleaved 1F1B",
        chunks=None,
        splits=False,
        exact_when="for any times, where messages take none",
        idea="Each stage holds several short runs of layers, so that a micro-batch reaches the last stage sooner.",
        source="Narayanan 2021 (arXiv:2104.04473) §2.2; Megatron-LM schedules.py",
    ),
    Kind(
        schedule=Schedule.ZB_H1,
        name="ZB-H1",
        chunks=1,
        splits=True,
        exact_when="where the weight gradient takes no longer than the forward or the input gradient",
        idea="1F1B whose weight gradients wait until a stage would be idle; memory as 1F1B.",
        source="Qi 2023 (arXiv:2401.10241) table 2",
    ),
    Kind(
        schedule=Schedule.ZB_H2,
        name="ZB-H2",
        chunks=1,
        splits=True,
        exact_when="where the weight gradient takes no longer than the forward or the input gradient",
        idea="ZB-H1 with nearly twice as many micro-batches in flight, which fills the start as well.",
        source="Qi 2023 (arXiv:2401.10241) table 2",
    ),
    Kind(
        schedule=Schedule.ZBV,
        name="ZB-V",
        chunks=2,
        splits=True,
        exact_when="where weight gradient ≤ forward ≤ input gradient",
        idea="Two chunks a stage in the shape of a V: the first stage also holds the last layers, so the way "
        "back starts where it will be waited for.",
        source="Qi 2024 (arXiv:2405.15362); torch ScheduleZBVZeroBubble",
    ),
    Kind(
        schedule=Schedule.V_HALF,
        name="V-Half",
        chunks=2,
        splits=True,
        exact_when="to within one micro-batch’s work, for three equal times",
        idea="A V of two chunks whose steps follow sooner upon one another, for half the activations of 1F1B.",
        source="Qi 2024 (arXiv:2405.15362)",
    ),
    Kind(
        schedule=Schedule.V_MIN,
        name="V-Min",
        chunks=2,
        splits=True,
        exact_when="to within one micro-batch’s work, for three equal times",
        idea="The tightest V of two chunks: a third of the activations of 1F1B.",
        source="Qi 2024 (arXiv:2405.15362)",
    ),
    Kind(
        schedule=Schedule.DUALPIPE,
        name="DualPipe",
        chunks=2,
        splits=True,
        exact_when="where forward and input gradient take equal times and the weight gradient no longer",
        idea="Micro-batches enter at both ends, so every device holds two stages, and the forward of one runs "
        "beside the backward of another.",
        source="DeepSeek-V3 (arXiv:2412.19437); deepseek-ai/DualPipe README",
    ),
    Kind(
        schedule=Schedule.DUALPIPE_V,
        name="DualPipe-V",
        chunks=2,
        splits=True,
        exact_when="where forward and input gradient take equal times and the weight gradient no longer",
        idea="DualPipe cut in half: a V of two chunks on half the devices, without the second copy of the weights.",
        source="deepseek-ai/DualPipe README; torch ScheduleDualPipeV",
    ),
)
SCHEDULES: Mapping[Schedule, Kind] = MappingProxyType({kind.schedule: kind for kind in _KINDS})
_BY_NAME: Mapping[str, Kind] = {kind.schedule: kind for kind in _KINDS}


def kind_of(schedule: Schedule | str) -> Kind:
    """The schedule in words, by its name. Raises ValueError for a name that is not known.

    >>> kind_of("zb-h1").name
    'ZB-H1'
    """
    try:
        return _BY_NAME[schedule]
    except (KeyError, TypeError):
        raise ValueError(
            f"schedule is {schedule!r}, which is not a pipeline schedule known here. Use one of: {', '.join(Schedule)}."
        ) from None


def chunks_of(schedule: Schedule | str, chunks: int | None = None) -> int:
    """Chunks on each stage: what was given, else what the schedule takes by default."""
    if chunks is not None:
        return chunks
    own = kind_of(schedule).chunks
    return 2 if own is None else own


def problems(
    schedule: Schedule | str,
    *,
    stages: int,
    micro_batches: int,
    chunks: int | None = None,
    group: int | None = None,
) -> tuple[str, ...]:
    """Why this schedule cannot run, or not as published, with these sizes; a sentence each, empty if it can.

    group  micro-batches that an interleaved schedule takes through a chunk before the next; the stages by default

    Sources: Megatron-LM schedules.py (the group of the interleaved schedule), torch.distributed.pipelining,
    the assertions of deepseek-ai/DualPipe, arXiv:2401.10241 for the 2p − 1 of ZB-H2. Raises ValueError for an
    unknown schedule.

    >>> problems("zb-h1", stages=8, micro_batches=4)[0]
    'ZB-H1 has 4 micro-batches for 8 stages, so the pipeline is never full. Take 8 or more, or GPipe.'
    """
    return _impossible(schedule, stages, micro_batches, chunks, group) or _unfilled(
        schedule, stages, micro_batches
    )


def check(
    schedule: Schedule | str,
    *,
    stages: int,
    micro_batches: int,
    chunks: int | None = None,
    group: int | None = None,
) -> None:
    """Raises ValueError, with the first of the `problems`, where no order of work exists for these sizes.

    A pipeline that is never full passes: it can be played, and shows why one would not want it.
    """
    found = _impossible(schedule, stages, micro_batches, chunks, group)
    if found:
        raise ValueError(found[0])


def _impossible(
    schedule: Schedule | str, stages: int, micro_batches: int, chunks: int | None, group: int | None
) -> tuple[str, ...]:
    kind = kind_of(schedule)
    v = chunks_of(schedule, chunks)
    sizes = {"stages": stages, "micro_batches": micro_batches, "chunks": v}
    for name, value in (sizes if group is None else {**sizes, "group": group}).items():
        if not isinstance(value, int) or value < 1:
            return (f"{name} is {said(value)}, but a schedule needs a whole number, 1 or more.",)
        if value > MOST:
            return (f"{name} is {said(value)}, but a schedule has at most {MOST:g}.",)
    if kind.chunks is not None and v != kind.chunks:
        has = "one chunk" if kind.chunks == 1 else "two chunks"
        return (
            f"chunks is {v}, but {kind.name} has {has} on each stage. Give {kind.chunks}, or take interleaved 1F1B.",
        )
    if kind.schedule == Schedule.INTERLEAVED:
        return _interleaved_problems(
            stages, micro_batches, v, stages if group is None else group, group is not None
        )
    if group is not None:
        return (f"group is {group}, but only interleaved 1F1B sends groups of micro-batches. Leave it out.",)
    if kind.schedule == Schedule.DUALPIPE and stages % 2:
        nearest = f"{stages - 1} or {stages + 1}" if stages > 1 else "2"
        return (f"DualPipe cannot fold {stages} stages in two equal halves. Take {nearest}.",)
    if kind.schedule == Schedule.DUALPIPE and micro_batches % 2:
        return (
            f"DualPipe has {micro_batches} micro-batches, but half of them enter at each end. "
            f"Take {micro_batches + 1}.",
        )
    if kind.schedule in (Schedule.DUALPIPE, Schedule.DUALPIPE_V) and micro_batches < 2 * stages:
        return (
            f"{kind.name} has {micro_batches} micro-batches for {stages} stages, but its order of work "
            f"needs twice as many as stages. Take {2 * stages} or more.",
        )
    return ()


def _interleaved_problems(p: int, m: int, v: int, group: int, was_given: bool) -> tuple[str, ...]:
    if v < 2:
        return (
            "Interleaved 1F1B has 1 chunk a stage, which is plain 1F1B. Give chunks 2 or more, or take 1F1B.",
        )
    if p < 2:
        return ("Interleaved 1F1B has 1 stage, so there is nothing to interleave. Take 2 or more stages.",)
    if not was_given and m % p:
        below, above = m - m % p, m + p - m % p
        nearest = f"{below} or {above}" if below else f"{above}"
        return (
            f"Interleaved 1F1B has {m} micro-batches in {p} stages, but they go in groups of {p}. "
            f"Nearest that {'work' if below else 'works'}: {nearest}. Megatron also takes larger groups, if at least "
            f"{p} are left over.",
        )
    if not p <= group <= m:
        return (
            f"group is {group}, but it must be at least the {p} stages and at most the {m} micro-batches.",
        )
    if 0 < m % group < p:
        return (
            f"group is {group}, which leaves {m % group} of {m} micro-batches for the last one, fewer than "
            f"the {p} stages, so stages would wait for them. Take a group that leaves 0, or {p} or more.",
        )
    return ()


def _unfilled(schedule: Schedule | str, stages: int, micro_batches: int) -> tuple[str, ...]:
    kind = kind_of(schedule)
    if kind.schedule in (Schedule.ONE_F_ONE_B, Schedule.ZB_H1) and micro_batches < stages:
        refused = ", and PyTorch refuses to start it" if kind.schedule == Schedule.ONE_F_ONE_B else ""
        return (
            f"{kind.name} has {micro_batches} micro-batches for {stages} stages, so the pipeline is never full"
            f"{refused}. Take {stages} or more, or GPipe.",
        )
    if (
        kind.schedule in (Schedule.ZB_H2, Schedule.ZBV, Schedule.V_HALF, Schedule.V_MIN)
        and micro_batches < 2 * stages - 1
    ):
        return (
            f"{kind.name} has {micro_batches} micro-batches for {stages} stages, too few for the bubble "
            f"that was published. Take {2 * stages - 1} or more.",
        )
    return ()
