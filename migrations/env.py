"""Runs the migrations on the database of ``-x url=…`` or of the settings."""

from __future__ import annotations

import re
from typing import Any

from alembic import context
from sqlalchemy import create_engine, pool, text

from pipeline.adapters.tables import metadata
from pipeline.settings import Settings


def _url() -> str:
    given = context.config.attributes.get("url") or context.get_x_argument(as_dictionary=True).get("url")
    return str(given or Settings().database_url)


def _ours(_object: Any, name: str | None, kind: str, _reflected: bool, _compare_to: Any) -> bool:
    # The partitions of ``embedding`` come and go with generations; they are no part of the schema.
    return not (kind in {"table", "index"} and re.match(r"(pk_|ix_)?embedding_g\d+", name or ""))


def run() -> None:
    """One transaction; a lock that cannot be had in five seconds fails rather than queues everybody behind it."""
    engine = create_engine(_url(), poolclass=pool.NullPool)
    with engine.connect() as connection:
        connection.execute(text("SET lock_timeout = '5s'"))
        connection.commit()
        context.configure(
            connection=connection, target_metadata=metadata, include_object=_ours, compare_server_default=False
        )
        with context.begin_transaction():
            # Two processes that start at once: the second waits here and finds nothing to do.
            connection.execute(text("SELECT pg_advisory_xact_lock(hashtext('wellhead migrations'))"))
            context.run_migrations()


run()
