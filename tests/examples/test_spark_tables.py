"""docs/spark-tables.md and examples/spark_changes.py with Iceberg and Delta, the PySpark that each
is for, and the embedded broker and registry.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import pytest

import aioprod
from aioprod import Producer
from aioprod.testing import ThreadedCluster
from tests.schema_registry import confluent
from tests.spark.other_pyspark import INSTALL_TIMEOUT_S, pyspark_environment
from tests.testing.doc_blocks import DOCS, python_blocks
from tests.waiting import programs_per_core

EXAMPLES = Path(aioprod.__file__).parent.parent / "examples"
RUN_TIMEOUT_S = 300
PARTITIONS = 2
PYSPARK = {"iceberg": "4.1.4", "delta": "4.2.1"}
TOPIC = "shop.public.customers"
ICEBERG_TABLE = "lake.shop.customers"
# For each line of its input, they run the program once, and print what the table then has.
CHANGES = """
import json, sys
sys.path.insert(0, sys.argv[1])
import spark_changes as job
options = job.parse(sys.argv[2:])
spark = job.session(options.format, options.warehouse)
for _ in sys.stdin:
    job.run(spark, options)
    spark.sql(f"REFRESH TABLE {options.table}")  # the query has a session of its own
    rows = [row.asDict() for row in spark.table(options.table).orderBy("id").collect()]
    if options.format == "delta":
        files = spark.sql(f"DESCRIBE DETAIL {options.table}").first().numFiles
    else:
        files = spark.table(f"{options.table}.files").count()
    print(json.dumps({"rows": rows, "files": files}), flush=True)
"""
APPENDS = """
import json, sys
program = sys.argv[1]
for _ in sys.stdin:
    found = {"__name__": "page"}
    exec(program, found)
    found["spark"].sql("REFRESH TABLE lake.shop.orders")
    tables = [found["spark"].table(f"lake.shop.orders{part}") for part in ("", ".history")]
    print(json.dumps([table.count() for table in tables]), flush=True)
"""


def envelope(*more: dict[str, Any]) -> dict[str, Any]:
    """The schema that Debezium registers for a table."""
    fields = [{"name": "id", "type": "int"}, {"name": "name", "type": ["null", "string"]}, *more]
    value = {"type": "record", "name": "Value", "fields": fields}
    source = {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": "long"}]}
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": "shop.public.customers",
        "fields": [
            {"name": "before", "type": ["null", value], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "source", "type": source},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"], "default": None},
        ],
    }


class Database:
    """A table whose changes go to the topic, and a copy of it to compare with."""

    def __init__(self, broker: ThreadedCluster, registry: str) -> None:
        self._servers = broker.bootstrap_servers
        self._registry = registry
        self._records: list[tuple[int, bytes | dict[str, Any] | None]] = []
        self.rows: dict[int, dict[str, Any]] = {}
        self.schema = envelope()
        broker.create_topic(TOPIC, PARTITIONS)

    def put(self, id: int, op: str = "", **fields: Any) -> None:
        before = self.rows.get(id)
        self.rows[id] = {"id": id, **fields}
        self._add(id, op or ("u" if before else "c"), before, self.rows[id])

    def delete(self, id: int) -> None:
        self._add(id, "d", self.rows.pop(id), None)
        self._records.append((id, None))

    def add_garbage(self) -> None:
        self._records.append((0, b"garbage"))

    def _add(self, id: int, op: str, before: Any, after: Any) -> None:
        source = {"lsn": len(self._records)}
        change = {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1}
        self._records.append((id, change))

    def send(self) -> None:
        records, self._records = self._records, []
        with confluent.SchemaRegistryClient({"url": self._registry}) as client:
            serializer = confluent.AvroSerializer(client, json.dumps(self.schema))
            context = confluent.SerializationContext(TOPIC, confluent.MessageField.VALUE)
            encoded = [
                (id, serializer(value, context) if isinstance(value, dict) else value)
                for id, value in records
            ]

        async def send_all() -> None:
            async with Producer(self._servers) as producer:
                for id, value in encoded:
                    partition = id % PARTITIONS
                    await producer.send(TOPIC, value, key=b"%d" % id, partition=partition)

        asyncio.run(send_all())


class Runner:
    """A process with the PySpark for a format, in which one session runs a program repeatedly."""

    def __init__(self, table_format: str, directory: Path, *arguments: str | Path) -> None:
        self._log = directory / "stderr"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", *arguments],
                cwd=directory,
                env=pyspark_environment(PYSPARK[table_format]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=RUN_TIMEOUT_S * programs_per_core())

    def run(self) -> Any:
        """Run the program, and return what the table then has."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, self._log.read_text()
        return json.loads(line)


