"""Two encoders in one process: each is loaded once, and none keeps another one waiting."""

from __future__ import annotations

import threading
from dataclasses import replace

from api.second_encoder import SecondEncoder
from pipeline.encoders import RETRY_SECONDS, Encoders
from pipeline.generation import Generation, Status
from tests.fakes import HashEmbedder

ONE, TWO = HashEmbedder(weights="1"), HashEmbedder(weights="2")


def test_an_encoder_that_loads_slowly_keeps_nobody_else_waiting():
    loading, go_on = threading.Event(), threading.Event()

    def load(space):
        if space.name == TWO.space.name:
            loading.set()
            assert go_on.wait(30)
            return TWO
        return ONE

    encoders = Encoders(load)
    slow = threading.Thread(target=encoders.of, args=(TWO.space,))
    slow.start()
    assert loading.wait(30)
    assert encoders.of(ONE.space) is ONE
    go_on.set()
    slow.join()
    assert encoders.of(TWO.space) is TWO


def test_each_is_loaded_once_and_one_that_was_missing_is_tried_again_a_minute_later():
    now, asked = [0.0], []

    def load(space):
        asked.append(space.name)
        return None if len(asked) < 2 else ONE

    encoders = Encoders(load, clock=lambda: now[0])
    assert [encoders.of(ONE.space), encoders.of(ONE.space)] == [None, None]
    now[0] = RETRY_SECONDS
    assert [encoders.of(ONE.space), encoders.of(ONE.space)] == [ONE, ONE]
    assert len(asked) == 2


def generation(encoder, status):
    return Generation(
        id=1, fingerprint="f", space=encoder.space, rule="r1:400", schema_version=1, collection="c", status=status
    )


def test_the_encoder_of_a_generation_that_is_being_built_is_readied_before_it_serves():
    new = HashEmbedder(weights="new")
    there = [None, new]
    active = [generation(ONE, Status.SERVING), generation(new, Status.BUILDING)]
    second = SecondEncoder(lambda: active, lambda space: there.pop(0) if there else new)
    second.look()
    assert new.batches == [], "it was not there yet"
    second.look()
    second.look()
    assert len(new.batches) == 1
    active[1] = replace(active[1], status=Status.SERVING)
    second.look()
    assert len(new.batches) == 1 and ONE.batches == []
