"""What the page *Pipeline* asks: a schedule, its sizes, and how long one micro-batch takes in one stage."""

from calculators.fields import AddressForm, Choice, Decimal, WholeNumber
from calculators.pages.pipeline.case import PipelineCase
from calculators.predict.schedules import SCHEDULES, Schedule


class PipelineForm(AddressForm):
    """A schedule, its sizes, and how long one micro-batch takes in one stage."""

    DEFAULTS = {  # noqa: RUF012
        "schedule": "1f1b",
        "stages": "4",
        "micro_batches": "8",
        "chunks": "2",
        "forward": "10",
        "backward_input": "10",
        "backward_weight": "10",
        "send": "0",
        "last_stage": "1",
    }

    schedule = Choice(label="Schedule", choices=[(key.value, kind.name) for key, kind in SCHEDULES.items()])
    stages = WholeNumber(label="Stages", low=1, high=128)
    micro_batches = WholeNumber(label="Micro-batches", low=1, high=10_000, help_text="in a step")
    chunks = WholeNumber(label="Chunks", low=2, high=16, help_text="on each stage")
    forward = Decimal(label="Forward", low=0, high=100_000)
    backward_input = Decimal(label="Input gradient", low=0, high=100_000)
    backward_weight = Decimal(label="Weight gradient", low=0, high=100_000)
    send = Decimal(label="One message", low=0, high=100_000)
    last_stage = Decimal(
        label="Last stage takes",
        low=0.1,
        high=10,
        help_text="times as long as each other stage, as it also has the output matrix and the loss",
    )

    @property
    def case(self) -> PipelineCase:
        """What is to be calculated. Raises ValueError, in a sentence, for what has no order of work."""
        values = self.cleaned_data
        schedule = Schedule(values["schedule"])
        return PipelineCase(
            schedule=schedule,
            stages=values["stages"],
            micro_batches=values["micro_batches"],
            chunks=values["chunks"] if schedule is Schedule.INTERLEAVED else None,
            times={name: values[name] / 1_000 for name in ("forward", "backward_input", "backward_weight")},
            send=values["send"] / 1_000,
            last_stage=values["last_stage"],
        )
