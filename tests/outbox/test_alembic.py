"""The functions for Alembic create, change and drop the tables, in an environment of Alembic."""

from __future__ import annotations

import io
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext

from aioprod.outbox import ddl
from aioprod.outbox.alembic import include_name
from aioprod.processing import inbox

_ENV = """
from alembic import context
from sqlalchemy import create_engine

url = context.config.get_main_option("sqlalchemy.url")
if context.is_offline_mode():
    context.configure(url=url, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()
else:
    engine = create_engine(url)
    with engine.connect() as connection:
        context.configure(connection=connection)
        with context.begin_transaction():
            context.run_migrations()
    engine.dispose()
"""
_SCRIPT = """
from aioprod.outbox.alembic import migrate_outbox
from aioprod.processing.inbox.alembic import migrate_inbox

revision = "r{new}"
down_revision = {before!r}


def upgrade():
    migrate_outbox({old}, {new}{options})
    migrate_inbox({old}, {new})


def downgrade():
    migrate_outbox({new}, {old})
    migrate_inbox({new}, {old})
"""


def environment(folder: Path, url: str, options: str = "") -> Config:
    """An environment with a script for each version of the tables."""
    versions = folder / "versions"
    versions.mkdir(parents=True)
    (folder / "env.py").write_text(_ENV)
    for old in (0, 1):
        before = f"r{old}" if old else None
        script = _SCRIPT.format(old=old, new=old + 1, before=before, options=options * old)
        (versions / f"r{old + 1}.py").write_text(script)
    config = Config(output_buffer=io.StringIO())
    config.set_main_option("script_location", str(folder))
    config.set_main_option("sqlalchemy.url", url)
    return config


def objects(path: Path) -> set[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as database:
        found = database.execute(
            "SELECT name, coalesce(sql, '') FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"
        ).fetchall()
    return {each for each in found if "alembic_version" not in each[0]}


def test_upgrade_and_downgrade_on_sqlite(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "expected.db")) as database:
        database.executescript(ddl("sqlite") + inbox.ddl("sqlite"))
    path = tmp_path / "shop.db"
    config = environment(tmp_path / "migrations", f"sqlite:///{path}")
    command.upgrade(config, "r1")
    assert {name for name, _ in objects(path)} >= {"aioprod_outbox", "aioprod_inbox"}
    assert not {name for name, _ in objects(path) if name.endswith("_version")}
    command.upgrade(config, "head")
    assert {name for name, _ in objects(path)} == {
        name for name, _ in objects(tmp_path / "expected.db")
    }
    command.downgrade(config, "r1")
    command.upgrade(config, "head")
    command.downgrade(config, "base")
    assert objects(path) == set()


def test_autogenerate_does_not_drop_the_tables(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(ddl("sqlite") + inbox.ddl("sqlite"))
        database.execute("CREATE TABLE own (id integer PRIMARY KEY)")
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    with engine.connect() as connection:
        for options, dropped in (({}, 7), ({"include_name": include_name}, 1)):
            context = MigrationContext.configure(connection, opts=options)
            found = compare_metadata(context, sqlalchemy.MetaData())
            assert [each[0] for each in found] == ["remove_table"] * dropped
    engine.dispose()


def test_statements_for_postgresql_without_a_connection(tmp_path: Path) -> None:
    config = environment(tmp_path / "migrations", "postgresql+psycopg://h/d", ", debezium=True")
    command.upgrade(config, "head", sql=True)
    assert isinstance(config.output_buffer, io.StringIO)
    text = config.output_buffer.getvalue()
    assert "CREATE TRIGGER aioprod_outbox_notify" in text
    assert "NEW.headers::json" in text and "LIKE '%\"eventType\"%'" in text.replace("%%", "%")


@pytest.mark.slow
def test_upgrade_and_downgrade_on_postgresql(server: str, tmp_path: Path) -> None:
    url = server.replace("postgresql://", "postgresql+psycopg://")
    config = environment(tmp_path / "migrations", url, ", debezium=True")
    engine = sqlalchemy.create_engine(url)
    count = sqlalchemy.text(
        "SELECT (SELECT count(*) FROM pg_class WHERE relname LIKE 'aioprod%' AND relkind IN "
        "('r', 'v')), (SELECT count(*) FROM pg_proc WHERE proname LIKE 'aioprod%')"
    )
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text("DROP SCHEMA public CASCADE"))
        connection.execute(sqlalchemy.text("CREATE SCHEMA public"))
        connection.commit()
        command.upgrade(config, "head")
        assert tuple(connection.execute(count).one()) == (8, 2)
        connection.execute(
            sqlalchemy.text(
                "INSERT INTO aioprod_outbox (topic, headers, timestamp_ms) "
                """VALUES ('orders', '[["eventType", "cGFpZA=="]]', 0)"""
            )
        )
        stored = connection.execute(
            sqlalchemy.text("SELECT aggregatetype, type FROM aioprod_outbox")
        ).one()
        assert tuple(stored) == ("orders", "paid")
        connection.commit()
        command.downgrade(config, "base")
        assert tuple(connection.execute(count).one()) == (0, 0)
    engine.dispose()
