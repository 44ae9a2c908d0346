"""What the page *Planner* asks: a model, a cluster, and what a step is to do."""

from calculators.cluster_fields import ClusterForm
from calculators.fields import Choice, Decimal, ModelField, WholeNumber
from calculators.predict.memory import OPTIMIZERS
from calculators.predict.planner import Task
from calculators.predict.shapes import Phase

GIB = 2**30


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
    optimizer = Choice(label="Optimizer", choices=[(key, found.name) for key, found in OPTIMIZERS.items()])
    reserve = Decimal(
        label="Reserved, GiB", low=0, high=1_000, help_text="of each device, for what is not counted"
    )
    stages = Choice(label="Stages", choices=[("equal", "equally deep"), ("uneven", "may differ by a layer")])

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
