"""Set-up: quick when nothing changed, plain about what it fetches, a sentence for each way it can stop."""

import json
import sys
from collections import namedtuple

import pytest

from tutor import bootstrap

CUDA = [
    "filelock",
    'nvidia-cudnn-cu13==9.20.0.48; platform_system == "Linux"',
    'cuda-toolkit[cublas,cudart]==13.0.3; platform_system == "Linux" and platform_machine == "x86_64"',
]


@pytest.fixture
def project(tmp_path):
    """A folder that set-up takes for the project."""
    (tmp_path / "pyproject.toml").write_text('[project.optional-dependencies]\nlab = ["torch==2.13.0"]\n')
    (tmp_path / "constraints.txt").write_text("torch==2.13.0\n")
    return tmp_path


@pytest.fixture
def set_up_before(project):
    """The project's venv, as set-up leaves it."""
    venv = project / ".venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").write_text("")
    stamp = {"fingerprint": bootstrap.fingerprint(project, "pip"), "torch": "pip"}
    (venv / ".sixfold-stamp").write_text(json.dumps(stamp))
    return venv


@pytest.fixture
def commands(monkeypatch):
    """The commands that set-up would have run; each succeeds unless a test says otherwise."""
    seen = []
    monkeypatch.setattr(
        bootstrap, "run", lambda command, **environment: seen.append([str(part) for part in command]) or 0
    )
    return seen


def test_nothing_is_run_when_nothing_changed(project, set_up_before, commands):
    bootstrap.set_up(set_up_before, root=project)

    assert commands == []


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_a_changed_file_makes_the_stamp_stale(project, name):
    before = bootstrap.fingerprint(project, "pip")
    (project / name).write_text("another = 1\n")

    assert bootstrap.fingerprint(project, "pip") != before


def test_the_choice_of_torch_is_remembered(project, set_up_before):
    stamp = set_up_before / ".sixfold-stamp"
    stamp.write_text(json.dumps({"torch": "system"}))

    assert bootstrap.choose_torch("", stamp) == "system"
    assert bootstrap.choose_torch("pip", stamp) == "pip"
    assert bootstrap.choose_torch("", project / "no-stamp") == "pip"


def test_a_torn_stamp_counts_as_none(tmp_path):
    (tmp_path / "stamp").write_text('{"fingerprint": "ab')

    assert bootstrap.read_stamp(tmp_path / "stamp") == {}


def test_an_unknown_choice_of_torch_is_named(tmp_path):
    with pytest.raises(bootstrap.SetupError, match=r"^TORCH is 'conda'; it can be pip .* or system"):
        bootstrap.choose_torch("conda", tmp_path / "stamp")


def test_an_old_python_is_told_which_one_is_needed():
    with pytest.raises(
        bootstrap.SetupError, match=r"^this is Python 3\.9, and Sixfold needs 3\.11 or newer\."
    ):
        bootstrap.check_python((3, 9, 18))


def test_a_full_disk_is_told_before_anything_is_fetched():
    with pytest.raises(
        bootstrap.SetupError, match=r"^0\.3 GB are free here, and the packages need about 2 GB"
    ):
        bootstrap.check_disk(300_000_000)


def test_a_python_without_venv_names_the_package(tmp_path, monkeypatch, commands):
    find = bootstrap.importlib.util.find_spec
    monkeypatch.setattr(
        bootstrap.importlib.util, "find_spec", lambda name: None if name == "ensurepip" else find(name)
    )

    with pytest.raises(bootstrap.SetupError, match=r"comes without ensurepip.*apt install python3-venv"):
        bootstrap.make_venv(tmp_path / ".venv")

    assert commands == []


def test_a_system_without_torch_is_told_what_to_do(monkeypatch):
    monkeypatch.setattr(bootstrap.importlib.util, "find_spec", lambda name: None)

    with pytest.raises(bootstrap.SetupError, match=r"^TORCH=system asks for the torch of .*, which has none"):
        bootstrap.find_system_torch()


