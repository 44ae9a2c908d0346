"""The parts of a form that describe a layout and what is assumed beside it, as several calculators ask for them."""

from calculators.fields import Choice, Decimal, WholeNumber
from calculators.predict.memory import OPTIMIZERS

GIB = 2**30


def sp_field() -> Choice:
    """Sequence parallelism, on or off."""
    return Choice(label="Sequence parallelism", choices=[("off", "off"), ("on", "on, within tp")])


def zero_field() -> Choice:
    """What replicas share out: the ZeRO stage."""
    return Choice(
        label="Replicas share out",
        choices=[
            ("0", "nothing"),
            ("1", "optimizer’s state (ZeRO-1)"),
            ("2", "and gradients (ZeRO-2)"),
            ("3", "and weights (ZeRO-3, FSDP)"),
        ],
    )


def recompute_field() -> Choice:
    """What the backward pass computes again."""
    return Choice(
        label="Recompute",
        choices=[
            ("none", "nothing: keep all"),
            ("selective", "attention scores, as flash attention does"),
            ("full", "all but each layer’s input"),
        ],
    )


def micro_batch_field() -> WholeNumber:
    """Sequences that a replica takes through the model at a time."""
    return WholeNumber(label="Micro-batch", low=1, high=100_000, help_text="sequences at a time")


def optimizer_field() -> Choice:
    """One optimizer, with its bytes for each parameter."""
    return Choice(label="Optimizer", choices=[(key, found.name) for key, found in OPTIMIZERS.items()])


def reserve_field() -> Decimal:
    """Memory of each device that is left for what is not counted [GiB]."""
    return Decimal(
        label="Reserved, GiB", low=0, high=1_000, help_text="of each device, for what is not counted"
    )


def stages_field() -> Choice:
    """Whether stages must be equally deep."""
    return Choice(label="Stages", choices=[("equal", "equally deep"), ("uneven", "may differ by a layer")])
