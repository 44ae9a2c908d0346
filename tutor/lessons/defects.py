"""What is wrong with a lesson, each defect a sentence with its file and line."""

from typing import NamedTuple


class Defect(NamedTuple):
    """One thing to change; `line` counts from 1 in `file`."""

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.message}"


class LessonError(ValueError):
    """Files that cannot be taught from; `defects` holds every reason, in the order of the file."""

    def __init__(self, defects: list[Defect]) -> None:
        self.defects = sorted(defects, key=lambda defect: (defect.file, defect.line))
        super().__init__("\n".join(map(str, self.defects)))
