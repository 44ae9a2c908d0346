"""The command `calibrate`: from its options to a spec, and from the ledger to what was found."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from calculators.lab.calibrations import Calibration, Estimate, latest, of_run
from calculators.lab.devices import Placement
from calculators.lab.spec import Job, Spec

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_OPTIONS = ("ranks", "hosts", "link_mbit", "delay_ms", "jitter_ms", "call_bytes", "steps")
_LONGEST_SECONDS = 600.0


def spec_of(options: Mapping[str, Any]) -> Spec:
    """The calibration that the options ask for. Raises `SpecError`."""
    return Spec.parse(
        {
            "job": Job.CALIBRATION,
            "repeats": 1,
            "time_limit_seconds": _LONGEST_SECONDS,
            **{name: options[name] for name in _OPTIONS},
        }
    )


def known_in(url: str, spec: Spec, placement: Placement, *, machine: str) -> Calibration | None:
    """The newest calibration that fits, in the ledger at `url` as it is; None where that cannot be read."""
    from sqlalchemy.exc import SQLAlchemyError

    from calculators.lab import store

    try:
        with store.open_ledger(url).reading() as session:
            return latest(session, spec, machine=machine, backend=placement.backend, device=placement.device)
    except (SQLAlchemyError, store.LedgerError):  # a plan needs no ledger
        return None


def text_of_latest(session: "Session", spec: Spec) -> str:
    """What the newest verified run of `spec` found."""
    from calculators.lab import store

    newest = next(run for run in store.latest_runs(session, limit=100) if run.spec == spec and run.succeeded)
    return text_of(of_run(session, newest.id))


def text_of(calibration: Calibration) -> str:
    """All of it as a text for a terminal."""
    from calculators.lab.terminal import table

    rows = [
        [
            str(call.kind),
            f"{call.size:,}",
            _said(call.seconds, 1e3),
            f"{call.fitted_seconds * 1e3:,.3g}",
            _said(call.bus_bytes_per_second, 1e-6),
        ]
        for call in calibration.calls
    ]
    header = ["call", "bytes", "ms, median (95 %)", "ms by α and β", "bus bandwidth, MB/s (95 %)"]
    computes = (
        f"Each rank reads {_said(calibration.memory_bytes_per_second, 1e-9)} GB/s and makes "
        f"{_said(calibration.flops_per_second, 1e-9)} GFLOP/s; to ask for a layer takes "
        f"{_said(calibration.layer_seconds, 1e6)} µs, to go on after a wait "
        f"{_said(calibration.resume_seconds, 1e6)} µs."
    )
    fitted = (
        f"{calibration.sentence} {calibration.samples} calls were fitted, {calibration.outliers} of them passed over; "
        f"they scatter by {100 * calibration.scatter:.0f} %."
    )
    return "\n\n".join([table(header, rows, left=1), fitted, computes])


def _said(estimate: Estimate, scale: float) -> str:
    value, low, high = (f"{number * scale:,.3g}" for number in (estimate.value, estimate.low, estimate.high))
    return f"{value} ({low} to {high})"
