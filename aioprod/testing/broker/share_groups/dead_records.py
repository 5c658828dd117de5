"""The records that a share group does not deliver again, because a member rejected them or they
were delivered too often, and their dead letters (KIP-1191).
"""

from __future__ import annotations

from typing import NamedTuple

from aioprod.protocol.record_reader import Record
from aioprod.protocol.record_writer import RecordBatchWriter
from aioprod.types import TopicPartition

REJECTED = "Offset rejected by client."
DELIVERED_TOO_OFTEN = "Offset delivery count exceeded the threshold."


class DeadRecord(NamedTuple):
    """A record that is not delivered again.

    Attributes:
        reason: `REJECTED` or `DELIVERED_TOO_OFTEN`.
    """

    offset: int
    delivery_count: int
    reason: str


def build_letter(
    group_id: str,
    source: TopicPartition,
    dead: DeadRecord,
    copied: Record | None,
    max_bytes: int,
    now_ms: int,
) -> bytes:
    """Build the batch of one dead letter.

    Args:
        source: the topic and partition of the record.
        copied: the record, if the group is configured to copy records and it still exists. A record
            that is larger than ``max_bytes`` is not copied.
    """
    key, value = None, None
    if copied is not None and _size(copied) <= max_bytes:
        key, value = copied.key, copied.value
    writer = RecordBatchWriter(now_ms)
    headers = {
        "topic": source.topic,
        "partition": source.partition,
        "offset": dead.offset,
        "group": group_id,
        "delivery.count": dead.delivery_count,
        "message": dead.reason,
    }
    encoded = [(f"__dlq.errors.{name}", str(text).encode()) for name, text in headers.items()]
    writer.append(now_ms, key, value, encoded)
    return writer.build()


def _size(record: Record) -> int:
    writer = RecordBatchWriter(record.timestamp)
    writer.append(record.timestamp, record.key, record.value, record.headers)
    return len(writer.body())
