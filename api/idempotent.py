"""``Idempotency-Key``: a request is done once; whoever sends it again gets the first answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Header

from pipeline.adapters.ledger.idempotency import IdempotencyLedger, StoredAnswer

IdempotencyKey = Annotated[
    str | None, Header(max_length=255, description="The same request under the same key gets the same answer.")
]


def once(
    answers: IdempotencyLedger, tenant: str, key: str | None, request: str, act: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """The answer of ``act``, or the stored one of this request; a failed request may be sent again.

    ``request``: a digest of what is asked. Raises InvalidInput when the key belongs to another request, Conflict
    while the first one runs.
    """
    if key is None:
        return act()
    known = answers.begin(tenant, key, request)
    if known is not None:
        return known.response
    try:
        response = act()
    except BaseException:
        answers.release(tenant, key)
        raise
    answers.finish(tenant, key, StoredAnswer(status=200, response=response))
    return response
