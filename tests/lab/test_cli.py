"""The command line: what it prints where, its exit codes, and that it needs no Django."""

import json
import os
import pty
import re
import signal
import subprocess
import sys

import pytest

from calculators.lab import cli, launch, store
from calculators.lab.measurements import Failed, Log, Measurement, Progress, Quantity, StepSeconds, Verified
from calculators.lab.spec import experiment, experiment_names
from calculators.lab.store import RunState
from tests.lab.ledgers import NOON, Script, eventually, found, fresh_ledger, make_spec, plan_of, submitted


@pytest.fixture
def sessions(tmp_path, monkeypatch):
    """A ledger that the commands find by themselves."""
    monkeypatch.delenv("SIXFOLD_LEDGER_URL", raising=False)
    monkeypatch.setenv("SIXFOLD_HOME", str(tmp_path))
    return fresh_ledger(tmp_path)


@pytest.fixture
def lab(sessions, capsys):
    """Runs a command in this process: exit code, stdout, stderr."""

    def lab(*arguments):
        code = cli.main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return lab


@pytest.fixture
def spec_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(make_spec(note="mine").to_toml())
    return path


def scripted(monkeypatch, *events):
    """Have `run` use a launcher that says these events."""

    class Launcher(Script):
        def __init__(self, max_memory_bytes):
            super().__init__(*events)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(launch, "LocalLauncher", Launcher)


def everything_measured(spec, *, off_by=0.0):
    return [
        Measurement(
            quantity=p.quantity,
            rank=p.rank,
            peer=p.peer,
            detail=p.detail,
            value=p.predicted + (off_by if p.quantity is Quantity.WIRE else 0),
            steps=spec.steps,
        )
        for p in plan_of(spec).predictions
    ]


SOUND = Verified(rank=0, worst=2e-7, tolerance=6e-5), Verified(rank=1, worst=3e-7, tolerance=6e-5)


def test_a_run_that_is_done_and_verified_prints_its_table_and_exits_with_0(lab, monkeypatch, spec_file):
    spec = make_spec(note="mine")
    progress = Progress(rank=0, part="measure", done=0, total=10)
    seconds = StepSeconds(rank=0, seconds=(0.010, 0.012, 0.200))
    scripted(monkeypatch, progress, *SOUND, *everything_measured(spec), seconds, Log(rank=0, text="hello"))

    code, out, err = lab("run", spec_file)

    assert code == 0
    assert re.search(r"^Run 1 · tensor decode · done in \d+\.\d\d s$", out, re.MULTILINE)
    assert "✓ rank 1: sharded equals unsharded: largest difference 3e-07, tolerance 6e-05" in out
    assert re.search(r"^0 +wire bytes sent .* 0 +0\.00%$", out, re.MULTILINE)
    assert "Over 10 measured steps; calls are counts, seconds are seconds, everything else is bytes:" in out
    assert "Median time of a step: 12.00 ms on rank 0." in out
    assert "✗" not in out
    assert "rank 0: measure" in err
    assert "rank 0: hello" in err


def test_json_is_the_object_and_nothing_else(lab, sessions, monkeypatch, spec_file):
    spec = make_spec(note="mine")
    scripted(monkeypatch, *SOUND, *everything_measured(spec, off_by=5), Log(rank=0, text="hello"))

    code, out, err = lab("run", spec_file, "--json")

    assert code == 0
    assert err == ""
    said = json.loads(out)
    assert list(said) == [
        *("run", "job", "status", "verified", "world_size", "backend", "comparisons", "seconds", "machine")
    ]
    with sessions.reading() as session:
        assert said == store.result_of(session, 1)
    wire = [row for row in said["comparisons"] if row["quantity"] == "wire bytes sent"]
    assert [(row["rank"], row["unexplained"]) for row in wire] == [(0, 5), (1, 5)]
    assert list(wire[0]) == [
        *("quantity", "detail", "rank", "formula", "backend_excess", "framing", "control"),
        *("predicted", "measured", "unexplained"),
    ]


