"""What is wrong with a spec, field by field, in sentences for whoever wrote it."""

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
