"""What a run of the lab measured of the quantity that a question asks for, beside the calculator's value for its sizes.

Pure: a question's content and a run's comparisons in, a `Reading` out. `verifying.py` finds the runs and stores what
came of them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from calculators.lab.compare import Comparison
from calculators.lab.measurements import Quantity
from calculators.lab.spec import Spec
from calculators.lab.splits import memory
from quizzes.expressions import ExpressionError, evaluate
from quizzes.questions import Verify

TOLERANCE = 0.01
"""How far a run may be off where a question does not say: the share that the lab calls unexplained."""

_MEASURES: Mapping[str, tuple[Quantity, str]] = {
    "calls": (Quantity.CALLS, ""),
    "handed": (Quantity.HANDED, ""),
    "sent": (Quantity.WIRE, ""),
    "weights": (Quantity.MEMORY, memory.WEIGHTS),
    "gradients": (Quantity.MEMORY, memory.GRADIENTS),
    "optimizer": (Quantity.MEMORY, memory.OPTIMIZER),
    "saved": (Quantity.MEMORY, memory.SAVED),
}
"""What `measure` names: counted calls, handed bytes and sent bytes of a step; bytes that a rank holds."""


class NotMeasured(ValueError):
    """A run that says nothing about the question; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One quantity of a run: calculated for its sizes, and measured on the rank that has most of it.

    `named` is what the meter saw beside the formula and the lab has names for (framing, control, the backend's own);
    it is taken off, so that what is left is the formula's quantity and whatever is unexplained.
    """

    calculated: float
    measured: float
    named: float
    unit: str

    @property
    def difference(self) -> float:
        """Measured beyond calculated, as a share of calculated."""
        if self.calculated:
            return self.measured / self.calculated - 1
        return 0.0 if self.measured == 0 else float("inf")

    def agrees(self, rtol: float | None) -> bool:
        """Whether the two are one number, within the tolerance."""
        return abs(self.difference) <= (TOLERANCE if rtol is None else rtol)


def read(verify: Verify, spec: Spec, comparisons: Iterable[Comparison]) -> Reading:
    """The quantity that `verify` names, of one run. Raises `NotMeasured` where it has no such reading."""
    if not verify.is_measured or verify.measure is None:
        raise NotMeasured("The question binds no measurement.")
    quantity, detail = _MEASURES[verify.measure]
    found = [c for c in comparisons if (c.quantity, c.detail, c.peer) == (quantity, detail, None)]
    if not found:
        raise NotMeasured(f"The run has no reading of {quantity}{f', {detail}' if detail else ''}.")
    # A total over all steps, or one state of a rank's memory.
    per = 1 if quantity is Quantity.MEMORY else found[0].steps
    most = max(found, key=lambda comparison: comparison.prediction.formula)
    named = most.predicted - most.prediction.formula
    try:
        calculated = evaluate(verify.calc, names_of(verify, spec))
    except ExpressionError as error:
        raise NotMeasured(f"It cannot be calculated for the run: {error}") from error
    return Reading(
        calculated=calculated,
        measured=(most.measured - named) / per,
        named=named / per,
        unit=quantity.unit,
    )


def names_of(verify: Verify, spec: Spec) -> dict[str, float]:
    """The run's sizes by name, and the question's own names for them."""
    sizes = {
        name: float(value)
        for name, value in asdict(spec).items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    sizes["bytes_per_element"] = float(spec.dtype.bytes_per_element)
    sizes["parameters"] = float(spec.parameters)
    for name, said in verify.names.items():
        try:
            sizes[name] = evaluate(said, sizes)
        except ExpressionError as error:
            raise NotMeasured(f"names: {name} is {said}: {error}") from error
    return sizes


def is_like(spec: Spec, shipped: Spec) -> bool:
    """Whether a run of `spec` measures what the experiment `shipped` does: the same choices, at any sizes."""
    one, other = asdict(spec), asdict(shipped)
    return all(one[name] == value for name, value in other.items() if name not in _SIZES)


_SIZES = frozenset(
    [
        *("ranks", "layers", "hidden_size", "attention_heads", "ffn_width", "vocab_size", "experts", "top_k"),
        *("batch", "tokens", "steps", "warmup_steps", "microbatches", "time_limit_seconds", "seed", "note"),
        *("device", "hosts", "link_mbit", "delay_ms", "jitter_ms", "dtype", "tp", "pp", "dp", "ep"),
    ]
)
"""Fields of a spec that change how much there is of a quantity, and not what it is."""
