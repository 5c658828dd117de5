"""Wrong arguments of the producer's calls are refused at once by name, without any effect on the
producer.
"""

from __future__ import annotations

import asyncio
import datetime
import inspect
import math
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from aioprod import (
    ConfigError,
    InvalidPartitionError,
    InvalidTopicError,
    KafkaError,
    OffsetAndMetadata,
    Producer,
    SerializationError,
    TopicPartition,
    TransactionStateError,
)
from aioprod.foreign_text import shown
from aioprod.testing import EmbeddedCluster
from tests.waiting import until

TP = TopicPartition("t", 0)
Call = Callable[[Any], Awaitable[object]]


async def delivered(sending: Awaitable[Any]) -> None:
    """Await the delivery, which has the error if the record or its topic is at fault."""
    await (await sending)


def _offsets(producer: Any, offsets: Any, group: Any = "g") -> Awaitable[object]:
    return producer.send_offsets_to_transaction(offsets, group)  # type: ignore[no-any-return]


def _with_limit(method: str, limit: object, producer: Any) -> Awaitable[object]:
    return getattr(producer, method)(timeout_ms=limit)  # type: ignore[no-any-return]


_WRONG_TOPICS: tuple[Any, ...] = (None, b"t", [], "no name")


async def _known_partitions(topic: Any, producer: Any) -> object:
    return producer.known_partitions(topic)


# By method: what is given to it, the error, and what its text has to name.
WRONG: dict[str, list[tuple[str, Call, type[KafkaError], str]]] = {
    **{
        method: [
            (f"{method} {limit!r}", partial(_with_limit, method, limit), ConfigError, name)
            for limit, name in [
                (datetime.timedelta(seconds=1), r"timeout_ms=datetime.timedelta\(seconds=1\)"),
                ("5", "timeout_ms='5'"),
                (-1, "timeout_ms=-1"),
                (True, "timeout_ms=True"),
                (math.nan, "timeout_ms=nan"),
                (math.inf, "timeout_ms=inf: must be a finite number"),
                ([], r"timeout_ms=\[\]"),
            ]
        ]
        for method in ("close", "flush", "client_instance_id")
    },
    "send": [
        (
            "no topic",
            lambda producer: delivered(producer.send(None, b"x")),
            InvalidTopicError,
            "topic=None",
        ),
        (
            "a topic of bytes",
            lambda producer: delivered(producer.send(b"t", b"x")),
            InvalidTopicError,
            "topic=<bytes>",
        ),
        (
            "a list of topics",
            lambda producer: delivered(producer.send(["t"], b"x")),
            InvalidTopicError,
            "topic=<list>",
        ),
        (
            "an illegal name",
            lambda producer: delivered(producer.send("a b", b"x")),
            InvalidTopicError,
            "topic='a b'",
        ),
        ("text for bytes", lambda producer: producer.send("t", "x"), SerializationError, "str"),
        (
            "a number as key",
            lambda producer: producer.send("t", b"x", 5),
            SerializationError,
            "int",
        ),
        (
            "a partition of text",
            lambda producer: delivered(producer.send("t", b"x", partition="0")),
            InvalidPartitionError,
            "partition='0'",
        ),
        (
            "a partition below 0",
            lambda producer: delivered(producer.send("t", b"x", partition=-1)),
            InvalidPartitionError,
            "partition=-1",
        ),
        (
            "a switch as partition",
            lambda producer: delivered(producer.send("t", b"x", partition=True)),
            InvalidPartitionError,
            "partition=True",
        ),
        (
            "a partition of NumPy",
            lambda producer: delivered(producer.send("t", b"x", partition=np.int64(0))),
            InvalidPartitionError,
            r"partition=<int64; int\(\) converts it>",
        ),
        (
            "no such partition",
            lambda producer: delivered(producer.send("t", b"x", partition=9)),
            InvalidPartitionError,
            "partition=9",
        ),
        (
            "a time of seconds",
            lambda producer: producer.send("t", b"x", timestamp_ms=1.5),
            SerializationError,
            "timestamp_ms=1.5",
        ),
        (
            "a time before 1970",
            lambda producer: producer.send("t", b"x", timestamp_ms=2**62),
            SerializationError,
            f"timestamp_ms={2**62}",
        ),
        (
            "headers that are no pairs",
            lambda producer: producer.send("t", b"x", headers=[b"h"]),
            SerializationError,
            "header",
        ),
        (
            "headers of numbers",
            lambda producer: producer.send("t", b"x", headers=[("h", 5)]),
            SerializationError,
            "header",
        ),
        (
            "partition_key of text",
            lambda producer: producer.send("t", b"x", partition_key="k"),
            SerializationError,
            "partition_key",
        ),
    ],
    "send_and_wait": [
        (
            "wait, no topic",
            lambda producer: producer.send_and_wait("", b"x"),
            InvalidTopicError,
            "topic=''",
        ),
        (
            "wait, text for bytes",
            lambda producer: producer.send_and_wait("t", "x"),
            SerializationError,
            "str",
        ),
    ],
    "send_many": [
        (
            "many, no topic",
            lambda producer: delivered(producer.send_many(None, [b"x"])),
            InvalidTopicError,
            "topic=None",
        ),
        (
            "many, one of text",
            lambda producer: delivered(producer.send_many("t", ["x"])),
            SerializationError,
            "str",
        ),
    ],
    "send_arrow": [
        (
            "rows in a list",
            lambda producer: producer.send_arrow("t", [b"x"]),
            SerializationError,
            "list",
        ),
        (
            "a table without values",
            lambda producer: producer.send_arrow("t", pa.table({"a": [1]})),
            SerializationError,
            "value",
        ),
    ],
    "partitions_for": [
        (
            "partitions of no topic",
            lambda producer: producer.partitions_for(None),
            InvalidTopicError,
            "topic=None",
        ),
        (
            "partitions of a number",
            lambda producer: producer.partitions_for(5),
            InvalidTopicError,
            "topic=5",
        ),
    ],
    "known_partitions": [
        (
            f"known partitions of {topic!r}",
            partial(_known_partitions, topic),
            InvalidTopicError,
            "topic=<list>" if isinstance(topic, list) else re.escape(f"topic={shown(topic)}"),
        )
        for topic in _WRONG_TOPICS
    ],
    "send_offsets_to_transaction": [
        (
            "offsets in a list",
            lambda producer: _offsets(producer, [TP]),
            SerializationError,
            "offsets",
        ),
        (
            "an offset of text",
            lambda producer: _offsets(producer, {TP: "5"}),
            SerializationError,
            "'5'",
        ),
        (
            "an offset below 0",
            lambda producer: _offsets(producer, {TP: -1}),
            SerializationError,
            "-1",
        ),
        (
            "a note below 0",
            lambda producer: _offsets(producer, {TP: OffsetAndMetadata(-1)}),
            SerializationError,
            "-1",
        ),
        ("no partition", lambda producer: _offsets(producer, {"t": 5}), SerializationError, "'t'"),
        (
            "a group of bytes",
            lambda producer: _offsets(producer, {TP: 5}, b"g"),
            SerializationError,
            "group of type bytes",
        ),
        ("no group", lambda producer: _offsets(producer, {TP: 5}, ""), SerializationError, "''"),
    ],
}
ROWS = [row for rows in WRONG.values() for row in rows]


