"""A decision: which transactions make up a batch. As text, short enough for the metadata of a
committed offset. No I/O.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass

from aioprod.errors import KafkaError, ProtocolError
from aioprod.protocol.primitives import Reader, Writer
from aioprod.spark.exactly_once.ids import Sink
from aioprod.types import PreparedTransaction

_FORMAT = 1
_MARK = f"aioprod{_FORMAT}:"


class DecisionError(KafkaError):
    """What is in the decision log can't be understood, or contradicts what is known."""


@dataclass(frozen=True, slots=True)
class DecidedTransaction:
    """A task's transaction that belongs to the batch.

    Attributes:
        partition: the task's number.
        number: of the attempt, as in `reports.TaskAttempt`.
        producer_id, epoch, v2: as in :class:`aioprod.PreparedTransaction`.
        rows: how many were written in it.
    """

    partition: int
    number: int
    producer_id: int
    epoch: int
    v2: bool
    rows: int


@dataclass(frozen=True, slots=True)
class Decision:
    """What makes a batch visible, whatever happens afterwards.

    Attributes:
        version: the batch's number.
        run: which run of the query wrote it, as `ids.short_run` has it.
        digest: over all rows, as `digest.RowDigest` has it.
        transactions: sorted by partition.
    """

    version: int
    run: str
    digest: int
    transactions: tuple[DecidedTransaction, ...]

    @property
    def rows(self) -> int:
        """How many rows the batch has."""
        return sum(each.rows for each in self.transactions)

    def prepared(self, sink: Sink) -> list[PreparedTransaction]:
        """What each transaction is ended with, in the same order."""
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
    """The decision as text: about 12 characters per transaction, because partitions, attempts and
    producer ids are mostly neighbours.
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
    return _MARK + base64.b85encode(writer.buffer).decode()


def decode(text: str) -> Decision:
    """The opposite of `encode`.

    Raises:
        DecisionError: this is no decision, or one of a newer version of this library.
    """
    if not text.startswith(_MARK):
        raise DecisionError(
            f"this is no decision that this version of aioprod understands: {text[:40]!r}"
        )
    try:
        reader = Reader(base64.b85decode(text.removeprefix(_MARK)))
        version, run = reader.int64(), f"{reader.uint32():08x}"
        digest = reader.uint32() << 32 | reader.uint32()
        transactions = tuple(_transactions(reader))
        if reader.offset != len(reader.data):
            raise ProtocolError("it goes on after its end")
    except (ValueError, ProtocolError) as error:
        raise DecisionError(f"a decision is damaged: {text[:40]!r}: {error}") from error
    return Decision(version, run, digest, transactions)


def _transactions(reader: Reader) -> Iterable[DecidedTransaction]:
    partition = number = producer_id = 0
    for _ in range(reader.uvarint()):
        partition += reader.varlong()
        number += reader.varlong()
        producer_id += reader.varlong()
        epoch, v2 = divmod(reader.uvarint(), 2)
        yield DecidedTransaction(partition, number, producer_id, epoch, bool(v2), reader.varlong())
