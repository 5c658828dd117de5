"""Calls that append to a partition, until their records are in a batch."""

from __future__ import annotations

from aioprod.producer.batch import ProducerBatch
from aioprod.producer.partition_queue import PartitionQueue
from aioprod.producer.pending import PendingCall
from aioprod.protocol.record_batch import HEADER_SIZE
from aioprod.protocol.record_writer import RecordBatchWriter
from aioprod.types import Headers, ProducerRecord


class PendingAppend(PendingCall):
    """A call that appends to one partition.

    Attributes:
        queue: the partition, once it is chosen; it does not change afterwards.
        place: the batch and the index of the first record in it, once the records are in a batch.
    """

    __slots__ = ("place", "queue")

    def __init__(self, deadline: float, transaction: int | None) -> None:
        super().__init__(deadline, transaction)
        self.queue: PartitionQueue | None = None
        self.place: tuple[ProducerBatch, int] | None = None

    @property
    def is_admitted(self) -> bool:
        """Whether its partition is chosen."""
        return self.queue is not None

    def memory(self, batch_size: int) -> int:
        """Return how many bytes of the buffer a new batch for this call needs."""
        raise NotImplementedError

    def writer(self) -> RecordBatchWriter:
        """Return the writer of a new batch for this call."""
        raise NotImplementedError

    @property
    def is_complete(self) -> bool:
        """Whether it is a complete batch, which accepts no other records."""
        raise NotImplementedError

    def append_to(self, batch: ProducerBatch) -> int:
        """Put the records into a batch; return the index of the first, -1 if they don't fit."""
        raise NotImplementedError


class PendingRecord(PendingAppend):
    """One record, serialized.

    Args:
        record: the record after the interceptors.
        timestamp: milliseconds since 1970.
        bound: bytes of a batch that holds only this record, at most.
        deadline: loop time.
        transaction: number of the transaction in which the call began.
    """

    __slots__ = ("bound", "headers", "key", "record", "timestamp", "value")

    def __init__(
        self,
        record: ProducerRecord,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        bound: int,
        deadline: float,
        transaction: int | None = None,
    ) -> None:
        self.deadline = deadline
        self.transaction = transaction
        self.error = self.queue = self.place = self._future = None
        self.record = record
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers = headers
        self.bound = bound

    def memory(self, batch_size: int) -> int:
        """Return ``batch_size``, or more for a larger record."""
        return max(batch_size, self.bound)

    def writer(self) -> RecordBatchWriter:
        """Return an empty writer."""
        return RecordBatchWriter(self.timestamp)

    @property
    def is_complete(self) -> bool:
        """False: other records may join its batch."""
        return False

    def append_to(self, batch: ProducerBatch) -> int:
        """Put the record into a batch; return its index, -1 if it does not fit."""
        index = batch.try_append(self.timestamp, self.key, self.value, self.headers, self.bound)
        if index >= 0 and batch.records is not None:
            batch.records.append(self.record)
        return index


class PendingBatch(PendingAppend):
    """Encoded records, which form a complete batch."""

    __slots__ = ("_writer",)

    def __init__(
        self, writer: RecordBatchWriter, deadline: float, transaction: int | None = None
    ) -> None:
        super().__init__(deadline, transaction)
        self._writer = writer

    def memory(self, batch_size: int) -> int:
        """Return the size of the encoded records."""
        return self._writer.size + HEADER_SIZE

    def writer(self) -> RecordBatchWriter:
        """Return the writer that holds the records."""
        return self._writer

    @property
    def is_complete(self) -> bool:
        """True: no other record joins the batch."""
        return True

    def append_to(self, batch: ProducerBatch) -> int:
        """Return 0 if the batch is the one made from this writer, -1 for any other."""
        return 0 if batch.writer is self._writer else -1
