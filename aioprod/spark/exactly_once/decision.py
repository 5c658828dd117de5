"""A decision: the transactions of a batch, encoded as text that is short enough for the metadata of
a committed offset. No I/O.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from aioprod.errors import KafkaError, ProtocolError
from aioprod.protocol.primitives import Reader, Writer
from aioprod.spark.exactly_once.ids import Sink
from aioprod.types import PreparedTransaction

_MARK = "aioprod2:"
# The former version, without a checksum: a truncated text could be a different decision. Still
# read.
_OLD_MARK = "aioprod1:"
_SUM_BYTES = 4
_SOURCES = " "


class DecisionError(KafkaError):
    """A decision in the log can't be parsed, or is inconsistent."""


@dataclass(frozen=True, slots=True)
class DecidedTransaction:
    """A task's transaction that belongs to the batch.

    Attributes:
        partition: the task's number.
        number: the attempt's number, as in `reports.TaskAttempt`.
        producer_id, epoch, v2: see :class:`aioprod.PreparedTransaction`.
        rows: the number of rows written in it.
    """

    partition: int
    number: int
    producer_id: int
    epoch: int
    v2: bool
    rows: int


@dataclass(frozen=True, slots=True)
class Decision:
    """Makes a batch visible, regardless of later failures. If it was taken back, the batch must be
    written again.

    Attributes:
        version: the batch's number.
        run: the run of the query that wrote it, in the form of `ids.short_run`.
        digest: the digest of all rows, from `digest.RowDigest`.
        transactions: the transactions, sorted by partition; empty if the decision was taken back.
        sources: the end of the batch in each source of a stream, if known.
        topic: the topic. The group's offset for its partition 0 contains this decision. Not part of
            the text.
    """

    version: int
    run: str
    digest: int
    transactions: tuple[DecidedTransaction, ...]
    sources: tuple[str, ...] = ()
    topic: str = field(default="", compare=False)

    @property
    def is_taken_back(self) -> bool:
        """True if no transaction of the batch was committed or ever will be."""
        return not self.transactions

    @property
    def next_version(self) -> int:
        """The number of the next batch to decide."""
        return self.version + (not self.is_taken_back)

    def covers(self, version: int) -> bool:
        """Return whether it makes this batch visible."""
        return self.version == version and not self.is_taken_back

    def taken_back(self) -> Decision:
        """Return the decision that replaces this one if its batch must be written again."""
        return Decision(self.version, self.run, 0, (), topic=self.topic)

    @property
    def rows(self) -> int:
        """The number of rows of the batch."""
        return sum(each.rows for each in self.transactions)

    def prepared(self, sink: Sink) -> list[PreparedTransaction]:
        """Return the prepared transactions to end, in the same order."""
        return [
            PreparedTransaction(
                sink.transactional_id(self.run, self.version, each.number),
                each.producer_id,
                each.epoch,
                each.v2,
            )
            for each in self.transactions
        ]


def encode(decision: Decision) -> str:
    """Encode the decision as text: about 12 characters per transaction, because the differences
    between adjacent partitions, attempts and producer ids are small.
    """
    writer = Writer()
    writer.int64(decision.version)
    writer.uint32(int(decision.run, 16))
    writer.uint32(decision.digest >> 32)
    writer.uint32(decision.digest & 0xFFFFFFFF)
    writer.uvarint(len(decision.transactions))
    partition = number = producer_id = 0
    for each in decision.transactions:
        writer.varlong(each.partition - partition)
        writer.varlong(each.number - number)
        writer.varlong(each.producer_id - producer_id)
        writer.uvarint(each.epoch << 1 | each.v2)
        writer.varlong(each.rows)
        partition, number, producer_id = each.partition, each.number, each.producer_id
    text = _MARK + base64.b85encode(writer.buffer + _sum_of(writer.buffer)).decode()
    if not decision.sources:
        return text
    return text + _SOURCES + base64.b85encode(_packed(decision.sources)).decode()


def _packed(sources: Sequence[str]) -> bytes:
    return zlib.compress(json.dumps(sources).encode(), level=9)


def _unpacked(text: str) -> tuple[str, ...]:
    return tuple(json.loads(zlib.decompress(base64.b85decode(text)))) if text else ()


def decode(text: str) -> Decision:
    """Reverse `encode`.

    Raises:
        DecisionError: if the text is not a decision, or was written by a newer version.
    """
    if not text.startswith((_MARK, _OLD_MARK)):
        raise DecisionError(
            f"not a decision that this version of aioprod understands: {text[:40]!r}"
        )
    encoded, _, sources = text[len(_MARK) :].partition(_SOURCES)
    try:
        data = base64.b85decode(encoded)
        if text.startswith(_MARK):
            data, found = data[:-_SUM_BYTES], data[-_SUM_BYTES:]
            if found != _sum_of(data):
                raise ProtocolError("its checksum does not match")
        reader = Reader(data)
        version, run = reader.int64(), f"{reader.uint32():08x}"
        digest = reader.uint32() << 32 | reader.uint32()
        transactions = tuple(_transactions(reader))
        if reader.offset != len(reader.data):
            raise ProtocolError("unexpected bytes at the end")
        return Decision(version, run, digest, transactions, _unpacked(sources))
    except (ValueError, ProtocolError, zlib.error) as error:
        raise DecisionError(f"a decision is damaged: {text[:40]!r}: {error}") from error


def _sum_of(data: bytes | bytearray) -> bytes:
    return zlib.crc32(data).to_bytes(_SUM_BYTES, "big")


def _transactions(reader: Reader) -> Iterable[DecidedTransaction]:
    partition = number = producer_id = 0
    for _ in range(reader.uvarint()):
        partition += reader.varlong()
        number += reader.varlong()
        producer_id += reader.varlong()
        epoch, v2 = divmod(reader.uvarint(), 2)
        yield DecidedTransaction(partition, number, producer_id, epoch, bool(v2), reader.varlong())
