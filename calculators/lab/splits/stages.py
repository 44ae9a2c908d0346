"""Which rank holds which stages of a pipeline, which layers each stage has, and what crosses between them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from calculators.lab.calls import Call
from calculators.lab.choices import Schedule
from calculators.lab.spec import Spec
from calculators.predict.collectives import Kind
from calculators.predict.traffic import TOKEN_ID_BYTES


@dataclass(frozen=True, kw_only=True)
class Stages:
    """Equal stages of `layers`, `chunks` of them on each of `ranks`: dealt around, or as a V down and back up.

    Rank r holds stages r, r + ranks, r + 2·ranks … or, in a V, stages r and 2·ranks − 1 − r.
    """

    layers: int
    ranks: int
    chunks: int = 1
    is_v: bool = False

    @property
    def number(self) -> int:
        """How many stages there are."""
        return self.ranks * self.chunks

    @property
    def last(self) -> int:
        return self.number - 1

    def rank_of(self, stage: int) -> int:
        """The rank that holds `stage`."""
        turn, place = divmod(stage, self.ranks)
        return self.ranks - 1 - place if self.is_v and turn % 2 else place

    def on(self, rank: int) -> tuple[int, ...]:
        """The stages that `rank` holds, in the order of the model."""
        return tuple(stage for stage in range(self.number) if self.rank_of(stage) == rank)

    def layers_of(self, stage: int) -> range:
        """The layers that make up `stage`."""
        depth = self.layers // self.number
        return range(stage * depth, (stage + 1) * depth)

    def layers_on(self, rank: int) -> tuple[int, ...]:
        """All layers that `rank` holds."""
        return tuple(layer for stage in self.on(rank) for layer in self.layers_of(stage))


def stages_of(spec: Spec) -> Stages:
    """The stages of a pipeline job."""
    return Stages(
        layers=spec.layers, ranks=spec.ranks, chunks=spec.chunks, is_v=spec.schedule is Schedule.ZBV
    )


def crossings(spec: Spec, stages: Stages, *, place: Callable[[int], int], sequences: int) -> Iterator[Call]:
    """What stages send each other in a step of `sequences` sequences, where `place` says the rank in the whole run.

    A hidden state over each boundary for every micro-batch, in training its gradient back, and in decode the
    sampled token ids home. Two stages of one rank hand over in memory.
    """
    held = sequences // spec.microbatches
    hidden_bytes = held * spec.tokens_in_flight * spec.row_bytes
    ways = [("hidden state", stage, stage + 1) for stage in range(stages.last)]
    if spec.is_training:
        ways += [("gradient of the hidden state", there, here) for _, here, there in ways]
    calls = [(what, here, there, hidden_bytes, False) for what, here, there in ways]
    if spec.is_decode:
        calls.append(("sampled token ids", stages.last, 0, held * TOKEN_ID_BYTES, True))
    for what, here, there, size, is_control in calls:
        source, destination = place(stages.rank_of(here)), place(stages.rank_of(there))
        if source != destination:
            yield Call(
                op=Kind.SEND,
                payload_bytes=size,
                times=spec.microbatches,
                what=f"{what}, stage {here} to {there}",
                axis="pp",
                source=source,
                destination=destination,
                is_control=is_control,
            )
