"""The newest version's state in the serving generation, in SQL once: PUT, GET and lists must agree."""

from __future__ import annotations

STATE_SQL = """
CASE WHEN d.consumed_version = d.version THEN 'consumed'
     WHEN d.deleted_version = d.version THEN 'deleted'
     WHEN EXISTS (SELECT FROM recall_lease r WHERE r.document = d.id AND r.deadline > clock_timestamp()) THEN 'leased'
     WHEN e.live_version = d.version THEN 'searchable'
     WHEN (e.target_version = d.version AND e.parked > 0) OR j.state = 'parked' THEN 'parked'
     ELSE 'pending' END
"""
FROM_SQL = """
FROM document d
LEFT JOIN generation g ON g.status = 'serving'
LEFT JOIN embedding e ON e.generation = g.id AND e.document = d.id
LEFT JOIN prepare_job j ON j.document = d.id
"""
