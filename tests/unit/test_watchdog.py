"""The watchdog ends a process that has work and finishes nothing, and leaves an idle or a slow one alone."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from workers.watchdog import EXIT_STATUS, Watchdog


class Time:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def ended():
    return []


@pytest.fixture
def dog(time, ended):
    return Watchdog(10, end=ended.append, clock=time)


def test_a_task_that_finishes_nothing_ends_the_process(dog, time, ended):
    with dog.working():
        time.now = 10
        dog.look()
        assert ended == []
        time.now = 11
        dog.look()
        assert ended == [EXIT_STATUS]


def test_progress_puts_the_end_off(dog, time, ended):
    with dog.working():
        for time.now in (9, 18, 27):
            dog.progress()
        time.now = 36
        dog.look()
        assert (ended, dog.idle_seconds()) == ([], 9)


def test_a_process_without_work_is_left_alone(dog, time, ended):
    with dog.working():
        pass
    dog.progress()
    time.now = 1000
    dog.look()
    assert (ended, dog.idle_seconds()) == ([], 0)


def test_progress_of_one_thread_does_not_cover_for_another(dog, time, ended):
    started, go = threading.Event(), threading.Event()

    def stuck():
        with dog.working():
            started.set()
            go.wait(10)

    thread = threading.Thread(target=stuck)
    thread.start()
    assert started.wait(10)
    with dog.working():
        time.now = 11
        dog.progress()
        dog.look()
    go.set()
    thread.join()
    assert ended == [EXIT_STATUS]


def test_a_real_process_ends_with_the_stack_of_what_hung():
    code = (
        "import time\nfrom workers.watchdog import Watchdog\n"
        "dog = Watchdog(0.2)\ndog.start()\n"
        "def hang_here():\n    time.sleep(60)\n"
        "with dog.working():\n    hang_here()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == EXIT_STATUS
    assert "hang_here" in done.stderr
