"""The judge: librdkafka reads the target topics with ``isolation.level=read_committed`` and says
what became of each row.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

_LIMIT_S = 30.0
_POLL_S = 0.05


@dataclass(frozen=True)
class Verdict:
    """The findings of a consumer of committed records.

    Attributes:
        rows: rows that are there, at least once.
        duplicates: rows that are there again, each time counted.
        missing: rows that are not there.
        wrong: records that are no row, or in the wrong topic.
        written: data records in all, those of aborted transactions too.
    """

    rows: int
    duplicates: list[int] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    written: int = 0

    @property
    def exactly_once(self) -> bool:
        return not (self.duplicates or self.missing or self.wrong)


def judge(servers: str, topics: Sequence[str], expected: int) -> Verdict:
    """Read the topics to their ends, and compare with rows 0 to ``expected`` - 1."""
    found: Counter[int] = Counter()
    wrong: list[str] = []
    for message in _read(servers, topics, "read_committed"):
        key, value = (message.key() or b"").decode(), (message.value() or b"").decode()
        right = (
            key.isdecimal()
            and value == f"row {key}"
            and int(key) < expected
            and message.topic() == topics[int(key) % len(topics)]
        )
        if right:
            found[int(key)] += 1
        else:
            wrong.append(f"{message.topic()}: {key!r}: {value!r}")
    duplicates = sorted((found - Counter(found.keys())).elements())
    missing = [number for number in range(expected) if number not in found]
    return Verdict(
        len(found), duplicates, missing, wrong, len(_read(servers, topics, "read_uncommitted"))
    )


class Ends:
    """The ends of topics' partitions: as they are, and as a consumer of committed records sees
    them. Close it.
    """

    def __init__(self, servers: str, topics: Sequence[str]) -> None:
        self._committed, self._all = (
            _consumer(servers, "read_committed"),
            _consumer(servers, "read_uncommitted"),
        )
        self._partitions = _partitions(self._all, topics)

    def close(self) -> None:
        self._committed.close()
        self._all.close()

    def stable(self) -> list[int]:
        """Return the last stable offsets: open transactions hide the records after them."""
        return [_end(self._committed, partition) for partition in self._partitions]

    def high(self) -> list[int]:
        """High watermarks."""
        return [_end(self._all, partition) for partition in self._partitions]

    def wait_for(self, offsets: Sequence[int], limit_s: float = _LIMIT_S) -> None:
        """Wait until a consumer of committed records gets as far as ``offsets``. Raises
        TimeoutError where something still hides them.
        """
        deadline = time.monotonic() + limit_s
        while _behind(stable := self.stable(), offsets):
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"after {limit_s:g} s open transactions still hide records: stable "
                    f"{stable}, wanted {list(offsets)}"
                )
            time.sleep(_POLL_S)


def _behind(offsets: Sequence[int], wanted: Sequence[int]) -> bool:
    return any(here < there for here, there in zip(offsets, wanted, strict=True))


def _end(consumer: Consumer, partition: TopicPartition) -> int:
    offsets = consumer.get_watermark_offsets(partition, _LIMIT_S)
    assert offsets is not None
    return int(offsets[1])


def _consumer(servers: str, isolation_level: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "judge",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation_level,
            "fetch.wait.max.ms": 10,
            "log_level": 0,
        }
    )


def _partitions(consumer: Consumer, topics: Sequence[str]) -> list[TopicPartition]:
    found = consumer.list_topics(timeout=_LIMIT_S).topics
    return [
        TopicPartition(topic, partition, 0)
        for topic in topics
        if topic in found
        for partition in found[topic].partitions
    ]


def _read(servers: str, topics: Sequence[str], isolation_level: str) -> list[Message]:
    consumer = _consumer(servers, isolation_level)
    try:
        partitions = _partitions(consumer, topics)
        unread = {(each.topic, each.partition) for each in partitions}
        consumer.assign(partitions)
        messages: list[Message] = []
        deadline = time.monotonic() + _LIMIT_S
        while unread:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"the ends of {sorted(unread)} were not reached within {_LIMIT_S:g} s"
                )
            for message in consumer.consume(10_000, 0.05):
                error = message.error()
                if error is None:
                    messages.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard((message.topic(), message.partition()))
        return messages
    finally:
        consumer.close()
