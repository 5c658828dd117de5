"""The embedded broker stores and refuses what Kafka does, and clients read what is stored."""

from __future__ import annotations

import asyncio
import struct
import uuid
from collections.abc import AsyncIterator

import pytest

from aioprod import Consumer, TopicPartition
from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.create_topics import CreatableTopic
from aioprod.protocol.record_batch import build_batch
from tests.foreign_bytes.batches import PLAIN, VALUES, batch, batch_of
from tests.foreign_bytes.corpus import CORPUS
from tests.foreign_bytes.odd_records import ODD
from tests.protocol.record_bytes import BASE, record
from tests.testing.new_topics import create_topics_with_leaders
from tests.testing.raw_client import RawClient

LIMIT_S = 60
INVALID, UNKNOWN = ErrorCode.INVALID_RECORD, ErrorCode.UNKNOWN_SERVER_ERROR
_GOOD = batch(PLAIN, count=len(VALUES))
_DELTAS = b"".join(record(0, delta, 1, b"k", 1, b"v", 0) for delta in (0, 2, 1))


def _headed(**header: int) -> bytes:
    """A batch with unusual fields in its header."""
    usual = {
        "attributes": 0,
        "last_offset_delta": len(VALUES) - 1,
        "base_timestamp": BASE,
        "max_timestamp": BASE,
        "record_count": len(VALUES),
    }
    return build_batch(PLAIN, **(usual | header))


HEADERS = {
    "an unknown codec": (_headed(attributes=5), UNKNOWN),
    "the last codec number": (_headed(attributes=7), UNKNOWN),
    "no records": (_headed(record_count=0, last_offset_delta=0), INVALID),
    "a negative count": (_headed(record_count=-1, last_offset_delta=-2), INVALID),
    "a control batch": (_headed(attributes=0x20), INVALID),
    "the broker's timestamps": (_headed(attributes=8), ErrorCode.NONE),
    "a delete horizon": (_headed(attributes=0x40), ErrorCode.NONE),
    "an unknown bit": (_headed(attributes=0x80), ErrorCode.NONE),
    "a base offset": (_headed(base_offset=7), INVALID),
    "a leader epoch": (_headed(leader_epoch=9), ErrorCode.NONE),
    "a producer without a sequence": (_headed(producer_id=5, producer_epoch=0), INVALID),
    "a wrong checksum": (_GOOD[:-1] + b"y", ErrorCode.CORRUPT_MESSAGE),
    "format 3": (_GOOD[:16] + b"\3" + _GOOD[17:], ErrorCode.CORRUPT_MESSAGE),
    "format 1": (_GOOD[:16] + b"\1" + _GOOD[17:], INVALID),
    "two batches": (_GOOD * 2, INVALID),
    "a byte after it": (_GOOD + b"\0", ErrorCode.NONE),
    "cut off": (_GOOD[:-1], INVALID),
    "30 bytes": (_GOOD[:30], INVALID),
    "a length of 10": (_GOOD[:8] + struct.pack(">i", 10) + _GOOD[12:], ErrorCode.CORRUPT_MESSAGE),
    "offset deltas of gzip": (
        batch(CORPUS[1].pack(_DELTAS), attributes=CORPUS[1].codec, count=3),
        UNKNOWN,
    ),
}
ANSWERS = {
    **{str(packed): (batch_of(packed), packed.answer) for packed in CORPUS},
    **{str(odd): (odd.data, odd.answer) for odd in ODD},
    **HEADERS,
}


@pytest.fixture
async def client(bootstrap: str) -> AsyncIterator[RawClient]:
    async with RawClient(bootstrap) as connected:
        yield connected


async def new_topic(bootstrap: str) -> str:
    topic = f"bytes-{uuid.uuid4().hex[:8]}"
    await create_topics_with_leaders(bootstrap, CreatableTopic(topic, 1, 1))
    return topic


async def test_each_batch_is_stored_or_refused(bootstrap: str, client: RawClient) -> None:
    topic = await new_topic(bootstrap)
    found, expected = {}, {}
    for name, (data, answer) in ANSWERS.items():
        found[name] = ErrorCode((await client.produce(topic, data)).error_code).name
        expected[name] = answer.name
    assert found == expected


async def fill(bootstrap: str, client: RawClient) -> tuple[str, list[bytes | None]]:
    """Return a topic with all that Kafka stores, and its values."""
    topic = await new_topic(bootstrap)
    values: list[bytes | None] = []
    for packed in CORPUS:
        if (await client.produce(topic, batch_of(packed))).error_code == 0:
            values += VALUES
    for odd in ODD:
        if (await client.produce(topic, odd.data)).error_code == 0:
            assert odd.rows is not None, odd
            values += [value for _, _, _, value, _ in odd.rows]
    return topic, values


@pytest.mark.parametrize("columns", [False, True], ids=["records", "columns"])
async def test_consumers_return_all_that_is_stored(
    bootstrap: str, client: RawClient, columns: bool
) -> None:
    topic, expected = await fill(bootstrap, client)
    found: list[bytes | None] = []
    async with (
        asyncio.timeout(LIMIT_S),
        Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign([TopicPartition(topic, 0)])
        while len(found) < len(expected):
            if columns:
                table = await consumer.getarrow(timeout_ms=5_000)
                found += table.column("value").to_pylist()
            else:
                found += [each.value for each in await consumer.getmany(timeout_ms=5_000)]
        assert await consumer.position(TopicPartition(topic, 0)) == len(expected)
    assert found == expected
