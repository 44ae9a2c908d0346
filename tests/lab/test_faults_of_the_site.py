"""A run under way when the web server or the whole site is killed: it goes on, or can be taken up again."""

import urllib.request
from datetime import UTC, datetime, timedelta

import pytest

from calculators.lab import store
from calculators.lab.store import RunState
from tests.lab.ledgers import eventually, found, submitted
from tests.tutor.sites import MANAGE_START, free_port, started

pytestmark = [pytest.mark.distributed, pytest.mark.timeout(240)]


def test_a_run_outlives_the_web_server_and_is_lost_but_not_forgotten_with_the_whole_site(tmp_path):
    with started([*MANAGE_START, "--port", str(free_port())], tmp_path) as site:
        address = site.address()
        sessions = store.open_ledger(f"sqlite:///{tmp_path / 'runs.sqlite3'}")
        run = submitted(sessions, steps=10_000, now=datetime.now(UTC))

        def steps_done():
            with sessions.reading() as session:
                return sum(p.done for p in store.progress_of(session, run.id) if p.part == "measure")

        with eventually(90) as wait:
            wait(steps_done)
        ranks = _ranks_of(site)
        assert len(ranks) == 2
        site.web_server().kill()
        site.wait_for(r"The web server was ended by SIGKILL\. Starting it again in 1 s\.")
        before = steps_done()
        page = address[: address.index("/enter")] + f"/runs/{run.id}"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        assert f"Run {run.id}" in opener.open(page, timeout=60).read().decode()
        with eventually(30) as wait:
            wait(lambda: steps_done() > before)
        assert found(sessions, run.id).state is RunState.RUNNING
        assert _ranks_of(site) == ranks

        site.process.kill()

        assert site.left_over(seconds=30) == []
    with sessions.begin() as session:
        assert store.reap(session, now=datetime.now(UTC) + timedelta(seconds=7)) in ([run.id], [])
        assert store.get_run(session, run.id).state is RunState.LOST
        back = store.put_back(session, run.id, by="ada", now=datetime.now(UTC))
    assert (back.state, back.attempt) == (RunState.QUEUED, 1)


def _ranks_of(site):
    """The processes that the lab's fork server started, which look like it."""
    alike = {p.pid: p.ppid() for p in site.processes() if "forkserver import main" in " ".join(p.cmdline())}
    return {pid for pid, parent in alike.items() if parent in alike}
