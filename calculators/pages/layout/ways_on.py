"""Where the page *One layout* leads to: states that keep a rule, and other pages in the same state."""

from dataclasses import dataclass

from calculators.cluster_fields import ClusterForm
from calculators.fields import query_of
from calculators.pages.layout.case import LayoutCase
from calculators.pages.layout.form import LayoutForm
from calculators.predict.rules import Violation
from calculators.predict.shapes import Phase
from calculators.workbench import Change, view_address


@dataclass(frozen=True, kw_only=True)
class Broken:
    """A rule that the layout breaks, and the states of this page that keep it."""

    violation: Violation
    instead: tuple[Change, ...]


def instead(form: LayoutForm, violation: Violation) -> tuple[Change, ...]:
    """States of this page in which the rule is kept."""
    found = []
    for name, sizes in ((violation.axis, violation.nearest), *violation.or_else):
        if name not in form.fields:
            continue
        for size in sizes:
            said = ("off", "on")[size] if name == "sp" else str(size)
            found.append(Change(says=f"{name} {said}", address=form.address_with(**{name: said})))
    return tuple(found)


def memory_address(form: LayoutForm, case: LayoutCase) -> str:
    """The page *Memory* in the same state, as far as it has it."""
    values = form.cleaned_data
    axes = {name: getattr(case.layout, name) for name in ("tp", "pp", "cp", "dp", "ep", "etp", "vpp", "zero")}
    share = min(99.0, 100 * case.reserve / case.cluster.device.memory_bytes)
    state = {
        "model": form.fields["model"].said(case.shape),  # type: ignore[attr-defined]
        "phase": "training" if case.is_training else "serving",
        "device": values["device"],
        **axes,
        "sp": "on" if case.layout.sp else "off",
        "tokens": case.tokens,
        "reserve": f"{share:.4g}",
    }
    if case.is_training:
        state |= {
            "micro_batch": case.micro_batch,
            "micro_batches": round(case.micro_batches),
            "recompute": values["recompute"],
            "optimizer": values["optimizer"],
        }
    else:
        state["batch"] = case.sequences_of_a_replica
    return f"{view_address('calculators:memory')}?{query_of(state)}"


def planner_address(form: LayoutForm, case: LayoutCase) -> str:
    """The planner for the same model, cluster and work; it plans no prompts."""
    if case.phase is Phase.PREFILL:
        return ""
    values = form.cleaned_data
    shared = ("phase", "tokens", "batch", "optimizer", "stages", *ClusterForm.CLUSTER)
    state = {name: values[name] for name in shared} | {"reserve": f"{values['reserve']:.12g}"}
    state["model"] = form.fields["model"].said(case.shape)  # type: ignore[attr-defined]
    return f"{view_address('calculators:planner')}?{query_of(state)}"
