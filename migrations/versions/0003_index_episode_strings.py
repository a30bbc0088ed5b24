"""index the exact strings of episodes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = '0003'
down_revision = '0002'
branch_labels = None
depends_on = None

# Numbers, ids, versions, addresses: whole, then in ever smaller pieces, so that "88213" finds "20240611-88213".
# The same cuts as in pipeline/exact_strings.py; COST keeps the planner from calling it for every row of a table.
FUNCTION = r"""
CREATE FUNCTION episode_strings(events jsonb) RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE COST 1000000 AS $$
  SELECT coalesce(array_agg(DISTINCT left(piece, 128)), '{}') FROM (
    SELECT DISTINCT runs.m[1] AS run
    FROM jsonb_path_query(events, '$[*].blocks[*].text') AS said,
         regexp_matches(lower(normalize(said #>> '{}', NFKC)), '[a-z0-9]+(?:[._:/@#+-][a-z0-9]+)*', 'g') AS runs (m)
    WHERE length(runs.m[1]) >= 3 AND runs.m[1] ~ '[0-9._@]'
  ) AS found,
  LATERAL (
    SELECT run AS piece
    UNION ALL SELECT string_to_table(translate(run, '/:@#+', '     '), ' ') WHERE run ~ '[/:@#+]'
    UNION ALL SELECT string_to_table(translate(run, '/:@#+_-', '       '), ' ') WHERE run ~ '[_-]'
    UNION ALL SELECT string_to_table(translate(run, '/:@#+_-.', '        '), ' ') WHERE run ~ '[.]'
  ) AS pieces
  WHERE length(piece) >= 3 AND piece ~ '[0-9._@]'
$$
"""


def upgrade() -> None:
    op.execute(FUNCTION)
    op.create_index(
        'ix_document_version_strings', 'document_version', [sa.text('episode_strings(events)')],
        postgresql_using='gin', postgresql_where=sa.text('events IS NOT NULL'),
    )


def downgrade() -> None:
    op.drop_index('ix_document_version_strings', table_name='document_version', postgresql_using='gin')
    op.execute('DROP FUNCTION episode_strings(jsonb)')
