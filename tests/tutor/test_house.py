"""The house itself: what lies where, what may import what, and settings that hold in public."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import call_command
from importlinter.cli import lint_imports

ROOT = Path(__file__).resolve().parents[2]
PREDICT = sorted((ROOT / "calculators" / "predict").rglob("*.py"))
TOP_LEVEL = {
    "manage.py", "pyproject.toml", "README.md", "tutor", "quizzes", "calculators", "static", "templates", "tests",
    "Makefile", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "docs", ".ci",
    "constraints.txt", ".gitignore", ".pre-commit-config.yaml",
}  # fmt: skip


def python(code, **environment):
    """What a fresh Python prints for `code`."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_imports_point_one_way(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)

    status = lint_imports(no_cache=True)

    assert status == 0, capsys.readouterr().out


@pytest.mark.parametrize("path", PREDICT, ids=lambda path: path.name)
def test_predict_needs_only_numpy_and_the_standard_library(path):
    allowed = {*sys.stdlib_module_names, "numpy", "calculators"}

    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])

    assert imported <= allowed


def test_the_package_above_predict_and_the_lab_is_empty():
    assert (ROOT / "calculators" / "__init__.py").read_bytes() == b""


def test_the_web_side_loads_no_torch():
    loaded = "import sys, tutor.wsgi; print('torch' in sys.modules)"

    assert python(loaded, DJANGO_SETTINGS_MODULE="tests.settings") == "False"


@pytest.mark.parametrize("module", ["predict", "splitmap", "lab.cli", "lab.worker", "lab.store", "lab.plan"])
def test_the_calculators_core_loads_no_django(module):
    loaded = f"import sys, calculators.{module}; print('django' in sys.modules)"

    assert python(loaded) == "False"


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="This is no clone, so what is tracked is not known.")
def test_the_top_level_holds_only_what_people_expect():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert {line.partition("/")[0] for line in tracked.splitlines()} <= TOP_LEVEL


@pytest.mark.django_db
def test_every_change_of_a_model_has_its_migration():
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)


def test_the_settings_hold_on_a_public_address():
    checked = (
        "import django; django.setup();"
        "from django.core.management import call_command;"
        "call_command('check', deploy=True, fail_level='WARNING')"
    )

    python(checked, DJANGO_SETTINGS_MODULE="tutor.settings", SIXFOLD_HTTPS="1")


def test_two_processes_that_start_together_keep_one_secret(tmp_path):
    code = "from tutor import settings; print(settings.SECRET_KEY, settings.ENTRY_TOKEN)"
    command = [sys.executable, "-c", code]
    environment = {**os.environ, "SIXFOLD_HOME": str(tmp_path)}
    started = [
        subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) for _ in "abc"
    ]

    said = {process.communicate(timeout=100)[0] for process in started}

    assert len(said) == 1
    assert (tmp_path / "secret-key").stat().st_mode & 0o077 == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["entry-token", "secret-key"]
