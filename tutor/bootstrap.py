"""Sets up `.venv` with nothing but Python itself: `make setup` and every other target run this first.

Quick when nothing changed: a stamp in `.venv` remembers what was installed from. Standard library only,
and plain enough for an old Python to reach the sentence that says which one is needed.
"""

import argparse
import functools
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent
OLDEST_PYTHON = (3, 11)
NEEDED_BYTES = 2 * 1000**3  # the CPU build of torch and all the rest: 1.6 GB, and room to unpack
OLDEST_PIP = (25, 1)  # the first whose dry run reads a wheel's description without fetching the wheel


class SetupError(Exception):
    """Set-up cannot go on; the message says why and what to do."""


def main(arguments=None):
    """Sets up and returns the exit status; a reason that it cannot is one sentence on stderr."""
    parser = argparse.ArgumentParser(description="Set up .venv for Sixfold.")
    parser.add_argument("--torch", default="", metavar="pip|system", help="default: what it was last time")
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv", metavar="FOLDER")
    options = parser.parse_args(arguments)
    try:
        set_up(options.venv, torch=options.torch)
    except SetupError as error:
        print(f"Setting up stopped: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nSetting up was interrupted. The same command goes on from here.", file=sys.stderr)
        return 130
    return 0


def set_up(venv, *, torch="", root=ROOT):
    """Makes `venv` hold what `pyproject.toml` and `constraints.txt` ask for; does nothing if it does already.

    `torch` is "pip", "system" (the one that this Python imports) or "" for the choice made last time.
    """
    check_python(sys.version_info)
    stamp = venv / ".sixfold-stamp"
    torch = choose_torch(torch, stamp)
    wanted = fingerprint(root, torch)
    if read_stamp(stamp).get("fingerprint") == wanted and (venv / "bin" / "python").exists():
        return
    stamp.unlink(missing_ok=True)
    check_disk(shutil.disk_usage(root).free)
    system_torch = find_system_torch() if torch == "system" else None
    python = make_venv(venv)
    linked = site_packages(venv) / "sixfold-system-torch.pth"
    linked.unlink(missing_ok=True)
    if system_torch is None and not has_torch(python, root):
        say(announce_torch(python, root))
    install(python, root, extras="web,test" if system_torch else "web,lab,test")
    if system_torch is not None:
        linked.write_text(f"{system_torch}\n")
        say(f"torch {torch_version(python)} is used as it lies in {system_torch}; none was fetched.")
    (venv / ".sixfold-python").write_text(f"{sys.executable}\n")  # for the Makefile to go on with
    stamp.write_text(json.dumps({"fingerprint": wanted, "torch": torch}))
    say("Set up. The next time is quick.")


def check_python(version):
    """Refuses a Python that is too old, by the tuple `version`."""
    if tuple(version[:2]) < OLDEST_PYTHON:
        raise SetupError(
            f"this is Python {version[0]}.{version[1]}, and Sixfold needs 3.11 or newer. "
            "Name a newer one: make run PYTHON=python3.12"
        )


def check_disk(free_bytes):
    """Refuses to begin what the disk could not hold."""
    if free_bytes < NEEDED_BYTES:
        raise SetupError(
            f"{free_bytes / 1e9:.1f} GB are free here, and the packages need about "
            f"{NEEDED_BYTES / 1e9:.0f} GB (most of it torch). Free some space, or use a torch that is "
            "already installed: make setup TORCH=system"
        )


def choose_torch(asked, stamp):
    """The choice to follow: what was asked for, else what the stamp remembers, else pip."""
    choice = asked or read_stamp(stamp).get("torch", "pip")
    if choice not in ("pip", "system"):
        raise SetupError(f"TORCH is {choice!r}; it can be pip (the pinned one) or system (the one you have).")
    return choice


def fingerprint(root, torch):
    """What decides whether the installed packages are still the right ones, as one hash."""
    digest = hashlib.sha256(f"{sys.version} {sys.base_prefix} {root} {torch}".encode())
    for name in ("pyproject.toml", "constraints.txt"):
        digest.update((root / name).read_bytes())
    return digest.hexdigest()


def read_stamp(stamp):
    """The stamp's content; empty if there is none, or none that can be read."""
    try:
        return json.loads(stamp.read_text())
    except (OSError, ValueError):
        return {}


def find_system_torch():
    """The folder from which the Python that runs this imports torch."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise SetupError(
            f"TORCH=system asks for the torch of {sys.executable}, which has none. "
            "Name a Python that has (make setup TORCH=system PYTHON=…), or leave TORCH out."
        )
    return Path(spec.origin).resolve().parent.parent


def make_venv(venv):
    """Path of the venv's Python; makes the venv if it is missing, broken, or of another Python."""
    python = venv / "bin" / "python"
    tag = "import sys; print(sys.version, sys.base_prefix)"
    if python.exists() and output_of([python, "-c", tag]) == f"{sys.version} {sys.base_prefix}":
        return python
    say(f"Making {venv.name} with Python {sys.version_info[0]}.{sys.version_info[1]} …")
    missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    if missing:
        raise SetupError(
            f"this Python comes without {' and '.join(missing)}. "
            "On Debian and Ubuntu: apt install python3-venv"
        )
    if run([sys.executable, "-m", "venv", "--clear", venv]) != 0:
        raise SetupError(f"{sys.executable} -m venv could not make {venv}. Its own words are above.")
    return python


