"""Receive: an upload becomes a version and a prepare job in one transaction, or it is unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from pipeline.documents import DocumentView, Hashes, Lane, Received, State, Upload, VersionText
from pipeline.validation import meta_hash, text_hash


class Documents(Protocol):
    """Documents and their versions in the ledger."""

    def receive(
        self, tenant: str, upload: Upload, hashes: Hashes, lane: Lane, expected_version: int | None = None
    ) -> Received: ...
    def receive_new(
        self, tenant: str, uploads: Sequence[Upload], hashes: Mapping[str, Hashes], lane: Lane
    ) -> dict[str, Received]: ...
    def unchanged(self, tenant: str, hashes: Mapping[str, Hashes]) -> dict[str, int]: ...
    def delete(self, tenant: str, key: str, expected_version: int | None = None) -> int: ...
    def view(self, tenant: str, key: str) -> DocumentView: ...
    def page(self, tenant: str, after: str, limit: int, filters: Mapping[str, str]) -> list[DocumentView]: ...
    def texts(self, versions: Sequence[tuple[int, int]]) -> dict[tuple[int, int], VersionText]: ...


def hashes_of(upload: Upload) -> Hashes:
    """What decides whether an upload changed anything."""
    return Hashes(text=text_hash(upload), meta=meta_hash(upload))


def receive(
    documents: Documents, tenant: str, upload: Upload, lane: Lane, expected_version: int | None = None
) -> Received:
    """Stores one upload; the caller rings the prepare queue afterwards, which is a hint and no more."""
    return documents.receive(tenant, upload, hashes_of(upload), lane, expected_version)


def receive_many(documents: Documents, tenant: str, uploads: Sequence[Upload], lane: Lane) -> Iterable[Received]:
    """Stores a batch in order; what did not change costs one query for all of it, what is new one transaction.

    A key that occurs twice in one batch is stored twice, in order: the last one wins.
    """
    hashes = {u.key: hashes_of(u) for u in uploads}
    done: dict[str, Received] = {}
    if len(hashes) == len(uploads):
        done = {
            key: Received(document=0, key=key, version=version, changed=False, state=State.SEARCHABLE, lane=lane)
            for key, version in documents.unchanged(tenant, hashes).items()
        }
        done |= documents.receive_new(tenant, [u for u in uploads if u.key not in done], hashes, lane)
    for upload in uploads:
        yield done.get(upload.key) or receive(documents, tenant, upload, lane)
