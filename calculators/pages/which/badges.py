"""The families of an advice, in the codes that all pages mark them with."""

from calculators.predict.advisor import Advice, Technique

FAMILY_CODES = {
    Technique.DATA: "dp",
    Technique.SHARDED_DATA: "dp",
    Technique.TENSOR: "tp",
    Technique.PIPELINE: "pp",
    Technique.SEQUENCE: "sp",
    Technique.CONTEXT: "cp",
    Technique.EXPERT: "ep",
}


def badges(advice: Advice) -> tuple[tuple[str, str], ...]:
    """The code of each family that an advice uses, with its size where one is suggested."""
    found = []
    for family in advice.families:
        code = FAMILY_CODES[family]
        size = advice.axes.get(code)
        found.append((code, f"{code.upper()} {size}" if size else code.upper()))
    return tuple(found)
