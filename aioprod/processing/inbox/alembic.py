"""Alembic and the tables of the inbox: call this in a migration script.

from aioprod.processing.inbox.alembic import migrate_inbox

def upgrade():
    migrate_inbox(0, 2)

def downgrade():
    migrate_inbox(2, 0)
"""

from __future__ import annotations

from aioprod.database.tables import migrate
from aioprod.processing.inbox.schema import TABLES

__all__ = ["migrate_inbox"]


def migrate_inbox(from_version: int, to_version: int) -> None:
    """Create, change or drop the tables: run the statements of
    :func:`aioprod.processing.inbox.ddl` for the dialect of the database.

    Args:
        from_version, to_version: as in :func:`aioprod.processing.inbox.ddl`.

    Raises:
        ConfigError: as in :func:`aioprod.processing.inbox.ddl`.
    """
    migrate(lambda dialect: TABLES.statements(dialect, from_version, to_version))
