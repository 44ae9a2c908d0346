"""The command `meter`: the program's own output and exit code, then a report; and programs that end badly."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"


def meter(*arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "calculators.lab", "meter", *map(str, arguments)],
        env={**os.environ, "TMPDIR": str(folder), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_a_program_without_ranks_runs_as_ever_and_the_report_says_what_was_looked_for(tmp_path: Path) -> None:
    done = meter("--", sys.executable, PROGRAMS / "alone.py", 7, folder=tmp_path)

    assert done.returncode == 7
    assert done.stdout == "computed 45\n"
    assert "(exit code 7," in done.stderr
    assert (
        "No ranks were found: no process of the program called torch.distributed.init_process_group. The meter looks "
        "in every Python process that the program starts, but not in one started with -I, -E or -S, nor in a "
        "container or on another machine that does not see this environment." in done.stderr
    )
    assert list(tmp_path.iterdir()) == []


def test_another_sitecustomize_still_has_its_turn(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('mine')\n")
    done = subprocess.run(
        [sys.executable, "-m", "calculators.lab", "meter", "--", sys.executable, PROGRAMS / "alone.py"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )

    # Once in the meter's own Python, once in the program's.
    assert done.stdout == "mine\nmine\ncomputed 45\n"


def test_json_goes_where_it_is_wanted_and_the_text_nowhere(tmp_path: Path) -> None:
    wanted = tmp_path / "report.json"
    done = meter("--json", wanted, "--", sys.executable, PROGRAMS / "alone.py", folder=tmp_path)
    to_output = meter("--json", "-", "--", sys.executable, PROGRAMS / "alone.py", folder=tmp_path)

    assert (done.stdout, done.stderr) == ("computed 45\n", "")
    assert json.loads(wanted.read_text())["rank_sets"] == []
    assert json.loads(to_output.stdout.removeprefix("computed 45\n"))["exit_code"] == 0


def test_a_report_that_cannot_be_written_is_shown_instead(tmp_path: Path) -> None:
    done = meter("--json", tmp_path / "no" / "where", "--", sys.executable, "-c", "", folder=tmp_path)

    assert done.returncode == 0
    assert f"The report cannot be written to {tmp_path}/no/where (No such file or directory)" in done.stderr
    assert "No ranks were found" in done.stderr


def test_a_command_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    done = meter("--", "no-such-program", folder=tmp_path)

    assert done.returncode == 2
    assert done.stderr == (
        "“no-such-program” cannot be started: No such file or directory. Give a command as you would in a shell, "
        "behind “--”.\n"
    )


def test_no_command_is_answered_with_an_example(tmp_path: Path) -> None:
    done = meter(folder=tmp_path)

    assert done.returncode == 2
    assert done.stderr == (
        "There is no program to meter. Give its command behind “--”, for example: "
        "python -m calculators.lab meter -- torchrun --nproc-per-node 2 train.py\n"
    )


def test_a_program_that_a_signal_ended_gives_the_code_that_a_shell_would(tmp_path: Path) -> None:
    killing = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"

    assert meter("--", sys.executable, "-c", killing, folder=tmp_path).returncode == 137


@pytest.mark.distributed
def test_a_rank_that_was_killed_is_named_with_what_it_had_done(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2)
    done = meter("--json", report, "--", *launcher, PROGRAMS / "crashing.py", "kill", folder=tmp_path)

    assert done.returncode == 1
    said = json.loads(report.read_text())["rank_sets"][0]
    assert [rank["is_complete"] for rank in said["ranks"]][1] is False
    assert any(
        note.startswith(
            "Rank 1 ended without a last word (killed, or crashed below Python). Its numbers are from "
        )
        for note in said["notes"]
    )
    calls = {call["rank"]: call["calls"] for call in said["groups"][0]["calls"]}
    assert calls == {0: 6, 1: 5}
    assert said["wire"]["not_predicted"] == [
        "1 of 6 all-reduce calls: not every rank of the group is known to have entered them"
    ]
    assert [place.name for place in tmp_path.iterdir() if place.name.startswith("sixfold")] == []


@pytest.mark.distributed
def test_spawned_ranks_that_form_their_world_twice_are_found_without_environment_variables(
    tmp_path: Path,
) -> None:
    report = tmp_path / "report.json"
    done = meter("--json", report, "--", sys.executable, PROGRAMS / "spawning.py", folder=tmp_path)

    assert done.returncode == 0, done.stderr
    said = json.loads(report.read_text())["rank_sets"]
    assert len(said) == 1
    groups = {(group["world"], group["name"]): group["calls"][1] for group in said[0]["groups"]}
    assert {key: call["handed_bytes"] for key, call in groups.items()} == {
        (1, "0"): 400,
        (1, "1"): 28,
        (2, "0"): 800,
        (2, "1"): 28,
    }
    assert said[0]["wire"]["unexplained"] == [[0, 0], [0, 0]]
