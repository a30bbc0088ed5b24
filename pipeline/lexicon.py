"""The exact names and the term statistics of one tenant's live documents, kept current in every process."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pipeline.errors import PipelineError
from pipeline.keyword_index import KeywordIndex, Named
from pipeline.terms import TermStatistics, code_tokens

log = logging.getLogger(__name__)

# IDF needs a rough idea of the corpus, not a count: the terms of this many documents are enough.
SAMPLE = 2000
PAGE = 500
# A name that more documents share names none of them.
SHARED_BY = 5
# A word (not a code) that more documents than this use in their text is no name either: "cluster", "集群".
COMMON_SHARE = 0.02
COMMON_LEAST = 5


@dataclass(frozen=True, kw_only=True)
class LiveNames:
    """One document as L0 sees it. ``version`` None: it is not served (any more)."""

    document: int
    version: int | None
    title: str = ""
    keywords: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Documents changed since ``since``; ``mark`` is where the next question starts."""

    names: Sequence[LiveNames]
    mark: float


class NamesSource(Protocol):
    """Where the names come from."""

    def names(self, tenant: str, generation: int, since: float | None) -> Changes:
        """All live articles, or what changed since that mark (also what went away)."""
        ...

    def bodies(self, versions: Sequence[tuple[int, int]]) -> dict[tuple[int, int], str]:
        """Body texts of (document, version) pairs."""
        ...


class Lexicon:
    """L0 of one tenant. ``refresh`` tells it how far the change counter is; ``match`` never waits for a build."""

    def __init__(self, source: NamesSource, tenant: str) -> None:
        self._source = source
        self._tenant = tenant
        self._working = threading.Lock()
        self._seen: tuple[int, int] | None = None
        self._mark: float | None = None
        self._versions: dict[int, int] = {}
        self._names: dict[int, LiveNames] = {}
        self._tokens: dict[int, frozenset[str]] = {}
        self._index = KeywordIndex()
        self._counted = 0
        self.statistics = TermStatistics()

    @property
    def ready(self) -> bool:
        """Was it ever loaded?"""
        return self._seen is not None

    def match(self, text: str) -> Named:
        """What the question names, without what names too many or is a common word beside others."""
        named = self._index.match(text)
        kept = tuple(
            k
            for k in named.keywords
            if len(k.documents) <= SHARED_BY and (k.code or k.documents & named.covering or not self._common(k.text))
        )
        documents = frozenset().union(*(k.documents for k in kept))
        return Named(keywords=kept, covering=named.covering & documents)

    def _common(self, word: str) -> bool:
        return self.statistics.share(word) * self.statistics.documents > max(
            COMMON_LEAST, COMMON_SHARE * self.statistics.documents
        )

    def refresh(self, generation: int, change: int, *, wait: bool) -> None:
        """Loads what changed up to this value of the counter, in a thread of its own unless ``wait``."""
        if self._seen == (generation, change):
            return
        if wait or not self.ready:
            with self._working:
                self._load(generation, change)
        elif self._working.acquire(blocking=False):
            threading.Thread(target=self._in_background, args=(generation, change), daemon=True).start()

    def _in_background(self, generation: int, change: int) -> None:
        try:
            self._load(generation, change)
        except PipelineError as error:
            # The old index goes on serving; the next request tries again.
            log.warning("the keyword index of %s could not be refreshed: %s", self._tenant, error)
        finally:
            self._working.release()

    def _load(self, generation: int, change: int) -> None:
        if self._seen == (generation, change):
            return
        # Another generation may serve other versions; the old index answers until the new one is filled.
        full = self._seen is None or self._seen[0] != generation
        changes = self._source.names(self._tenant, generation, None if full else self._mark)
        live = [n for n in changes.names if n.version is not None]
        gone = [n.document for n in changes.names if n.version is None]
        if full:
            gone += self._names.keys() - {n.document for n in live}
        self._forget(gone)
        stale = [n for n in live if self._versions.get(n.document) != n.version]
        changed = [n for n in live if self._names.get(n.document) != n or self._versions.get(n.document) != n.version]
        self._read_bodies(stale[:PAGE])
        self._index_names(changed)
        self._count_terms()
        self._mark = changes.mark
        self._seen = (generation, change)
        if len(stale) > PAGE:
            # Many bodies take their time: keywords and titles answer meanwhile.
            threading.Thread(target=self._catch_up, args=(stale[PAGE:],), daemon=True).start()

    def _catch_up(self, later: Sequence[LiveNames]) -> None:
        for at in range(0, len(later), PAGE):
            with self._working:
                page = [n for n in later[at : at + PAGE] if self._names.get(n.document) == n]
                try:
                    self._read_bodies(page)
                except PipelineError as error:
                    log.warning("codes in the texts of %s could not be read: %s", self._tenant, error)
                    self._seen = None  # the next request loads again what is missing
                    return
                self._index_names(page)

    def _forget(self, documents: Iterable[int]) -> None:
        for document in documents:
            self._names.pop(document, None)
            self._versions.pop(document, None)
            self._tokens.pop(document, None)
            self._index.drop(document)

    def _read_bodies(self, stale: Sequence[LiveNames]) -> None:
        if not stale:
            return
        page = {(n.document, n.version): n for n in stale if n.version is not None}
        bodies = self._source.bodies(list(page))
        for pair, name in page.items():
            self._tokens[name.document] = code_tokens(name.title, bodies.get(pair, ""))
            self._versions[name.document] = pair[1]
            time.sleep(0)  # lookups of this process go first

    def _index_names(self, live: Sequence[LiveNames]) -> None:
        for name in live:
            self._names[name.document] = name
            self._index.put(name.document, (*name.keywords, name.title, *self._tokens.get(name.document, ())))
        for _ in self._index.build():
            time.sleep(0.001)  # a build holds the interpreter; lookups of this process go in between

    def _count_terms(self) -> None:
        """Counts again when the corpus has grown or shrunk by half."""
        live = len(self._names)
        if self._counted and self._counted / 1.5 <= live <= self._counted * 1.5:
            return
        step = max(1, live // SAMPLE)
        chosen = [n for n in sorted(self._names.values(), key=lambda n: n.document)[::step] if n.version is not None]
        texts: list[str] = []
        for at in range(0, len(chosen), PAGE):
            page = chosen[at : at + PAGE]
            bodies = self._source.bodies([(n.document, n.version) for n in page if n.version is not None])
            texts += [f"{n.title}\n{bodies.get((n.document, n.version or 0), '')}" for n in page]
        self.statistics = TermStatistics.of(texts)
        self._counted = live
