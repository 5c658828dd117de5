"""A real Kafka broker for the questions, topics on it, and how many records arrived."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic

from aioprod.testing.real_cluster import RealCluster

_TIMEOUT_S = 60
_HEAP_MB = 512
# All that the JVM's compilers can do: the broker must not be what is measured.
_JAVA_OPTIONS = ("-XX:+UseParallelGC", "-Xshare:auto")
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 1.0
_ERRORS_ONLY = 3
_MOST_AT_ONCE = 10_000
_numbers = itertools.count(1)


class RecordsMissingError(Exception):
    """A topic does not hold the records that were acknowledged, or holds some twice."""


@contextmanager
def bootstrap(chosen: str | None) -> Iterator[str]:
    """``HOST:PORT`` as chosen, or that of a Kafka broker on this machine that ends with the
    block.
    """
    with ExitStack() as stack:
        servers = (
            chosen
            or stack.enter_context(
                RealCluster(nodes=1, heap_mb=_HEAP_MB, java_options=_JAVA_OPTIONS)
            ).bootstrap_servers
        )
        stack.callback(_admin.cache_clear)  # before the broker goes, or the client would complain
        yield servers


@contextmanager
def topics(servers: str, count: int, partitions: int = 1) -> Iterator[list[str]]:
    """The names of so many new topics; they are deleted with the block, so that no round pays for
    the records of the one before.
    """
    names = [f"benchmark-{os.getpid()}-{next(_numbers)}" for _ in range(count)]
    config = {"file.delete.delay.ms": "0"}
    created = _admin(servers).create_topics(
        [NewTopic(name, partitions, 1, config=config) for name in names], request_timeout=_TIMEOUT_S
    )
    for done in created.values():
        done.result(_TIMEOUT_S)
    try:
        _wait_for_leaders(servers, names, partitions)
        yield names
    finally:
        for done in _admin(servers).delete_topics(names, request_timeout=_TIMEOUT_S).values():
            done.result(_TIMEOUT_S)


@contextmanager
def topic(servers: str, partitions: int = 1) -> Iterator[str]:
    """The name of a new topic; it is deleted with the block."""
    with topics(servers, 1, partitions) as (name,):
        yield name


def use_every_partition(servers: str, topic: str, partitions: int) -> None:
    """Write a record to each: the first one of a partition costs the broker files and directories,
    thousands of them its whole time for seconds.
    """
    producer = Producer({"bootstrap.servers": servers, "log_level": _ERRORS_ONLY})
    for number in range(partitions):
        producer.produce(topic, b"first", partition=number)
    producer.flush(_TIMEOUT_S)
    producer.close()


def record_count(servers: str, names: Sequence[str], partitions: Sequence[int]) -> int:
    """The sum of the end offsets of these partitions of each topic: what was ever written to
    them.
    """
    latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    asked = {TopicPartition(name, number): latest for name in names for number in partitions}
    return sum(
        done.result(_TIMEOUT_S).offset
        for done in _admin(servers).list_offsets(asked, request_timeout=_TIMEOUT_S).values()
    )


def check_record_count(
    servers: str,
    topic: str,
    partitions: int,
    acknowledged: int,
    *,
    before: int = 0,
    more_allowed: bool = False,
) -> None:
    """Raise RecordsMissingError unless the topic was written exactly so many records since it had
    those ``before``.

    ``more_allowed``: there may be more, of a client that was stopped in the middle.
    """
    found = record_count(servers, [topic], range(partitions)) - before
    if found < acknowledged or (found > acknowledged and not more_allowed):
        raise RecordsMissingError(
            f"{topic}: {acknowledged} records were acknowledged, and the end offsets say {found}"
        )


def check_committed_records(servers: str, topic: str, partitions: int, written: int) -> None:
    """Read the topic as far as its end, and raise RecordsMissingError unless exactly so many
    records of it can be seen (read_committed).

    For transactions: their end takes up an offset of each partition, so that end offsets say too
        much.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": topic,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "log_level": _ERRORS_ONLY,
        }
    )
    try:
        consumer.assign(
            [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)]
        )
        found, ended, deadline = 0, 0, time.monotonic() + _TIMEOUT_S
        while ended < partitions:
            if time.monotonic() > deadline:
                raise RecordsMissingError(
                    f"{topic}: {found} of {written} records were read within {_TIMEOUT_S} s"
                )
            for message in consumer.consume(_MOST_AT_ONCE, timeout=1):
                error = message.error()
                if error is None:
                    found += 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended += 1
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
    if found != written:
        raise RecordsMissingError(
            f"{topic}: {written} records were written, and {found} can be read"
        )


def _wait_for_leaders(servers: str, names: Sequence[str], partitions: int) -> None:
    """The controller says that a topic is made before its leaders take anything. Raises the last
    KafkaException where they don't come to do so.
    """
    deadline = time.monotonic() + _TIMEOUT_S
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            record_count(servers, names, range(partitions))
            return
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            _admin.cache_clear()  # it would remember for good that there are no leaders
            time.sleep(
                pause_s
            )  # ever longer: to ask about a thousand partitions takes the broker's time
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


@cache
def _admin(servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers, "log_level": _ERRORS_ONLY})
