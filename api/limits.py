"""No request is read further than its limit, whether or not it says its length."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import TooLarge, plain, respond
from pipeline.settings import Settings

MIB = 1024 * 1024
# Uploads of many documents at once.
BULK_PATHS = ("/v1/documents:batch", "/v1/files")
DOCUMENT_PATHS = ("/v1/documents/", "/v1/recall", "/mcp")


class BodyLimit:
    """ASGI middleware: 413 before the first byte where the length is said, else at the byte that is too much."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        setting, limit = self._limit(str(scope["path"]))
        said = Headers(scope=scope).get("content-length", "0")
        if not said.isdecimal() or int(said) > limit:
            error = TooLarge(setting, limit)
            await respond({**plain(413, str(error.detail)), "limit": limit})(scope, receive, send)
            return
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > limit:
                raise TooLarge(setting, limit)
            return message

        await self._app(scope, counted, send)

    def _limit(self, path: str) -> tuple[str, int]:
        if path in BULK_PATHS:
            return "WELLHEAD_MAX_BATCH_BYTES", self._settings.max_batch_bytes
        if path.startswith(DOCUMENT_PATHS):
            # JSON may double a text by escaping it; the text itself is measured after parsing.
            return "WELLHEAD_MAX_BODY_BYTES, doubled", 2 * self._settings.max_body_bytes + MIB
        return "for this path", MIB
