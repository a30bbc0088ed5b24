"""How many threads of one worker describe at once: with an endpoint all of them wait for it, without one they compute."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from workers import tasks


class Writers:
    """Stands for the LLM stages: counts who is inside, and holds the first one until it is let go."""

    def __init__(self) -> None:
        self.inside = 0
        self.entered, self.second, self.go = threading.Event(), threading.Event(), threading.Event()

    def refresher(self, _breaker):
        return SimpleNamespace(run=lambda _more_time: 0)

    def describer(self, _breaker):
        return SimpleNamespace(run=self._run)

    def _run(self, _more_time) -> int:
        self.inside += 1
        (self.second if self.inside == 2 else self.entered).set()
        assert self.go.wait(20)
        return 0


@pytest.mark.parametrize(("endpoint", "inside"), [("", 1), ("http://llm.example/v1", 2)])
def test_without_an_endpoint_one_thread_describes(monkeypatch, endpoint, inside):
    writers = Writers()
    settings = SimpleNamespace(llm_base_url=endpoint, drain_seconds=1)
    monkeypatch.setattr(tasks, "parts", lambda: SimpleNamespace(settings=settings, llm=writers))
    monkeypatch.setattr(tasks, "time_budget", lambda _seconds: lambda: True)
    threads = [threading.Thread(target=tasks.describe.run) for _ in range(2)]
    threads[0].start()
    assert writers.entered.wait(20)
    threads[1].start()
    if endpoint:
        assert writers.second.wait(20)
    else:
        threads[1].join(20)
        assert not threads[1].is_alive()
    assert writers.inside == inside
    writers.go.set()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    tasks.describe.run()
    assert writers.inside == inside + 1, "the next one may describe again"
