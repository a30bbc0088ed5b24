"""``/v1/generations``: every set of vectors, how complete it is, which one serves; ``/v1/sweep``: what is stale."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from api.auth import Admin, Reader
from api.deps import Services, Shared
from api.schemas import AcceptMissing, GenerationOut, GenerationsOut, SweepIn, SweepOut
from pipeline.errors import NotFound, PipelineError, Unavailable
from pipeline.fingerprint import Space, fingerprint
from pipeline.reindexing import Reindex, ReindexState, reindex
from pipeline.rules import rule_name
from pipeline.swapping import roll_back, swap_by_hand
from workers import enqueue

router = APIRouter(prefix="/v1", tags=["generations"])


@router.get("/generations", response_model=GenerationsOut)
def generations(_caller: Reader, shared: Shared) -> GenerationsOut:
    """Oldest first; dropped ones are left out."""
    found = shared.parts.progress.generations()
    return GenerationsOut(generations=[GenerationOut(**asdict(each)) for each in found])


@router.post("/generations:rollback", response_model=GenerationOut)
def rollback(_caller: Admin, shared: Shared, asked: AcceptMissing | None = None) -> GenerationOut:
    """Let the generation that served before serve again; 409 says how many documents it still lacks."""
    accept = asked is not None and asked.accept_missing
    swapped = roll_back(shared.parts.swaps, shared.parts.swaps, accept_missing=accept)
    return _one(shared, swapped.id)


@router.post("/generations/{generation:int}:swap", response_model=GenerationOut)
def swap(generation: int, _caller: Admin, shared: Shared, asked: AcceptMissing | None = None) -> GenerationOut:
    """Let this generation serve, whatever its recall check says; 409 says how many documents it still lacks."""
    accept = asked is not None and asked.accept_missing
    swap_by_hand(shared.parts.swaps, shared.parts.swaps, generation, accept_missing=accept)
    return _one(shared, generation)


@router.post("/generations/{generation:int}:drop", response_model=GenerationOut)
def drop(generation: int, _caller: Admin, shared: Shared) -> GenerationOut:
    """Give up one that builds, or end a soak early. Its vectors go when the longest claim and lookup have passed."""
    shared.parts.drops.drop(generation)
    return _one(shared, generation)


@router.post("/sweep", response_model=SweepOut)
def sweep(_caller: Admin, shared: Shared, asked: SweepIn | None = None) -> JSONResponse:
    """What is stale; without ``dry_run`` it is embedded again. 202: a new generation was started."""
    asked = asked or SweepIn()
    space = wanted_space(shared)
    name = fingerprint(space, rule_name(asked.passage_tokens or shared.settings.passage_tokens))
    started = None if asked.dry_run else start(shared)
    stale = shared.parts.progress.stale(name)
    state = started.state if started else ReindexState.FRESH if not stale.documents else "stale"
    answer = SweepOut(
        fingerprint=name,
        state=str(state),
        generation=started.generation.id if started else None,
        seconds=stale.seconds,
        **asdict(stale),
    )
    return JSONResponse(answer.model_dump(), 202 if state is ReindexState.STARTED else 200)


def start(shared: Services) -> Reindex:
    """Makes the fingerprint of this server's settings complete, and rings the workers."""
    parts = shared.parts
    known = {g.id for g in parts.generations.active()}
    done = reindex(known, lambda: parts.ensure_generation(force=True), parts.swaps)
    enqueue.ring(shared.settings.broker_url, "wellhead.long_jobs")
    return done


def wanted_space(shared: Services) -> Space:
    """The space of the configured encoder. Raises Unavailable when it cannot be loaded here."""
    try:
        return shared.parts.embedder.space
    except (PipelineError, OSError, ImportError, ValueError) as error:
        raise Unavailable(f"the configured encoder cannot be loaded here: {error}", part="encoder") from error


def _one(shared: Services, generation: int) -> GenerationOut:
    for each in shared.parts.progress.generations():
        if each.id == generation:
            return GenerationOut(**asdict(each))
    raise NotFound(f"there is no generation {generation}")