def test_a_failed_run_exits_with_1_and_shows_which_rank_and_where(lab, sessions, monkeypatch):
    scripted(monkeypatch, Failed(rank=1, reason="ValueError: no", traceback='Traceback …\n  File "job.py"'))

    code, out, _ = lab("run", "tensor-decode")

    assert code == 1
    assert '✗ Rank 1: ValueError: no\n\nTraceback …\n  File "job.py"' in out
    assert "– No rank has said whether sharded equals unsharded." in out
    assert found(sessions, 1).spec == experiment("tensor-decode")


def test_a_run_that_differs_from_the_unsharded_one_exits_with_1(lab, monkeypatch):
    scripted(monkeypatch, SOUND[0], Verified(rank=1, worst=0.5, tolerance=6e-5))

    code, out, _ = lab("run", "tensor-decode")

    assert code == 1
    assert "✗ rank 1: sharded DIFFERS FROM unsharded: largest difference 0.5, tolerance 6e-05" in out


def test_one_per_cent_unexplained_is_called_a_failure_of_the_model(lab, monkeypatch, spec_file):
    spec = make_spec(note="mine")
    wire = next(p for p in plan_of(spec).predictions if p.quantity is Quantity.WIRE)
    measured = everything_measured(spec, off_by=wire.predicted * 0.02)
    busy = [m for m in measured if m.quantity is not Quantity.IDLE]
    idle = [Measurement(quantity=Quantity.IDLE, rank=r, value=96.0 * r, steps=10) for r in (0, 1)]
    scripted(monkeypatch, *SOUND, *busy, *idle)

    _, out, _ = lab("run", spec_file)

    assert (
        "✗ Wire bytes sent of rank 0: 2.00% is unexplained. 1% or more unexplained is a failure of the model."
    ) in out
    assert (
        "✗ The idle control of rank 1 read 96 B, not 0: something else used its sockets, so its wire bytes "
        "cannot be trusted."
    ) in out


def test_every_problem_of_a_spec_is_a_line_on_stderr_and_exits_with_2(lab, sessions, tmp_path):
    bad = tmp_path / "bad.toml"
    bad.write_text('job = "tensor"\nranks = 0\ncolour = "red"\n[model]\nlayers = 0\n')

    code, out, err = lab("run", bad)

    assert (code, out) == (2, "")
    assert sorted(line.split(" ")[0] for line in err.splitlines()) == ["The", "layers", "ranks"]
    with sessions.reading() as session:
        assert store.latest_runs(session, limit=1) == []


def test_a_spec_that_does_not_exist_is_refused(lab):
    assert lab("run", "no-such-experiment") == (
        2,
        "",
        "There is no experiment “no-such-experiment”. Those that ship are "
        f"{', '.join(experiment_names())}.\n",
    )
    assert lab("run", "missing.toml") == (
        2,
        "",
        "missing.toml cannot be read: No such file or directory.\n",
    )


