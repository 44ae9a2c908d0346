"""Details of quantities, series, timelines, the trial that a run belongs to, and where it was imported from."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_RUN = (("experiment", 80), ("trial", 40), ("variant", 80), ("origin", 300))


def upgrade() -> None:
    for name, length in _RUN:
        op.add_column("run", sa.Column(name, sa.String(length=length), nullable=False, server_default=""))
    op.create_index(op.f("ix_run_trial_id"), "run", ["trial", "id"], unique=False)
    for table in ("prediction", "measurement"):
        op.add_column(table, sa.Column("detail", sa.String(length=80), nullable=False, server_default=""))
        op.drop_index(op.f(f"ix_{table}_run_id"), table_name=table)
        op.create_index(op.f(f"ix_{table}_run_id_quantity"), table, ["run_id", "quantity"], unique=False)
    op.create_table(
        "series",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("values", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["run.id"], name=op.f("fk_series_run_id_run"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "rank", "name", name=op.f("pk_series")),
    )
    op.create_table(
        "timeline",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("spans", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["run.id"], name=op.f("fk_timeline_run_id_run"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "rank", name=op.f("pk_timeline")),
    )


def downgrade() -> None:
    op.drop_table("timeline")
    op.drop_table("series")
    for table in ("prediction", "measurement"):
        op.drop_index(op.f(f"ix_{table}_run_id_quantity"), table_name=table)
        op.create_index(op.f(f"ix_{table}_run_id"), table, ["run_id"], unique=False)
        op.drop_column(table, "detail")
    op.drop_index(op.f("ix_run_trial_id"), table_name="run")
    for name, _ in reversed(_RUN):
        op.drop_column("run", name)
