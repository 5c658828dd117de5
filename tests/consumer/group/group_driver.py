"""A consumer without a fetcher: it plays the owner of a group's member, and takes records from the
embedded broker's logs.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Any, Self

from aioprod.cluster.runtime import ClientKind, ClientRuntime
from aioprod.config.consumer import ConsumerConfig
from aioprod.consumer.group.classic import ClassicMember
from aioprod.consumer.group.member import GroupMember
from aioprod.consumer.group.partitions import GroupPartitions
from aioprod.consumer.group.reconciling import ReconcilingMember
from aioprod.consumer.rebalance_listener import RebalanceListener
from aioprod.consumer.reporting import ConsumerReporter
from aioprod.consumer.subscription import Phase, Position, SubscriptionState
from aioprod.errors import ConsumerClosedError
from aioprod.interceptors import ConsumerInterceptorChain
from aioprod.metrics import ConsumerMetrics
from aioprod.testing import EmbeddedCluster
from aioprod.types import OffsetAndMetadata, TopicPartition

LIMIT_S = 20.0
QUICK = {
    "retry_backoff_ms": 10,
    "retry_backoff_max_ms": 50,
    "reconnect_backoff_ms": 10,
    "heartbeat_interval_ms": 50,
    "metadata_max_age_ms": 300,
}


class Listener(RebalanceListener):
    """Writes down what is reported to it, and may do something at it."""

    def __init__(
        self, at_revoke: Callable[[list[TopicPartition]], Awaitable[object] | None] | None = None
    ) -> None:
        self.calls: list[tuple[str, list[TopicPartition]]] = []
        self.at_revoke = at_revoke

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.calls.append(("assigned", partitions))

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> Awaitable[object] | None:
        self.calls.append(("revoked", partitions))
        return self.at_revoke(partitions) if self.at_revoke is not None else None

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self.calls.append(("lost", partitions))


class Driver:
    """One consumer of a group."""

    def __init__(
        self,
        cluster: EmbeddedCluster | str,
        group_id: str = "g",
        *,
        listener: RebalanceListener | None = None,
        **settings: Any,
    ) -> None:
        servers = cluster if isinstance(cluster, str) else cluster.bootstrap_servers
        self._cluster = cluster
        self.config = ConsumerConfig(
            bootstrap_servers=tuple(servers.split(",")), group_id=group_id, **{**QUICK, **settings}
        )
        self.runtime = ClientRuntime(
            self.config, random.Random(), ClientKind("consumer", ConsumerClosedError)
        )
        self.brokers, self.metadata = self.runtime.brokers, self.runtime.metadata
        self.subscription = SubscriptionState()
        self.listener = listener
        self.interceptors = ConsumerInterceptorChain(self.config.interceptors)
        self.reporter = ConsumerReporter(self.config, ConsumerMetrics(), self.interceptors)
        self.attention = asyncio.Event()
        member = ReconcilingMember if self.config.group_protocol == "consumer" else ClassicMember
        self.member: GroupMember = member(
            self.config,
            self.subscription,
            self.runtime,
            GroupPartitions(self.subscription, self.reporter),
            self.attention.set,
            self.reporter.commit_done,
        )
        self._closed = False

    async def __aenter__(self) -> Self:
        self.brokers.open()
        self.metadata.start(on_update=self.member.metadata_changed)
        self.member.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self, timeout_s: float = 5.0, *, leave: bool = True) -> None:
        """End it; with ``leave=False`` as a killed process does, but for its connections."""
        if self._closed:
            return
        self._closed = True
        try:
            await self.member.close(asyncio.get_running_loop().time() + timeout_s, leave=leave)
        finally:
            await asyncio.shield(asyncio.create_task(self._release()))

    async def _release(self) -> None:
        await self.metadata.close()
        await self.brokers.close()

    async def crash(self) -> None:
        """End without a word, committing and calling nothing."""
        self._closed = True
        self.member._stop_tasks()
        self.member._poll_watch.stop()
        await self.member._auto_commit.close()
        await self.member._offsets.close()
        await self.member._connections.close()
        await self.metadata.close()
        await self.brokers.close()

    def subscribe(self, *topics: str) -> Self:
        self.subscription.subscribe(topics, self.listener)
        self.member.subscription_changed()
        return self

    @property
    def assigned(self) -> set[TopicPartition]:
        return set(self.subscription.partitions)

    async def poll(
        self, timeout_s: float = 0.05, max_records: int = 100
    ) -> list[tuple[TopicPartition, int, bytes]]:
        """Call ``getmany``, and return the partition, offset and value of each record."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            self.member.polled(loop.time())
            self.member.maybe_auto_commit(loop.time())
            if self.member.needs_attention:
                self.attention.clear()
                await self.member.ensure_active(deadline)
            await self._find_positions(deadline)
            records = self._take(max_records)
            left = deadline - loop.time()
            if records or left <= 0:
                return records
            try:
                async with asyncio.timeout(min(left, 0.02)):
                    await self.attention.wait()
            except TimeoutError:
                pass

    async def _find_positions(self, deadline: float) -> None:
        missing = [state.tp for state in self.subscription.in_phase(Phase.INITIALIZING)]
        if missing:
            committed = await self.member.committed(missing, deadline + LIMIT_S)
            for tp, offset in committed.items():
                if tp in self.subscription.partitions:
                    self.subscription[tp].found(
                        Position(offset.offset if offset is not None else 0)
                    )

    def _take(self, max_records: int) -> list[tuple[TopicPartition, int, bytes]]:
        if isinstance(self._cluster, str):
            return []
        taken: list[tuple[TopicPartition, int, bytes]] = []
        for tp, state in self.subscription.partitions.items():
            if (
                tp.topic in self._cluster.topics
                and state.may_be_fetched
                and state.may_be_returned
                and state.position is not None
            ):
                records = self._cluster.records(tp.topic, tp.partition)[state.position.offset :][
                    : max_records - len(taken)
                ]
                taken += [(tp, record.offset, record.value or b"") for record in records]
                state.position = Position(state.position.offset + len(records))
        return taken

    async def poll_until(
        self, condition: Callable[[], bool], *others: Driver, limit_s: float = LIMIT_S
    ) -> None:
        """Poll with all members until a condition is true."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limit_s
        while not condition():
            assert loop.time() < deadline, (
                f"not in {limit_s} s; assigned: "
                f"{[sorted(each.assigned) for each in (self, *others)]}"
            )
            if others:
                await _poll_all((self, *others))
            else:  # in the caller's own task, which may be cancelled
                await self.poll(0.02)

    async def commit(
        self, offsets: dict[TopicPartition, OffsetAndMetadata] | None = None, timeout_s: float = 5.0
    ) -> None:
        chosen = self.subscription.consumed() if offsets is None else offsets
        await self.member.commit(chosen, asyncio.get_running_loop().time() + timeout_s)

    async def committed(
        self, *partitions: TopicPartition
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return await self.member.committed(partitions, asyncio.get_running_loop().time() + 5)


async def _poll_all(drivers: Iterable[Driver]) -> None:
    """One poll of each. All have ended when the error of one is raised: a member has one owner, who
    must not come back during a call.
    """
    for outcome in await asyncio.gather(
        *(each.poll(0.02) for each in drivers), return_exceptions=True
    ):
        if isinstance(outcome, BaseException):
            raise outcome


async def shared_out(drivers: list[Driver], count: int, limit_s: float = LIMIT_S) -> None:
    """Poll all until they have ``count`` partitions between them, none with more than one above
    another, and no rebalance is on.
    """

    def even() -> bool:
        sizes = [len(each.assigned) for each in drivers]
        together = set().union(*(each.assigned for each in drivers))
        calm = not any(each.member.rebalancing or each.member.needs_attention for each in drivers)
        return calm and sum(sizes) == len(together) == count and max(sizes) - min(sizes) <= 1

    await drivers[0].poll_until(even, *drivers[1:], limit_s=limit_s)