def test_cuda_asked_for_where_there_is_none_is_refused_before_anything_is_stored(
    lab, sessions, tmp_path, monkeypatch
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    asks = tmp_path / "gpu.toml"
    asks.write_text(make_spec(device="cuda").to_toml())

    code, out, err = lab("run", asks)

    assert (code, out) == (2, "")
    assert err.startswith("device is “cuda”, but this machine offers no NVIDIA GPU: ")
    with sessions.reading() as session:
        assert store.latest_runs(session, limit=1) == []


def test_a_ledger_out_of_reach_exits_with_2(lab):
    assert lab("list", "--ledger", "postgresql://127.0.0.1:1/x")[0] == 2
    assert lab("list", "--ledger", "runs.db") == (
        2,
        "",
        "The ledger address “runs.db” is not a database URL. Write sqlite:///FILE or "
        "postgresql://USER@HOST/DATABASE.\n",
    )


def test_a_dry_run_prints_the_plan_and_starts_and_stores_nothing(lab, sessions, tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "LocalLauncher", None)
    pipeline = tmp_path / "pipeline.toml"
    pipeline.write_text(make_spec(job="pipeline", layers=8, steps=64).to_toml())

    code, out, err = lab("run", pipeline, "--dry-run")

    assert (code, err) == (0, "")
    assert out.startswith("pipeline decode: 2 ranks on ")
    assert "rank 1: layers 4 to 7" in out
    assert re.search(r"1 × +send +0 → 1 +8,192 B +hidden state", out)
    assert re.search(r"1 × +send +1 → 0 +64 B +.*\(control\)", out)
    assert re.search(r"^0 +handed bytes +524,288 +0 +0 +0 +524,288$", out, re.MULTILINE)
    assert "Predicted wire bytes, from each rank (row) to each other (column):" in out
    with sessions.reading() as session:
        assert store.latest_runs(session, limit=1) == []


def test_a_dry_run_can_be_read_by_programs(lab):
    _, out, _ = lab("run", "tensor-training", "--dry-run", "--json")

    said = json.loads(out)
    assert (said["job"], said["world_size"]) == ("tensor", 2)
    assert said["calls"][0]["payload_bytes"] == 4 * 64 * 256 * 4
    assert all(p["predicted"] >= p["formula"] for p in said["predictions"])


def test_an_empty_list_says_how_to_begin(lab):
    assert lab("list") == (
        0,
        "No runs yet. Run one and see how close the calculation was: "
        "python -m calculators.lab run tensor-decode\n",
        "",
    )
    assert lab("list", "--json")[1] == "[]\n"


def test_the_list_has_the_newest_run_first(lab, sessions):
    submitted(sessions, note="the older")
    submitted(sessions, note="the newer", job="pipeline")

    _, out, _ = lab("list")
    _, as_json, _ = lab("list", "--json", "--limit", "1")

    header, newer, older = out.splitlines()
    assert header.split()[:5] == ["run", "job", "ranks", "backend", "status"]
    assert newer.startswith("2    pipeline decode  2      –        queued")
    assert older.endswith("the older")
    (summary,) = json.loads(as_json)
    assert (summary["run"], summary["status"], summary["submitted_at"]) == (
        2,
        "queued",
        "2026-12-01T12:00:00+00:00",
    )


def test_looking_marks_the_runs_of_dead_workers_as_lost(lab, sessions):
    submitted(sessions)
    with sessions.begin() as session:
        store.claim(session, owner="dead", now=NOON.replace(year=2020))

    assert "lost" in lab("list")[1]
    assert "✗ The worker dead was not heard from for 6 s" in lab("show", 1)[1]


def test_show_has_the_pairs_both_ways_and_the_log(lab, monkeypatch, spec_file):
    spec = make_spec(note="mine")
    said = [StepSeconds(rank=0, seconds=(0.1,)), Log(rank=1, text="hello"), Log(rank=None, text="bye")]
    scripted(monkeypatch, *SOUND, *everything_measured(spec), *said)
    lab("run", spec_file)

    _, out, _ = lab("show", 1)
    _, as_json, _ = lab("show", 1, "--json")

    pairs = [p for p in plan_of(spec).predictions if p.quantity is Quantity.PAIR]
    for word in ("predicted", "measured"):
        _, after = out.split(f"Wire bytes {word}, from each rank (row) to each other (column):\n")
        assert after.splitlines()[1].split() == ["0", "·", f"{pairs[0].predicted:,.0f}"]
    assert re.search(r"Log \(UTC\):\n\d\d:\d\d:\d\d  rank 1: hello\n\d\d:\d\d:\d\d  bye\n$", out)
    said = json.loads(as_json)
    assert said["log"] == [{"rank": 1, "text": "hello"}, {"rank": None, "text": "bye"}]
    assert [(p["rank"], p["peer"]) for p in said["pairs"]] == [(0, 1), (1, 0)]
    assert said["step_seconds"] == {"0": [0.1]}
    assert said["spec"] == spec.to_dict()


def test_a_run_that_is_not_there_is_said_so(lab):
    assert lab("show", 10**30)[0] == 2
    assert lab("show", 7) == (2, "", "There is no run 7 in this ledger. `list` shows those there are.\n")


def test_specs_and_devices_are_listed(lab):
    specs, devices = lab("specs"), lab("devices")

    assert specs[0] == devices[0] == 0
    assert all(name in specs[1] for name in experiment_names())
    assert re.search(r"\d+ cores, \d+\.\d GiB of memory", devices[1])
    assert set(json.loads(lab("devices", "--json")[1])) >= {"host", "cores", "gpus", "no_gpu_reason"}


def test_a_reader_that_goes_away_is_no_error():
    command = f"set -o pipefail; {sys.executable} -m calculators.lab specs | true"

    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True)

    assert (ended.returncode, ended.stderr) == (0, "")


