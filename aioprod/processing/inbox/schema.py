"""The tables of the inbox."""

from __future__ import annotations

from typing import Final

from aioprod.database.address import Dialect
from aioprod.database.tables import Steps, VersionedTables

#: The position of a partition of which the database has no record yet.
NO_POSITION: Final = -1

_TABLES: Final = (
    """\
-- The positions of groups whose records are processed in this database.
CREATE TABLE aioprod_inbox (
    group_id text NOT NULL,
    topic text NOT NULL,
    partition integer NOT NULL,
    topic_id text NOT NULL,  -- a topic that is created again has another one
    position bigint NOT NULL,  -- the offset of the next record; -1: of none yet
    epoch bigint NOT NULL,  -- the number of assignments; only the last one may commit
    PRIMARY KEY (group_id, topic, partition)
);
""",
    """\
-- The ids of records that were handled, for first_time().
CREATE TABLE aioprod_inbox_handled (
    scope text NOT NULL,
    record_id text NOT NULL,
    handled_at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (scope, record_id)
);
""",
)
# A view, because a copy of the schema without its rows keeps it, and so does TRUNCATE.
_VERSION_VIEW: Final = """\
-- The version of these tables, for the processors.
CREATE VIEW aioprod_inbox_version AS SELECT 2 AS version;
"""
_DROP_TABLES: Final = ("DROP TABLE aioprod_inbox;\n", "DROP TABLE aioprod_inbox_handled;\n")


def _upgrade(dialect: Dialect) -> Steps:
    return {1: _TABLES, 2: (_VERSION_VIEW,)}


def _downgrade(dialect: Dialect) -> Steps:
    return {1: _DROP_TABLES, 2: ("DROP VIEW aioprod_inbox_version;\n",)}


TABLES: Final = VersionedTables(
    "inbox",
    "aioprod_inbox_version",
    2,
    _upgrade,
    _downgrade,
    "aioprod.processing.inbox.ddl({dialect!r}, from_version={version})",
)


def ddl(dialect: Dialect, *, from_version: int = 0, to_version: int | None = None) -> str:
    """Return the SQL statements that create the tables, or change them to another version.

    Args:
        dialect: ``"postgresql"`` or ``"sqlite"``.
        from_version: the current version of the tables; 0 if there are none.
        to_version: the version that they will have, the newest by default; 0 drops them with all
            positions.

    Raises:
        ConfigError: if the dialect or a version is unknown.
    """
    return "".join(TABLES.statements(dialect, from_version, to_version))
