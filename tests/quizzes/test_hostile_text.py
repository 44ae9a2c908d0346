"""Script in any text of a pack, or typed by a learner, never runs for anyone."""

import pytest

from quizzes.bank import import_pack
from quizzes.packs.checking import check_pack
from tests.quizzes.conftest import post, served
from tests.quizzes.test_markdown import PAYLOADS

pytestmark = pytest.mark.django_db

QUESTION = """\
- id: too-wide
  type: single
  title: PAYLOAD
  symptom: PAYLOAD
  prompt: "[[x]]{cue=why} PAYLOAD"
  cues: {why: PAYLOAD}
  choices:
    - {id: a, text: PAYLOAD a, credit: "1", feedback: PAYLOAD}
    - {id: b, text: PAYLOAD b, misconception: m, feedback: PAYLOAD}
  hints: [PAYLOAD]
  explanation: PAYLOAD
"""
HEADER = """\
format: 1
id: tiny
publisher: tests
title: PAYLOAD
summary: PAYLOAD
version: PAYLOAD
license: PAYLOAD
authors: [{name: PAYLOAD}]
misconceptions: [{id: m, name: PAYLOAD, tell: PAYLOAD, refutation: PAYLOAD}]
"""


def quoted(text, payload):
    """The payload as a YAML double-quoted piece wherever PAYLOAD stands."""
    escaped = payload.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    text = text.replace('"[[x]]{cue=why} PAYLOAD"', f'"[[x]]{{cue=why}} {escaped}"')
    for suffix in (" a", " b", ""):
        text = text.replace(f": PAYLOAD{suffix}", f': "{escaped}{suffix}"')
    return text.replace("[PAYLOAD]", f'["{escaped}"]')


@pytest.mark.parametrize(
    "payload", [p for p in PAYLOADS if "![" not in p and "href" not in p and "{{ <" not in p]
)
def test_no_text_of_a_pack_runs(write_pack, signed_in, payload):
    import_pack(check_pack(write_pack(quoted(QUESTION, payload), header=quoted(HEADER, payload))))
    serving = served(signed_in)

    pages = [
        signed_in.get("/practice/"),
        signed_in.get("/practice/tiny/too-wide/"),
        post(signed_in, serving, choice="b", htmx=True),
        signed_in.get(f"/practice/tiny/too-wide/answered/{serving.nonce}/"),
    ]

    for page in pages:
        body = page.content.decode().lower().partition("<main")[2] or page.content.decode().lower()
        for element in (
            "<script>alert",
            "<img",
            "<svg",
            "<iframe",
            "<style",
            "onclick=alert(1)>",
            "<annotation-xml",
        ):
            assert element not in body
        assert 'href="javascript' not in body


@pytest.mark.parametrize("payload", [p for p in PAYLOADS if len(p) <= 80])
def test_nothing_a_learner_types_runs(tiny, signed_in, payload):
    back = post(signed_in, served(signed_in, "share"), typed=payload).content.decode().lower()

    for element in ("<script>alert", "<img", "<svg", "<iframe", "<style>*"):
        assert element not in back.partition("<main")[2]
