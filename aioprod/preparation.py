"""Serializers that have to wait: how the client learns of it, and what it awaits. The error of a
record whose deserializer has failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aioprod.errors import DeserializationError
from aioprod.foreign_text import fault_of
from aioprod.types import ConsumerRecord, TopicPartition
from aioprod.user_code import ENDS_PROGRAM, is_cancelled

__all__ = ["NotPrepared"]

#: A serializer that is not prepared after this number of attempts for one record has failed.
MOST_ATTEMPTS = 10


class NotPrepared(Exception):
    """Raised by a serializer or deserializer that first needs something that must be awaited, such
    as the schema of an id.

    The client awaits ``prepare()`` and then calls the serializer again with the same record, up to
    ten times. No later record of the topic overtakes it. An error of ``prepare()`` is that of the
    record, as if the serializer had raised it.

    Args:
        prepare: takes no arguments; what it returns is awaited. Calls at the same time, and one
            that follows a cancelled one, should share the work.

    Attributes:
        is_done: whether ``prepare`` has ended.
        error: the error of the record, if ``prepare`` has failed.
        describe: makes that error from the one that ``prepare`` raised. The client sets it.
    """

    def __init__(self, prepare: Callable[[], Awaitable[object]]) -> None:
        super().__init__("the serializer must be prepared first")
        self._prepare = prepare
        self.is_done: bool = False
        self.error: BaseException | None = None
        self.describe: Callable[[BaseException], BaseException] | None = None

    async def prepare(self) -> None:
        """Await what the serializer needs, and keep the error if that fails.

        Raises:
            CancelledError: if the task is cancelled.
            KeyboardInterrupt, SystemExit: unchanged.
        """
        try:
            await self._prepare()
        except ENDS_PROGRAM:
            raise
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and is_cancelled():
                raise
            self.fail(error)
        self.is_done = True

    def fail(self, error: BaseException) -> None:
        """Keep ``error`` as the reason why the record can't be converted."""
        self.error = error if self.describe is None else self.describe(error)

    async def prepare_by(self, deadline: float | None) -> bool:
        """Prepare as :meth:`prepare` does; return False if the deadline (loop time) has passed."""
        try:
            async with asyncio.timeout_at(deadline) as limit:
                await self.prepare()
        except TimeoutError:
            if not limit.expired():
                raise
            return False
        return True


def unreadable(
    setting: str,
    deserializer: object,
    remedy: str,
    record: ConsumerRecord,
    error: BaseException,
) -> DeserializationError:
    """Return the error of a record whose ``setting``, such as key_deserializer, has failed with
    ``error``. A ``remedy`` ends the message; ``{}`` in it is the next offset.
    """
    what = setting.removesuffix("_deserializer")
    name = getattr(deserializer, "__qualname__", type(deserializer).__name__)
    failure = DeserializationError(
        f"{setting}: {name} can't read the {what} of the record at offset {record.offset} of "
        f"{record.topic}-{record.partition}: {type(error).__name__}: {fault_of(error)}"
        + (f"; {remedy.format(record.offset + 1)}" if remedy else ""),
        topic_partition=TopicPartition(record.topic, record.partition),
        offset=record.offset,
        timestamp=record.timestamp,
        key=record.key,
        value=record.value,
        headers=record.headers,
    )
    failure.__cause__ = error
    return failure
