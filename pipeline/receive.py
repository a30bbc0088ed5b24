"""Receive: an upload becomes a version and a prepare job in one transaction, or it is unchanged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from pipeline.documents import DocumentView, Hashes, Lane, Received, State, Upload, VersionText
from pipeline.errors import PipelineError, Unavailable
from pipeline.validation import meta_hash, text_hash


class Uploads(Protocol):
    """Taking uploads into the ledger."""

    def receive(
        self, tenant: str, upload: Upload, hashes: Hashes, lane: Lane, expected_version: int | None = None
    ) -> Received: ...
    def receive_new(
        self, tenant: str, uploads: Sequence[Upload], hashes: Mapping[str, Hashes], lane: Lane
    ) -> dict[str, Received]: ...
    def unchanged(self, tenant: str, hashes: Mapping[str, Hashes]) -> dict[str, int]: ...


class Documents(Uploads, Protocol):
    """Documents and their versions in the ledger."""

    def delete(self, tenant: str, key: str, expected_version: int | None = None) -> int: ...
    def view(self, tenant: str, key: str) -> DocumentView: ...
    def page(self, tenant: str, after: str, limit: int, filters: Mapping[str, str]) -> list[DocumentView]: ...
    def texts(self, versions: Sequence[tuple[int, int]]) -> dict[tuple[int, int], VersionText]: ...


def hashes_of(upload: Upload) -> Hashes:
    """What decides whether an upload changed anything."""
    return Hashes(text=text_hash(upload), meta=meta_hash(upload))


def receive(
    documents: Uploads, tenant: str, upload: Upload, lane: Lane, expected_version: int | None = None
) -> Received:
    """Stores one upload; the caller rings the prepare queue afterwards, which is a hint and no more."""
    return documents.receive(tenant, upload, hashes_of(upload), lane, expected_version)


def receive_many(
    documents: Uploads, tenant: str, uploads: Sequence[Upload], lane: Lane
) -> Iterator[Received | PipelineError]:
    """What became of each upload, in order; one that is refused is refused alone. Raises Unavailable.

    What did not change costs one query for all of it, and what is new one transaction, which goes first. A key that
    occurs twice in one batch is stored twice, in order: the last one wins.
    """
    hashes = {u.key: hashes_of(u) for u in uploads}
    done = _at_once(documents, tenant, uploads, hashes, lane) if len(hashes) == len(uploads) else {}
    for upload in uploads:
        try:
            yield done.get(upload.key) or receive(documents, tenant, upload, lane)
        except Unavailable:
            raise
        except PipelineError as error:
            yield error


def _at_once(
    documents: Uploads, tenant: str, uploads: Sequence[Upload], hashes: Mapping[str, Hashes], lane: Lane
) -> dict[str, Received]:
    done = {
        key: Received(document=0, key=key, version=version, changed=False, state=State.SEARCHABLE, lane=lane)
        for key, version in documents.unchanged(tenant, hashes).items()
    }
    rest = [u for u in uploads if u.key not in done]
    return done | documents.receive_new(tenant, rest, hashes, lane) if rest else done
