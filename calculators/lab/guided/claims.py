"""A guided experiment: a claim of a lesson, the runs that test it, and how their numbers are judged."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from calculators.lab.compare import Comparison
from calculators.lab.measurements import Measurement, Quantity, Series, StepSeconds, Timeline, Verified
from calculators.lab.spec import Family, Spec
from calculators.lab.store import Run


class Level(StrEnum):
    """What a claim is judged on. Bytes of different levels are never compared with each other."""

    HANDED = "bytes handed to the calls"
    ALGORITHM = "bytes that the textbook's algorithm sends"
    WIRE = "bytes on the wire"
    MEMORY = "bytes held"
    TIME = "time"
    RESULT = "what is computed"


class Outcome(StrEnum):
    """How an experiment ended."""

    HELD = "held"
    DID_NOT_HOLD = "did not hold"
    COULD_NOT_RUN = "could not run here"


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One of an experiment's runs: a name that its judge knows it by, a title for readers, and the spec."""

    name: str
    title: str
    spec: Spec


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One number that the verdict rests on, or that is told beside it; `unit` as in `Quantity.unit`, or “×”.

    `predicted` is None where nothing was predicted, `measured` where nothing can be measured at this level.
    `decides` marks those that the claim is judged on.
    """

    what: str
    unit: str
    predicted: float | None = None
    measured: float | None = None
    level: Level
    decides: bool = True


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Points to plot: predicted ones as a line, measured ones as dots, each with its label for the table."""

    name: str
    x_title: str
    y_title: str
    x: tuple[float, ...]
    predicted: tuple[float | None, ...] = ()
    measured: tuple[float | None, ...] = ()
    logarithmic: bool = False


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """How the claim fared: a sentence with the numbers in it, the numbers themselves, and curves if there are any."""

    outcome: Outcome
    sentence: str
    figures: tuple[Figure, ...] = ()
    curves: tuple[Curve, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Result:
    """One finished run as a judge reads it, all of it from the ledger."""

    run: Run
    comparisons: tuple[Comparison, ...] = ()
    measurements: tuple[Measurement, ...] = ()
    verifications: tuple[Verified, ...] = ()
    step_seconds: tuple[StepSeconds, ...] = ()
    series: tuple[Series, ...] = ()
    timelines: tuple[Timeline, ...] = ()

    @property
    def spec(self) -> Spec:
        return self.run.spec

    def measured(
        self, quantity: Quantity, *, rank: int | None = None, peer: int | None = None, detail: str = ""
    ) -> float:
        """The measured value, summed over ranks when none is named; raises `Unmeasured` when no meter saw it."""
        found = [
            m.value
            for m in self.measurements
            if m.quantity is quantity and m.detail == detail and m.peer == peer and rank in (None, m.rank)
        ]
        if not found:
            raise Unmeasured(f"run {self.run.id} measured no {quantity}{f' ({detail})' if detail else ''}")
        return sum(found)

    def formula(
        self, quantity: Quantity, *, rank: int | None = None, peer: int | None = None, detail: str = ""
    ) -> float:
        """The textbook's part of what was predicted, summed over ranks when none is named."""
        return self._predicted("formula", quantity, rank=rank, peer=peer, detail=detail)

    def predicted(
        self, quantity: Quantity, *, rank: int | None = None, peer: int | None = None, detail: str = ""
    ) -> float:
        """All of what was predicted, summed over ranks when none is named."""
        return self._predicted("predicted", quantity, rank=rank, peer=peer, detail=detail)

    def seconds_of_steps(self) -> list[float]:
        """Each measured step's time on the rank that took longest over it [s]."""
        return [max(times) for times in zip(*(s.seconds for s in self.step_seconds), strict=True)]

    def values(self, name: str, *, rank: int) -> tuple[float, ...]:
        """What `rank` followed through the measured steps under `name`; raises `Unmeasured` where it did not."""
        for series in self.series:
            if (series.name, series.rank) == (name, rank):
                return series.values
        raise Unmeasured(f"rank {rank} of run {self.run.id} followed no {name}")

    def _predicted(
        self, part: str, quantity: Quantity, *, rank: int | None, peer: int | None, detail: str
    ) -> float:
        found = [
            float(getattr(c.prediction, part))
            for c in self.comparisons
            if c.quantity is quantity and c.detail == detail and c.peer == peer and rank in (None, c.rank)
        ]
        if not found:
            raise Unmeasured(f"nothing was predicted of {quantity}{f' ({detail})' if detail else ''}")
        return sum(found)


class Unmeasured(LookupError):
    """A judge asked for a number that the run does not have; the text is the end of “could not run here: …”."""


Judge = Callable[[Mapping[str, Result]], Verdict]
"""From the results by variant's name to the verdict; pure."""


@dataclass(frozen=True, kw_only=True)
class Guided:
    """A claim, the runs that test it, and its judge.

    `lesson` is the last part of the lesson's address, `about` a paragraph for the experiment's page. `needs` names
    what a machine must offer beyond CPU ranks: “wire” (TCP_INFO), “hosts” (network namespaces).
    """

    name: str
    title: str
    family: Family
    lesson: str
    claim: str
    about: str
    level: Level
    variants: tuple[Variant, ...]
    judge: Judge
    needs: tuple[str, ...] = ("wire",)


def held_if(condition: bool) -> Outcome:
    """Held, or did not."""
    return Outcome.HELD if condition else Outcome.DID_NOT_HOLD
