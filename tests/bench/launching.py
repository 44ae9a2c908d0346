"""From the command to the last number: every family on four ranks, and the warm fork server against torchrun."""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from calculators.lab.devices import find_devices, place
from calculators.lab.launch import LocalLauncher
from calculators.lab.measurements import Failed
from calculators.lab.plan import Plan, make_plan
from calculators.lab.spec import Spec, experiment
from tests.bench import reference
from tests.bench.results import Result, at_least, within

RANKS = 4
TIMES = 3
FACTOR = 4
SMALL = {"layers": 2, "steps": 10}
"""Small enough that starting is a fair part of the run, as it is for someone who clicks."""

SECONDS = 2.5
_TRAINING = {"phase": "training", "batch": 4, "tokens": 32, **SMALL}
FAMILIES = {
    "DP": {"job": "data", **_TRAINING},
    "ZeRO-3": {"job": "sharded", **_TRAINING},
    "TP": {"job": "tensor", **_TRAINING},
    "TP, decode": {"job": "tensor", **SMALL},
    "TP and SP": {"job": "tensor", "sequence": True, "regather": True, **_TRAINING},
    "PP": {"job": "pipeline", **_TRAINING, "layers": 4, "microbatches": 4},
    "PP, decode": {"job": "pipeline", **SMALL, "layers": 4},
    "CP": {"job": "context", **_TRAINING},
    "EP": {"job": "expert", **_TRAINING},
    "TP × PP": {"job": "mesh", "tp": 2, "pp": 2, "microbatches": 2, **_TRAINING},
}
"""A small run of each on four ranks, training unless it says so."""


def measure() -> list[Result]:
    """Seconds of a four-rank tensor-parallel run, launched both ways, the median of three each."""
    spec = Spec.parse({**experiment("tensor-decode").to_dict(), "ranks": RANKS, **SMALL})
    plan = make_plan(spec, place(spec, find_devices()))
    with LocalLauncher() as launcher:
        launcher.warm_up()
        _warm(launcher, plan)  # the first run pages the libraries in
        warm = statistics.median(_warm(launcher, plan) for _ in range(TIMES))
        families = [_family(launcher, name, given) for name, given in FAMILIES.items()]
    cold = statistics.median(_torchrun(spec) for _ in range(TIMES))
    what = f"{spec.layers} layers, {spec.steps} tokens"
    return [
        Result(name="4-rank TP run, warm fork server", value=warm, unit="s", note=what),
        Result(name="4-rank TP run, torchrun", value=cold, unit="s", note=what),
        at_least("torchrun ÷ warm fork server", cold / warm, FACTOR, "×"),
        *families,
    ]


def _family(launcher: LocalLauncher, name: str, given: dict[str, object]) -> Result:
    """Seconds of one family's run, the median of three, beside the reference loop between them."""
    spec = Spec.parse({"ranks": RANKS, **given})
    plan = make_plan(spec, place(spec, find_devices()))
    times, loops = [], []
    for _ in range(TIMES):
        times.append(_warm(launcher, plan))
        loops.append(reference.slowness())
    told = within(f"4-rank run, {name}", statistics.median(times), SECONDS, "s", note=f"{spec.steps} steps")
    return told.judged_at(statistics.median(loops))


def _warm(launcher: LocalLauncher, plan: Plan) -> float:
    started = time.perf_counter()
    for event in launcher.run(plan):
        if isinstance(event, Failed):
            raise RuntimeError(f"rank {event.rank}: {event.reason}\n{event.traceback}")
    return time.perf_counter() - started


def _torchrun(spec: Spec) -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spec.toml"
        path.write_text(spec.to_toml())
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += ["--nproc-per-node", str(spec.ranks), "-m", "calculators.lab.ranks", str(path)]
        started = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return time.perf_counter() - started
