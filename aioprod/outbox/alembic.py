"""Alembic and the tables of the outbox: call this in a migration script.

from aioprod.outbox.alembic import migrate_outbox

def upgrade():
    migrate_outbox(0, 2)

def downgrade():
    migrate_outbox(2, 0)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aioprod.database.tables import migrate
from aioprod.outbox.schema import statements

__all__ = ["include_name", "migrate_outbox"]

_PREFIXES = ("aioprod_outbox", "aioprod_inbox")


def migrate_outbox(from_version: int, to_version: int, *, debezium: bool = False) -> None:
    """Create, change or drop the tables: run the statements of :func:`aioprod.outbox.ddl` for the
    dialect of the database.

    Args:
        from_version, to_version, debezium: as in :func:`aioprod.outbox.ddl`.

    Raises:
        ConfigError: as in :func:`aioprod.outbox.ddl`.
    """
    migrate(lambda dialect: statements(dialect, from_version, to_version, debezium=debezium))


def include_name(name: str | None, kind: str, parent_names: Mapping[Any, str | None]) -> bool:
    """Return False for the tables of the outbox and the inbox. As an argument of
    ``context.configure``, it prevents ``alembic revision --autogenerate`` from dropping them.
    """
    return kind != "table" or name is None or not name.startswith(_PREFIXES)
