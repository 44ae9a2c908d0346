"""Every guided experiment whose claim is about what is counted or computed holds, on real ranks.

Whether a claim about time holds depends on what else the machine does meanwhile, and tests never fail on time:
`make bench ARGS=experiments` runs and judges those.
"""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from calculators.lab.devices import find_devices
from calculators.lab.guided import GUIDED
from calculators.lab.guided.claims import Guided, Level, Outcome, Verdict
from calculators.lab.guided.running import perform
from calculators.lab.launch import LocalLauncher
from calculators.lab.worker import Worker, worker_name
from tests.lab.ledgers import fresh_ledger

pytestmark = [pytest.mark.distributed, pytest.mark.timeout(600)]

COUNTED = [one for one in GUIDED.values() if one.level is not Level.TIME]


@pytest.fixture
def judged(launcher: LocalLauncher, tmp_path: Path) -> Iterator[Callable[[Guided], Verdict]]:
    sessions, devices, stop = fresh_ledger(tmp_path), find_devices(), threading.Event()
    worker = Worker(sessions, launcher, owner=worker_name(devices.host), devices=devices, stop=stop)

    def judge(one: Guided) -> Verdict:
        return perform(one, worker, sessions=sessions, devices=devices, submitted_by="ada", stop=stop)

    with sessions.held_open():
        yield judge


@pytest.mark.parametrize("one", COUNTED, ids=[one.name for one in COUNTED])
def test_a_claim_about_what_is_counted_holds(one: Guided, judged: Callable[[Guided], Verdict]) -> None:
    verdict = judged(one)

    assert verdict.outcome is Outcome.HELD, verdict.sentence
    for figure in verdict.figures:
        if figure.predicted is not None and figure.unit in ("B", "calls"):
            assert figure.measured == pytest.approx(figure.predicted, rel=0.005), figure
