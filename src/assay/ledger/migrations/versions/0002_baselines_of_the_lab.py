"""Baselines of the lab"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("lab", schema=None) as batch_op:
        batch_op.add_column(sa.Column("baselines", sa.JSON(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("lab", schema=None) as batch_op:
        batch_op.drop_column("baselines")
