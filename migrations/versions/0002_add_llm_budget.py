"""add llm budget."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = '0002'
down_revision = '0001'
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        'llm_window',
        sa.Column('minute', sa.DateTime(timezone=True), nullable=False),
        sa.Column('calls', sa.Integer(), server_default=sa.text('0'), nullable=False),
        sa.Column('tokens', sa.BigInteger(), server_default=sa.text('0'), nullable=False),
        sa.Column('refreshes', sa.Integer(), server_default=sa.text('0'), nullable=False),
        sa.PrimaryKeyConstraint('minute', name=op.f('pk_llm_window')),
    )
    op.create_table(
        'llm_endpoint',
        sa.Column('name', sa.Text(), nullable=False),
        sa.Column('paused_until', sa.DateTime(timezone=True), nullable=True),
        sa.Column('reason', sa.Text(), nullable=True),
        sa.Column('succeeded_at', sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint('name', name=op.f('pk_llm_endpoint')),
    )
    op.add_column(
        'knowledge_domain',
        sa.Column('counted_change', sa.BigInteger(), server_default=sa.text('0'), nullable=False),
    )
    op.add_column(
        'knowledge_domain',
        sa.Column(
            'called_at', sa.ARRAY(sa.DateTime(timezone=True)), server_default=sa.text("'{}'"), nullable=False
        ),
    )
    op.create_index('ix_llm_memo_at', 'llm_memo', ['at'], unique=False)
    op.create_index(
        'ix_document_summary_fingerprint',
        'document',
        ['summary_fingerprint'],
        unique=False,
        postgresql_where=sa.text('deleted_version IS DISTINCT FROM version'),
    )


def downgrade() -> None:
    op.drop_index('ix_llm_memo_at', table_name='llm_memo')
    op.drop_index(
        'ix_document_summary_fingerprint',
        table_name='document',
        postgresql_where=sa.text('deleted_version IS DISTINCT FROM version'),
    )
    op.drop_column('knowledge_domain', 'called_at')
    op.drop_column('knowledge_domain', 'counted_change')
    op.drop_table('llm_endpoint')
    op.drop_table('llm_window')
