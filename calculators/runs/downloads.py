"""What can be taken away of a run: JSON for programs, CSV for spreadsheets; TOML is the spec's own."""

from typing import Any

from calculators.lab import store
from calculators.lab.compare import matrix
from calculators.lab.measurements import Measurement
from calculators.runs.levels import with_nothing_expected
from calculators.runs.opening import ledger

COLUMNS = (
    "run",
    "quantity",
    "unit",
    "detail",
    "rank",
    "peer",
    "steps",
    "formula",
    "backend_excess",
    "framing",
    "control",
    "predicted",
    "measured",
    "unexplained",
)


def download(run_id: int) -> dict[str, Any] | None:
    """The run as JSON: result, spec, both matrices (sender by receiver), what has no prediction, steps and stories."""
    with ledger().reading() as session:
        run = store.get_run(session, run_id)
        if run is None:
            return None
        predictions, measurements = (
            store.predictions_of(session, run_id),
            store.measurements_of(session, run_id),
        )
        comparisons = with_nothing_expected(predictions, measurements)
        return store.result_of(session, run_id) | {
            "spec": run.spec.to_dict(),
            "experiment": run.experiment,
            "variant": run.variant,
            "origin": run.origin,
            "matrix": {
                "predicted": matrix(comparisons, world_size=run.world_size, measured=False),
                "measured": matrix(comparisons, world_size=run.world_size, measured=True),
            },
            "measured_only": [_measured_only(m) for m in _without_prediction(predictions, measurements)],
            "step_seconds": {s.rank: list(s.seconds) for s in store.step_seconds_of(session, run_id)},
            "series": [
                {"name": s.name, "rank": s.rank, "values": list(s.values)}
                for s in store.series_of(session, run_id)
            ],
            "timeline": [
                {
                    "rank": t.rank,
                    "spans": [
                        {"start": span.start, "end": span.end, "doing": str(span.doing), "what": span.what}
                        for span in t.spans
                    ],
                }
                for t in store.timelines_of(session, run_id)
            ],
        }


def csv_rows(run_id: int) -> list[list[object]] | None:
    """Every number of the run, a row each under `COLUMNS`; None where there is no run.

    First what was predicted and measured, of ranks and of pairs; then what was measured alone; then each step of each
    series, numbered in the column `steps`.
    """
    with ledger().reading() as session:
        if store.get_run(session, run_id) is None:
            return None
        predictions, measurements = (
            store.predictions_of(session, run_id),
            store.measurements_of(session, run_id),
        )
        comparisons = with_nothing_expected(predictions, measurements)
        series = store.series_of(session, run_id)
    rows: list[dict[str, object]] = [
        c.to_dict() | {"unit": c.quantity.unit, "peer": c.peer, "steps": c.steps} for c in comparisons
    ]
    rows += [_measured_only(m) for m in _without_prediction(predictions, measurements)]
    rows += [
        {"quantity": "series", "detail": s.name, "rank": s.rank, "steps": step, "measured": value}
        for s in series
        for step, value in enumerate(s.values, start=1)
    ]
    return [[plain_cell({"run": run_id, **row}.get(column)) for column in COLUMNS] for row in rows]


def plain_cell(value: object) -> object:
    """Numbers as they are (whole ones without “.0”); text so that no spreadsheet takes it for a formula."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return "" if value is None else value


def _without_prediction(predictions: Any, measurements: list[Measurement]) -> list[Measurement]:
    known = {(c.quantity, c.detail, c.rank, c.peer) for c in with_nothing_expected(predictions, measurements)}
    return [m for m in measurements if (m.quantity, m.detail, m.rank, m.peer) not in known]


def _measured_only(m: Measurement) -> dict[str, object]:
    return {
        "quantity": str(m.quantity),
        "unit": m.quantity.unit,
        "detail": m.detail,
        "rank": m.rank,
        "peer": m.peer,
        "steps": m.steps,
        "measured": m.value,
    }
