"""What a scenario states, from a pack's text to what the advisor can be told."""

from collections.abc import Mapping

from calculators.predict.advisor import Facts

_FLAGS = {"yes": True, "true": True, "no": False, "false": False}


def facts_of(given: Mapping[str, str]) -> Facts:
    """Facts as a pack writes them, all text. Raises ValueError, in a sentence, for one that cannot be.

    >>> facts_of({"phase": "training", "overflow": "layer, stack", "moe": "no", "tp": "8"}).known
    {'phase': 'training', 'overflow': ('layer', 'stack'), 'moe': False, 'tp': 8}
    """
    return Facts.of({name: _value(name, text) for name, text in given.items()})


def _value(name: str, text: str) -> object:
    if name == "overflow":
        return tuple(word.strip() for word in text.split(","))
    if text.lower() in _FLAGS:
        return _FLAGS[text.lower()]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text
