"""Two tiny packs in the bank, packs written on the spot, and answering over HTTP as a browser would."""

import re
from pathlib import Path

import pytest

from quizzes.bank import import_pack
from quizzes.models import Serving
from quizzes.packs.checking import check_pack
from quizzes.packs.findings import PackError

TINY = Path(__file__).parent / "packs" / "tiny"
ROWS = TINY.parent / "rows"
HEADER = (TINY / "pack.yaml").read_text()
QUESTIONS = (TINY / "questions" / "basics.yaml").read_text()


@pytest.fixture
def tiny(db):
    """The tiny pack, imported."""
    return import_pack(check_pack(TINY)).pack


@pytest.fixture
def rows(db):
    """A pack of one match and one order, imported."""
    return import_pack(check_pack(ROWS)).pack


@pytest.fixture
def write_pack(tmp_path):
    """Writes a pack and gives its folder: `write_pack(questions, header=…)`, text or bytes."""

    def write(questions=QUESTIONS, *, header=HEADER, name="pack"):
        folder = tmp_path / name
        (folder / "questions").mkdir(parents=True, exist_ok=True)
        for path, content in (("pack.yaml", header), ("questions/basics.yaml", questions)):
            data = content if isinstance(content, bytes) else content.encode()
            (folder / path).write_bytes(data)
        return folder

    return write


@pytest.fixture
def findings(write_pack):
    """What the compiler says about these questions, errors and warnings, each as its printed line."""

    def report(questions=QUESTIONS, *, header=HEADER):
        try:
            return [str(finding) for finding in check_pack(write_pack(questions, header=header)).warnings]
        except PackError as error:
            return [str(finding) for finding in error.findings]

    return report


def served(client, slug="too-wide", *, pack="tiny"):
    """Opens a question as the signed-in learner and gives the serving behind the page."""
    page = client.get(f"/practice/{pack}/{slug}/")
    nonce = re.search(r'name="nonce" value="([^"]+)"', page.content.decode())[1]
    return Serving.objects.get(nonce=nonce)


def post(client, serving, *, htmx=False, target="question", **data):
    """Posts an answer to a serving, as a plain form or as htmx does."""
    headers = {"HX-Request": "true", "HX-Target": target} if htmx else {}
    question = serving.question
    address = f"/practice/{question.pack.address}/{question.slug}/answer"
    return client.post(address, {"nonce": str(serving.nonce), **data}, headers=headers)
