"""What a spec would move, said before it runs: the plan's own predictions, for one step."""

from dataclasses import dataclass

from calculators.lab.devices import Placement
from calculators.lab.measurements import Prediction, Quantity
from calculators.lab.plan import Plan, make_plan
from calculators.lab.spec import Family, Spec
from calculators.runs.words import place_of, remarks_on, size_of, title_of


@dataclass(frozen=True, kw_only=True)
class RankForecast:
    """One rank's bytes on the wire in one step [bytes], in the parts that the run page will name."""

    rank: int
    calls: float
    formula: float
    backend_excess: float
    framing: float
    control: float

    @property
    def total(self) -> float:
        return self.formula + self.backend_excess + self.framing + self.control


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """A plan, as the page that starts it shows it."""

    plan: Plan

    @property
    def spec(self) -> Spec:
        return self.plan.spec

    @property
    def family(self) -> Family:
        return self.spec.family

    @property
    def title(self) -> str:
        return f"{title_of(self.spec)}, {place_of(self.spec)}"

    @property
    def unit(self) -> str:
        return self.spec.unit

    @property
    def size(self) -> str:
        return size_of(self.spec)

    @property
    def remarks(self) -> list[str]:
        return remarks_on(self.spec, backend=self.plan.placement.backend)

    @property
    def ranks(self) -> list[RankForecast]:
        """Every rank's share of one step."""
        wire = {p.rank: p for p in self._of(Quantity.WIRE)}
        steps = self.spec.steps
        return [
            RankForecast(
                rank=calls.rank,
                calls=calls.predicted / steps,
                **{
                    part: getattr(wire[calls.rank], part) / steps
                    for part in ("formula", "backend_excess", "framing", "control")
                },
            )
            for calls in self._of(Quantity.CALLS)
        ]

    def _of(self, quantity: Quantity) -> list[Prediction]:
        return [p for p in self.plan.predictions if p.quantity is quantity and not p.detail]


def forecast(spec: Spec) -> Forecast:
    """What gloo would carry for `spec`; a worker with a GPU for each rank takes NCCL and claims no bytes."""
    return Forecast(plan=make_plan(spec, Placement(device="cpu", backend="gloo")))
