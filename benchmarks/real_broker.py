"""A real Kafka broker, its topics, and the number of their records."""

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
# A fast JVM, as the broker must not be the bottleneck.
JAVA_OPTIONS = ("-XX:+UseParallelGC", "-Xshare:auto")
_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.01, 1.0
_ERRORS_ONLY = 3
_MAX_POLL_RECORDS = 10_000
_numbers = itertools.count(1)


class RecordsMissingError(Exception):
    """A topic does not have exactly the acknowledged records."""


@contextmanager
def bootstrap(chosen: str | None) -> Iterator[str]:
    """Yield ``chosen``, or the address of a Kafka broker that runs until the block ends."""
    with ExitStack() as stack:
        servers = (
            chosen
            or stack.enter_context(
                RealCluster(nodes=1, heap_mb=_HEAP_MB, java_options=JAVA_OPTIONS)
            ).bootstrap_servers
        )
        # Close the client before the broker stops: it would log errors.
        stack.callback(_admin.cache_clear)
        yield servers


@contextmanager
def topics(servers: str, count: int, partitions: int = 1, replicas: int = 1) -> Iterator[list[str]]:
    """Create topics, yield their names, and delete them: rounds must not affect each other."""
    names = [f"benchmark-{os.getpid()}-{next(_numbers)}" for _ in range(count)]
    config = {"file.delete.delay.ms": "0"}
    created = _admin(servers).create_topics(
        [NewTopic(name, partitions, replicas, config=config) for name in names],
        request_timeout=_TIMEOUT_S,
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
def topic(servers: str, partitions: int = 1, replicas: int = 1) -> Iterator[str]:
    """Create a topic, yield its name and delete it."""
    with topics(servers, 1, partitions, replicas) as (name,):
        yield name


def use_every_partition(servers: str, topic: str, partitions: int) -> None:
    """Write a record to each partition, as the first record of a partition is slow: the broker
    creates files.
    """
    producer = Producer({"bootstrap.servers": servers, "log_level": _ERRORS_ONLY})
    for number in range(partitions):
        producer.produce(topic, b"first", partition=number)
    producer.flush(_TIMEOUT_S)
    producer.close()


def record_count(servers: str, names: Sequence[str], partitions: Sequence[int]) -> int:
    """Return the sum of the end offsets of these partitions of each topic."""
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
    """Check that ``acknowledged`` records were added to the topic.

    Args:
        before: the number of records before.
        more_allowed: the topic may have more, as the client was stopped while sending.

    Raises:
        RecordsMissingError: if the numbers differ.
    """
    found = record_count(servers, [topic], range(partitions)) - before
    if found < acknowledged or (found > acknowledged and not more_allowed):
        raise RecordsMissingError(
            f"{topic}: {acknowledged} records were acknowledged, but the topic has {found}"
        )


def check_committed_records(servers: str, topic: str, partitions: int, written: int) -> None:
    """Read the topic with read_committed and check the number of its records.

    For transactions, whose markers take up offsets, so that end offsets can't be used.

    Raises:
        RecordsMissingError: if the numbers differ.
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
            for message in consumer.consume(_MAX_POLL_RECORDS, timeout=1):
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
            f"{topic}: {written} records were written, but {found} can be read"
        )


def _wait_for_leaders(servers: str, names: Sequence[str], partitions: int) -> None:
    """Wait until the leaders of new topics serve requests.

    Raises:
        KafkaException: the last error, if they do not.
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
            _admin.cache_clear()  # it caches that there are no leaders
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _MAX_PAUSE_S)


@cache
def _admin(servers: str) -> AdminClient:
    # Its calls raise errors. It logs nothing, as it outlives brokers that are started for a moment.
    return AdminClient({"bootstrap.servers": servers, "log_level": 0})
