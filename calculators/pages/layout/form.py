"""What the page *One layout* asks: a model, a cluster, how the one is laid out on the other, and what is to be done."""

from calculators.cluster_fields import MOST_DEVICES, ClusterForm
from calculators.fields import Choice, ModelField, WholeNumber, phase_field
from calculators.layout_fields import (
    GIB,
    micro_batch_field,
    optimizer_field,
    recompute_field,
    reserve_field,
    sp_field,
    stages_field,
    zero_field,
)
from calculators.pages.layout.case import LayoutCase
from calculators.predict.collectives import BACKENDS
from calculators.predict.memory import OPTIMIZERS
from calculators.predict.shapes import Layout, Phase, Recompute

_RECOMPUTE = {mode.name.lower(): mode for mode in Recompute}


class LayoutForm(ClusterForm):
    """A model, a cluster, how the one is laid out on the other, and what is to be done."""

    DEFAULTS = ClusterForm.CLUSTER | {
        "model": "llama-3.1-70b",
        "phase": "training",
        "tp": "8",
        "cp": "1",
        "pp": "4",
        "ep": "1",
        "etp": "1",
        "sp": "on",
        "zero": "1",
        "vpp": "1",
        "micro_batch": "1",
        "recompute": "selective",
        "tokens": "8192",
        "batch": "64",
        "optimizer": "mixed-adam",
        "reserve": "4",
        "stages": "equal",
        "backend": "textbook",
    }

    model = ModelField()
    phase = phase_field()
    tp = WholeNumber(label="Tensor, tp", low=1, high=1_024)
    cp = WholeNumber(label="Context, cp", low=1, high=MOST_DEVICES)
    pp = WholeNumber(label="Pipeline, pp", low=1, high=1_024)
    ep = WholeNumber(label="Expert, ep", low=1, high=1_024)
    etp = WholeNumber(label="Inside experts, etp", low=1, high=1_024)
    vpp = WholeNumber(label="Chunks a stage, vpp", low=1, high=64)
    sp = sp_field()
    zero = zero_field()
    micro_batch = micro_batch_field()
    recompute = recompute_field()
    tokens = WholeNumber(
        label="Tokens", low=1, high=10_000_000, help_text="in a sequence; in decode, its context"
    )
    batch = WholeNumber(label="Sequences", low=1, high=1_000_000, help_text="at once, over all devices")
    optimizer = optimizer_field()
    reserve = reserve_field()
    stages = stages_field()
    backend = Choice(label="Carried out as", choices=[(name, name) for name in BACKENDS])

    @property
    def case(self) -> LayoutCase:
        """What is to be calculated; what the phase does not have is left out."""
        values = self.cleaned_data
        phase = Phase(values["phase"])
        training = phase is Phase.TRAINING
        axes = {name: values[name] for name in ("tp", "cp", "pp", "ep", "etp")}
        cluster = self.cluster
        replica = values["tp"] * values["cp"] * values["pp"]
        return LayoutCase(
            shape=values["model"],
            cluster=cluster,
            layout=Layout(
                **axes,
                dp=max(1, cluster.devices // replica),
                sp=values["sp"] == "on" and phase is not Phase.DECODE,
                vpp=values["vpp"] if training else 1,
                zero=int(values["zero"]) if training else 0,
            ),
            phase=phase,
            tokens=values["tokens"],
            batch=values["batch"],
            micro_batch=values["micro_batch"] if training else 1,
            recompute=_RECOMPUTE[values["recompute"]] if training else Recompute.NONE,
            optimizer=OPTIMIZERS[values["optimizer"]],
            reserve=values["reserve"] * GIB,
            uneven_stages=values["stages"] == "uneven",
            backend=BACKENDS[values["backend"]],
        )