def test_a_torch_that_does_not_import_says_why(tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'OSError: libtorch_cpu.so: cannot open' >&2\nexit 1\n")
    python.chmod(0o755)

    with pytest.raises(bootstrap.SetupError, match=r"does not import in \.venv: OSError: libtorch_cpu\.so"):
        bootstrap.torch_version(python)


def test_a_failing_pip_says_where_its_reason_stands(project, monkeypatch):
    monkeypatch.setattr(bootstrap, "run", lambda command, **environment: 1)

    with pytest.raises(
        bootstrap.SetupError, match=r"^pip could not install the packages; its own words are above"
    ):
        bootstrap.install("python", project, extras="web")


def test_an_index_without_that_torch_says_so(project, monkeypatch):
    monkeypatch.setattr(bootstrap, "run", lambda command, **environment: 1)
    monkeypatch.setattr(bootstrap, "upgrade_pip", lambda python: None)

    with pytest.raises(bootstrap.SetupError, match=r"^pip finds no torch as pinned in pyproject\.toml"):
        bootstrap.announce_torch("python", project)


def test_the_build_its_file_and_its_size_are_told(project, monkeypatch):
    wheel = project / "torch-2.13.0+cpu-cp311-none-any.whl"
    with wheel.open("wb") as file:
        file.truncate(211_400_000)
    report = pip_report(project, wheel.as_uri(), "2.13.0+cpu", requires=["filelock"])
    monkeypatch.setattr(bootstrap, "run", report)
    monkeypatch.setattr(bootstrap, "upgrade_pip", lambda python: None)

    sentence = bootstrap.announce_torch("python", project)

    assert sentence == "torch 2.13.0+cpu: torch-2.13.0+cpu-cp311-none-any.whl, 211 MB."


@pytest.mark.parametrize(
    ("found", "expected"), [("2.13.0+cpu", True), ("2.13.0", True), ("2.12.1", False), ("", False)]
)
def test_a_torch_that_is_there_already_is_not_announced(project, monkeypatch, found, expected):
    monkeypatch.setattr(bootstrap, "output_of", lambda command: found)

    assert bootstrap.has_torch("python", project) is expected


def test_a_cuda_build_says_that_gigabytes_follow(project, monkeypatch):
    monkeypatch.setattr(
        bootstrap, "run", pip_report(project, "file:///no/torch.whl", "2.13.0", requires=CUDA)
    )
    monkeypatch.setattr(bootstrap, "upgrade_pip", lambda python: None)
    monkeypatch.setattr(sys, "platform", "linux")
    machine = namedtuple("machine", "machine")("x86_64")
    monkeypatch.setattr(bootstrap.os, "uname", lambda: machine)

    sentence = bootstrap.announce_torch("python", project)

    assert "of a size that its server does not tell" in sentence
    assert "several GB more" in sentence


@pytest.mark.parametrize(
    ("requirements", "platform", "machine", "expected"),
    [
        (CUDA, "linux", "x86_64", True),
        (CUDA[2:], "linux", "aarch64", False),
        (CUDA, "darwin", "arm64", False),
        (['nvidia-ml-py; extra == "gpu"'], "linux", "x86_64", False),
        (["filelock", "sympy>=1.13.3"], "linux", "x86_64", False),
    ],
)
def test_nvidia_libraries_are_foreseen_from_the_wheels_own_words(requirements, platform, machine, expected):
    assert bootstrap.brings_nvidia(requirements, platform, machine) is expected


def test_a_stop_is_one_sentence_and_a_status(tmp_path, capsys):
    status = bootstrap.main(["--torch", "conda", "--venv", str(tmp_path)])

    assert status == 1
    assert capsys.readouterr().err.startswith("Setting up stopped: TORCH is 'conda'")


def pip_report(project, url, version, *, requires):
    """A stand-in for running pip: writes the report that it would."""

    def run(command, **environment):
        torch = {"download_info": {"url": url}, "metadata": {"version": version, "requires_dist": requires}}
        (project / "build" / "torch-report.json").write_text(json.dumps({"install": [torch]}))
        return 0

    return run
