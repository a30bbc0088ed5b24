"""The HTTP server: parts in, routes on, errors in one shape."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fastapi import FastAPI

from api import errors, mcp
from api.auth import Gate, refuse_open_host
from api.bell import Bell
from api.deps import Pressure, Services
from api.limits import BodyLimit
from api.openapi import describe_bodies
from api.probing import Encoder, Probing, probes_of
from api.routes import (
    batch,
    calibration,
    documents,
    events,
    feedback,
    files,
    generations,
    health,
    knowledge_map,
    lookup,
    metrics,
    parked,
    prompts,
    recall,
    report,
    sessions,
    status,
)
from api.second_encoder import SecondEncoder
from pipeline.adapters.mcp_sessions import RedisMcpSessions
from pipeline.ports import Role
from pipeline.settings import Settings
from pipeline.wiring import Parts, build
from workers import enqueue

# Exact paths first: the document routes take any path below /v1/documents/.
ROUTERS = (
    health,
    metrics,
    batch,
    files,
    lookup,
    recall,
    sessions,
    knowledge_map,
    prompts,
    parked,
    status,
    report,
    calibration,
    feedback,
    generations,
    events,
    documents,
)


def create_app(settings: Settings | None = None, *, parts: Parts | None = None) -> FastAPI:
    """The application for these settings, or for those of the environment.

    Raises SystemExit with one sentence for a host beyond loopback without any API key.
    """
    parts = parts or build(settings)
    settings = parts.settings
    refuse_open_host(settings, parts.keys)
    encoder = Encoder(lambda: _load_encoder(parts))
    app = FastAPI(
        title="Wellhead",
        description="Keeps an agent's knowledge fresh and tells the agent when it has searched enough.",
        version="1",
        lifespan=_lifespan(encoder, SecondEncoder(parts.generations.active, parts.embedder_for)),
    )
    app.state.services = Services(
        settings=settings,
        parts=parts,
        gate=Gate(parts.keys),
        bell=Bell(lambda: enqueue.prepare(settings.broker_url)),
        pressure=Pressure(parts.status.backlog, settings.pending_cap),
        probing=Probing(probes_of(parts, encoder)),
    )
    app.add_middleware(BodyLimit, settings=settings)
    errors.install(app)
    for module in ROUTERS:
        app.include_router(module.router)
    app.state.mcp = mcp.mount(app, app.state.services, _mcp_sessions(settings))
    describe_bodies(app)
    return app


def _lifespan(encoder: Encoder, second: SecondEncoder) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        services: Services = app.state.services
        encoder.start()
        second.start()
        async with mcp.running(app.state.mcp):
            yield
        second.close()
        services.bell.close()
        services.probing.close()
        if "invocations" in vars(services.parts):
            services.parts.invocations.close()
        services.parts.engine.dispose()

    return lifespan


def _mcp_sessions(settings: Settings) -> RedisMcpSessions:
    return RedisMcpSessions(
        settings.memory_url, ttl=settings.session_ttl_seconds, timeout=settings.memory_timeout_seconds
    )


def _load_encoder(parts: Parts) -> None:
    """Encodes one question, so that weights, tokenizer and the runtime's own warm-up are behind us."""
    if parts.settings.query_encoder_url:
        return
    embedder = parts.embedder
    embedder.encode(embedder.tokenize(["warm"], Role.QUERY))
