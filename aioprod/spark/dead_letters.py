"""Writes those records of a stream whose values can't be decoded to a topic, each exactly once.

A task reads the records of a partition in order, so a single offset identifies the records that are
already written. The group ``<prefix>-dead-letters-<query id>`` commits it for the source's
partition, in the transaction that writes the dead letters. An attempt first takes over the
partition's transactional id, which ends the transactions of earlier attempts, and then reads that
offset. So repeated, speculative and lost attempts write nothing twice, regardless of the number of
tasks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]

from aioprod import dead_letter_headers
from aioprod.cluster.client import ClusterClient
from aioprod.counts import counted
from aioprod.errors import KafkaError
from aioprod.logs import Logger, get_logger
from aioprod.producer.producer import Producer
from aioprod.protocol.arrow_reader import HEADERS_TYPE
from aioprod.spark.coordination import Coordination, old_brokers_explained
from aioprod.spark.errors import SinkError
from aioprod.spark.exactly_once.decision_log import committed_offsets
from aioprod.spark.offsets import OffsetRange
from aioprod.spark.source_options import SourceOptions, client_config, fetch_settings
from aioprod.spark.starting import start_producer
from aioprod.spark.waiting import named_wait
from aioprod.types import OffsetAndMetadata, TopicPartition

log: Logger = get_logger(__name__)

# Headers contain the reason and the origin, so a dead letter is larger than its record. Brokers
# have a separate limit: the topic's max.message.bytes.
_MOST_BYTES: Final = 16 << 20
_CLOSE_LIMIT_MS: Final = 5_000
_LIMITS: Final = "kafka.default.api.timeout.ms for the offset, 60 s for each step of a transaction"


@dataclass(frozen=True, slots=True)
class Written:
    """The dead letters that are written from a partition, from the metadata of the group's offset.

    Attributes:
        next_offset: the offset after the last dead letter.
        count: the number of dead letters.
        topic_id: the id of the topic that the offset belongs to; empty if the brokers do not
            support ids.
    """

    next_offset: int = 0
    count: int = 0
    topic_id: str = ""

    @classmethod
    def of(cls, committed: OffsetAndMetadata, topic_id: str) -> Written:
        """Parse a committed offset. It is ignored if the topic was recreated since."""
        try:
            given = json.loads(committed.metadata)
            count, of_topic = int(given["count"]), str(given["topicId"])
        except (ValueError, KeyError, TypeError):
            raise SinkError(
                f"the group of the dead letters has an offset with metadata "
                f"{committed.metadata[:100]!r}, which another program has committed: reset the "
                "group's offsets, or set another transactionalIdPrefix"
            ) from None
        if topic_id and of_topic and of_topic != topic_id:
            return cls(0, count, topic_id)
        return cls(committed.offset, count, topic_id or of_topic)

    def to_commit(self) -> OffsetAndMetadata:
        """Return the offset to commit."""
        text = json.dumps({"count": self.count, "topicId": self.topic_id})
        return OffsetAndMetadata(self.next_offset, text)


def group_of(prefix: str, query_id: str) -> str:
    """Return the group of a query's dead letters."""
    return f"{prefix}-dead-letters-{query_id}"


