"""The fakes keep the promises of the ports they stand in for."""

from __future__ import annotations

import pytest

from pipeline.ports import Embedder, Role
from tests.contracts import EmbedderContract
from tests.fakes import HashEmbedder


class TestHashEmbedder(EmbedderContract):
    @pytest.fixture
    def embedder(self) -> Embedder:
        return HashEmbedder()


class TestHashEmbedderWithSparse(EmbedderContract):
    @pytest.fixture
    def embedder(self) -> Embedder:
        return HashEmbedder(sparse=True)


def test_other_weights_are_another_space_with_other_vectors() -> None:
    old, new = HashEmbedder(), HashEmbedder(weights="1")
    assert old.space.name != new.space.name
    first, second = (e.encode(e.tokenize(["disk full"], Role.PASSAGE)).dense[0] for e in (old, new))
    assert first @ second < 0.9
