"""add worker state."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = '0005'
down_revision = '0004'
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        'worker_state',
        sa.Column('host', sa.Text(), nullable=False),
        sa.Column('pid', sa.Integer(), nullable=False),
        sa.Column('purpose', sa.String(length=16), nullable=False),
        sa.Column('open_until', sa.DateTime(timezone=True), nullable=True),
        sa.Column('failures', sa.Integer(), server_default=sa.text('0'), nullable=False),
        sa.Column('succeeded_at', sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            'seen_at', sa.DateTime(timezone=True), server_default=sa.text('clock_timestamp()'), nullable=False
        ),
        sa.PrimaryKeyConstraint('host', 'pid', 'purpose', name=op.f('pk_worker_state')),
    )


def downgrade() -> None:
    op.drop_table('worker_state')