class DeadLetterWriter:
    """Writes the dead letters of one task. It connects when there is a first one.

    Args:
        cluster: the client of the task.
        query_id: the id of the streaming query.
        item: the task's records.
    """

    def __init__(
        self, cluster: ClusterClient, options: SourceOptions, query_id: str, item: OffsetRange
    ) -> None:
        assert options.dead_letters is not None
        self._options = options
        self._topic = options.dead_letters.topic
        self._group = group_of(options.dead_letters.prefix, query_id)
        self._place = TopicPartition(item.topic, item.partition)
        self._topic_id = "" if item.topic_id is None else str(item.topic_id)
        self._coordination = Coordination(cluster, fetch_settings(options).retry_limit_ms / 1000)
        self._producer: Producer | None = None
        self._written = Written()

    async def write(self, rows: pa.RecordBatch, reasons: Mapping[int, str]) -> None:
        """Write those rows that are not written yet, and wait until the transaction is committed.

        Args:
            rows: undecoded rows of the source with headers, in the order of their offsets.
            reasons: the reason why a row is a dead letter, by its number.

        Raises:
            SinkError: if they can't be written; nothing of this call is visible.
        """
        what = f"writing {counted(len(reasons), 'dead letter')} of {self._name} to {self._topic}"
        try:
            with named_wait(what, _LIMITS), old_brokers_explained():
                producer = await self._started()
                offsets = rows.column("offset").to_pylist()
                new = [row for row in sorted(reasons) if offsets[row] >= self._written.next_offset]
                if new:
                    written = Written(
                        offsets[new[-1]] + 1, self._written.count + len(new), self._topic_id
                    )
                    letters = dead_letter_rows(rows.take(pa.array(new)), [reasons[n] for n in new])
                    await self._commit(producer, letters, written)
                    self._written = written
                    log.warning(
                        "%s of %s written to %s; offset %d: %s",
                        *(counted(len(new), "dead letter"), self._name, self._topic),
                        *(offsets[new[0]], reasons[new[0]]),
                    )
        except SinkError:
            raise
        except KafkaError as error:
            raise SinkError(
                f"dead letters of {self._name} can't be written to {self._topic}: {error}"
            ) from error

    async def close(self) -> None:
        """Close the producer, within 5 seconds."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close(timeout_ms=_CLOSE_LIMIT_MS)

    @property
    def _name(self) -> str:
        return f"{self._place.topic}-{self._place.partition}"

    async def _started(self) -> Producer:
        if self._producer is not None:
            return self._producer
        producer = Producer(
            bootstrap_servers=self._options.bootstrap_servers,
            **client_config(self._options.client),
            transactional_id=f"{self._group}-{self._name}",
            max_request_size=_MOST_BYTES,
        )
        try:
            await start_producer(producer)
            # Only now, because an earlier attempt can't commit any more.
            found = await committed_offsets(self._coordination, self._group, stable=True)
        except BaseException:
            await producer.close(timeout_ms=0)
            raise
        self._producer = producer
        if self._place in found:
            self._written = Written.of(found[self._place], self._topic_id)
        return producer

    async def _commit(self, producer: Producer, letters: pa.RecordBatch, written: Written) -> None:
        await producer.begin_transaction()
        deliveries = await producer.send_arrow(self._topic, letters)
        for error in deliveries.exceptions().values():
            raise error
        await deliveries.wait()
        await producer.send_offsets_to_transaction({self._place: written.to_commit()}, self._group)
        await producer.commit_transaction()


def dead_letter_rows(rows: pa.RecordBatch, reasons: Sequence[str]) -> pa.RecordBatch:
    """Return records with their reasons in the form that the producer accepts: key, value and
    headers unchanged, and the headers of `aioprod.spark.pipeline.dead_letters`.
    """
    milliseconds = rows.column("timestamp").cast(pa.int64()).to_pylist()
    headers = []
    for number, given in enumerate(rows.column("headers").to_pylist()):
        notes = {
            "reason": reasons[number],
            "topic": rows.column("topic")[number].as_py(),
            "partition": rows.column("partition")[number].as_py(),
            "offset": rows.column("offset")[number].as_py(),
            "timestamp": milliseconds[number] // 1000,
        }
        added = [
            {"key": dead_letter_headers.SPARK + name, "value": str(note).encode()}
            for name, note in notes.items()
        ]
        headers.append([*(given or ()), *added])
    return pa.RecordBatch.from_arrays(
        [rows.column("key"), rows.column("value"), pa.array(headers, HEADERS_TYPE)],
        names=["key", "value", "headers"],
    )
