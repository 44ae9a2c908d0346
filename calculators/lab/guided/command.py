"""The command `experiments`: runs guided experiments, prints how each fared, and gives one exit code for all."""

import json
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from calculators.lab.devices import find_devices
from calculators.lab.guided import GUIDED, guided
from calculators.lab.guided.claims import Figure, Guided, Outcome, Verdict
from calculators.lab.guided.running import perform
from calculators.lab.launch import LocalLauncher
from calculators.lab.quota import Quota
from calculators.lab.store import RunState, Sessions
from calculators.lab.worker import Worker, worker_name

ALL_HELD, SOME_DID_NOT, SOME_COULD_NOT = 0, 1, 3

_MARKS = {Outcome.HELD: "✓", Outcome.DID_NOT_HOLD: "✗", Outcome.COULD_NOT_RUN: "–"}


def listing() -> str:
    """Every experiment and its claim, a line each."""
    width = max(map(len, GUIDED))
    return "\n".join(f"{one.name:<{width}}  {one.claim}" for one in GUIDED.values())


def run(names: Sequence[str], *, sessions: Sessions, as_json: bool, who: str, stop: threading.Event) -> int:
    """Run the experiments named (all when none is) until `stop` is set; gives the exit code.

    Raises `SpecError` for a name that no experiment has.
    """
    chosen = [guided(name) for name in names] or list(GUIDED.values())
    devices = find_devices()
    verdicts: dict[str, Verdict] = {}
    quota = Quota.from_environment().within(devices.memory_bytes)
    with LocalLauncher(max_memory_bytes=quota.max_memory_bytes) as launcher:
        launcher.warm_up()
        worker = Worker(
            sessions,
            launcher,
            owner=worker_name(devices.host),
            devices=devices,
            stop=stop,
            stopped=(RunState.CANCELLED, "Stopped with Ctrl-C before it had ended."),
        )
        with sessions.held_open():
            for one in chosen:
                if stop.is_set():
                    break
                if not as_json:
                    print(f"  {one.name} …", end="\r", flush=True, file=sys.stderr)
                verdict = perform(
                    one, worker, sessions=sessions, devices=devices, submitted_by=who, stop=stop
                )
                verdicts[one.name] = verdict
                if not as_json:
                    print(text(one, verdict), flush=True)
    if as_json:
        print(json.dumps([as_dict(guided(name), verdict) for name, verdict in verdicts.items()], indent=2))
    return exit_code(verdicts.values())


def exit_code(verdicts: Any) -> int:
    """0 when all held, 1 when any did not, else 3 since some could not run."""
    outcomes = {verdict.outcome for verdict in verdicts}
    if Outcome.DID_NOT_HOLD in outcomes:
        return SOME_DID_NOT
    return SOME_COULD_NOT if Outcome.COULD_NOT_RUN in outcomes else ALL_HELD


def text(one: Guided, verdict: Verdict) -> str:
    """The verdict as a terminal shows it: the claim, what was found, and the numbers."""
    lines = [
        f"{_MARKS[verdict.outcome]} {one.name}: {verdict.outcome}",
        f"    Claim: {one.claim}",
        f"    Found: {verdict.sentence}",
        *(f"    {_figure(figure)}" for figure in verdict.figures),
    ]
    return "\n".join(lines)


def as_dict(one: Guided, verdict: Verdict) -> dict[str, Any]:
    """The verdict as other programs read it."""
    return {"experiment": one.name, "claim": one.claim, "judged_on": str(one.level), **asdict(verdict)}


def _figure(figure: Figure) -> str:
    def said(value: float | None) -> str:
        return "–" if value is None else f"{value:,.6g} {figure.unit}"

    return f"{figure.what}: predicted {said(figure.predicted)}, measured {said(figure.measured)}"
