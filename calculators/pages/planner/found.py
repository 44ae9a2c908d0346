"""A layout that was found: in words, and as a link to the page of this very layout."""

from django.utils.html import format_html
from django.utils.safestring import SafeString

from calculators.cluster_fields import ClusterForm
from calculators.fields import model_key
from calculators.pages.layout.page import address_of
from calculators.pages.layout.words import describe, details_of, sizes_of
from calculators.pages.planner.form import PlannerForm
from calculators.predict.planner import Evaluated
from calculators.predict.shapes import Phase, Recompute

_DESCRIBED = (
    "dp",
    "tp",
    "cp",
    "pp",
    "ep",
    "etp",
    "sp",
    "vpp",
    "zero",
    "recompute",
    "micro_batch",
    "micro_batches",
)


def in_words(found: Evaluated, row: int) -> str:
    """Its axes, and what else was chosen for it."""
    return describe(_sizes(found, row))


def address(form: PlannerForm, found: Evaluated, row: int) -> str:
    """The page of this very layout."""
    values = form.cleaned_data
    shared = ("phase", "tokens", "batch", "optimizer", "stages", *ClusterForm.CLUSTER)
    sizes = {name: str(int(found[name][row])) for name in ("tp", "cp", "pp", "ep", "etp")}
    state = {name: str(values[name]) for name in shared} | sizes
    state |= {"model": model_key(values["model"]), "reserve": f"{values['reserve']:.12g}"}
    if values["phase"] == Phase.TRAINING:
        state |= {name: str(int(found[name][row])) for name in ("zero", "vpp", "micro_batch")}
        state["sp"] = "on" if found["sp"][row] else "off"
        state["recompute"] = Recompute(int(found["recompute"][row])).name.lower()
    return address_of(state)


def link(form: PlannerForm, found: Evaluated, row: int) -> SafeString:
    """Its axes, leading there, and behind them what else was chosen."""
    sizes = _sizes(found, row)
    return format_html(
        '<a href="{}">{}</a>{}',
        address(form, found, row),
        sizes_of(sizes),
        format_html(' <span class="details">{}</span>', details) if (details := details_of(sizes)) else "",
    )


def _sizes(found: Evaluated, row: int) -> dict[str, float]:
    return {name: float(found[name][row]) for name in _DESCRIBED}
