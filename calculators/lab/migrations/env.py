"""How Alembic reaches the ledger: by the connection that `store.migrate` hands it."""

from alembic import context

from calculators.lab.rows import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,  # SQLite cannot alter a column in place
)
with context.begin_transaction():
    context.run_migrations()
