"""When a worker that hears nothing ends itself."""

from __future__ import annotations

from workers.deafness import Deafness


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def looks(*seen: tuple[float, bool, int]) -> list[bool]:
    """``seen``: (seconds, whether wake-ups wait, how many were heard so far)."""
    clock = Clock()
    deafness, found = Deafness(60.0, clock), []
    for clock.now, waiting, heard in seen:
        found.append(deafness.look(waiting, heard))
    return found


def test_wake_ups_that_wait_unheard_for_too_long_end_it():
    assert looks((0, True, 3), (59, True, 3), (61, True, 3)) == [False, False, True]


def test_one_that_is_heard_begins_anew():
    assert looks((0, True, 3), (59, True, 4), (118, True, 4), (120, True, 4)) == [False, False, False, True]


def test_an_empty_queue_says_nothing():
    assert looks((0, False, 3), (500, False, 3), (550, True, 3), (559, True, 3)) == [False] * 4
