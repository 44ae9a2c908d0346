"""The lab's commands: run, list, show, again, delete, import, work, devices, doctor, specs, experiments, meter.

No Django, no torch in here.

Exit codes: 0 all is well (`run`: done and verified; `experiments`: all held), 1 the run failed or is not verified, or
an experiment did not hold, 2 what was asked for cannot be done (a bad spec, an unknown run, a ledger out of reach),
3 some experiments could not run here, 130 stopped with Ctrl-C.
"""

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calculators.lab.spec import Spec, SpecError, experiment, experiment_names

if TYPE_CHECKING:
    from calculators.lab.devices import Devices
    from calculators.lab.store import Sessions
    from calculators.lab.terminal import Watcher

OK, NOT_GOOD, CANNOT, INTERRUPTED = 0, 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; gives the exit code."""
    options = _parser().parse_args(arguments)
    try:
        command: Callable[[argparse.Namespace], int] = options.command
        code = command(options)
        sys.stdout.flush()
        return code
    except SpecError as error:
        print(error, file=sys.stderr)
        return CANNOT
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # `list | head`: nobody reads on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except Exception as error:
        # Imported late: `--help`, `devices` and `experiments` do without SQLAlchemy.
        from sqlalchemy.exc import SQLAlchemyError

        from calculators.lab.quota import QuotaError
        from calculators.lab.store import Impossible, LedgerError

        if isinstance(error, LedgerError | SQLAlchemyError | QuotaError | Impossible):
            print(str(getattr(error, "orig", None) or error).strip(), file=sys.stderr)
            return CANNOT
        raise


def run(options: argparse.Namespace) -> int:
    """Run a spec in this process, by way of the ledger, and print predicted against measured."""
    spec = _spec(options.spec)
    from calculators.lab.devices import find_devices, place
    from calculators.lab.quota import Quota

    devices = find_devices()
    placement = place(spec, devices)  # says what is wrong before anything is started or stored
    # Done here and now, it waits in nobody's way: the limits of a run hold for it, those on their number do not.
    quota = Quota.from_environment().within(devices.memory_bytes).without_counts()
    quota.require(spec)
    if options.dry_run:
        return _dry_run(spec, devices, as_json=options.json, ledger=options.ledger)

    from calculators.lab import store, terminal
    from calculators.lab.launch import LocalLauncher
    from calculators.lab.worker import Worker, require_torch, utc_now, worker_name

    require_torch(devices)
    sessions = _ledger(options.ledger)
    watcher = _watcher(options)
    if isinstance(watcher, terminal.PlainLines):
        print(placement.note or f"{spec.ranks} ranks on {placement.device}", file=sys.stderr)
    stop = threading.Event()
    with LocalLauncher(max_memory_bytes=quota.max_memory_bytes) as launcher:
        launcher.warm_up()  # before the claim, whose lease would not wait for torch to be imported
        worker = Worker(
            sessions,
            launcher,
            owner=worker_name(devices.host),
            devices=devices,
            stop=stop,
            stopped=(store.RunState.CANCELLED, "Stopped with Ctrl-C before it had ended."),
            quota=quota,
        )
        with _stop_on_signals(stop):
            # Submitted and claimed in one transaction: no other worker can have it.
            with sessions.begin() as session:
                submitted = store.submit(session, spec, submitted_by=_who(), now=utc_now(), quota=quota)
                claimed = store.claim(session, owner=worker.owner, now=utc_now(), run_id=submitted.id)
            if claimed is None:
                raise store.LedgerError(f"Run {submitted.id} was taken by another worker.")
            with sessions.held_open(), watcher:
                worker.perform(claimed, watch=watcher)
    with sessions.reading() as session:
        ended = store.get_run(session, submitted.id)
        if options.json:
            print(json.dumps(store.result_of(session, submitted.id), indent=2))
        else:
            print(_run_text(session, submitted.id))
    if ended is None or ended.state is store.RunState.CANCELLED:
        return INTERRUPTED if stop.is_set() else NOT_GOOD
    return OK if ended.succeeded else NOT_GOOD


def calibrate(options: argparse.Namespace) -> int:
    """Time calls and arithmetic of some ranks here, so that runs on as many are told how long a step should take."""
    from calculators.lab import calibrating

    options.spec, options.dry_run = calibrating.spec_of(vars(options)), False
    code = run(options)
    if code == OK and not options.json:
        with _ledger(options.ledger).reading() as session:
            print("\n" + calibrating.text_of_latest(session, options.spec))
    return code


def list_runs(options: argparse.Namespace) -> int:
    """Print the newest runs."""
    from calculators.lab import store, terminal

    sessions = _ledger(options.ledger)
    _reap(sessions)
    with sessions.reading() as session:
        runs = store.latest_runs(session, limit=options.limit)
    if options.json:
        print(json.dumps([_summary(run) for run in runs], indent=2))
    elif runs:
        print(terminal.runs_table(runs))
    else:
        print(
            "No runs yet. Run one and see how close the calculation was: "
            "python -m calculators.lab run tensor-decode"
        )
    return OK


def show(options: argparse.Namespace) -> int:
    """Print one run whole: parts, pairs, times, log."""
    from calculators.lab import store

    sessions = _ledger(options.ledger)
    _reap(sessions)
    with sessions.reading() as session:
        found = store.get_run(session, options.run)
        if found is None:
            print(
                f"There is no run {options.run} in this ledger. `list` shows those there are.",
                file=sys.stderr,
            )
            return CANNOT
        if options.json:
            print(json.dumps(_whole(session, found), indent=2))
        else:
            print(_run_text(session, options.run, whole=True))
    return OK


def again(options: argparse.Namespace) -> int:
    """Put a lost run back in the queue, or the spec of any other one as a new run."""
    from calculators.lab import store
    from calculators.lab.worker import utc_now

    sessions = _ledger(options.ledger)
    _reap(sessions)
    with sessions.begin() as session:
        found = store.get_run(session, options.run)
        if found is not None and found.state is store.RunState.LOST:
            queued = store.put_back(session, options.run, by=_who(), now=utc_now())
        else:
            queued = store.run_again(session, options.run, submitted_by=_who(), now=utc_now())
    same = "is back" if queued.id == options.run else "waits"
    print(f"Run {queued.id} {same} in the queue; a worker (`python -m calculators.lab work`) takes it.")
    return OK


def delete(options: argparse.Namespace) -> int:
    """Forget a run that has ended, with everything that it measured."""
    from calculators.lab import store

    sessions = _ledger(options.ledger)
    _reap(sessions)
    with sessions.begin() as session:
        store.delete_run(session, options.run)
    print(f"Run {options.run} is deleted.")
    return OK


def import_file(options: argparse.Namespace) -> int:
    """Take over the finished runs of another box, from its ledger file."""
    from calculators.lab import store

    with _ledger(options.ledger).begin() as session:
        print(store.import_ledger(session, Path(options.file)).sentence)
    return OK


def work(options: argparse.Namespace) -> int:
    """Work through the queue until stopped."""
    import logging

    from calculators.lab import lifeline
    from calculators.lab.devices import find_devices
    from calculators.lab.launch import LocalLauncher
    from calculators.lab.quota import Quota
    from calculators.lab.worker import work as work_through
    from calculators.lab.worker import worker_name

    logging.raiseExceptions = False  # a closed terminal is no reason to fail
    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stdout)
    logging.getLogger("calculators").setLevel(logging.INFO)
    stop = threading.Event()
    with _stop_on_signals(stop):
        if options.with_parent is not None:
            lifeline.die_with_parent(parent=options.with_parent, signum=signal.SIGTERM)
        devices = find_devices()
        quota = Quota.from_environment().within(devices.memory_bytes)
        sessions = _ledger(options.ledger)
        with LocalLauncher(max_memory_bytes=quota.max_memory_bytes) as launcher:
            work_through(
                sessions,
                launcher,
                owner=worker_name(devices.host),
                devices=devices,
                once=options.once,
                stop=stop,
                quota=quota,
            )
    return OK


def show_devices(options: argparse.Namespace) -> int:
    """Print what this machine offers to ranks."""
    from dataclasses import asdict

    from calculators.lab.devices import find_devices

    found = find_devices()
    if options.json:
        print(json.dumps(asdict(found), indent=2))
        return OK
    print(f"{found.host}: {found.cpu}, {found.cores} cores, {found.memory_bytes / 2**30:.1f} GiB of memory")
    for gpu in found.gpus:
        print(f"GPU {gpu.index}: {gpu.name}, {gpu.memory_bytes / 2**30:.1f} GiB (driver {found.driver})")
    if not found.gpus:
        print(f"No NVIDIA GPU: {found.no_gpu_reason}. Ranks compute on the CPU and talk through gloo.")
    if found.torch is None:
        print("torch is not installed. Install the extra “lab”: pip install 'sixfold[lab]'.")
    else:
        built_for = f"CUDA {found.torch.cuda}" if found.torch.cuda else "CPU"
        print(f"torch {found.torch.version}, built for {built_for}")
    return OK


def examine(options: argparse.Namespace) -> int:
    """Print what works on this machine, each thing tried once."""
    from calculators.lab import doctor

    findings = doctor.examine(_url(options.ledger), fresh=options.fresh)
    good = True
    for finding in findings:
        print(finding, flush=True)
        good = good and (finding.ok or not finding.needed)
    print(
        "Runs can be done here." if good else "Runs cannot be done here until what is marked ✗ is put right."
    )
    return OK if good else NOT_GOOD


def try_experiments(options: argparse.Namespace) -> int:
    """Run guided experiments and say of each whether its claim held."""
    from calculators.lab.guided import command

    if options.list:
        print(command.listing())
        return OK
    sessions = _ledger(options.ledger)
    stop = threading.Event()
    with _stop_on_signals(stop):
        code = command.run(options.names, sessions=sessions, as_json=options.json, who=_who(), stop=stop)
    return INTERRUPTED if stop.is_set() else code


def list_specs(options: argparse.Namespace) -> int:
    """Print the specs that ship with the lab."""
    from calculators.lab.spec import EXPERIMENTS

    width = max(map(len, experiment_names()))
    for name in experiment_names():
        print(f"{name:<{width}}  {experiment(name).note}")
    print(f"\nThey are files to copy and change: {EXPERIMENTS}")
    return OK


def meter(options: argparse.Namespace) -> int:
    """Run any torch.distributed program, unchanged, and say what its ranks handed over and sent."""
    from calculators.lab.foreign.command import meter as meter_program

    return meter_program(options.program, json_to=options.json)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m calculators.lab",
        description="Run the ways to split a model for real, and see how close the calculation was.",
        epilog="Exit codes: 0 done and verified, 1 failed, not verified or not held, 2 cannot be done, "
        "3 some experiments could not run here, 130 stopped.",
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def add(
        name: str, command: Callable[[argparse.Namespace], int], *, ledger: bool
    ) -> argparse.ArgumentParser:
        said = (command.__doc__ or "").strip()
        added = commands.add_parser(name, help=said[0].lower() + said[1:].rstrip("."), description=said)
        added.set_defaults(command=command)
        if ledger:
            about = (
                "the ledger's database URL (else SIXFOLD_LEDGER_URL, else runs.sqlite3 in the site's home)"
            )
            added.add_argument("--ledger", metavar="URL", help=about)
        return added

    running = add("run", run, ledger=True)
    running.add_argument("spec", metavar="SPEC", help="a TOML file, or the name of an experiment")
    running.add_argument("--json", action="store_true", help="print the result as JSON, and nothing else")
    running.add_argument(
        "--dry-run", action="store_true", help="print the plan and its predictions; start nothing"
    )
    calibrating = add("calibrate", calibrate, ledger=True)
    for option, kind, default, about in (
        ("--ranks", int, 2, "how many ranks (2)"),
        ("--hosts", int, 1, "emulated hosts to put them on (1: this machine as it is)"),
        ("--link-mbit", float, 0.0, "how fast each host's link is, in Mbit/s (0: not slowed down)"),
        ("--delay-ms", float, 0.0, "delay on the way out of each host (0)"),
        ("--jitter-ms", float, 0.0, "how much that delay varies (0)"),
        ("--call-bytes", int, 2**18, "the largest size that is timed (262144; 4194304 where links are fast)"),
        ("--steps", int, 20, "how often each size is timed (20)"),
    ):
        calibrating.add_argument(option, type=kind, default=default, metavar="N", help=about)
    calibrating.add_argument("--json", action="store_true", help="print the run's result as JSON")
    listing = add("list", list_runs, ledger=True)
    listing.add_argument("--json", action="store_true", help="print as JSON")
    listing.add_argument(
        "--limit", type=int, choices=range(1, 1_001), metavar="N", default=20, help="how many (20)"
    )
    showing = add("show", show, ledger=True)
    showing.add_argument("run", type=int, metavar="RUN", help="the number of a run")
    showing.add_argument(
        "--json", action="store_true", help="print as JSON, with pairs, log and times of steps"
    )
    repeating = add("again", again, ledger=True)
    repeating.add_argument("run", type=int, metavar="RUN", help="the number of a run")
    deleting = add("delete", delete, ledger=True)
    deleting.add_argument("run", type=int, metavar="RUN", help="the number of a run")
    importing = add("import", import_file, ledger=True)
    importing.add_argument("file", metavar="FILE", help="the other box's runs.sqlite3")
    working = add("work", work, ledger=True)
    working.add_argument("--once", action="store_true", help="do one run if one waits, then end")
    working.add_argument(
        "--with-parent",
        type=int,
        metavar="PID",
        help="end when the process PID, which started this one, ends",
    )
    add("devices", show_devices, ledger=False).add_argument(
        "--json", action="store_true", help="print as JSON"
    )
    examining = add("doctor", examine, ledger=True)
    examining.add_argument(
        "--fresh", action="store_true", help="try everything again, whatever was found before"
    )
    add("specs", list_specs, ledger=False)
    trying = add("experiments", try_experiments, ledger=True)
    trying.add_argument(
        "names", metavar="NAME", nargs="*", help="experiments by name; without one, all of them"
    )
    trying.add_argument("--list", action="store_true", help="list them and what each claims; start nothing")
    trying.add_argument("--json", action="store_true", help="print the verdicts as JSON, and nothing else")
    metering = add("meter", meter, ledger=False)
    metering.add_argument(
        "--json", metavar="FILE", help="write the report to FILE as JSON (- is standard output), not as text"
    )
    metering.add_argument(
        "program",
        metavar="-- PROGRAM …",
        nargs=argparse.REMAINDER,
        help="the command, as in a shell; its output and exit code stay its own",
    )
    return parser


def _spec(name: str | Spec) -> Spec:
    if isinstance(name, Spec):
        return name
    path = Path(name)
    if path.suffix == ".toml" or len(path.parts) > 1 or path.exists():
        return Spec.load(path)
    return experiment(name)


def _dry_run(spec: Spec, devices: "Devices", *, as_json: bool, ledger: str | None) -> int:
    from calculators.lab.devices import place
    from calculators.lab.plan import make_plan

    # A dry run reads a ledger only when one is named: else it needs no database.
    placement = place(spec, devices)
    known = None
    if ledger is not None:
        from calculators.lab.calibrating import known_in

        known = known_in(_url(ledger), spec, placement, machine=devices.machine)
    plan = make_plan(spec, placement, known)
    if as_json:
        from dataclasses import asdict

        said = {
            "job": str(spec.job),
            "world_size": plan.world_size,
            "backend": plan.placement.backend,
            "calls": [asdict(call) for call in plan.calls],
            "predictions": [asdict(p) | {"predicted": p.predicted} for p in plan.predictions],
        }
        print(json.dumps(said, indent=2))
    else:
        from calculators.lab.terminal import plan_text

        print(plan_text(plan))
    return OK


def _url(given: str | None) -> str:
    from calculators.lab.store import default_url

    return given or default_url()


def _ledger(given: str | None) -> "Sessions":
    from calculators.lab import store

    url = _url(given)
    store.migrate(url)
    return store.open_ledger(url)


def _reap(sessions: "Sessions") -> None:
    from calculators.lab import store
    from calculators.lab.worker import utc_now

    with sessions.reading() as session:
        overdue = store.overdue(session, now=utc_now())
    if overdue:
        with sessions.begin() as session:
            store.reap(session, now=utc_now())


def _watcher(options: argparse.Namespace) -> "Watcher":
    from calculators.lab.terminal import Bars, PlainLines, Silence

    if options.json:
        return Silence()
    return Bars() if sys.stderr.isatty() and not os.environ.get("NO_COLOR") else PlainLines()


@contextmanager
def _stop_on_signals(stop: threading.Event) -> Iterator[None]:
    """Ctrl-C and SIGTERM set `stop`, so that ranks and ledger are left tidy; a second one ends at once.

    Should tidying take longer than ten seconds (a ledger that does not answer), it ends anyway.
    """

    def handle(signum: int, frame: object) -> None:
        if stop.is_set():
            os._exit(128 + signum)
        stop.set()
        hurry = threading.Timer(10, os._exit, [128 + signum])
        hurry.daemon = True
        hurry.start()

    before = {signum: signal.signal(signum, handle) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _who() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"  # a container's user without a name


def _run_text(session: Any, run_id: int, *, whole: bool = False) -> str:
    from calculators.lab import store, terminal

    found = store.get_run(session, run_id)
    if found is None:
        raise KeyError(run_id)
    text = terminal.run_text(
        found,
        store.comparisons_of(session, run_id),
        verifications=store.verifications_of(session, run_id),
        step_seconds=store.step_seconds_of(session, run_id),
        with_pairs=whole,
    )
    log = store.log_of(session, run_id) if whole else []
    return "\n\n".join(filter(None, [text, terminal.log_text(log)]))


def _summary(run: Any) -> dict[str, Any]:
    return {
        "run": run.id,
        "job": str(run.spec.job),
        "phase": str(run.spec.phase),
        "status": str(run.state),
        "verified": run.verified,
        "world_size": run.world_size,
        "backend": run.backend,
        "submitted_by": run.submitted_by,
        "submitted_at": run.submitted_at.isoformat(),
        "seconds": run.seconds,
        "machine": run.machine,
    }


def _whole(session: Any, run: Any) -> dict[str, Any]:
    """The result, and what it leaves out: pairs, spec, times of steps, the reason of a failure."""
    from calculators.lab import store

    pairs = [c for c in store.comparisons_of(session, run.id) if c.peer is not None]
    return {
        **store.result_of(session, run.id),
        "spec": run.spec.to_dict(),
        "pairs": [c.to_dict() | {"peer": c.peer} for c in pairs],
        "step_seconds": {s.rank: list(s.seconds) for s in store.step_seconds_of(session, run.id)},
        "log": [{"rank": line.rank, "text": line.text} for line in store.log_of(session, run.id)],
        "error": run.error,
        "error_rank": run.error_rank,
        "traceback": run.traceback,
    }
