"""The error of the outbox."""

from __future__ import annotations

from aioprod import KafkaError
from aioprod.public_module import set_module


@set_module("aioprod.outbox")
class OutboxError(KafkaError):
    """A row can't be written, or a relay can't continue. No row is lost: rows that are not in Kafka
    yet stay in the table.
    """
