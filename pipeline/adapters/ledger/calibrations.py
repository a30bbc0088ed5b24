"""Fitted maps of generations: which is due, what it is made from, which is in use."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from pipeline.adapters.ledger.connection import Ledger, one, rows, run, scalar
from pipeline.adapters.ledger.generations import add_job
from pipeline.calibrate import JOB, Label, SampledDocument
from pipeline.errors import Conflict, NotFound
from pipeline.fitting import Fitted
from pipeline.generation import Generation

# Between two fits of one generation that nobody asked for.
_PAUSE_SECONDS = 600.0
# A body's beginning is enough to ask about it.
_BODY_CHARS = 20_000

# Above this, whether a corpus may have doubled is asked of the statistics before anything is counted.
_COUNTED = 20_000
_SERVED = """
SELECT count(*) FROM (SELECT FROM embedding e JOIN document d ON d.id = e.document
WHERE e.generation = :generation AND e.live_version IS NOT NULL AND e.live_total > 0 AND d.kind = 'article'
LIMIT :most) x
"""
_IN_USE = """
SELECT c.*, c.id = g.calibration AS in_use FROM calibration c LEFT JOIN generation g ON g.id = c.generation
"""


@dataclass(frozen=True, kw_only=True)
class StoredCalibration:
    """One fitted map. ``version`` counts within its generation; ``in_use``: lookups of the generation go by it."""

    id: int
    generation: int | None
    kind: str
    version: int
    documents: int
    in_use: bool
    figures: dict[str, Any]
    model: dict[str, Any]
    created_at: datetime


class CalibrationLedger(Ledger):
    """The ``Calibrations`` port on PostgreSQL, and the choice between maps."""

    def want_due(self, least_documents: int, least_labels: int) -> list[int]:
        """Starts the job of every generation that needs a map; returns the generations whose job is open.

        Due: enough documents and no map yet, twice as many documents as at the last fit, or enough labels that the
        last fit has not seen. Of a building generation only when it is as good as complete.
        """
        with self._transaction() as connection:
            for row in rows(connection, "SELECT * FROM generation WHERE status IN ('building', 'serving')"):
                if _due(connection, row, least_documents, least_labels):
                    _add(connection, row["id"], pause=_PAUSE_SECONDS)
            return [
                int(r["name"].removeprefix(JOB))
                for r in rows(
                    connection,
                    "SELECT name FROM job WHERE starts_with(name, :prefix) AND finished_at IS NULL"
                    " AND not_before <= clock_timestamp() AND (deadline IS NULL OR deadline < clock_timestamp())",
                    prefix=JOB,
                )
            ]

    def want(self, generation: int) -> None:
        """Fits this generation's map anew, whatever is due. Raises NotFound, and Conflict for one that is on its way out."""
        with self._transaction() as connection:
            row = one(connection, "SELECT status FROM generation WHERE id = :id", id=generation)
            if row is None:
                raise NotFound(f"there is no generation {generation}")
            if row["status"] not in {"building", "serving", "draining"}:
                raise Conflict(f"generation {generation} is {row['status']}: it answers nothing any more")
            _add(connection, generation)

    def fitting(self, generation: int) -> bool:
        """Is a fit wanted and not finished?"""
        with self._transaction() as connection:
            return bool(
                scalar(
                    connection,
                    "SELECT EXISTS (SELECT FROM job WHERE name = :name AND finished_at IS NULL)",
                    name=f"{JOB}{generation}",
                )
            )

    def calibrated(self, generation: Generation, least_documents: int) -> bool:
        """Has it a map of its own, or too few documents for one?"""
        if generation.calibration is not None:
            return True
        with self._transaction() as connection:
            finished = scalar(
                connection,
                "SELECT EXISTS (SELECT FROM job WHERE name = :name AND finished_at IS NOT NULL)",
                name=f"{JOB}{generation.id}",
            )
            # A fit that found too little to learn from has ended without a map: that holds nothing up.
            return bool(finished) or _served(connection, generation.id, least_documents) < least_documents

    def served(self, generation: int) -> int:
        """Articles that the generation serves."""
        with self._transaction() as connection:
            return _served(connection, generation)

    def sample(self, generation: int, limit: int) -> list[SampledDocument]:
        """Served articles, spread over the corpus: the same sample for the same corpus."""
        with self._transaction() as connection:
            found = rows(
                connection,
                "SELECT d.id AS document, d.tenant, coalesce(v.title, '') AS title, left(v.body, :chars) AS body"
                " FROM embedding e JOIN document d ON d.id = e.document"
                " JOIN document_version v ON v.document = d.id AND v.version = e.live_version"
                " WHERE e.generation = :generation AND e.live_total > 0 AND d.kind = 'article' AND v.body IS NOT NULL"
                " AND (d.deleted_version IS NULL OR d.deleted_version < d.version)"
                " ORDER BY md5(CAST(d.id AS text)) LIMIT :limit",
                generation=generation,
                chars=_BODY_CHARS,
                limit=limit,
            )
        return [SampledDocument(**r) for r in found]

    def labels(self, generation: int) -> list[Label]:
        """What people said of answers of this generation; the last word on each invocation and key counts."""
        with self._transaction() as connection:
            found = rows(
                connection,
                "SELECT DISTINCT ON (tenant, invocation_id, key) features, relevant FROM feedback"
                " WHERE generation = :generation AND features IS NOT NULL"
                " ORDER BY tenant, invocation_id, key, at DESC, id DESC",
                generation=generation,
            )
        return [Label(**r) for r in found]

    def keep(self, generation: int, fitted: Fitted, documents: int) -> int:
        """Stores a map and lets the generation use it; the one before is kept. Returns its id."""
        with self._transaction() as connection:
            run(connection, "SELECT FROM generation WHERE id = :id FOR UPDATE", id=generation)
            number = scalar(
                connection,
                "INSERT INTO calibration (generation, kind, version, model, figures, documents) SELECT :generation,"
                " :kind, 1 + coalesce(max(version), 0), CAST(:model AS jsonb), CAST(:figures AS jsonb), :documents"
                " FROM calibration WHERE generation = :generation RETURNING id",
                generation=generation,
                kind=fitted.model["kind"],
                model=json.dumps(fitted.model),
                figures=json.dumps(fitted.figures),
                documents=documents,
            )
            run(connection, "UPDATE generation SET calibration = :number WHERE id = :id", number=number, id=generation)
        return int(number)

    def all(self, generation: int | None = None) -> list[StoredCalibration]:
        """Newest first."""
        with self._transaction() as connection:
            found = rows(
                connection,
                f"{_IN_USE} WHERE (CAST(:generation AS int) IS NULL OR c.generation = :generation) ORDER BY c.id DESC",
                generation=generation,
            )
        return [_stored(r) for r in found]

    def use(self, number: int) -> StoredCalibration:
        """Lets its generation go by this map from now on. Raises NotFound.

        The next fit comes when it would have come anyway: going back to an older map is not undone by a sweep.
        """
        with self._transaction() as connection:
            row = one(connection, "SELECT generation FROM calibration WHERE id = :id FOR UPDATE", id=number)
            if row is None:
                raise NotFound(f"there is no calibration {number}")
            run(
                connection,
                "UPDATE generation SET calibration = :id WHERE id = :generation",
                id=number,
                generation=row["generation"],
            )
            found = one(connection, f"{_IN_USE} WHERE c.id = :id", id=number)
            assert found is not None
        return _stored(found)

    def use_shipped(self, generation: int) -> None:
        """Lets the generation go by the map that comes with the code. Raises NotFound."""
        with self._transaction() as connection:
            if not run(connection, "UPDATE generation SET calibration = NULL WHERE id = :id", id=generation):
                raise NotFound(f"there is no generation {generation}")


