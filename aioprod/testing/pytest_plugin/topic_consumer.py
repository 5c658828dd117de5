"""A consumer for tests. It reads all partitions of one topic from the beginning, without a
group.
"""

from __future__ import annotations

import asyncio
from typing import Any, Self

from aioprod import Consumer, ConsumerRecord
from aioprod.errors import ConfigError

__all__ = ["TopicConsumer"]


class TopicConsumer(Consumer):
    """An :class:`aioprod.Consumer` of one topic. It sends no request before the first record is
    requested, and never waits forever.

    Records of a partition are in order. Records of different partitions are returned as they
    arrive.

    Args:
        bootstrap_servers: ``"host:port,..."``.
        topic: the topic to read.
        timeout_ms: how long :meth:`getone` and ``async for`` wait for a record, in milliseconds.
        settings: fields of :class:`aioprod.config.consumer.ConsumerConfig`, such as
            ``isolation_level="read_committed"``.
    """

    def __init__(
        self, bootstrap_servers: str, topic: str, *, timeout_ms: float = 10_000, **settings: Any
    ) -> None:
        if timeout_ms <= 0:
            raise ConfigError(f"timeout_ms={timeout_ms}: must be above 0")
        settings = {"auto_offset_reset": "earliest", "allow_auto_create_topics": False, **settings}
        super().__init__(topic, bootstrap_servers=bootstrap_servers, **settings)
        self._timeout_ms = timeout_ms

    async def __aenter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        return await self.getone()

    async def getone(self, timeout_ms: float | None = None, timeout: None = None) -> ConsumerRecord:
        """Return the next record.

        Raises:
            KafkaTimeoutError: if no record arrives within ``timeout_ms`` (default: the consumer's).
            KafkaError: if the topic can't be read.
        """
        await self.start()
        return await super().getone(self._timeout_ms if timeout_ms is None else timeout_ms, timeout)

    async def getmany(
        self, max_records: int | None = None, timeout_ms: float | None = None
    ) -> list[ConsumerRecord]:
        """Wait for ``max_records`` records and return them. Return fewer if no more arrive within
        ``timeout_ms``.

        Raises:
            KafkaError: if the topic can't be read.
        """
        await self.start()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (self._timeout_ms if timeout_ms is None else timeout_ms) / 1000
        wanted = self.config.max_poll_records if max_records is None else max_records
        found = [*await super().getmany(wanted, timeout_ms=(deadline - loop.time()) * 1000)]
        while len(found) < wanted and loop.time() < deadline:
            found += await super().getmany(
                wanted - len(found), timeout_ms=max(deadline - loop.time(), 0) * 1000
            )
        return found
