"""What the page *Memory* asks: a model and a layout, what it is to do, and the device that is to hold it."""

from calculators.cluster_fields import MOST_DEVICES, device_field
from calculators.fields import AddressForm, Choice, Decimal, ModelField, WholeNumber
from calculators.layout_fields import (
    micro_batch_field,
    optimizer_field,
    recompute_field,
    sp_field,
    zero_field,
)
from calculators.predict.memory import optimizer
from calculators.predict.memory.levers import Case, Serving, Training
from calculators.predict.shapes import Layout, Recompute


class MemoryForm(AddressForm):
    """A model and a layout, what it is to do, and the device that is to hold it."""

    DEFAULTS = {  # noqa: RUF012
        "model": "llama-3.1-70b",
        "phase": "training",
        "device": "h100",
        "tp": "8",
        "pp": "1",
        "cp": "1",
        "dp": "8",
        "ep": "1",
        "etp": "1",
        "vpp": "1",
        "sp": "off",
        "zero": "0",
        "tokens": "8192",
        "micro_batch": "1",
        "micro_batches": "16",
        "recompute": "none",
        "optimizer": "mixed-adam",
        "batch": "16",
        "kv_bytes": "2",
        "weight_bytes": "released",
        "reserve": "10",
    }
    AXES = ("dp", "tp", "pp", "cp", "ep", "etp", "vpp")

    model = ModelField()
    phase = Choice(
        label="For", choices=[("training", "training"), ("serving", "serving: decode, one token at a time")]
    )
    device = device_field()
    tp = WholeNumber(label="Tensor, tp", low=1, high=1_024)
    pp = WholeNumber(label="Pipeline, pp", low=1, high=1_024)
    dp = WholeNumber(label="Data, dp", low=1, high=MOST_DEVICES)
    cp = WholeNumber(label="Context, cp", low=1, high=1_024)
    ep = WholeNumber(label="Expert, ep", low=1, high=1_024)
    etp = WholeNumber(label="Inside experts, etp", low=1, high=1_024)
    vpp = WholeNumber(label="Chunks a stage, vpp", low=1, high=64)
    sp = sp_field()
    zero = zero_field()
    tokens = WholeNumber(
        label="Tokens", low=1, high=10_000_000, help_text="in a sequence; when serving, its context"
    )
    micro_batch = micro_batch_field()
    micro_batches = WholeNumber(
        label="Micro-batches", low=1, high=1_000_000, help_text="of a replica in a step"
    )
    recompute = recompute_field()
    optimizer = optimizer_field()
    batch = WholeNumber(label="Sequences", low=1, high=1_000_000, help_text="at once, on one replica")
    kv_bytes = Choice(
        label="KV cache in", choices=[("2", "16 bits"), ("1", "8 bits"), ("0.5", "4 bits"), ("4", "32 bits")]
    )
    weight_bytes = Choice(
        label="Weights in",
        choices=[("released", "the model’s own width"), ("2", "16 bits"), ("1", "8 bits"), ("0.5", "4 bits")],
    )
    reserve = Decimal(
        label="Left free, %", low=0, high=99, help_text="of a device, for what is not counted here"
    )

    @property
    def case(self) -> Case:
        """What is to be held."""
        values = self.cleaned_data
        shape = values["model"]
        axes = {axis: values[axis] for axis in self.AXES}
        if values["phase"] == "serving":
            width = values["weight_bytes"]
            return Serving(
                shape=shape,
                layout=Layout(**axes | {"vpp": 1}),
                tokens=values["tokens"],
                batch=values["batch"],
                kv_bytes=float(values["kv_bytes"]),
                weight_bytes=None if width == "released" else float(width),
            )
        return Training(
            shape=shape,
            layout=Layout(**axes, sp=values["sp"] == "on", zero=int(values["zero"])),
            tokens=values["tokens"],
            micro_batch=values["micro_batch"],
            micro_batches=values["micro_batches"],
            recompute=Recompute[values["recompute"].upper()],
            optimizer=optimizer(values["optimizer"]),
        )

    def address_of(self, case: Case) -> str:
        """The address of another case with the same model, device and reserve."""
        layout = case.layout
        changes = {axis: str(getattr(layout, axis)) for axis in self.AXES}
        if isinstance(case, Training):
            changes |= {
                "sp": "on" if layout.sp else "off",
                "zero": str(layout.zero),
                "micro_batch": str(case.micro_batch),
                "micro_batches": str(case.micro_batches),
                "recompute": case.recompute.name.lower(),
            }
        else:
            width = case.weight_bytes
            changes |= {
                "batch": str(case.batch),
                "kv_bytes": f"{case.kv_bytes:g}",
                "weight_bytes": "released" if width is None else f"{width:g}",
                "vpp": str(self.cleaned_data["vpp"]),
            }
        return self.address_with(tokens=str(case.tokens), **changes)
