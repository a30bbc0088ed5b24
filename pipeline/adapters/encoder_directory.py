"""What a model directory in the format of the Hugging Face hub says of its encoder, read without loading it."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pipeline.errors import InvalidInput
from pipeline.fingerprint import digest

# Position ids of these start behind the padding index, so that many rows of the table are never used.
_OFFSET_POSITIONS = {"xlm-roberta", "roberta", "camembert", "xlm-roberta-xl", "mpnet"}
_NOT_NEEDED = ["*.onnx*", "onnx/*", "openvino/*", "*.msgpack", "*.ot", "*.h5", "imgs/*"]


@dataclass(frozen=True, kw_only=True)
class EncoderDirectory:
    """``m3``: has a sparse head; ``hidden``: numbers of a full vector; ``window``: tokens, special ones included."""

    directory: Path
    m3: bool
    pooling: str
    hidden: int
    window: int
    query_prefix: str
    passage_prefix: str

    @classmethod
    def read(cls, directory: Path, name: str) -> EncoderDirectory:
        """``name`` is what the user called the model; raises InvalidInput for a pooling other than cls and mean."""
        config = _json(directory / "config.json")
        prompts = _json(directory / "config_sentence_transformers.json").get("prompts") or {}
        heads = (directory / "sparse_linear.pt").is_file() and (directory / "colbert_linear.pt").is_file()
        return cls(
            directory=directory,
            m3=heads or _base_name(name) == "bge-m3",
            pooling=_pooling(directory, name),
            hidden=config["hidden_size"],
            window=_window(directory, config),
            query_prefix=prompts.get("query") or "",
            passage_prefix=prompts.get("document") or prompts.get("passage") or "",
        )

    @cached_property
    def weights(self) -> str:
        """SHA-256 over everything that decides a number: weights, the sparse head, the tokenizer."""
        tensors = sorted(self.directory.glob("*.safetensors")) or sorted(self.directory.glob("pytorch_model*.bin"))
        wanted = [*tensors, self.directory / "sparse_linear.pt", self.directory / "tokenizer.json"]
        hashes = []
        for path in wanted:
            if path.is_file():
                with path.open("rb") as handle:
                    hashes.append([path.name, hashlib.file_digest(handle, "sha256").hexdigest()])
        return digest(*hashes)


def locate(model: str) -> Path:
    """The directory of a local path or of a hub name, which is downloaded when it is not cached."""
    if Path(model).is_dir():
        # Read once, when the hub's library is imported: a local model must never wait for the network.
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        return Path(model)
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(model, ignore_patterns=_NOT_NEEDED))


def _base_name(name: str) -> str:
    return name.rstrip("/").rsplit("/", 1)[-1]


def _json(path: Path) -> dict[str, Any]:
    """A configuration file, empty where a model has none."""
    if not path.is_file():
        return {}
    content: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return content


def _pooling(directory: Path, name: str) -> str:
    """From the model's own file, else what FlagEmbedding knows of the name, else cls as FlagEmbedding does."""
    declared = _json(directory / "1_Pooling" / "config.json")
    modes = [key.removeprefix("pooling_mode_") for key, on in declared.items() if on is True and "pooling_mode_" in key]
    pooling = {"cls_token": "cls", "mean_tokens": "mean"}.get(modes[0], modes[0]) if modes else None
    pooling = pooling or declared.get("pooling_mode") or _known_pooling(name)
    if pooling not in {"cls", "mean"}:
        raise InvalidInput(f"{name} pools by {pooling!r}; only cls and mean are known", field="embed_model")
    return str(pooling)


def _known_pooling(name: str) -> str:
    from FlagEmbedding.inference.embedder.model_mapping import AUTO_EMBEDDER_MAPPING

    known = AUTO_EMBEDDER_MAPPING.get(_base_name(name))
    return "cls" if known is None else str(known.pooling_method.value)


def _window(directory: Path, config: dict[str, Any]) -> int:
    """The smallest of: position rows, what the model was trained for, what its tokenizer says."""
    positions = config["max_position_embeddings"]
    if config.get("model_type") in _OFFSET_POSITIONS:
        positions -= config.get("pad_token_id", 1) + 1
    trained = _json(directory / "sentence_bert_config.json").get("max_seq_length")
    tokenizer = _json(directory / "tokenizer_config.json").get("model_max_length")
    return int(min(limit for limit in (positions, trained, tokenizer) if limit))
