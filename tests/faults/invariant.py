"""What must hold after every fault: nothing lost, nothing twice, exactly the right vectors, no claim left behind."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from pipeline.documents import VersionText
from pipeline.fingerprint import passage_key
from pipeline.rules import passages_of
from tests.faults.encoder import FaultEncoder
from tests.faults.harness import LIVE_STATES, Fleet

REPORT = os.environ.get("WELLHEAD_FAULTS_REPORT", "")


@dataclass(kw_only=True)
class Report:
    """What one fault did: every number counted from PostgreSQL, Milvus and the encoder's own log."""

    fault: str
    injected: int = 0
    documents: int = 0
    parked: int = 0
    lost: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    duplicated: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    claims: int = 0
    wanted: int = 0
    encoded: int = 0
    recomputed: int = 0
    fenced: int = 0
    lapsed: int = 0
    most_errors: int = 0
    most_lapses: int = 0
    recovery_seconds: float = 0.0

    def write(self) -> None:
        """One JSON line for the table of ``make faults``."""
        if REPORT:
            with Path(REPORT).open("a") as file:
                file.write(json.dumps(asdict(self)) + "\n")


def check(fleet: Fleet, fault: str, *, injected: int = 1, recovery: float = 0.0) -> Report:
    """The invariant: nothing lost, nothing twice, exactly the right vectors, no claim left behind."""
    fleet.settle()
    fleet.empty_trash()
    fleet.settle()
    report = Report(fault=fault, injected=injected, documents=len(fleet.newest), recovery_seconds=round(recovery, 1))
    states = fleet.states()
    report.parked = sum(s == "parked" for s in states.values())
    report.lost = [k for (t, k), s in states.items() if s not in LIVE_STATES or _wrong_end(fleet, t, k, s)]
    _check_vectors(fleet, report)
    report.claims = fleet.one(
        "SELECT count(*) AS n FROM claim WHERE queue <> 'llm' AND deadline < clock_timestamp() - interval '5 s'"
    )
    report.fenced = fleet.counter("fenced_commits") + fleet.counter("fenced_passages")
    report.lapsed = fleet.counter("lapsed_claims")
    report.most_errors = fleet.one("SELECT coalesce(max(errors), 0) AS n FROM passage")
    report.most_lapses = fleet.one("SELECT coalesce(max(lapses), 0) AS n FROM passage")
    log = fleet.encoded_log
    report.encoded = sum(map(int, log.read_text().split())) if log.exists() else 0
    report.recomputed = max(0, report.encoded - report.wanted)
    report.write()
    assert (report.lost, report.missing, report.duplicated, report.wrong) == ([], [], [], []), report
    assert report.claims == 0, report
    assert report.most_errors <= fleet.settings.max_errors and report.most_lapses <= fleet.settings.max_lapses, report
    return report


def _wrong_end(fleet: Fleet, tenant: str, key: str, state: str) -> bool:
    return (fleet.newest[tenant, key] is None) != (state == "deleted")


def _check_vectors(fleet: Fleet, report: Report) -> None:
    """Each generation's collection against what the uploads alone say it must hold."""
    encoder = FaultEncoder()
    for generation in fleet.parts.generations.active():
        expected = _expected(fleet, generation.id, generation.rule, encoder)
        stored = {k for page in fleet.parts.vectors.admin().keys(generation.collection) for k in page}
        report.wanted += len(expected)
        report.missing += sorted(expected.keys() - stored)
        report.duplicated += sorted(stored - expected.keys() - _beside_parked(fleet, generation.id))
        rows = fleet.parts.vectors.fetch(generation.spec, sorted(expected.keys() & stored), vectors=True)
        for key, row in rows.items():
            ids = encoder.tokenize([expected[key][1]], "passage")
            same = row.hash == expected[key][0] and np.allclose(row.dense, _encoder_vector(encoder, ids), atol=1e-3)
            report.wrong += [] if same else [key]


def _beside_parked(fleet: Fleet, generation: int) -> set[str]:
    """Vectors that a version has beside its parked passage: they serve as soon as that is retried."""
    found = fleet.sql(
        "SELECT document, version, ordinal FROM passage WHERE generation = :g AND state = 'done'", g=generation
    )
    return {passage_key(r["document"], r["version"], r["ordinal"]) for r in found}


def _expected(fleet: Fleet, generation: int, rule: str, encoder: FaultEncoder) -> dict[str, tuple[str, str]]:
    """key → (hash, text) of every live version; for a document that is searchable, of its newest upload."""
    expected = {}
    for r in fleet.sql(
        "SELECT d.tenant, d.key, d.id, d.version, e.live_version, v.title, v.body FROM embedding e"
        " JOIN document d ON d.id = e.document JOIN document_version v ON v.document = d.id"
        " AND v.version = e.live_version WHERE e.generation = :g",
        g=generation,
    ):
        body = fleet.newest[r["tenant"], r["key"]] if r["version"] == r["live_version"] else r["body"]
        for p in passages_of(rule, VersionText(title=r["title"], body=body), encoder.tokenizer):
            expected[passage_key(r["id"], r["live_version"], p.ordinal)] = (p.hash, p.text)
    return expected


def _encoder_vector(encoder: FaultEncoder, ids: list[list[int]]) -> np.ndarray:
    """The vector of one text without pause, log or faults."""
    return super(FaultEncoder, encoder).encode(ids).dense[0]
