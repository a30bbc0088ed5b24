"""The migrations go up, down and up again, and agree with the tables."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def config(empty_database_url: str) -> Config:
    made = Config()
    made.set_main_option("script_location", str(ROOT / "migrations"))
    made.attributes["url"] = empty_database_url
    return made


def tables(url: str) -> set[str]:
    engine = sa.create_engine(url)
    try:
        return set(sa.inspect(engine).get_table_names())
    finally:
        engine.dispose()


def test_up_down_up(config: Config, empty_database_url: str):
    command.upgrade(config, "head")
    first = tables(empty_database_url)
    assert {"document", "document_version", "embedding", "passage", "vector_trash"} <= first
    command.downgrade(config, "base")
    assert tables(empty_database_url) <= {"alembic_version"}
    command.upgrade(config, "head")
    assert tables(empty_database_url) == first


def test_the_migrations_say_what_the_tables_say(config: Config, empty_database_url: str):
    command.upgrade(config, "head")
    # Partitions come and go with generations and must not count as a difference.
    engine = sa.create_engine(empty_database_url)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE embedding_g1 PARTITION OF embedding FOR VALUES IN (1)"))
    engine.dispose()
    command.check(config)


def test_the_check_sees_a_difference(config: Config, empty_database_url: str):
    command.upgrade(config, "head")
    engine = sa.create_engine(empty_database_url)
    with engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE document DROP COLUMN summary"))
    engine.dispose()
    with pytest.raises(Exception, match="summary"):
        command.check(config)


def test_one_head_and_every_revision_has_its_number_and_a_way_down():
    script = ScriptDirectory(str(ROOT / "migrations"))
    assert len(script.get_heads()) == 1
    for revision in script.walk_revisions():
        assert revision.revision.isdigit()
        assert hasattr(revision.module, "downgrade")
