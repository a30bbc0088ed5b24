"""One root for every error the product raises on purpose. The docstring of a class is its title."""

from __future__ import annotations


class PipelineError(Exception):
    """Something went wrong in the pipeline."""

    status = 500

    def __init__(self, detail: str = "", **fields: object) -> None:
        super().__init__(detail or type(self).__doc__ or "")
        self.fields = fields


class InvalidInput(PipelineError):
    """The input breaks a limit or a rule."""

    status = 422

    def __init__(self, detail: str, *, field: str, limit: object | None = None) -> None:
        super().__init__(detail, field=field, **({} if limit is None else {"limit": limit}))


class NotFound(PipelineError):
    """There is no such thing here."""

    status = 404


class Conflict(PipelineError):
    """The state has moved on; the request does not apply any more."""

    status = 409


class PreconditionFailed(PipelineError):
    """The precondition of the request does not hold."""

    status = 412


class Overloaded(PipelineError):
    """Too much work is pending; try again later."""

    status = 429

    def __init__(self, detail: str, *, retry_after: float) -> None:
        super().__init__(detail, retry_after=retry_after)
        self.retry_after = retry_after


class Unavailable(PipelineError):
    """A part the request needs cannot be reached."""

    status = 503

    def __init__(self, detail: str, *, part: str, retry_after: float = 5.0) -> None:
        super().__init__(detail, part=part, retry_after=retry_after)
        self.part = part
        self.retry_after = retry_after


class InfrastructureDown(Unavailable):
    """PostgreSQL, Milvus, Redis or the encoder does not answer: nobody's document is to blame."""


class OutOfMemory(PipelineError):
    """The encoder ran out of memory; a smaller batch may pass."""


class BadVector(PipelineError):
    """The encoder returned something that must not be stored."""


class CollectionGone(PipelineError):
    """The collection of this generation does not exist."""


class WrongSpace(PipelineError):
    """A vector of another space was offered to this collection."""
