"""Why one layout beats another, in a sentence."""

from __future__ import annotations

from calculators.predict.arrays import whole
from calculators.predict.planner.columns import TIME_PARTS, Evaluated
from calculators.predict.planner.ranking import NEAR


def why(found: Evaluated, row: int, other: int) -> str:
    """Why the layout in `row` beats the one in `other`: the parts of a step in which they differ most."""
    row, other = (
        whole(name, number, low=0, high=len(found) - 1) for name, number in (("row", row), ("other", other))
    )
    gains = {
        name: float(found[f"{name}_seconds"][other] - found[f"{name}_seconds"][row]) for name in TIME_PARTS
    }
    total = float(found["step_seconds"][other] - found["step_seconds"][row])
    if total <= NEAR * float(found["step_seconds"][other]):
        memory = float(found["memory_bytes"][other] - found["memory_bytes"][row])
        return (
            "It takes as long and needs less memory."
            if memory > NEAR * float(found["memory_bytes"][other])
            else "It costs the same and splits less."
        )
    share = total / float(found["step_seconds"][other])
    saved = max(gains, key=lambda name: gains[name])
    lost = min(gains, key=lambda name: gains[name])
    words = f"{share:.2%}" if share >= 0.0001 else "less than 0.01%"
    sentence = f"It saves {words} of the step, most of it {_WHERE[saved]}"
    if gains[lost] < 0 and -gains[lost] > 0.05 * total:
        return f"{sentence}, and pays a part of that back {_WHERE[lost]}."
    return f"{sentence}."


_WHERE = {
    "compute": "in arithmetic",
    "recompute": "in recomputation",
    "tensor": "in tensor-parallel exchanges",
    "context": "in context-parallel exchanges",
    "expert": "in expert exchanges",
    "pipeline": "in sends between stages",
    "bubble": "in the pipeline's bubble",
    "data": "in exchanging gradients and weights",
    "optimizer": "in the optimizer's update",
}
