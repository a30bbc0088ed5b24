"""Which numbers are comparable is in the name: everything that changes a vector, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.fingerprint import Space, fingerprint, parse_passage_key, passage_key
from pipeline.rules import rule_name

SPACE = Space(
    embedder="onnx",
    model="multilingual-e5-small",
    weights="5f0c",
    dimension=384,
    pooling="mean",
    normalised=True,
    query_prefix="query: ",
    passage_prefix="passage: ",
    precision="int8",
)


@pytest.mark.parametrize(
    "change",
    [
        {"weights": "77aa"},
        {"dimension": 256},
        {"pooling": "cls"},
        {"normalised": False},
        {"query_prefix": ""},
        {"passage_prefix": ""},
        {"precision": "fp32"},
        {"sparse": True},
    ],
    ids=lambda change: next(iter(change)),
)
def test_whatever_changes_a_vector_changes_the_name(change):
    assert replace(SPACE, **change).name != SPACE.name


@pytest.mark.parametrize("change", [{"model": "/srv/models/multilingual-e5-small"}, {"embedder": "own.package:Class"}])
def test_where_a_model_was_loaded_from_does_not(change):
    assert replace(SPACE, **change).name == SPACE.name


def test_every_field_is_decided_about():
    decided = {"weights", "dimension", "pooling", "normalised", "query_prefix", "passage_prefix", "precision", "sparse"}
    assert set(SPACE.to_json()) == decided | {"model", "embedder"}


def test_the_rule_and_its_parameters_are_part_of_the_fingerprint():
    names = {
        fingerprint(SPACE, rule_name(400, version=1)),
        fingerprint(SPACE, rule_name(400, version=2)),
        fingerprint(SPACE, rule_name(200, version=1)),
    }
    assert len(names) == 3
    assert all(name.startswith(f"{SPACE.name}|r") for name in names)


def test_the_row_of_a_generation_gives_the_space_back():
    assert Space(**SPACE.to_json()) == SPACE


def test_passage_keys_go_both_ways():
    assert parse_passage_key(passage_key(12, 3, 45)) == (12, 3, 45)
