"""The command `meter`: run the program, then say what it moved."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from calculators.lab.foreign.launching import CannotStart, run_metered
from calculators.lab.foreign.report import as_dict, as_text

CANNOT = 2


def meter(command: Sequence[str], *, json_to: str | None) -> int:
    """Run `command`; the report goes to standard error, or as JSON to a file. Gives the program's exit code."""
    command = command[1:] if command and command[0] == "--" else command
    if not command:
        print(
            "There is no program to meter. Give its command behind “--”, for example: "
            "python -m calculators.lab meter -- torchrun --nproc-per-node 2 train.py",
            file=sys.stderr,
        )
        return CANNOT
    try:
        ran = run_metered(command)
    except CannotStart as error:
        print(error, file=sys.stderr)
        return CANNOT
    if json_to is None:
        print(f"\n{as_text(ran)}", file=sys.stderr)
        return ran.exit_code
    text = json.dumps(as_dict(ran), indent=2) + "\n"
    if json_to == "-":
        sys.stdout.write(text)
        return ran.exit_code
    try:
        Path(json_to).write_text(text)
    except OSError as error:
        print(
            f"The report cannot be written to {json_to} ({error.strerror}); here it is instead.\n\n{as_text(ran)}",
            file=sys.stderr,
        )
    return ran.exit_code
