"""One question to each part: does it answer now? Used by ``/readyz``, ``/v1/status`` and ``wellhead doctor``."""

from __future__ import annotations

import redis
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from pipeline.adapters.ledger.connection import scalar
from pipeline.errors import InfrastructureDown


def schema_version(engine: Engine) -> str | None:
    """The migration the database is at; None for one that was never migrated. Raises InfrastructureDown."""
    try:
        with engine.connect() as connection:
            there = scalar(connection, "SELECT to_regclass('alembic_version')::text")
            return None if there is None else scalar(connection, "SELECT version_num FROM alembic_version")
    except SQLAlchemyError as error:
        raise InfrastructureDown(str(error).strip().split("\n", 1)[0], part="postgresql") from error


def redis_answers(url: str, *, part: str, seconds: float = 1.0) -> None:
    """Pings a Redis or Valkey. Raises InfrastructureDown."""
    try:
        with redis.Redis.from_url(url, socket_timeout=seconds, socket_connect_timeout=seconds) as client:
            client.ping()
    except (redis.RedisError, OSError, ValueError) as error:
        raise InfrastructureDown(f"{error}" or type(error).__name__, part=part) from error


def redis_policy(url: str, *, part: str, seconds: float = 1.0) -> str:
    """Its ``maxmemory-policy``, or an empty string where CONFIG is not allowed. Raises InfrastructureDown."""
    redis_answers(url, part=part, seconds=seconds)
    with redis.Redis.from_url(url, socket_timeout=seconds, socket_connect_timeout=seconds) as client:
        try:
            found = client.config_get("maxmemory-policy")
        except redis.ResponseError:
            return ""
    return str(dict(found).get("maxmemory-policy", ""))
