"""Calculators and split maps inside lessons: complete pieces of HTML that swap themselves with htmx.

Without JavaScript their forms go to the page they stand in, whose address then holds their numbers under a
prefix of their own; so several may stand in one lesson.
"""

import re
import zlib
from collections.abc import Mapping, Sequence

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from calculators.answers import TrafficAnswer, answer
from calculators.forms import SplitMapForm
from calculators.maps import Picture
from calculators.maps import picture as picture_of
from calculators.pages.traffic import TrafficForm

TRAFFIC_FIELDS = ("devices", "layers", "hidden_size", "batch")
ADJUSTED = ("tp", "cp", "dp", "ep", "pp", "sp", "zero", "experts", "layers", "tokens", "batch")
"""The sizes of a map that its reader may change, those that its lesson names."""

_KEY = re.compile(r"[a-z]\d{1,10}", re.ASCII)


def inline_calculator(name: str, params: Mapping[str, str], request: HttpRequest) -> SafeString:
    """The calculator `name` with the sizes in `params`, or those that the reader has put in their place.

    Raises ValueError for a calculator that is not there, and for a size that it does not have.
    """
    if name != "traffic":
        raise ValueError(f"There is no calculator “{name}” for lessons. There is: traffic.")
    defaults = _known(params, TrafficForm)
    return _traffic(request, key=_key("t", defaults), defaults=defaults)


def inline_split_map(params: Mapping[str, str], request: HttpRequest) -> SafeString:
    """The split map of the layout in `params`, adjustable. Raises ValueError for a size it does not have."""
    defaults = _known(params, SplitMapForm)
    names = [name for name in ADJUSTED if name in defaults or name == "layers"]
    return _map(request, key=_key("m", defaults), defaults=defaults, names=names)


def traffic_fragment(request: HttpRequest) -> SafeString:
    """The same calculator again, for the numbers now in it."""
    return _traffic(request, key=_given_key(request, "t"), defaults={})


def map_fragment(request: HttpRequest) -> SafeString:
    """The same map again, for the numbers now in it."""
    asked = request.GET.get("shown", "").split(",")
    names = [name for name in ADJUSTED if name in asked] or ["tp", "pp", "layers"]
    return _map(request, key=_given_key(request, "m"), defaults={}, names=names)


def map_of_layout(params: Mapping[str, str]) -> SafeString:
    """The map of the layout in `params` (a `::: split-map`'s keys), with its steps, its words and the files it needs.

    It stands anywhere, asks nothing of the request, and says why where there is no such map. Raises ValueError for a
    size that there is not.
    """
    form = SplitMapForm(_known(params, SplitMapForm))
    return render_to_string("calculators/map_of_layout.html", {"picture": picture(form)})


def picture(form: SplitMapForm) -> Picture | None:
    """What a form asks to be drawn, or why that cannot be; None where a field says what is wrong with it."""
    if form.is_valid():
        return picture_of(form.layout, number=form.cleaned_data["step"], **form.sizes)
    refusals = form.non_field_errors()
    return Picture(map=None, problem=str(refusals[0])) if refusals else None


def _traffic(request: HttpRequest, *, key: str, defaults: Mapping[str, str]) -> SafeString:
    form = TrafficForm(request.GET, prefix=key, defaults=defaults)
    valid = form.is_valid()
    context = {
        "key": key,
        "form": form,
        "shown": [form[name] for name in TRAFFIC_FIELDS],
        "kept": [form[name] for name in form.fields if name not in TRAFFIC_FIELDS],
        "answer": _answer(form) if valid else None,
        "query": form.address if valid else "",
    }
    return render_to_string("calculators/inline_traffic.html", context, request=request)


def _answer(form: TrafficForm) -> TrafficAnswer | None:
    """The two ways that the form compares; None for a model that has nothing which one of them splits."""
    ways = {name: form.cleaned_data[name] for name in ("first", "second")}
    try:
        return answer(form.case, **ways)
    except ValueError:
        return None


def _map(request: HttpRequest, *, key: str, defaults: Mapping[str, str], names: Sequence[str]) -> SafeString:
    form = SplitMapForm(request.GET, prefix=key, defaults=defaults)
    found = picture(form)
    context = {
        "key": key,
        "form": form,
        "shown": [form[name] for name in names],
        "names": ",".join(names),
        "kept": [form[name] for name in form.fields if name not in (*names, "step")],
        "picture": found,
        "query": form.address if found and found.map else "",
    }
    return render_to_string("calculators/inline_map.html", context, request=request)


def _known(params: Mapping[str, str], form: type[TrafficForm] | type[SplitMapForm]) -> dict[str, str]:
    """The sizes of a lesson's piece, by the form's names; those it leaves out come from the form."""
    unknown = sorted(set(params) - set(form.base_fields))
    if unknown:
        raise ValueError(
            f"“{unknown[0]}” is not a size here. Those there are: {', '.join(form.base_fields)}."
        )
    values = {name: str(value) for name, value in params.items()}
    if form is TrafficForm:
        values = {"hidden_size": "4096", "layers": "64"} | values
    return values


def _key(kind: str, defaults: Mapping[str, str]) -> str:
    return f"{kind}{zlib.crc32(repr(sorted(defaults.items())).encode())}"


def _given_key(request: HttpRequest, kind: str) -> str:
    """The key that the form named; it becomes part of ids, so anything else is not taken."""
    key = request.GET.get("key", "")
    return key if _KEY.fullmatch(key) and key.startswith(kind) else f"{kind}0"
