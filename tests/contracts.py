"""What every implementation of a port must do, fake or real: subclass and give the fixture."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from pipeline.errors import InvalidInput
from pipeline.packing import pack
from pipeline.ports import Embedder, Floats, Role

MIXED = [
    "Restart the payment worker after the database failover.",
    "数据库故障切换之后，需要重启支付服务的工作进程。",
    "short",
    "The cat sat on the mat while it rained outside all day long.",
    "磁盘 usage 超过 90% 时 alert 触发，check /var/log first!",
    "一",
]


def vectors(embedder: Embedder, texts: list[str], role: Role = Role.PASSAGE) -> Floats:
    """All texts in one batch."""
    return embedder.encode(embedder.tokenize(texts, role)).dense


class EmbedderContract:
    """The promises of ``pipeline.ports.Embedder``."""

    @pytest.fixture
    def embedder(self) -> Embedder:
        raise NotImplementedError

    def test_vectors_are_float32_rows_of_unit_length_in_the_order_given(self, embedder: Embedder) -> None:
        dense = vectors(embedder, MIXED)
        assert dense.dtype == np.float32
        assert dense.flags.c_contiguous
        assert dense.shape == (len(MIXED), embedder.space.dimension)
        assert np.abs(np.linalg.norm(dense, axis=1) - 1).max() < 0.01
        backwards = vectors(embedder, MIXED[::-1])[::-1]
        assert (dense * backwards).sum(axis=1).min() >= 0.9999

    def test_a_vector_does_not_depend_on_the_batch(self, embedder: Embedder) -> None:
        ids = embedder.tokenize(MIXED, Role.PASSAGE)
        together = embedder.encode(ids).dense
        alone = np.concatenate([embedder.encode([one]).dense for one in ids])
        assert (together * alone).sum(axis=1).min() >= 0.9999
        for batch in pack([len(one) for one in ids], 32):
            packed = embedder.encode([ids[i] for i in batch]).dense
            assert (together[batch] * packed).sum(axis=1).min() >= 0.9999

    def test_texts_that_say_the_same_are_nearer_than_others(self, embedder: Embedder) -> None:
        first, same, other = vectors(
            embedder,
            [
                "The disk of the database server is full.",
                "The database server's disk is full again.",
                "Bake two apples with cinnamon for dessert.",
            ],
        )
        assert first @ same > first @ other

    def test_an_empty_batch_gives_no_rows(self, embedder: Embedder) -> None:
        assert embedder.encode([]).dense.shape == (0, embedder.space.dimension)

    def test_count_is_what_tokenize_gives_for_passages(self, embedder: Embedder) -> None:
        ids = embedder.tokenize(MIXED, Role.PASSAGE)
        assert embedder.tokenizer.count(MIXED) == [len(one) for one in ids]

    def test_spans_are_the_tokens_in_order_without_the_special_ones(self, embedder: Embedder) -> None:
        (around,) = {
            count - len(embedder.tokenizer.spans(text))
            for text, count in zip(MIXED, embedder.tokenizer.count(MIXED), strict=True)
        }
        assert around >= 2
        for text in MIXED:
            spans = embedder.tokenizer.spans(text)
            assert [start for start, _ in spans] == sorted(start for start, _ in spans)
            assert all(end <= start for (_, end), (start, _) in pairwise(spans))
            covered = {at for start, end in spans for at in range(start, end)}
            assert {at for at, char in enumerate(text) if not char.isspace()} <= covered <= set(range(len(text)))

    def test_no_text_has_no_spans(self, embedder: Embedder) -> None:
        assert embedder.tokenizer.spans("") == []

    def test_a_text_beyond_the_window_is_refused_and_never_cut(self, embedder: Embedder) -> None:
        text = "word " * embedder.window
        with pytest.raises(InvalidInput) as raised:
            embedder.tokenize(["fine", text], Role.PASSAGE)
        assert raised.value.fields["limit"] == embedder.window

    def test_a_text_that_fills_the_window_passes(self, embedder: Embedder) -> None:
        text = "a" + " a" * (embedder.window - embedder.tokenizer.count(["a"])[0])
        assert embedder.tokenizer.count([text]) == [embedder.window]
        assert vectors(embedder, [text]).shape[0] == 1

    def test_the_space_says_what_the_vectors_are(self, embedder: Embedder) -> None:
        space = embedder.space
        assert space == embedder.space
        assert space.normalised
        assert str(space.dimension) in space.name
        sparse = embedder.encode(embedder.tokenize(["word"], Role.PASSAGE)).sparse
        assert (sparse is not None) == space.sparse
