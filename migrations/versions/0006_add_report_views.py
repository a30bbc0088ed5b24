"""Add the report's views

Revision ID: 0006
Revises: 0005
"""

from alembic import op


revision = '0006'
down_revision = '0005'
branch_labels = None
depends_on = None

# The three questions people asked of every deployment, and the use of every tool. One row a tenant and value.
VIEWS = {
    'invocations_by_relevance_level': """
        SELECT tenant, relevance_level, count(*) AS count FROM tool_invocation
        WHERE tool_name = 'lookup_knowledge' GROUP BY tenant, relevance_level
    """,
    'invocations_by_dedup_reason': """
        SELECT tenant, dedup_reason, count(*) AS count FROM tool_invocation
        WHERE tool_name = 'lookup_knowledge' GROUP BY tenant, dedup_reason
    """,
    'invocations_by_similarity': """
        SELECT tenant, round(CAST(retrieval_details ->> 'l1_top_similarity' AS numeric), 2) AS similarity,
            count(*) AS count FROM tool_invocation
        WHERE tool_name = 'lookup_knowledge' AND jsonb_typeof(retrieval_details -> 'l1_top_similarity') = 'number'
        GROUP BY 1, 2
    """,
    'invocations_by_tool': """
        SELECT tenant, tool_name, relevance_level, count(*) AS count, min(at) AS first_at, max(at) AS last_at,
            count(DISTINCT session_id) AS sessions FROM tool_invocation GROUP BY tenant, tool_name, relevance_level
    """,
}


def upgrade() -> None:
    for name, query in VIEWS.items():
        op.execute(f'CREATE VIEW {name} AS {query}')


def downgrade() -> None:
    for name in VIEWS:
        op.execute(f'DROP VIEW {name}')
