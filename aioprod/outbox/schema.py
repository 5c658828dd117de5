"""The tables of the outbox."""

from __future__ import annotations

from aioprod import ConfigError
from aioprod.database.address import Dialect
from aioprod.database.tables import Steps, VersionedTables

#: The columns of a row that the application writes.
COLUMNS = (
    "bucket",
    "topic",
    "partition",
    "partition_key",
    "key",
    "value",
    "headers",
    "timestamp_ms",
)
#: Rows are in this number of buckets, by key; a relay may have fewer shards, but not more.
BUCKETS = 64
#: The version of the tables that this code reads and writes.
VERSION = 2
#: A transaction that adds rows notifies this channel of PostgreSQL.
CHANNEL = "aioprod_outbox"

_TABLES = (
    """\
-- One row per record that Kafka does not have yet; a relay deletes it.
CREATE TABLE aioprod_outbox (
    id {identity},
    bucket smallint NOT NULL DEFAULT 0,  -- 0 to 63; the same for all rows of a key
    topic text NOT NULL,
    partition integer,
    partition_key {bytes},
    key {bytes},
    value {bytes},
    headers text,  -- JSON: [[name, base64 of the value or null], ...]
    timestamp_ms bigint NOT NULL,
    added_ms bigint NOT NULL DEFAULT ({now})
);
""",
    """\
-- Rows that Kafka refused. Those that wait for one of them are not in this table.
CREATE TABLE aioprod_outbox_refused (
    id bigint PRIMARY KEY,  -- of the row
    topic text NOT NULL,
    stops text NOT NULL,  -- what waits: 'topic', 'key' (rows of topic and key), or 'row'
    ordering {bytes},  -- the partition key, else the key
    reason text NOT NULL,
    since_ms bigint NOT NULL,
    retry_ms bigint  -- when it is sent again; null: when it is requested
);
""",
    """\
-- The batch that is sent, or was sent last: what a relay needs to continue after a crash.
CREATE TABLE aioprod_outbox_relay (
    name text NOT NULL,
    shard smallint NOT NULL,  -- has the buckets with: bucket % shards = shard
    shards smallint NOT NULL,
    outbox_id text NOT NULL,  -- differs from that of former tables
    owner text NOT NULL,  -- the relay that sends the rows
    epoch bigint NOT NULL,  -- the number of take-overs
    lease_until_ms bigint NOT NULL,  -- then another relay may take over
    batch bigint NOT NULL,
    ids text NOT NULL,  -- of the rows in the batch; empty when they are deleted
    PRIMARY KEY (name, shard)
);
""",
    """\
-- The relays that run.
CREATE TABLE aioprod_outbox_member (
    owner text PRIMARY KEY,
    name text NOT NULL,
    until_ms bigint NOT NULL
);
""",
)
_NOTIFY = (
    f"""\
-- Notifies the relays of new rows. Without it they look every 50 ms.
CREATE FUNCTION {CHANNEL}_notify() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_notify('{CHANNEL}', ''); RETURN NULL; END $$;
""",
    f"""\
CREATE TRIGGER {CHANNEL}_notify AFTER INSERT ON aioprod_outbox
    FOR EACH STATEMENT EXECUTE FUNCTION {CHANNEL}_notify();
""",
)
# A view, because a copy of the schema without its rows keeps it, and so does TRUNCATE.
_VERSION_VIEW = """\
-- The version of these tables, for the relays.
CREATE VIEW aioprod_outbox_version AS SELECT 2 AS version;
"""
_DEBEZIUM = (
    """\
-- Columns for the outbox event router of Debezium. A trigger sets them.
ALTER TABLE aioprod_outbox
    ADD COLUMN aggregatetype text,  -- the topic
    ADD COLUMN aggregateid bytea,  -- the key
    ADD COLUMN type text,  -- the header eventType
    ADD COLUMN payload bytea;  -- the value
""",
    """\
CREATE FUNCTION aioprod_outbox_debezium() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.aggregatetype := NEW.topic;
    NEW.aggregateid := NEW.key;
    NEW.payload := NEW.value;
    IF NEW.headers LIKE '%"eventType"%' THEN
        NEW.type := (
            SELECT convert_from(decode(header->>1, 'base64'), 'UTF8')
            FROM json_array_elements(NEW.headers::json) AS header
            WHERE header->>0 = 'eventType' LIMIT 1
        );
    END IF;
    RETURN NEW;
END $$;
""",
    """\
CREATE TRIGGER aioprod_outbox_debezium BEFORE INSERT ON aioprod_outbox
    FOR EACH ROW EXECUTE FUNCTION aioprod_outbox_debezium();
""",
)
_DROP_TABLES = tuple(
    f"DROP TABLE aioprod_outbox{suffix};\n" for suffix in ("_member", "_relay", "_refused", "")
)
_DROP_FUNCTIONS = (
    f"DROP FUNCTION {CHANNEL}_notify();\n",
    "DROP FUNCTION IF EXISTS aioprod_outbox_debezium();\n",
)
#: The time in milliseconds since 1970 by the database's clock.
NOW_MS = {
    "postgresql": "(extract(epoch FROM clock_timestamp()) * 1000)::bigint",
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000 AS integer)",
}
_TYPES = {
    "postgresql": {"identity": "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "bytes": "bytea"},
    "sqlite": {"identity": "integer PRIMARY KEY AUTOINCREMENT", "bytes": "blob"},
}


def statements(
    dialect: Dialect,
    from_version: int = 0,
    to_version: int | None = None,
    *,
    debezium: bool = False,
) -> list[str]:
    """Return the statements that change the tables from one version to another; see :func:`ddl`."""
    found = TABLES.statements(dialect, from_version, to_version)
    new = VERSION if to_version is None else to_version
    if debezium and (dialect == "sqlite" or new < max(1, from_version)):
        raise ConfigError(
            "debezium=True: needs PostgreSQL, and to_version must be neither 0 nor below "
            "from_version"
        )
    return [*found, *_DEBEZIUM] if debezium else found


def _upgrade(dialect: Dialect) -> Steps:
    tables = (each.format(now=NOW_MS[dialect], **_TYPES[dialect]) for each in _TABLES)
    notify = _NOTIFY if dialect == "postgresql" else ()
    return {1: (*tables, *notify), 2: (_VERSION_VIEW,)}


def _downgrade(dialect: Dialect) -> Steps:
    functions = _DROP_FUNCTIONS if dialect == "postgresql" else ()
    return {1: (*_DROP_TABLES, *functions), 2: ("DROP VIEW aioprod_outbox_version;\n",)}


TABLES = VersionedTables(
    "outbox",
    "aioprod_outbox_version",
    VERSION,
    _upgrade,
    _downgrade,
    "aioprod outbox ddl --dialect {dialect} --from {version}",
)


def ddl(
    dialect: Dialect,
    *,
    from_version: int = 0,
    to_version: int | None = None,
    debezium: bool = False,
) -> str:
    """Return the SQL statements that create the tables, or change them to another version.

    Args:
        dialect: ``"postgresql"`` or ``"sqlite"``.
        from_version: the current version of the tables; 0 if there are none.
        to_version: the version that they will have, the newest by default; 0 drops them with all
            rows.
        debezium: whether to add columns for the outbox event router of Debezium to
            ``aioprod_outbox``, in PostgreSQL.

    Raises:
        ConfigError: if the dialect or a version is unknown, or ``debezium`` does not fit the
            others.
    """
    return "".join(statements(dialect, from_version, to_version, debezium=debezium))
