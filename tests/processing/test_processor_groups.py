"""Several processors of a group on the embedded broker, in virtual time, and on a real one: each
group protocol, static members, exactly once.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter, defaultdict
from typing import Any, TypedDict, Unpack

import pytest

from aioprod import Admin, Consumer, Producer, ProducerRecord
from aioprod.admin import NewTopic
from aioprod.processing import Processor, Record
from aioprod.processing.records import Handler
from tests.waiting import until

Raw = Record[bytes | None, bytes | None]
PARTITIONS = 4
RECORDS = 300
KEYS = 20

QUICK = {"heartbeat_interval_ms": 100, "session_timeout_ms": 6_000}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {"partition_assignment_strategy": ("range",), **QUICK},
    "cooperative": {"partition_assignment_strategy": ("cooperative-sticky",), **QUICK},
    "static": {"group_instance_id": "NAME", **QUICK},
    "KIP-848": {"group_protocol": "consumer"},
}


class Few(TypedDict, total=False):
    """The settings that tests change."""

    guarantee: Any
    concurrency: int


async def make_topics(servers: str, *names: str) -> list[str]:
    """Topics of their own for one test."""
    topics = [f"{name}-{uuid.uuid4().hex[:8]}" for name in names]
    async with Admin(servers) as admin:
        await admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics])
    return topics


async def write(servers: str, topic: str, pause_s: float = 0.0) -> list[bytes]:
    values = []
    async with Producer(servers) as producer:
        for number in range(RECORDS):
            key = b"%d" % (number % KEYS)
            values.append(b"%s:%d" % (key, number))
            await producer.send(topic, values[-1], key=key)
            await asyncio.sleep(pause_s)
    return values


def processor_of(
    handle: Handler[bytes | None, bytes | None],
    topic: str,
    servers: str,
    protocol: str,
    name: str,
    **settings: Unpack[Few],
) -> Processor[bytes | None, bytes | None]:
    consumer: Any = {
        key: name if value == "NAME" else value for key, value in PROTOCOLS[protocol].items()
    }
    return Processor(
        handle,
        topic,
        bootstrap_servers=servers,
        group_id=f"group-{topic}",
        commit_interval_ms=100,
        consumer=consumer,
        **settings,
    )


def params() -> list[Any]:
    """Each protocol on each broker that has it."""
    return [
        pytest.param(broker, protocol, marks=mark)
        for broker, mark in (("embedded", pytest.mark.virtual_time), ("real", pytest.mark.kafka))
        for protocol in PROTOCOLS
    ]


@pytest.fixture
def servers(request: pytest.FixtureRequest) -> str:
    """Bootstrap servers of the broker that the parameter names."""
    if request.param == "real":
        running: str = request.getfixturevalue("kafka")
        return running
    found: str = request.getfixturevalue("broker").bootstrap_servers
    return found


@pytest.mark.parametrize(("servers", "protocol"), params(), indirect=["servers"])
async def test_members_join_and_leave_in_the_middle_of_work(servers: str, protocol: str) -> None:
    (topic,) = await make_topics(servers, "orders")
    numbers: dict[bytes | None, list[int]] = defaultdict(list)
    done: Counter[bytes | None] = Counter()

    async def handle(record: Raw) -> None:
        await asyncio.sleep(0.01)
        done[record.value] += 1
        if done[record.value] == 1:
            numbers[record.key].append(int((record.value or b"").rpartition(b":")[2]))

    writing = asyncio.create_task(write(servers, topic, 0.01))
    first = processor_of(handle, topic, servers, protocol, "first", concurrency=3)
    second = processor_of(handle, topic, servers, protocol, "second", concurrency=3)
    async with first:
        await until(lambda: done)
        async with second:
            await until(lambda: second.metrics()["records-handled-total"] > 10)
        await until(lambda: len(done) == RECORDS)
    assert set(done) == set(await writing)
    # Handlers end before a partition moves, so that none is processed twice.
    assert set(done.values()) == {1}
    assert all(ordered == sorted(ordered) for ordered in numbers.values())
    async with Consumer(topic, bootstrap_servers=servers, group_id=f"group-{topic}") as judge:
        assert list(await judge.getmany(timeout_ms=1_000)) == []


@pytest.mark.parametrize(("servers", "protocol"), params(), indirect=["servers"])
async def test_exactly_once_copies_each_record_once(servers: str, protocol: str) -> None:
    source, target = await make_topics(servers, "source", "target")

    async def handle(record: Raw) -> ProducerRecord:
        await asyncio.sleep(0.005)
        return ProducerRecord(target, record.value, record.key)

    values = await write(servers, source)
    seen: list[Any] = []
    made = [
        processor_of(handle, source, servers, protocol, name, guarantee="exactly_once")
        for name in ("first", "second")
    ]
    async with Consumer(
        target,
        bootstrap_servers=servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    ) as judge:
        async with made[0]:
            await until(lambda: made[0].metrics()["records-handled-total"] > 10)
            async with made[1], asyncio.timeout(30):
                while len(seen) < RECORDS:
                    seen += [record.value for record in await judge.getmany()]
        seen += [record.value for record in await judge.getmany(timeout_ms=500)]
    assert Counter(seen) == Counter(values)
    by_key: dict[bytes, list[int]] = defaultdict(list)
    for value in seen:
        key, _, number = value.partition(b":")
        by_key[key].append(int(number))
    assert all(ordered == sorted(ordered) for ordered in by_key.values())
