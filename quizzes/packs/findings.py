"""What the pack compiler has to say: findings with file and line, and the error that carries them all."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, order=True)
class Finding:
    """One defect (`error`, the pack is refused) or one doubt (`warning`, it is not)."""

    file: str
    line: int
    rule: str
    message: str
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        mark = "" if self.severity == "error" else "warning: "
        return f"{self.file}:{self.line}: {mark}{self.message} [{self.rule}]"


class PackError(ValueError):
    """A pack that is refused, with everything that is wrong with it."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings = sorted(findings)
        super().__init__("\n".join(map(str, self.findings)))
