"""Shared by the page tests: a ledger of their own, and numbers read back from a page."""

import pytest

from tests.lab.ledgers import fresh_ledger


@pytest.fixture
def ledger(tmp_path, settings):
    """Sessions on a fresh ledger, which the site reads, too."""
    settings.LEDGER_URL = f"sqlite:///{tmp_path / 'runs.sqlite3'}"
    return fresh_ledger(tmp_path)
