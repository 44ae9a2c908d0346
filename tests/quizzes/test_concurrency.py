"""Eight tabs at the same moment: one showing, one answer, the same reply (the double click of E1)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def eight_tabs(tmp_path):
    """Runs the program with these answers, one a thread, on a database of its own."""

    def run(answers):
        environment = {
            **os.environ,
            "SIXFOLD_HOME": str(tmp_path),
            "SIXFOLD_HOSTS": "testserver",
            "DJANGO_SETTINGS_MODULE": "tests.settings",
        }
        environment.pop("DATABASE_URL", None)
        finished = subprocess.run(
            [sys.executable, "-m", "tests.quizzes.concurrent_answers", answers],
            cwd=Path(__file__).parents[2], env=environment, capture_output=True, text=True, timeout=90, check=False,
        )  # fmt: skip
        assert finished.returncode == 0, finished.stderr[-2000:]
        return json.loads(finished.stdout)

    return run


def test_eight_identical_answers_at_once_are_one(eight_tabs):
    seen = eight_tabs("opt-pp")

    assert seen["opened"] == [200] * 8
    assert seen["servings"] == 1
    assert seen["statuses"] == [200] * 8
    assert seen["responses"] == [[["opt-pp"], True]]
    assert len(seen["bodies"]) == 1
    assert "Not this one." in seen["bodies"][0]


def test_of_two_different_answers_at_once_one_is_kept_and_all_are_told(eight_tabs):
    seen = eight_tabs("opt-pp,key-tp")

    [[kept, _]] = seen["responses"]
    verdict = "Right." if kept == ["key-tp"] else "Not this one."
    assert all(verdict in body for body in seen["bodies"])
    assert any("You had already answered" in body for body in seen["bodies"])