def test_light_commands_import_neither_torch_nor_a_database():
    script = (
        "import sys; from calculators.lab.cli import main; main(['specs']); main(['devices']);"
        "main(['run', 'tensor-decode', '--dry-run']);"
        "heavy = {'torch', 'sqlalchemy', 'rich', 'django', 'alembic'} & set(sys.modules); assert not heavy, heavy"
    )

    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)

    assert ended.returncode == 0, ended.stderr


# With real ranks, as a person would start them.


def environment_without_django(tmp_path):
    """An environment in which `import django` fails, in this process's children and in theirs."""
    hidden = tmp_path / "hidden"
    (hidden / "django").mkdir(parents=True)
    (hidden / "django" / "__init__.py").write_text("raise ImportError('Django is hidden')\n")
    path = os.pathsep.join([str(hidden), os.getcwd()])
    return {**os.environ, "PYTHONPATH": path, "SIXFOLD_HOME": str(tmp_path)}


@pytest.mark.distributed
def test_a_run_without_django_is_measured_and_verified(tmp_path, spec_file):
    environment = environment_without_django(tmp_path)
    hidden = subprocess.run([sys.executable, "-c", "import django"], env=environment, capture_output=True)
    command = [sys.executable, "-m", "calculators.lab", "run", str(spec_file), "--json"]

    ended = subprocess.run(command, env=environment, capture_output=True, text=True)

    assert hidden.returncode == 1
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)
    assert (said["status"], said["verified"], said["world_size"]) == ("done", True, 2)
    assert {row["quantity"] for row in said["comparisons"]} >= {"calls", "handed bytes", "wire bytes sent"}
    assert {row["unexplained"] for row in said["comparisons"]} == {0}


def read_until(terminal, word):
    said = ""
    while word not in said:
        said += os.read(terminal, 4096).decode(errors="replace")
    return said


@pytest.mark.distributed
def test_ctrl_c_on_a_terminal_ends_every_rank_and_exits_with_130(sessions, tmp_path):
    psutil = pytest.importorskip("psutil")
    long = tmp_path / "long.toml"
    long.write_text(make_spec(steps=10_000).to_toml())
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "calculators.lab", "run", str(long)],
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "NO_COLOR": ""},
    )
    said = read_until(ours, "/10000")
    ranks = psutil.Process(process.pid).children(recursive=True)

    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=20)

    assert process.returncode == 130
    assert "rank 1" in said
    assert "━" in said  # a bar
    with eventually(3) as wait:
        wait(lambda: not any(p.is_running() and p.status() != "zombie" for p in ranks))
    assert "✗ Stopped with Ctrl-C before it had ended." in out
    assert found(sessions, 1).state is RunState.CANCELLED
    os.close(ours)
    os.close(theirs)


@pytest.mark.distributed
def test_a_worker_on_the_command_line_does_one_run_and_ends(sessions):
    run = submitted(sessions)
    command = [sys.executable, "-m", "calculators.lab", "work", "--once"]

    ended = subprocess.run(command, capture_output=True, text=True)

    assert ended.returncode == 0, ended.stderr
    assert re.search(r"\d\d:\d\d:\d\d \S+ is ready: ", ended.stdout)
    assert f"Run {run.id} (tensor): done" in ended.stdout
    assert found(sessions, run.id).succeeded
