"""The option deadLetterTopic: records that can't be decoded are written to it once, whatever
becomes of the task.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession

from aioprod import ErrorCode, Producer, cli
from aioprod.errors import ConfigError
from aioprod.protocol.api_keys import ApiKey
from aioprod.schema_registry import Schema, SchemaRegistry
from aioprod.spark.dead_letters import DeadLetterWriter, Written
from aioprod.spark.driver_client import open_client
from aioprod.spark.errors import SinkError
from aioprod.spark.offsets import OffsetRange
from aioprod.spark.readers import KafkaStreamReader
from aioprod.spark.reading import _rows, read_ranges
from aioprod.spark.source import KafkaDataSource
from aioprod.spark.source_options import SourceOptions, parse_source_options
from aioprod.testing import Action, ThreadedCluster, drop_after, drop_before, fail
from aioprod.types import OffsetAndMetadata

from .conftest import CreateTopic
from .source_topics import ranges_of, send

GOOD, BAD = b'{"id": 1}', b"not JSON"
VALUES = [GOOD, BAD, GOOD, BAD, BAD, GOOD]
QUERY = "5f3c"


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.kafka)])
def servers(request: pytest.FixtureRequest) -> str:
    if request.param == "real":
        found: str = request.getfixturevalue("kafka")
        return found
    broker: ThreadedCluster = request.getfixturevalue("threaded_broker")
    return broker.bootstrap_servers


@pytest.fixture(autouse=True)
def in_a_task(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "session" not in request.fixturenames:
        task = SimpleNamespace(getLocalProperty=lambda name: QUERY, resources=dict)
        monkeypatch.setattr(TaskContext, "get", lambda: task)


@pytest.fixture
def names(request: pytest.FixtureRequest) -> tuple[str, str]:
    source = request.node.name.partition("[")[0].replace("test_", "")[:60]
    return source, f"{source}.dead"


def options_of(servers: str, names: tuple[str, str], **more: str) -> SourceOptions:
    given = {
        "kafka.bootstrap.servers": servers,
        "subscribe": names[0],
        "value.format": "json",
        "value.schema": "id INT",
        "deadLetterTopic": names[1],
    }
    return parse_source_options({**given, **more}, streaming=True)


def read(options: SourceOptions, start: int, end: int) -> list[int]:
    """The offsets that Spark gets of a task."""
    item = OffsetRange(options.selection.topics[0], 0, start, end)
    return [
        offset
        for rows in read_ranges(options, [item])
        for offset in rows.column("offset").to_pylist()
    ]


def letters(servers: str, topic: str) -> list[dict[str, Any]]:
    """The committed dead letters."""
    given = {"kafka.bootstrap.servers": servers, "subscribe": topic, "includeHeaders": "true"}
    committed = {**given, "kafka.isolation.level": "read_committed"}
    options = parse_source_options(committed, streaming=False)
    return [
        {**row, "headers": [(each["key"], each["value"]) for each in row["headers"]]}
        for item in ranges_of(options)
        for rows in read_ranges(options, [item])
        for row in rows.to_pylist()
    ]


def offsets_of(found: list[dict[str, Any]]) -> list[int]:
    return [int(dict(each["headers"])["dead-letter.offset"]) for each in found]


def test_a_repeated_task_writes_nothing_again(
    servers: str, names: tuple[str, str], create_topic: CreateTopic
) -> None:
    for name in names:
        create_topic(servers, name, 1)
    options = options_of(servers, names)
    send(
        servers,
        names[0],
        key=[b"k"] * len(VALUES),
        value=VALUES,
        headers=[[{"key": "trace", "value": b"7"}]] * len(VALUES),
    )
    assert read(options, 0, 4) == [0, 2]
    assert read(options, 0, 4) == [0, 2]
    found = letters(servers, names[1])
    assert offsets_of(found) == [1, 3]
    headers = dict(found[0]["headers"])
    assert (found[0]["key"], found[0]["value"], headers["trace"]) == (b"k", BAD, b"7")
    assert headers["dead-letter.reason"] == b"the value does not fit value.schema"
    assert headers["dead-letter.topic"] == names[0].encode()
    assert headers["dead-letter.partition"] == b"0"
    assert int(headers["dead-letter.timestamp"]) > 1_700_000_000_000
    # Spark plans the batch again, with another range.
    assert read(options, 2, 6) == [2, 5]
    assert offsets_of(letters(servers, names[1])) == [1, 3, 4]


def test_an_attempt_that_was_taken_over_writes_nothing(
    servers: str, names: tuple[str, str], create_topic: CreateTopic
) -> None:
    """A speculative attempt, or one whose executor is lost but runs on."""
    for name in names:
        create_topic(servers, name, 1)
    send(servers, names[0], value=VALUES)
    options, item = options_of(servers, names), OffsetRange(names[0], 0, 0, 6)

    async def run() -> None:
        async with open_client(options) as client:
            (rows,) = [each async for each in _rows(client, options, item, include_headers=True)]
            first, second = (DeadLetterWriter(client, options, QUERY, item) for _ in range(2))
            try:
                await first.write(rows, {1: "first"})
                await second.write(rows, {1: "second", 3: "second"})
                with pytest.raises(SinkError, match="can't be written"):
                    await first.write(rows, {3: "first", 4: "first"})
                await second.write(rows, {4: "second"})
            finally:
                await first.close()
                await second.close()

    asyncio.run(run())
    found = letters(servers, names[1])
    reasons = [dict(each["headers"])["dead-letter.reason"] for each in found]
    assert offsets_of(found) == [1, 3, 4]
    assert reasons == [b"first", b"second", b"second"]


@pytest.mark.parametrize(
    "action",
    [fail(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), drop_before(), drop_after()],
    ids=["refused", "lost request", "lost answer"],
)
@pytest.mark.parametrize("step", ["INIT_PRODUCER_ID", "PRODUCE", "TXN_OFFSET_COMMIT", "END_TXN"])
def test_a_task_that_fails_at_a_step_is_repeated(
    threaded_broker: ThreadedCluster, names: tuple[str, str], step: str, action: Action
) -> None:
    for name in names:
        threaded_broker.create_topic(name)
    servers = threaded_broker.bootstrap_servers
    send(servers, names[0], value=VALUES)
    options = options_of(servers, names)
    threaded_broker.on(ApiKey[step], action)
    refused = isinstance(action, type(fail(ErrorCode.NONE)))
    with pytest.raises(SinkError) if refused else nullcontext():
        read(options, 0, 6)
    assert read(options, 0, 6) == [0, 2, 5]
    assert offsets_of(letters(servers, names[1])) == [1, 3, 4]


def test_a_topic_created_again_has_new_dead_letters(
    threaded_broker: ThreadedCluster, names: tuple[str, str]
) -> None:
    servers = threaded_broker.bootstrap_servers
    threaded_broker.create_topic(names[1])
    reader = KafkaStreamReader(options_of(servers, names, failOnDataLoss="false"))
    position: dict[str, Any] = {}
    try:
        for values in ([GOOD, BAD, BAD], [BAD]):
            threaded_broker.create_topic(names[0])
            send(servers, names[0], value=values)
            position = position or {names[0]: {"0": 0}}
            end = reader.latestOffset(position)
            for partition in reader.partitions(position, end):
                list(reader.read(partition))
            position = end
            threaded_broker.delete_topic(names[0])
    finally:
        reader.stop()
    assert offsets_of(letters(servers, names[1])) == [1, 2, 0]


def test_the_command_for_checkpoints_counts_them(
    threaded_broker: ThreadedCluster,
    names: tuple[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in names:
        threaded_broker.create_topic(name)
    servers = threaded_broker.bootstrap_servers
    send(servers, names[0], value=VALUES)
    read(options_of(servers, names), 0, 6)
    (tmp_path / "metadata").write_text(json.dumps({"id": QUERY}))
    capsys.readouterr()
    assert cli.main(["spark", "checkpoint", str(tmp_path), "-b", servers]) == 0
    assert f"rejected   3 dead letters ({names[0]}-0: 3)" in capsys.readouterr().out
    assert cli.main(["spark", "checkpoint", str(tmp_path), "-b", servers, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["dead_letters"] == 3


def test_a_topic_that_refuses_dead_letters_is_named(
    threaded_broker: ThreadedCluster, names: tuple[str, str]
) -> None:
    servers = threaded_broker.bootstrap_servers
    threaded_broker.create_topic(names[0])
    threaded_broker.create_topic(names[1], configs={"max.message.bytes": "100"})
    send(servers, names[0], value=VALUES)
    with pytest.raises(SinkError, match=rf"{names[0]}-0 can't be written to {names[1]}"):
        read(options_of(servers, names), 0, 6)


def test_offsets_of_another_program_are_not_taken_for_ours() -> None:
    with pytest.raises(SinkError, match="another program has committed"):
        Written.of(OffsetAndMetadata(7, ""), "id")
    written = Written(8, 3, "id")
    assert Written.of(written.to_commit(), "id") == written
    assert Written.of(written.to_commit(), "other") == Written(0, 3, "other")
    assert Written.of(written.to_commit(), "") == written


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"value.format": "", "value.schema": ""}, "needs value.format"),
        ({"mode": "permissive"}, "leave mode out"),
        ({"minPartitions": "4"}, "deadLetterTopic and minPartitions can't be combined"),
        ({"maxRecordsPerPartition": "4"}, "can't be combined"),
        ({"deadLetterTopic": " "}, "deadLetterTopic is empty"),
        ({"deadLetterTopic": "t"}, "the query reads this topic"),
        ({"subscribe": "", "subscribePattern": "d.*"}, "the query reads this topic"),
        ({"deadLetterTopic": "", "transactionalIdPrefix": "x"}, "needs deadLetterTopic"),
    ],
)
def test_options_that_contradict_are_named(more: dict[str, str], says: str) -> None:
    given = {
        "kafka.bootstrap.servers": "h:1",
        "subscribe": "t",
        "value.format": "json",
        "value.schema": "id INT",
        "deadLetterTopic": "dead",
    }
    chosen = {name: text for name, text in {**given, **more}.items() if text}
    with pytest.raises(ConfigError, match=says):
        parse_source_options(chosen, streaming=True)
    if more == {"mode": "permissive"}:
        with pytest.raises(ConfigError, match="is for streams"):
            source = KafkaDataSource(given)
            source.reader(source.schema())


def test_a_task_of_two_partitions_writes_each_dead_letter_once(
    servers: str, names: tuple[str, str], create_topic: CreateTopic
) -> None:
    create_topic(servers, names[0], 2)
    create_topic(servers, names[1], 1)
    options = options_of(servers, names, minRecordsPerPartition="100")
    count = len(VALUES)
    send(servers, names[0], value=VALUES * 2, partition=[0] * count + [1] * count)
    items = [OffsetRange(names[0], number, 0, 4) for number in range(2)]
    for _ in range(2):
        rows = [rows.select(["partition", "offset"]) for rows in read_ranges(options, items)]
        found = [(row["partition"], row["offset"]) for each in rows for row in each.to_pylist()]
        assert found == [(0, 0), (0, 2), (1, 0), (1, 2)]
    headers = [dict(each["headers"]) for each in letters(servers, names[1])]
    origins = [(each["dead-letter.partition"], each["dead-letter.offset"]) for each in headers]
    assert sorted(origins) == [(b"0", b"1"), (b"0", b"3"), (b"1", b"1"), (b"1", b"3")]


def test_registered_values_have_the_decoders_reason(
    threaded_broker: ThreadedCluster, schema_registry: Any, names: tuple[str, str]
) -> None:
    for name in names:
        threaded_broker.create_topic(name)
    servers = threaded_broker.bootstrap_servers
    schema = {"type": "record", "name": "O", "fields": [{"name": "id", "type": "int"}]}

    async def fill() -> None:
        async with SchemaRegistry(schema_registry.url) as registry, Producer(servers) as producer:
            made = await registry.register(f"{names[0]}-value", Schema(json.dumps(schema)))
            good = b"\0" + made.id.to_bytes(4, "big") + b"\x0e"
            for value in (good, b"\0\0\0\0", good, None, good[:-1] + b"\xff" * 11):
                await producer.send_and_wait(names[0], value)

    asyncio.run(fill())
    registry = {"value.format": "avro", "schema.registry.url": schema_registry.url}
    given = {"kafka.bootstrap.servers": servers, "subscribe": names[0], **registry}
    source = KafkaDataSource({**given, "deadLetterTopic": names[1]})
    reader = source.streamReader(source.schema())
    assert isinstance(reader, KafkaStreamReader)
    item = OffsetRange(names[0], 0, 0, 5)
    (rows,) = read_ranges(reader._options, [item])
    assert rows.column("offset").to_pylist() == [0, 2, 3]
    assert "headers" not in rows.schema.names
    assert [each and each["id"] for each in rows.column("value").to_pylist()] == [7, 7, None]
    found = letters(servers, names[1])
    assert offsets_of(found) == [1, 4]
    assert all(len(dict(each["headers"])["dead-letter.reason"]) > 10 for each in found)


def test_a_query_writes_them_once(
    session: SparkSession, threaded_broker: ThreadedCluster, tmp_path: Path
) -> None:
    servers = threaded_broker.bootstrap_servers
    threaded_broker.create_topic("orders")
    send(servers, "orders", value=VALUES)
    rows = session.readStream.format("aioprod").options(
        **{"kafka.bootstrap.servers": servers, "value.format": "json", "value.schema": "id INT"},
        subscribe="orders",
        startingOffsets="earliest",
        deadLetterTopic="orders.dead",
    )

    def run() -> None:
        writer = rows.load().select("value.id").writeStream.format("parquet")
        query = (
            writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .option("path", str(tmp_path / "out"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    run()
    for path in (tmp_path / "checkpoint" / "commits").iterdir():
        path.unlink()
    run()  # the same batch again
    assert session.read.parquet(str(tmp_path / "out")).count() == 3
    assert offsets_of(letters(servers, "orders.dead")) == [1, 3, 4]
