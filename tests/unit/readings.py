"""What one file's reader makes of bytes, for the tests of every kind of file."""

from __future__ import annotations

from pipeline.documents import Upload
from pipeline.limits import Limits
from pipeline.reading import Refused, read_bytes

LIMITS = Limits()


def read(name, data, limits=LIMITS, **more):
    return list(read_bytes(name, data.encode() if isinstance(data, str) else data, limits, **more))


def upload(name, data, **more):
    (only,) = read(name, data, **more)
    assert isinstance(only, Upload), only
    return only


def refusal(name, data, limits=LIMITS):
    (only,) = read(name, data, limits)
    assert isinstance(only, Refused), only
    assert only.name == name and only.sentence
    return only
