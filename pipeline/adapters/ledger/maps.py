"""What the knowledge map and ``domains list`` read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pipeline.adapters.ledger.changes import change_domains
from pipeline.adapters.ledger.connection import Ledger, rows, run, scalar
from pipeline.adapters.ledger.domains import ALIVE
from pipeline.knowledge_map import MapDocument, MapDomain


@dataclass(frozen=True, kw_only=True)
class DomainView:
    """A domain as ``domains list`` shows it; ``changes`` wait to be summarised."""

    domain_id: str
    description: str | None
    when_to_retrieve: str | None
    document_count: int
    writer: str | None
    changes: int
    dirty_since: datetime | None
    errors: int
    last_error: str | None
    updated_at: datetime | None
    created_at: datetime


class MapLedger(Ledger):
    """The ``MapSource`` port on PostgreSQL."""

    def map_version(self, tenant: str) -> int:
        """Moved by every commit that changes what the map says; 0 before the first."""
        with self._transaction() as connection:
            value = scalar(
                connection,
                "SELECT value FROM change_counter WHERE tenant = :tenant AND name = 'map'",
                tenant=tenant,
            )
            return int(value or 0)

    def map_domains(self, tenant: str, documents: int) -> list[MapDomain]:
        """Every domain that holds an article; of their documents, most recently used first, ``documents`` or a few more.

        A map deals documents to the domains in turn, so none is read of which no turn can come.
        """
        with self._transaction() as connection:
            domains = rows(
                connection,
                "SELECT k.domain_id, k.description, k.when_to_retrieve, (SELECT count(*) FROM document d"
                f" WHERE d.tenant = k.tenant AND d.domain = k.domain_id AND {ALIVE}) AS total"
                " FROM knowledge_domain k WHERE k.tenant = :tenant ORDER BY k.domain_id",
                tenant=tenant,
            )
            found = rows(
                connection,
                "SELECT k.domain_id, x.title, x.key, x.covers FROM knowledge_domain k CROSS JOIN LATERAL ("
                " SELECT d.title, d.key, d.covers FROM document d WHERE d.tenant = k.tenant"
                f" AND d.domain = k.domain_id AND {ALIVE}"
                " ORDER BY d.used_at DESC NULLS LAST, d.updated_at DESC, d.id LIMIT :documents) x"
                " WHERE k.tenant = :tenant",
                tenant=tenant,
                documents=_turns([d["total"] for d in domains], documents),
            )
        listed: dict[str, list[MapDocument]] = {}
        for r in found:
            document = MapDocument(title=r["title"] or r["key"], covers=tuple(r["covers"]))
            listed.setdefault(r["domain_id"], []).append(document)
        return [
            MapDomain(
                domain_id=d["domain_id"],
                description=d["description"] or "",
                when_to_retrieve=d["when_to_retrieve"] or "",
                documents=tuple(listed.get(d["domain_id"], ())),
                total=d["total"],
            )
            for d in domains
            if d["total"]
        ]

    def domain_views(self, tenant: str) -> list[DomainView]:
        """All domains of a tenant, with counts of now."""
        with self._transaction() as connection:
            found = rows(
                connection,
                "SELECT k.domain_id, k.description, k.when_to_retrieve, k.writer, k.dirty_since, k.errors,"
                " k.last_error, k.updated_at, k.created_at, (SELECT count(*) FROM document d WHERE"
                f" d.tenant = k.tenant AND d.domain = k.domain_id AND {ALIVE}) AS document_count,"
                " (SELECT count(*) FROM domain_change c WHERE c.tenant = k.tenant AND c.domain_id = k.domain_id)"
                " AS changes FROM knowledge_domain k WHERE k.tenant = :tenant ORDER BY k.domain_id",
                tenant=tenant,
            )
        return [DomainView(**r) for r in found]

    def refresh(self, tenant: str, domain_ids: list[str] | None = None) -> list[str]:
        """Makes domains (all, or these) be summarised anew even if their input is the same; returns which."""
        with self._transaction() as connection:
            found = rows(
                connection,
                "SELECT domain_id FROM knowledge_domain WHERE tenant = :tenant"
                " AND (CAST(:domains AS text[]) IS NULL OR domain_id = ANY(:domains)) ORDER BY domain_id",
                tenant=tenant,
                domains=domain_ids,
            )
            names = [r["domain_id"] for r in found]
            run(
                connection,
                "UPDATE knowledge_domain SET input_hash = NULL, errors = 0, not_before = clock_timestamp()"
                " WHERE tenant = :tenant AND domain_id = ANY(:names)",
                tenant=tenant,
                names=names,
            )
            change_domains(connection, tenant, [(name, None) for name in names])
            return names


def _turns(totals: Sequence[int], documents: int) -> int:
    """The fewest turns in which ``documents`` of them are dealt, or all."""
    left, turns = documents, 0
    for i, total in enumerate(sorted(totals)):
        waiting = len(totals) - i
        if (total - turns) * waiting >= left:
            return turns + -(-left // waiting)
        left -= (total - turns) * waiting
        turns = total
    return turns
