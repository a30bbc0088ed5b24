"""Questions are encoded in the space of the generation that serves, whatever the settings say by now."""

from __future__ import annotations

import numpy as np

from pipeline.ports import Role
from pipeline.settings import Settings
from pipeline.wiring import Parts
from tests.acceptance.words import Words


def test_a_question_is_encoded_in_the_serving_space_during_a_model_change():
    old, new = Words("words-a", 64), Words("words-b", 64)
    parts = Parts(Settings(embedder="tests.acceptance.words:Words", embed_model="words-b", embed_dimension=64))
    assert parts.embedder.space == new.space, "the settings are the new ones"
    for encoder in (old, new):
        vector = parts.query_vectors.vector(encoder.space, "pump valve")
        own = encoder.encode(encoder.tokenize(["pump valve"], Role.QUERY)).dense[0]
        assert vector.space == encoder.space.name
        np.testing.assert_array_equal(vector.dense, own)


def test_a_space_that_cannot_be_loaded_is_not_answered_with_another_one():
    parts = Parts(Settings(embedder="tests.acceptance.words:Words", embed_model="words-b", embed_dimension=64))
    gone = Words("words-a", 64).space
    assert parts.embedder_for(type(gone)(**{**gone.to_json(), "weights": "other"})) is None
