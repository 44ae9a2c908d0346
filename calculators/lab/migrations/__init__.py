"""Alembic's revisions of the run ledger; `calculators.lab.store.migrate` runs them."""
