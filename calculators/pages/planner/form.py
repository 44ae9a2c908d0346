"""What the page *Planner* asks: a model, a cluster, and what a step is to do."""

from calculators.cluster_fields import ClusterForm
from calculators.fields import Choice, ModelField, WholeNumber
from calculators.layout_fields import GIB, optimizer_field, reserve_field, stages_field
from calculators.predict.memory import OPTIMIZERS
from calculators.predict.planner import Task
from calculators.predict.shapes import Phase


class PlannerForm(ClusterForm):
    """A model, a cluster, and what a step is to do."""

    DEFAULTS = ClusterForm.CLUSTER | {
        "model": "llama-3.1-70b",
        "phase": "training",
        "tokens": "8192",
        "batch": "1024",
        "optimizer": "mixed-adam",
        "reserve": "4",
        "stages": "equal",
        "devices": "1024",
    }

    model = ModelField()
    phase = Choice(
        label="For",
        choices=[(Phase.TRAINING.value, "training"), (Phase.DECODE.value, "decode: serving tokens")],
    )
    tokens = WholeNumber(
        label="Tokens", low=1, high=10_000_000, help_text="in a sequence; in decode, its context"
    )
    batch = WholeNumber(label="Sequences", low=1, high=1_000_000, help_text="in a step, over all devices")
    optimizer = optimizer_field()
    reserve = reserve_field()
    stages = stages_field()

    @property
    def task(self) -> Task:
        """What is to be planned. Raises ValueError for what cannot be."""
        values = self.cleaned_data
        return Task(
            shape=values["model"],
            cluster=self.cluster,
            tokens=values["tokens"],
            batch=values["batch"],
            phase=Phase(values["phase"]),
            optimizer=OPTIMIZERS[values["optimizer"]],
            reserve=values["reserve"] * GIB,
            uneven_stages=values["stages"] == "uneven",
        )
