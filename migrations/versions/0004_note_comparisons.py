"""Note comparisons of generations, find documents without a target by an index

Revision ID: 0004
Revises: 0003
"""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql


revision = '0004'
down_revision = '0003'
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column('generation', sa.Column('compared', postgresql.JSONB(), nullable=True))
    op.create_index(
        'ix_embedding_untargeted', 'embedding', ['generation', 'document'], unique=False,
        postgresql_where=sa.text('target_version IS NULL'),
    )
    op.create_index(
        'ix_embedding_parked', 'embedding', ['generation', 'document'], unique=False,
        postgresql_where=sa.text('parked > 0'),
    )


def downgrade() -> None:
    op.drop_index('ix_embedding_parked', table_name='embedding', postgresql_where=sa.text('parked > 0'))
    op.drop_index('ix_embedding_untargeted', table_name='embedding', postgresql_where=sa.text('target_version IS NULL'))
    op.drop_column('generation', 'compared')
