"""Pipeline parallelism: every rank is one stage of consecutive layers, or several; hidden states cross boundaries."""

from collections.abc import Iterable, Iterator

from calculators.lab.calls import Call
from calculators.lab.choices import Schedule
from calculators.lab.measurements import Prediction
from calculators.lab.problems import Problem, must_divide
from calculators.lab.spec import Spec
from calculators.lab.splits import in_flight
from calculators.lab.splits.stages import crossings, stages_of

# What the first stage follows through the measured steps of a decoding pipeline.
LATENCY = "seconds from one token of a request to its next"
THROUGHPUT = "tokens per second of all requests"

_IN_ROUNDS = (Schedule.INTERLEAVED, Schedule.INTERLEAVED_ZERO_BUBBLE)


def contradictions(spec: Spec) -> Iterator[Problem]:
    """Stages of equal depth (rule R4), micro-batches of equal size, and as many as the schedule needs."""
    yield from _chunks(spec)
    yield from equal_stages(spec, spec.ranks, spec.chunks)
    yield from equal_microbatches(spec, spec.batch)
    yield from enough_microbatches(spec, spec.ranks)


def _chunks(spec: Spec) -> Iterator[Problem]:
    """A schedule of several stages a rank has them, and another has not."""
    given = f"chunks is {spec.chunks}, but the schedule “{spec.schedule}”"
    if not spec.schedule.has_chunks and spec.chunks != 1:
        others = ", ".join(f"“{schedule}”" for schedule in Schedule if schedule.has_chunks)
        yield Problem(
            "chunks", f"{given} gives each rank one stage. Leave it at 1, or take a schedule of {others}."
        )
    elif spec.schedule is Schedule.ZBV and spec.chunks != 2:
        yield Problem(
            "chunks",
            f"{given} runs down all ranks and back up, so each holds two stages. Take 2, or another schedule.",
        )
    elif spec.schedule.has_chunks and spec.chunks < 2:
        yield Problem(
            "chunks",
            f"{given} gives each rank several stages. Take 2 or more, or the schedule “{Schedule.ONE_F_ONE_B}”.",
        )


def equal_stages(spec: Spec, ranks: int, chunks: int = 1) -> Iterator[Problem]:
    """Layers that cannot be dealt to `chunks` stages on each of `ranks`."""
    each = "Each rank is one stage" if chunks == 1 else f"Each of {ranks} ranks holds {chunks} stages"
    yield from must_divide(
        "layers",
        spec.layers,
        ranks * chunks,
        f"{spec.layers} layers cannot be dealt to {ranks * chunks} stages evenly. "
        f"{each} of the same number of layers here (rule R4).",
        "ranks" if chunks == 1 else "ranks or chunks",
    )


def equal_microbatches(spec: Spec, sequences: int) -> Iterator[Problem]:
    """Sequences that cannot be cut into micro-batches or, in decode, dealt to requests."""
    if spec.is_decode:
        sentence = (
            f"{sequences} sequences cannot be dealt to {spec.microbatches} requests in flight evenly. "
            "Every request holds the same number of sequences."
        )
    else:
        sentence = (
            f"A batch of {sequences} sequences cannot be cut into {spec.microbatches} equal micro-batches. "
            "Every micro-batch holds the same number of sequences."
        )
    yield from must_divide(
        "batch",
        sequences,
        spec.microbatches,
        sentence,
        "requests" if spec.is_decode else "micro-batches",
    )


def enough_microbatches(spec: Spec, ranks: int) -> Iterator[Problem]:
    """What the schedule asks of the number of micro-batches on `ranks`: what PyTorch's own classes refuse."""
    given = f"microbatches is {spec.microbatches}, but the"
    if spec.is_training and spec.schedule is Schedule.ONE_F_ONE_B and spec.microbatches < ranks:
        yield Problem(
            "microbatches",
            f"{given} 1F1B schedule needs at least one for each of the {ranks} stages. "
            f"Take {ranks} or more, or the GPipe schedule.",
        )
    if spec.schedule in _IN_ROUNDS and not _has_whole_rounds(spec.microbatches, ranks):
        rounds = spec.microbatches // ranks
        nearest = [number for number in (_next(spec.microbatches, ranks, step) for step in (-1, 1)) if number]
        yield Problem(
            "microbatches",
            f"{given} schedule “{spec.schedule}” works through them in {rounds} equal rounds, one for every "
            f"{ranks} ranks' worth. Take {' or '.join(map(str, nearest))}, or another schedule.",
        )


def _has_whole_rounds(microbatches: int, ranks: int) -> bool:
    # torch 2.13, schedules.py: number_of_rounds = max(1, n_microbatches // pp_group_size), and it must divide them.
    return microbatches % max(1, microbatches // ranks) == 0


def _next(microbatches: int, ranks: int, step: int) -> int:
    """The nearest number in one direction that makes whole rounds."""
    while not _has_whole_rounds(microbatches, ranks):
        microbatches += step
    return microbatches


def calls(spec: Spec) -> Iterator[Call]:
    """A send at each boundary and micro-batch, its gradient back in training, token ids home in decode."""
    return crossings(spec, stages_of(spec), place=lambda rank: rank, sequences=spec.batch)


def layers_by_rank(spec: Spec) -> tuple[tuple[int, ...], ...]:
    """Whole layers, those of its stages on each rank."""
    stages = stages_of(spec)
    return tuple(stages.layers_on(rank) for rank in range(spec.ranks))


def memory(spec: Spec) -> Iterable[Prediction]:
    """In training: the states of a rank's stages, and what the micro-batches in flight there keep."""
    if not spec.is_training:
        return
    stages = stages_of(spec)
    for rank in range(spec.ranks):
        yield from in_flight.predictions(spec, stages, rank, place=rank, sequences=spec.batch)