def forget_the_newest_commit(checkpoint: Path) -> None:
    """Imitate a job that was killed between the table's commit and that of the checkpoint."""
    newest = max(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
    for path in (checkpoint / "commits").glob(f"*{newest}*"):
        path.unlink()


@pytest.mark.interop
@pytest.mark.timeout(INSTALL_TIMEOUT_S + 2 * RUN_TIMEOUT_S)
@pytest.mark.parametrize("table_format", PYSPARK)
def test_the_table_is_that_of_the_database(
    threaded_broker: ThreadedCluster, schema_registry: Any, tmp_path: Path, table_format: str
) -> None:
    checkpoint = tmp_path / "checkpoint"
    table = ICEBERG_TABLE if table_format == "iceberg" else f"delta.`{tmp_path}/customers`"
    database = Database(threaded_broker, schema_registry.url)
    arguments = [TOPIC, table_format, table, "--key", "id", "--checkpoint", str(checkpoint)]
    arguments += ["--once", "--compact-every", "4", "--schema-registry", schema_registry.url]
    arguments += ["--bootstrap-servers", threaded_broker.bootstrap_servers]

    def of_database(**more: Any) -> list[dict[str, Any]]:
        return [more | database.rows[id] for id in sorted(database.rows)]

    with Runner(table_format, tmp_path, CHANGES, EXAMPLES, *arguments) as job:
        for id in range(10):
            database.put(id, "r", name=f"customer {id}")
        database.put(10, name="to be deleted")
        database.delete(10)
        database.put(3, name="renamed")
        database.add_garbage()
        database.send()
        assert job.run()["rows"] == of_database()
        letters = threaded_broker.records(f"{TOPIC}.dead-letters", committed_only=True)
        assert [record.value for record in letters] == [b"garbage"]

        database.delete(4)
        database.delete(5)
        database.put(5, name="again")
        database.put(11, name=None)
        database.send()
        assert job.run()["rows"] == of_database()
        forget_the_newest_commit(checkpoint)
        assert job.run()["rows"] == of_database()

        database.schema = envelope({"name": "email", "type": ["null", "string"], "default": None})
        database.put(3, name="renamed", email="3@example.org")
        database.put(12, name="new", email=None)
        database.send()
        changed = job.run()
        assert changed["rows"] == of_database(email=None) and changed["files"] > 1

        database.put(12, name="newest", email=None)
        database.send()
        compacted = job.run()
        assert compacted["rows"] == of_database(email=None)
        assert compacted["files"] == 1


@pytest.mark.interop
@pytest.mark.timeout(INSTALL_TIMEOUT_S + 2 * RUN_TIMEOUT_S)
def test_the_program_of_the_page_appends_each_record_once(
    threaded_broker: ThreadedCluster, tmp_path: Path
) -> None:
    """Iceberg's own sink: a micro-batch that is repeated makes no commit."""
    (program, *_) = python_blocks((DOCS / "spark-tables.md").read_text(encoding="utf-8"))
    program = program.replace("localhost:9092", threaded_broker.bootstrap_servers)
    threaded_broker.create_topic("orders", PARTITIONS)

    def send(count: int) -> None:
        async def send_all() -> None:
            async with Producer(threaded_broker.bootstrap_servers) as producer:
                await (await producer.send_many("orders", [b"tea"] * count))

        asyncio.run(send_all())

    with Runner("iceberg", tmp_path, APPENDS, program) as job:  # rows and commits
        send(30)
        assert job.run() == [30, 1]
        forget_the_newest_commit(tmp_path / "checkpoints" / "orders-table")
        assert job.run() == [30, 1]
        send(5)
        assert job.run() == [35, 2]
