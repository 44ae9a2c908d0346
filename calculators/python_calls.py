"""A calculation as the Python that makes it: imports and one call, ready to paste beside `calculators.predict`."""

import sys
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from typing import Any

from calculators.fields import model_key
from calculators.predict.devices import DEVICES, Device, device
from calculators.predict.links import RUNGS, Rung, rung
from calculators.predict.models.catalogue import MODELS, model
from calculators.predict.shapes import ModelShape

_WIDTH = 96


def python_call(function: Callable[..., Any], *positional: Any, **named: Any) -> str:
    """The imports and the call `function(*positional, **named)` as text that runs as it stands.

    Models, devices and links of the catalogues are named by their keys, dataclasses by what is not their default.
    """
    imports: set[tuple[str, str]] = {(_home(function), function.__name__)}
    parts = [_text(value, imports) for value in positional]
    parts += [f"{name}={_text(value, imports)}" for name, value in named.items()]
    lines = [f"from {module} import {name}" for module, name in sorted(imports)]
    return "\n".join(lines) + f"\n\n{_call(function.__name__, parts)}"


def _call(name: str, parts: list[str]) -> str:
    line = f"{name}({', '.join(parts)})"
    if len(line) <= _WIDTH:
        return line
    inner = "\n".join(f"    {part}," for part in parts)
    return f"{name}(\n{inner}\n)"


def _text(value: Any, imports: set[tuple[str, str]]) -> str:
    if isinstance(value, ModelShape):
        return _model(value, imports)
    if isinstance(value, Device) and DEVICES.get(value.key) == value:
        return _named(device, value.key, imports)
    if isinstance(value, Rung) and RUNGS.get(value.key) == value:
        return _named(rung, value.key, imports)
    if isinstance(value, Enum):
        imports.add((_home(type(value)), type(value).__name__))
        return f"{type(value).__name__}.{value.name}"
    if is_dataclass(value) and not isinstance(value, type):
        imports.add((_home(type(value)), type(value).__name__))
        said = [
            f"{f.name}={_text(getattr(value, f.name), imports)}"
            for f in fields(value)
            if not _is_default(value, f)
        ]
        return f"{type(value).__name__}({', '.join(said)})"
    if isinstance(value, tuple):
        inner = ", ".join(_text(item, imports) for item in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, list):
        return f"[{', '.join(_text(item, imports) for item in value)}]"
    if isinstance(value, float) and value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return repr(value)


def _model(shape: ModelShape, imports: set[tuple[str, str]]) -> str:
    key = model_key(shape)
    if key in MODELS:
        return f"{_named(model, key, imports)}.shape"
    from calculators.predict.models.codes import shape_of

    return _named(shape_of, key, imports)


def _named(lookup: Callable[[str], Any], key: str, imports: set[tuple[str, str]]) -> str:
    imports.add((_home(lookup), lookup.__name__))
    return f"{lookup.__name__}({key!r})"


def _home(named: Any) -> str:
    """The outermost package that offers it under its own name, or else its module."""
    parts = named.__module__.split(".")
    places = (".".join(parts[:length]) for length in range(1, len(parts) + 1))
    offers = (place for place in places if getattr(sys.modules.get(place), named.__name__, None) is named)
    return next(offers, named.__module__)


def _is_default(value: Any, field: "Field[Any]") -> bool:
    return (field.default is not MISSING and getattr(value, field.name) == field.default) or not field.init
