"""Errors of handlers and deserializers whose ``str()`` or ``repr()`` fails: they are failures of
their record like all others.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioprod import Producer, ProducerRecord
from aioprod.processing import BatchProcessor, ProcessingError, Processor, Record, RetryPolicy
from aioprod.testing import EmbeddedCluster
from tests.processing.test_processor import committed, fill, settings
from tests.waiting import until

pytestmark = pytest.mark.virtual_time


class NoTextError(Exception):
    def __str__(self) -> str:
        raise AttributeError("text")


class NoReprError(NoTextError):
    def __repr__(self) -> str:
        raise RecursionError


class CancelledTextError(Exception):
    def __str__(self) -> str:
        raise asyncio.CancelledError

    __repr__ = __str__


class NoStringError(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]

    __repr__ = __str__


ERRORS = [NoTextError, NoReprError, CancelledTextError, NoStringError]
Raw = Record[bytes | None, bytes | None]


async def handled(broker: EmbeddedCluster, error: type[Exception], **changes: Any) -> None:
    """Process three records, the first of which fails always."""

    async def handle(record: Raw) -> ProducerRecord:
        if record.value == b"bad":
            raise error
        return ProducerRecord("out", record.value)

    await fill(broker, b"bad", b"good", b"good")
    async with Processor(handle, "orders", **settings(broker, **changes)):
        await until(committed(broker, 3))
    assert [each.value for each in broker.records("out", committed_only=True)] == [b"good"] * 2


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("guarantee", ["at_most_once", "at_least_once", "exactly_once"])
async def test_the_record_becomes_a_dead_letter(
    broker: EmbeddedCluster, error: type[Exception], guarantee: str
) -> None:
    await handled(broker, error, guarantee=guarantee, dead_letter_topic="dead")
    (letter,) = broker.records("dead", committed_only=True)
    headers = dict(letter.headers)
    assert (headers["aioprod.error-class"] or b"").endswith(error.__name__.encode())
    assert error.__name__.encode() in (headers["aioprod.error-message"] or b"")


@pytest.mark.parametrize("error", ERRORS)
async def test_the_record_is_dropped(broker: EmbeddedCluster, error: type[Exception]) -> None:
    await handled(broker, error, guarantee="at_most_once")


@pytest.mark.parametrize("error", ERRORS)
async def test_the_processor_says_why_it_stops(
    broker: EmbeddedCluster, error: type[Exception]
) -> None:
    async def handle(record: Raw) -> None:
        raise error

    await fill(broker, b"bad")
    processor = Processor(
        handle, "orders", **settings(broker, retry=RetryPolicy(attempts=2, backoff_ms=10))
    )
    with pytest.raises(ProcessingError, match=error.__name__) as caught:
        await processor.run(handle_signals=False)
    assert isinstance(caught.value.__cause__, error)


@pytest.mark.parametrize("error", ERRORS)
async def test_a_batch(broker: EmbeddedCluster, error: type[Exception]) -> None:
    async def handle(records: Any) -> None:
        if any(record.value == b"bad" for record in records):
            raise error

    await fill(broker, b"good", b"bad", b"good")
    made = settings(broker, dead_letter_topic="dead")
    async with BatchProcessor(handle, "orders", **made):
        await until(committed(broker, 3))
    assert [each.value for each in broker.records("dead")] == [b"bad"]


@pytest.mark.parametrize("error", ERRORS)
async def test_a_deserializer(broker: EmbeddedCluster, error: type[Exception]) -> None:
    def read(topic: str, headers: Any, data: bytes | None) -> bytes | None:
        if data == b"bad":
            raise error
        return data

    async def handle(record: Record[bytes | None, bytes | None]) -> None:
        """Do nothing."""

    await fill(broker, b"bad", b"good")
    made = settings(broker, dead_letter_topic="dead")
    async with Processor(handle, "orders", value_deserializer=read, **made):
        await until(committed(broker, 2))
    (letter,) = broker.records("dead")
    assert error.__name__.encode() in (dict(letter.headers)["aioprod.error-message"] or b"")


@pytest.mark.parametrize("error", ERRORS)
async def test_serializers_and_deserializers_of_clients(
    broker: EmbeddedCluster, error: type[Exception]
) -> None:
    from aioprod import Consumer, DeserializationError, SerializationError

    def fails(*_: object) -> bytes:
        raise error

    async with Producer(broker.bootstrap_servers, value_serializer=fails) as producer:
        with pytest.raises(SerializationError, match=error.__name__):
            await producer.send("t", b"x")
    await fill(broker, b"x")
    async with Consumer(
        "orders",
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        value_deserializer=fails,
    ) as consumer:
        with pytest.raises(DeserializationError, match=error.__name__):
            await consumer.getone(timeout_ms=5_000)
