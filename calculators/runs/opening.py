"""The lab's ledger for pages: opened once a process, and looked at without runs that only seem to be at work."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache

from django.conf import settings
from sqlalchemy.orm import Session

from calculators.lab import store

WORK_COMMAND = "python -m calculators.lab work"


def ledger() -> store.Sessions:
    """Sessions on this site's ledger, whose tables are brought up to date at first use."""
    return _opened(settings.LEDGER_URL)


@lru_cache(maxsize=8)
def _opened(url: str) -> store.Sessions:
    store.migrate(url)
    return store.open_ledger(url)


@contextmanager
def looking(*, now: datetime) -> Iterator[Session]:
    """A session that only looks, at a ledger in which no run counts as running whose worker is gone."""
    sessions = ledger()
    with sessions.reading() as session:
        late = store.overdue(session, now=now)
        if not late:
            yield session
            return
    with sessions.begin() as session:
        store.reap(session, now=now)
    with sessions.reading() as session:
        yield session