def test_every_method_that_takes_arguments_has_its_rows() -> None:
    methods = {
        name: function
        for name, function in inspect.getmembers(Producer, inspect.isfunction)
        if not name.startswith("_")
    }
    assert {
        name
        for name, function in methods.items()
        if len(inspect.signature(function).parameters) > 1
    } == set(WRONG)


@pytest.mark.parametrize(("name", "call", "error", "text"), ROWS, ids=[row[0] for row in ROWS])
async def test_what_is_wrong_is_named_and_changes_nothing(
    broker: EmbeddedCluster, name: str, call: Call, error: type[KafkaError], text: str
) -> None:
    broker.create_topic("t", 1)
    transactional_id = (
        "x" if (name, call, error, text) in WRONG["send_offsets_to_transaction"] else None
    )
    async with Producer(broker.bootstrap_servers, transactional_id=transactional_id) as producer:
        if transactional_id is not None:
            with pytest.raises(TransactionStateError):
                await call(producer)
            await producer.begin_transaction()
        before = await producer.send("t", b"before")
        with pytest.raises(error, match=text):
            async with asyncio.timeout(5):
                await call(producer)
        await producer.send("t", b"after")
        if transactional_id is not None:
            await producer.commit_transaction()
        else:
            await producer.flush()
        assert before.done()
    assert [record.value for record in broker.records("t")] == [b"before", b"after"]


@pytest.mark.parametrize("limit", [0, 0.5, 10_000, None])
async def test_a_limit_may_be_any_number_from_0_on(
    broker: EmbeddedCluster, limit: float | None
) -> None:
    producer = Producer(broker.bootstrap_servers)
    await producer.start()
    await producer.flush(timeout_ms=limit)
    await producer.close(timeout_ms=limit)
    assert broker.connection_count(1) == 0 or await _gone(broker)


async def _gone(broker: EmbeddedCluster) -> bool:
    await until(lambda: not broker.connection_count(1), 5)
    return True
