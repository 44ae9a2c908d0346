"""A calibration's page: how long each call took at each size, beside what latency and speed together say of it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.utils.html import format_html

from calculators.figures import axis, figure, log_byte_ticks, predicted_line
from calculators.lab.calibrations import Calibration, Estimate, NoCalibration, of_series
from calculators.lab.measurements import Series
from calculators.lab.store import Run
from calculators.plots import measured_line
from calculators.runs.charts import SWATCHES, Drawn
from calculators.tables import Row, Table
from calculators.units import iec_bytes, plain, rate, seconds


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """What one run found; `problem` says why where it found nothing."""

    calibration: Calibration | None
    problem: str
    family: str
    file: str

    @classmethod
    def of(cls, run: Run, series: Sequence[Series], *, file: str) -> "Calibrated":
        """From what its ranks timed."""
        found, problem = None, ""
        try:
            found = of_series(
                run.spec, series, run_id=run.id, machine=run.machine, backend=run.backend, device=run.device
            )
        except NoCalibration as error:
            problem = str(error)
        except KeyError as error:  # what was timed differs between versions of the lab
            problem = (
                f"Run {run.id} did not time {error}, which this version of the lab needs. Calibrate again."
            )
        return cls(calibration=found, problem=problem, family=run.spec.family, file=file)

    @property
    def chart(self) -> Drawn | None:
        """Times against sizes: the fit as a line, the medians as dots, a mark for each kind of call."""
        if self.calibration is None:
            return None
        data = []
        kinds = dict.fromkeys(call.kind for call in self.calibration.calls)
        for number, kind in enumerate(kinds):
            calls = [call for call in self.calibration.calls if call.kind is kind]
            sizes = [call.size for call in calls]
            fitted, seen = [call.fitted_seconds for call in calls], [call.seconds.value for call in calls]
            data += [
                predicted_line(
                    f"fitted: {kind}",
                    sizes,
                    fitted,
                    colour=self.family,
                    says=list(map(seconds, fitted)),
                    mark=number,
                ),
                measured_line(
                    f"measured: {kind}",
                    sizes,
                    seen,
                    colour=self.family,
                    says=list(map(seconds, seen)),
                    mark=number,
                    joined=False,
                ),
            ]
        sizes = [call.size for call in self.calibration.calls]
        return Drawn(
            name="timed",
            figure=figure(
                data,
                x=axis("full size of a call") | log_byte_ticks(sizes),
                y=axis("seconds of a call") | {"type": "log"},
                height=420,
                meta={"narrowHeight": 480},
            ),
            caption=format_html("Time of a call against its size. {}", SWATCHES),
            table=self._table.html,
            family=self.family,
            file=f"{self.file}-timed",
        )

    @property
    def facts(self) -> list[tuple[str, str]]:
        """What was found besides, each with its 95 % interval."""
        found = self.calibration
        if found is None:
            return []
        return [
            (name, f"{says(one.value)} ({_between(one, says)})")
            for name, one, says in (
                ("A round of messages", found.latency_seconds, seconds),
                ("The link, one direction", found.bytes_per_second, rate),
                ("Memory of one rank", found.memory_bytes_per_second, rate),
                ("Arithmetic of one rank", found.flops_per_second, _flops),
                ("Asking for a layer", found.layer_seconds, seconds),
            )
        ]

    @property
    def _table(self) -> Table:
        found = self.calibration
        rows = tuple(
            Row(
                cells=(
                    str(call.kind),
                    iec_bytes(call.size),
                    seconds(call.fitted_seconds),
                    seconds(call.seconds.value),
                    f"{seconds(call.seconds.low)} to {seconds(call.seconds.high)}",
                    rate(call.bus_bytes_per_second.value),
                )
            )
            for call in (found.calls if found else ())
        )
        return Table(
            caption="Medians with their 95 % intervals; bus bandwidth as nccl-tests defines it.",
            heads=("Call", "Size", "Fitted", "Measured", "95 % interval", "Bus bandwidth"),
            rows=rows,
            name="timed",
        )


def _between(one: Estimate, says: Callable[[float], str]) -> str:
    """Its 95 % interval; where messages were too small or too noisy to tell, it has one end."""
    return f"{says(one.low)} to {says(one.high)}" if math.isfinite(one.high) else f"at least {says(one.low)}"


def _flops(value: float) -> str:
    return f"{plain(round(value / 1e9, 1))} GFLOP/s"