def site_packages(venv):
    """The folder of the venv's own packages."""
    return venv / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


def install(python, root, *, extras):
    """Installs the project, editable, with `extras` at the tested versions."""
    say("Installing the packages. The first time takes a few minutes.")
    quiet = [] if sys.stdout.isatty() else ["--quiet"]
    command = [*pip(python), "install", *quiet, "-c", root / "constraints.txt", "-e", f"{root}[{extras}]"]
    # A build tool's advice to packagers is no business of who sets up.
    if run(command, PYTHONWARNINGS="ignore") != 0:
        raise SetupError(
            "pip could not install the packages; its own words are above. The usual reasons: no network, or "
            "an index that lacks one of them for this Python and machine (docs/deploy.md: how to choose)."
        )


def announce_torch(python, root):
    """One sentence on the torch that pip would fetch: version, file, size, and what follows it."""
    upgrade_pip(python)
    report = root / "build" / "torch-report.json"
    report.parent.mkdir(exist_ok=True)
    command = [*pip(python), "install", "--quiet", "--dry-run", "--no-deps", "--ignore-installed"]
    if run([*command, "--report", report, "-c", root / "constraints.txt", torch_requirement(root)]) != 0:
        raise SetupError(
            "pip finds no torch as pinned in pyproject.toml for this Python and machine; its own words are "
            "above. Set another index (docs/deploy.md), or use a torch that you have: make setup TORCH=system"
        )
    (torch,) = json.loads(report.read_text())["install"]
    url, metadata = torch["download_info"]["url"], torch["metadata"]
    file_name = unquote(urlsplit(url).path).rpartition("/")[2]
    sentence = f"torch {metadata['version']}: {file_name}, {size_text(url)}."
    if brings_nvidia(metadata.get("requires_dist", []), sys.platform, os.uname().machine):
        sentence += (
            " It is a CUDA build: NVIDIA's libraries follow it, several GB more."
            " For a smaller one, or your own, see docs/deploy.md."
        )
    return sentence


def has_torch(python, root):
    """Whether the pinned torch is installed already, of whichever build."""
    found = output_of([python, "-c", "import importlib.metadata as m; print(m.version('torch'))"])
    return torch_requirement(root) == f"torch=={found.partition('+')[0]}"


def upgrade_pip(python):
    """A pip that can tell a wheel's size before fetching it; the old one if no newer can be had."""
    version = output_of([*pip(python), "--version"]).split()
    if tuple(int(part) for part in version[1].split(".")[:2]) < OLDEST_PIP:
        run([*pip(python), "install", "--quiet", "--upgrade", "pip>=25.1"])


def torch_requirement(root):
    """The pinned requirement, as `pyproject.toml` has it."""
    import tomllib  # 3.11 and newer: by now the version was checked

    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    return next(line for line in project["optional-dependencies"]["lab"] if line.startswith("torch"))


def size_text(url):
    """The size of what lies at `url`, on this disk or on a server, in MB; or that it is not told."""
    try:
        if url.startswith("file:"):
            size_bytes = Path(unquote(urlsplit(url).path)).stat().st_size
        else:
            request = urllib.request.Request(url, method="HEAD")  # noqa: S310 -- the address that pip uses
            with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310
                size_bytes = int(answer.headers["Content-Length"])
    except (OSError, TypeError, ValueError):
        return "of a size that its server does not tell"
    return f"{size_bytes / 1e6:.0f} MB"


def brings_nvidia(requirements, platform, machine):
    """Whether a wheel with these `Requires-Dist` lines brings NVIDIA's libraries to this machine."""

    def applies(line):
        marker = line.partition(";")[2]
        elsewhere = ("Linux" in marker or "linux" in marker) and platform != "linux"
        return "extra ==" not in marker and not elsewhere and ("x86_64" not in marker or machine in marker)

    return any(line.startswith(("nvidia-", "cuda-")) and applies(line) for line in requirements)


def torch_version(python):
    """The version that `python` imports, or why it cannot."""
    command = [str(python), "-c", "import torch; print(torch.__version__)"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]
        raise SetupError(
            f"the system's torch does not import in .venv: {last}. "
            "Repair it, or install the pinned one: make setup TORCH=pip"
        )
    return done.stdout.strip()


def pip(python):
    """The beginning of a pip command line; pip asks nothing."""
    return [python, "-m", "pip", "--no-input", "--disable-pip-version-check"]


def run(command, **environment):
    """Runs `command` with its output shown, ended with us if we end; its exit status."""
    from calculators.lab.lifeline import die_with_parent

    tether = functools.partial(die_with_parent, parent=os.getpid())
    return subprocess.call(
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
        preexec_fn=tether if sys.platform == "linux" else None,  # survives the exec on Linux only
    )


def output_of(command):
    """What `command` prints, or an empty string if it fails."""
    try:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def say(sentence):
    print(sentence, flush=True)


if __name__ == "__main__":
    # This file runs before anything is installed, so the project's folder is not on the path yet;
    # its own folder is, and would let our modules stand in for the library's.
    sys.path[0] = str(ROOT)
    sys.exit(main())
