"""The encoder for GPUs: FlagEmbedding loads BGE-M3 or any other encoder model, the batches are ours.

FlagEmbedding's own ``encode`` runs the first batch of every call twice, pads by count instead of by
tokens and hides device errors; none of it is used here, only what it loads.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.adapters.encoder_directory import EncoderDirectory, locate
from pipeline.adapters.tokens import TextTokenizer, check_lengths, padded
from pipeline.errors import InvalidInput, OutOfMemory
from pipeline.fingerprint import Space
from pipeline.ports import Embeddings, Role, TokenIds


class FlagEmbeddingEmbedder:
    """Dense vectors of any encoder model, dense and sparse ones of BGE-M3.

    ``model``: a directory or a hub name. ``device``: the first GPU where there is one, else the CPU;
    ``use_fp16``: yes on a GPU. ``window`` narrows the model's own. Weights are loaded by the first
    ``encode``. Raises InvalidInput for a model that is no encoder with cls or mean pooling.
    """

    def __init__(
        self,
        model: str,
        *,
        dimension: int | None = None,
        device: str | None = None,
        use_fp16: bool | None = None,
        window: int | None = None,
    ) -> None:
        directory = locate(model)
        import torch

        self._name = model
        self._model = EncoderDirectory.read(directory, model)
        self._device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        on_cpu = self._device.startswith("cpu")
        self._fp16 = not on_cpu if use_fp16 is None else use_fp16 and not on_cpu
        self._dimension = _at_most(dimension, self._model.hidden, "dimension")
        self._window = _at_most(window, self._model.window, "window")
        self._loading = threading.Lock()
        self._encoder: _Encoder | None = None
        self._tokenizer = _tokenizer(directory, self._model.passage_prefix)

    @property
    def space(self) -> Space:
        """What its numbers are comparable with."""
        return Space(
            embedder="flagembedding",
            model=self._name,
            weights=self._model.weights,
            dimension=self._dimension,
            pooling=self._model.pooling,
            normalised=True,
            query_prefix=self._model.query_prefix,
            passage_prefix=self._model.passage_prefix,
            precision="fp16" if self._fp16 else "fp32",
            sparse=self._model.m3,
        )

    @property
    def window(self) -> int:
        """The most tokens of one input, prefix and special tokens included."""
        return self._window

    @property
    def tokenizer(self) -> TextTokenizer:
        """Usable without loading the weights."""
        return self._tokenizer

    def tokenize(self, texts: Sequence[str], role: Role) -> list[TokenIds]:
        """Token ids with prefix and special tokens; raises InvalidInput for a text beyond the window."""
        prefix = self._model.query_prefix if role is Role.QUERY else self._model.passage_prefix
        batch = self._tokenizer.ids(texts, prefix)
        check_lengths(batch, self._window)
        return batch

    def encode(self, batch: Sequence[TokenIds]) -> Embeddings:
        """One forward pass in the order given. Raises OutOfMemory; any other device error stays what it is."""
        check_lengths(batch, self._window)
        if not batch:
            dense = np.empty((0, self._dimension), np.float32)
            return Embeddings(dense=dense, sparse=() if self._model.m3 else None)
        import torch

        encoder = self._loaded()
        try:
            return encoder.run(batch, self._dimension)
        except torch.cuda.OutOfMemoryError as error:
            torch.cuda.empty_cache()
            raise OutOfMemory(str(error)) from error
        except RuntimeError as error:
            if "DefaultCPUAllocator" in str(error):  # the CPU's has no class of its own
                raise OutOfMemory(str(error)) from error
            raise

    def _loaded(self) -> _Encoder:
        with self._loading:
            if self._encoder is None:
                self._encoder = _Encoder(self._model, self._device, self._fp16)
            return self._encoder


class _Encoder:
    """The loaded weights on their device."""

    def __init__(self, model: EncoderDirectory, device: str, fp16: bool) -> None:
        from FlagEmbedding import BGEM3FlagModel, FlagModel

        kind = BGEM3FlagModel if model.m3 else FlagModel
        loaded = kind(str(model.directory), use_fp16=fp16, devices=[device], pooling_method=model.pooling)
        loaded.model.to(device).eval()
        if not fp16:
            loaded.model.float()
        self._encoder = loaded.model.model if model.m3 else loaded.model
        self._sparse_head = loaded.model.sparse_linear if model.m3 else None
        self._pooling = model.pooling
        self._device = device
        self._pad = loaded.tokenizer.pad_token_id or 0
        self._special = _special_ids(loaded.tokenizer, device)

    def run(self, batch: Sequence[TokenIds], dimension: int) -> Embeddings:
        """Everything but the last copy happens on the device."""
        import torch

        ids, mask = (torch.from_numpy(array).to(self._device) for array in padded(batch, self._pad))
        with torch.inference_mode():
            hidden = self._encoder(input_ids=ids, attention_mask=mask, return_dict=True).last_hidden_state
            dense = self._pool(hidden, mask)[:, :dimension]
            dense = torch.nn.functional.normalize(dense, dim=-1).cpu().numpy()
            sparse = None if self._sparse_head is None else self._sparse(hidden, ids, mask)
        return Embeddings(dense=np.ascontiguousarray(dense, dtype=np.float32), sparse=sparse)

    def _pool(self, hidden: Any, mask: Any) -> Any:
        if self._pooling == "cls":
            return hidden[:, 0].float()
        weights = mask.unsqueeze(-1).float()
        return (hidden.float() * weights).sum(dim=1) / weights.sum(dim=1)

    def _sparse(self, hidden: Any, ids: Any, mask: Any) -> tuple[dict[int, float], ...]:
        """The largest positive weight of each token id of each row, special tokens left out.

        Row and id make one key and the keys are made unique: a row of the whole vocabulary per text
        would cost a megabyte each.
        """
        import torch

        assert self._sparse_head is not None
        weights = torch.relu(self._sparse_head(hidden)).squeeze(-1).float()
        kept = mask.bool() & ~torch.isin(ids, self._special) & (weights > 0)
        rows = torch.arange(len(ids), device=ids.device).unsqueeze(1).expand_as(ids)
        keys, which = torch.unique((rows[kept] << 32) | ids[kept], return_inverse=True)
        largest = torch.zeros(len(keys), device=ids.device).scatter_reduce(0, which, weights[kept], "amax")
        found: tuple[dict[int, float], ...] = tuple({} for _ in range(len(ids)))
        for key, weight in zip(keys.cpu().tolist(), largest.cpu().tolist(), strict=True):
            found[key >> 32][key & 0xFFFFFFFF] = weight
        return found


def _special_ids(tokenizer: Any, device: str) -> Any:
    import torch

    names = ("cls_token_id", "eos_token_id", "pad_token_id", "unk_token_id")
    known = [getattr(tokenizer, name) for name in names]
    return torch.tensor([one for one in known if one is not None], device=device)


def _tokenizer(directory: Path, passage_prefix: str) -> TextTokenizer:
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(str(directory))
    if not loaded.is_fast:
        raise InvalidInput(f"{directory} has no fast tokenizer, and others give no offsets", field="embed_model")
    # A copy: transformers switches truncation and padding on its own one.
    return TextTokenizer(Tokenizer.from_str(loaded.backend_tokenizer.to_str()), passage_prefix)


def _at_most(wanted: int | None, limit: int, field: str) -> int:
    if wanted is None:
        return limit
    if not 1 <= wanted <= limit:
        raise InvalidInput(f"{field} must be 1 to {limit}, not {wanted}", field=field, limit=limit)
    return wanted