def _due(connection: Connection, generation: dict[str, Any], least_documents: int, least_labels: int) -> bool:
    last = one(
        connection,
        "SELECT documents, coalesce(CAST(figures ->> 'feedback' AS int), 0) AS feedback FROM calibration"
        " WHERE generation = :id ORDER BY version DESC LIMIT 1",
        id=generation["id"],
    )
    labels = int(
        scalar(
            connection,
            "SELECT count(*) FROM (SELECT DISTINCT tenant, invocation_id, key FROM feedback"
            " WHERE generation = :id AND features IS NOT NULL) x",
            id=generation["id"],
        )
    )
    seen = 0 if last is None else last["feedback"]
    if labels >= least_labels and labels >= seen + max(1, least_labels // 2):
        return True
    if last is None:
        # A recall check is made of a building generation when no more than a few laggards are missing.
        complete = generation["status"] == "serving" or generation["recall_check"] is not None
        return complete and _served(connection, generation["id"], least_documents) >= least_documents
    doubled = max(least_documents, 2 * int(last["documents"]))
    if doubled > _COUNTED and _estimated(connection, generation["id"]) < doubled * 0.75:
        return False
    return _served(connection, generation["id"], doubled) >= doubled


def _served(connection: Connection, generation: int, most: int | None = None) -> int:
    """Articles that the generation serves, counted up to ``most``."""
    return int(scalar(connection, _SERVED, generation=generation, most=most))


def _estimated(connection: Connection, generation: int) -> float:
    """Rows of the generation by PostgreSQL's statistics: off by what changed since the last analysis."""
    name = f"embedding_g{generation}"
    return float(
        scalar(connection, "SELECT coalesce(max(reltuples), 0) FROM pg_class WHERE relname = :name", name=name)
    )


def _add(connection: Connection, generation: int, pause: float = 0.0) -> None:
    """Starts the job unless it is open already, or ended less than ``pause`` seconds ago.

    A fit that runs must not be taken from whoever runs it, and one that found too little must not run for ever.
    """
    name = f"{JOB}{generation}"
    if not scalar(
        connection,
        "SELECT EXISTS (SELECT FROM job WHERE name = :name AND (finished_at IS NULL"
        " OR finished_at > clock_timestamp() - make_interval(secs => :pause)))",
        name=name,
        pause=pause,
    ):
        add_job(connection, name)


def _stored(row: dict[str, Any]) -> StoredCalibration:
    return StoredCalibration(
        id=row["id"],
        generation=row["generation"],
        kind=row["kind"],
        version=row["version"],
        documents=row["documents"],
        in_use=bool(row["in_use"]),
        figures=row["figures"],
        model=row["model"],
        created_at=row["created_at"],
    )
