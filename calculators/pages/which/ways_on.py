"""Where an advice leads: the other calculators, with the numbers of the case."""

from collections.abc import Callable
from dataclasses import dataclass

from django.urls import NoReverseMatch

from calculators.predict.advisor import Advice, Facts, Technique
from calculators.workbench import view_address


@dataclass(frozen=True, kw_only=True)
class WayOn:
    """Another calculator, with the numbers of this case."""

    says: str
    address: str


def ways_on(facts: Facts, advice: Advice) -> list[WayOn]:
    """The calculators that say more of this case."""
    families = set(advice.families)
    devices = max([*advice.axes.values(), facts.devices or 2])
    stages = advice.axes.get("pp") or facts.pp or devices
    phase = "training" if facts.phase == "training" else "decode"
    asked: list[tuple[str, str, Callable[[], bool]]] = [
        (
            "traffic",
            f"devices={devices}" + ("" if phase == "decode" else f"&phase={phase}"),
            lambda: True,
        ),
        ("pipeline", f"stages={max(stages, 2)}", lambda: Technique.PIPELINE in families),
        ("link-speed", "", lambda: bool(families & {Technique.TENSOR, Technique.PIPELINE})),
        ("memory", "", lambda: facts.one_fits is not True or Technique.SHARDED_DATA in families),
        ("experts", "", lambda: Technique.EXPERT in families),
        ("planner", "", lambda: True),
    ]
    says = {
        "traffic": "What crosses the link",
        "pipeline": f"The pipeline’s schedule, {max(stages, 2)} stages",
        "link-speed": "What link it needs",
        "memory": "What each device holds",
        "experts": "Where tokens go",
        "planner": "Every layout, ranked",
    }
    found = []
    for name, query, wanted in asked:
        try:
            address = view_address(f"calculators:{name}")
        except NoReverseMatch:
            continue
        if wanted():
            found.append(WayOn(says=says[name], address=f"{address}?{query}" if query else address))
    return found
