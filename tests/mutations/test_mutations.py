"""Every promise that is broken on purpose is noticed by the test that guards it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops.stack import Stack
from tests.mutations.runner import FAILED, PASSED, Copy, Mutation, load

MUTATIONS = load()


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory, stack_services: Stack) -> Copy:
    names = ("database_url", "broker_url", "memory_url")
    return Copy(
        tmp_path_factory.mktemp("mutated"), {f"WELLHEAD_TEST_{n.upper()}": stack_services.url(n) for n in names}
    )


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name)
def test_it_still_fits_the_sources(mutation: Mutation):
    assert mutation.stale() is None


def test_a_mutation_whose_text_is_gone_says_so(tmp_path: Path):
    (tmp_path / "a.py").write_text("x = 1\nx = 1\n")
    (tmp_path / "t.py").write_text("def test_x():\n    pass\n")

    def made(**fields: str) -> Mutation:
        return Mutation(**{"name": "m", "file": "a.py", "old": "x = 1", "new": "", "test": "t.py::test_x", **fields})

    assert "occurs 2 times" in (made().stale(tmp_path) or "")
    assert "occurs 0 times" in (made(old="y").stale(tmp_path) or "")
    assert "does not exist" in (made(file="b.py").stale(tmp_path) or "")
    assert "no test" in (made(old="x = 1\nx", test="t.py::test_y").stale(tmp_path) or "")
    assert made(old="x = 1\nx").stale(tmp_path) is None


def test_names_are_unique():
    assert len({m.name for m in MUTATIONS}) == len(MUTATIONS)


@pytest.mark.mutations
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name)
def test_it_is_noticed(copy: Copy, mutation: Mutation):
    done = copy.run_mutated(mutation)
    assert done.returncode == FAILED, f"{mutation.test} did not fail:\n{done.stdout[-3000:]}{done.stderr[-1000:]}"


@pytest.mark.mutations
@pytest.mark.parametrize("test", sorted({m.test for m in MUTATIONS}))
def test_without_a_mutation_it_passes(copy: Copy, test: str):
    done = copy.run(test)
    assert done.returncode == PASSED, done.stdout[-3000:]
