"""The part of ``producer.client`` and ``consumer._client`` that instrumentation reads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from aioprod import TopicPartition


class ClientView:
    """The settings and topics of a client. OpenTelemetry's instrumentation reads these names.

    Args:
        partitions_of: returns the partitions of a topic, and waits for its metadata.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        client_id: str,
        partitions_of: Callable[[str], Awaitable[Iterable[int]]],
    ) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._client_id = client_id
        self._partitions_of = partitions_of
        self.partitions: dict[str, set[int]] = {}

    async def look_up(self, partitions: Iterable[TopicPartition]) -> None:
        """Look up the partitions of topics that are not known yet."""
        for topic in {tp.topic for tp in partitions} - self.partitions.keys():
            await self._wait_on_metadata(topic)

    async def _wait_on_metadata(self, topic: str) -> set[int]:
        self.partitions[topic] = found = set(await self._partitions_of(topic))
        return found
