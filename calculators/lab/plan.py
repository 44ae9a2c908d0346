"""From a spec to a plan: where ranks compute, what a step calls, and what its meters should read."""

from collections.abc import Sequence
from dataclasses import dataclass

from calculators.lab import clock, forecast
from calculators.lab.calibrations import Calibration
from calculators.lab.calls import Call
from calculators.lab.devices import Placement
from calculators.lab.measurements import Prediction, Quantity
from calculators.lab.spec import Spec
from calculators.lab.splits import calls_of, data, split_of


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A run, decided but not started."""

    spec: Spec
    placement: Placement
    calls: tuple[Call, ...]
    predictions: tuple[Prediction, ...]
    about_time: str = ""
    """What decides how long a step takes, or why no time is predicted."""

    @property
    def world_size(self) -> int:
        return self.spec.ranks

    @property
    def loses_a_rank(self) -> bool:
        """Whether a rank is to be killed halfway, and the others go on."""
        return self.spec.lost_rank >= 0

    def expects_loss_of(self, rank: int) -> bool:
        """Whether `rank` is the one to be killed."""
        return self.loses_a_rank and rank == self.spec.lost_rank

    @property
    def loss_sentence(self) -> str:
        """What is said when it was."""
        step = data.lost_at_step(self.spec)
        return (
            f"rank {self.spec.lost_rank} was killed at step {step} of {self.spec.steps}; the others serve on"
        )

    @property
    def calls_per_step(self) -> int:
        """Calls of one step by the formula; control is not counted."""
        return sum(call.times for call in self.calls if not call.is_control)

    @property
    def layers_by_rank(self) -> tuple[Sequence[int], ...]:
        """The layers that each rank holds: a slice of every one, whole ones, or none where no model computes."""
        return split_of(self.spec).layers_by_rank(self.spec)


def make_plan(spec: Spec, placement: Placement, calibration: Calibration | None = None) -> Plan:
    """The plan of `spec` on the devices and backend of `placement`; pure, nothing is started.

    With a `calibration` of the same ranks and links it says how long a step should take.
    """
    calls = calls_of(spec)
    predictions = [*forecast.handed(spec, calls), *split_of(spec).memory(spec)]
    if (
        placement.backend == "gloo"
    ):  # what another backend writes is not known to the byte: nothing is claimed
        predictions += forecast.wire_on_gloo(spec, calls)
    about_time = clock.why_untimed(spec, calibration)
    if calibration is not None and not about_time:
        step = clock.predicted_step(spec, calibration)
        about_time = step.verdict
        predictions += [
            Prediction(quantity=Quantity.STEP_SECONDS, rank=rank, formula=step.seconds.value)
            for rank in range(spec.ranks)
        ]
    return Plan(
        spec=spec,
        placement=placement,
        calls=calls,
        predictions=tuple(predictions),
        about_time=about_time,
    )
