"""How well titles find their own documents: what ``min_self_retrieval`` was chosen from.

``python -m ops.bench.self_retrieval CORPUS_DIRECTORY…``: every directory is a corpus of its own. For the
bundled encoder, the same cut to 256 dimensions, and the English-Portuguese variant of the weights (the same
dimension, another space) it prints the share of titles whose document is the first hit, and the overlap of the
first ten documents with those of the bundled encoder.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ops.bundled_model import ensure
from pipeline.adapters.onnx import OnnxEmbedder
from pipeline.documents import Upload, VersionText
from pipeline.limits import Limits
from pipeline.packing import pack
from pipeline.ports import Embedder, Floats, Role
from pipeline.reading import read_file
from pipeline.rules import passages_of, rule_name
from pipeline.walking import walk

TOP = 10
MODELS = (("multilingual-e5-small", None), ("multilingual-e5-small", 256), ("multilingual-e5-small-enpt", None))


def main() -> None:
    """Prints one line a corpus and encoder."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("corpora", nargs="+", type=Path)
    arguments.add_argument("--models", type=Path, default=Path(".test-services/models"))
    arguments.add_argument("--documents", type=int, default=120, help="of each corpus, spread evenly")
    arguments.add_argument("--probes", type=int, default=64)
    given = arguments.parse_args()
    print(f"{'corpus':14} {'encoder':32} {'docs':>5} {'passages':>8} {'self':>6} {'overlap':>8} {'seconds':>8}")
    for corpus in given.corpora:
        uploads = sample(corpus, given.documents)
        reference: list[list[int]] = []
        for model, dimension in MODELS:
            began = time.monotonic()
            embedder = OnnxEmbedder(ensure(given.models, model), dimension=dimension)
            vectors, owners = encode(embedder, uploads)
            ranked = search(embedder, vectors, owners, uploads[: given.probes])
            reference = reference or ranked
            own = np.mean([found[0] == i for i, found in enumerate(ranked)])
            overlap = np.mean([len(set(a) & set(b)) / len(b) for a, b in zip(ranked, reference, strict=True)])
            name = f"{model}{f'@{dimension}' if dimension else ''}"
            seconds = time.monotonic() - began
            print(
                f"{corpus.name:14} {name:32} {len(uploads):5} {len(owners):8} {own:6.2f} {overlap:8.2f} {seconds:8.1f}"
            )
            sys.stdout.flush()


def sample(corpus: Path, most: int) -> list[Upload]:
    """At most so many documents with a title, spread over the corpus."""
    found = [u for f in walk([corpus]) for u in read_file(f, Limits()) if isinstance(u, Upload) and u.title and u.body]
    step = max(1, len(found) // most)
    return found[::step][:most]


def encode(embedder: Embedder, uploads: Sequence[Upload]) -> tuple[Floats, list[int]]:
    """The passages' vectors [n, dimension] and the number of the document each belongs to."""
    texts, owners = [], []
    for number, upload in enumerate(uploads):
        made = passages_of(rule_name(400), VersionText(title=upload.title, body=upload.body or ""), embedder.tokenizer)
        texts += [p.text for p in made]
        owners += [number] * len(made)
    ids = embedder.tokenize(texts, Role.PASSAGE)
    vectors = np.zeros((len(ids), embedder.space.dimension), np.float32)
    for batch in pack([len(i) for i in ids], 1024):
        vectors[list(batch)] = embedder.encode([ids[i] for i in batch]).dense
    return vectors, owners


def search(embedder: Embedder, vectors: Floats, owners: list[int], probes: Sequence[Upload]) -> list[list[int]]:
    """For each probe's title the first ten documents, best first."""
    ids = embedder.tokenize([u.title for u in probes], Role.QUERY)
    ranked = []
    for query in ids:
        scores = vectors @ embedder.encode([query]).dense[0]
        ranked.append(list(dict.fromkeys(owners[i] for i in np.argsort(-scores)))[:TOP])
    return ranked


if __name__ == "__main__":
    main()
