"""What is wrong with a spec, field by field, in sentences for whoever wrote it."""

from collections.abc import Iterator
from typing import NamedTuple


class Problem(NamedTuple):
    """One thing that is wrong: the field it is about (empty: the whole), and the sentence."""

    field: str
    message: str


class SpecError(ValueError):
    """A spec that cannot be run; `problems` names every field that is wrong, not only the first."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        super().__init__("\n".join(problem.message for problem in problems))


def must_divide(field: str, total: int, parts: int, sentence: str, others: str) -> Iterator[Problem]:
    """The problem of a `total` that `parts` do not divide: `sentence`, and the nearest values that work."""
    if total % parts:
        below, above = total // parts * parts, (total // parts + 1) * parts
        values = f"{below} or {above}" if below else f"{above}"
        yield Problem(field, f"{sentence} Take {values}, or another number of {others}.")
