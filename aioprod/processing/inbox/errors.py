"""The error of the inbox."""

from __future__ import annotations

from aioprod import KafkaError
from aioprod.public_module import set_module


@set_module("aioprod.processing.inbox")
class InboxError(KafkaError):
    """The database of an inbox fails, or another member of the group has taken over a partition. No
    record is lost: those that the database does not have are handled again.
    """
