"""What the handlers share: the process's parts and a few things that live as long as the server."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from dataclasses import dataclass
from tempfile import SpooledTemporaryFile
from typing import IO, Annotated, cast

from fastapi import Depends, Request

from api.auth import Gate
from api.bell import Bell
from api.probing import Probing
from pipeline.documents import Lane
from pipeline.errors import Overloaded
from pipeline.settings import Settings
from pipeline.wiring import Parts

SPOOL_BYTES = 1024 * 1024


class Pressure:
    """Back-pressure per tenant and lane; the count is a second old at most, so a burst costs one query."""

    RETRY_SECONDS = 5.0

    def __init__(self, backlog: Callable[[str, Lane, int], int], cap: int) -> None:
        self._backlog = backlog
        self._cap = cap
        self._lock = threading.Lock()
        self._counted: dict[tuple[str, Lane], tuple[float, int]] = {}

    def check(self, tenant: str, lane: Lane) -> None:
        """Raises Overloaded (429) when too much of the tenant's own work waits in this lane."""
        now, place = time.monotonic(), (tenant, lane)
        at, waiting = self._counted.get(place, (now - 2.0, 0))
        if now - at >= 1.0:
            waiting = self._backlog(tenant, lane, self._cap)
            with self._lock:
                self._counted[place] = (now, waiting)
        if waiting >= self._cap:
            raise Overloaded(
                f"{waiting:,} documents and passages of this tenant wait in the lane {lane.name.lower()}"
                f" (WELLHEAD_PENDING_CAP is {self._cap:,})",
                retry_after=self.RETRY_SECONDS,
            )


@dataclass(frozen=True, kw_only=True)
class Services:
    """Built once per server, in :func:`api.app.create_app`."""

    settings: Settings
    parts: Parts
    gate: Gate
    bell: Bell
    pressure: Pressure
    probing: Probing


async def services(request: Request) -> Services:
    """The server's services. Async, since FastAPI gives anything else a turn in a thread."""
    return cast("Services", request.app.state.services)


async def body_bytes(request: Request) -> bytes:
    """The whole body, which the middleware bounds."""
    return await request.body()


async def spooled_body(request: Request) -> AsyncIterator[IO[bytes]]:
    """The body in a file that stays in memory while it is small."""
    with closing(SpooledTemporaryFile(max_size=SPOOL_BYTES)) as file:
        async for chunk in request.stream():
            file.write(chunk)
        file.seek(0)
        yield cast("IO[bytes]", file)


Shared = Annotated[Services, Depends(services)]
BodyBytes = Annotated[bytes, Depends(body_bytes)]
SpooledBody = Annotated[IO[bytes], Depends(spooled_body)]
