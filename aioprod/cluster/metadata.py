"""Keeps the cluster snapshot fresh: one refresh at a time, on age or on demand, without a storm."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Iterable, Mapping

from aioprod.cluster.snapshot import ClusterSnapshot
from aioprod.config.client import ClientConfig
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerConnectionError, BrokerError, KafkaError, ProtocolError
from aioprod.net.backoff import Backoff
from aioprod.net.bounds import TimeLimit
from aioprod.net.brokers import Brokers, Node
from aioprod.net.connection import Connection
from aioprod.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from aioprod.types import TopicPartition

log = logging.getLogger(__name__)


class Metadata:
    """The present snapshot and the task that refreshes it.

    Args:
        create_topics: whether asking for an unknown topic may create it
            (``allow.auto.create.topics``).
    """

    def __init__(
        self, config: ClientConfig, brokers: Brokers, rng: random.Random, *, create_topics: bool
    ) -> None:
        self.snapshot = ClusterSnapshot()
        self.last_error: KafkaError | None = None
        self.refreshed_at = 0.0  # loop time
        self.on_update: Callable[[ClusterSnapshot], None] | None = None
        self.want_all_topics = (
            False  # each refresh asks for every topic there is: somebody reads by a pattern
        )
        self.on_fault: Callable[[KafkaError], None] | None = (
            None  # the task has died: there will be no news any more
        )
        self._config = config
        self._brokers = brokers
        self._create_topics = create_topics
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng)
        self._last_used: dict[str, float] = {}
        self._failures = 0
        self._failing_since = 0.0
        self._noted = False
        self._earliest = 0.0
        # What is asked for next: all topics, or only those of which nothing is known (KIP-526);
        # thousands of others need not be told again then.
        self._everything = False
        self._everything_at = 0.0
        self._wanted: dict[str, None] = {}
        self._requested = asyncio.Event()
        self._urgent = asyncio.Event()
        self._waiters: set[asyncio.Future[None]] = set()
        self._attempts = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to refresh on age and on demand."""
        self._task = asyncio.get_running_loop().create_task(
            self._refresh_always(), name="aioprod-metadata"
        )
        self._task.add_done_callback(self._ended)

    async def close(self) -> None:
        """End the task; whoever waits for an update stops waiting."""
        if self._task is not None:
            self._task.remove_done_callback(self._ended)
            self._task.cancel()
            await asyncio.wait([self._task], timeout=1)
        self._tell_waiters()

    def _ended(self, task: asyncio.Task[None]) -> None:
        reason = (
            "was cancelled from outside" if task.cancelled() else f"failed: {task.exception()!r}"
        )
        if not task.cancelled():
            log.error("the metadata task failed", exc_info=task.exception())
        if self.on_fault is not None:
            self.on_fault(
                KafkaError(f"the client's metadata task {reason}; close it and make a new one")
            )
        self._tell_waiters()

    def _tell_waiters(self) -> None:
        self._attempts += 1
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def touch(self, topic: str) -> None:
        """Note that a topic is in use; a new one is asked for at once."""
        new = topic not in self._last_used
        self._last_used[topic] = asyncio.get_running_loop().time()
        if new:
            if not self._failures:
                self._urgent.set()
            self._wanted[topic] = None
            self._requested.set()

    def request_topic(self, topic: str) -> int:
        """Ask for one topic soon: at once where it is new, else not before the back-off; returns
        the version that is present now.
        """
        self.touch(topic)
        self._wanted[topic] = None
        self._requested.set()
        return self.snapshot.version

    def request_update(self) -> int:
        """Ask for a refresh of all topics soon (not before the back-off); returns the version that
        is present now.
        """
        self._everything = True
        self._requested.set()
        return self.snapshot.version

    def broker_silent(self) -> None:
        """Ask for a refresh, as a broker owes a reply: another one may lead its partitions now."""
        if self._task is not None:
            self.request_update()

    async def await_update(self, version: int) -> None:
        """Wait for a snapshot newer than ``version``, for a failed try to get one, or for the end;
        the caller sets the limit on time.
        """
        if self.snapshot.version > version:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    async def _refresh_always(self) -> None:
        loop = asyncio.get_running_loop()
        max_age = self._config.metadata_max_age_ms / 1000
        self._everything_at = loop.time()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._everything_at + max_age):
                    await self._requested.wait()
            # Wait out the back-off, but not when a topic is new.
            if self._earliest > loop.time():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(self._earliest):
                        await self._urgent.wait()
            self._urgent.clear()
            self._forget_idle(loop.time())
            await self._refresh_once(self._choose_topics(loop.time()))

    def _choose_topics(self, now: float) -> list[str]:
        """What to ask for now. A flow of new topics can't hold up the others for longer than the
        back-off.
        """
        age = now - self._everything_at
        due = now >= self._earliest or age * 1000 >= self._config.retry_backoff_ms
        if (
            not self._wanted
            or (self._everything and due)
            or age * 1000 >= self._config.metadata_max_age_ms
        ):
            self._everything = False
            self._everything_at = now
            wanted = list(self._last_used)
        else:
            wanted = list(self._wanted)
        self._wanted.clear()
        if not self._everything:
            self._requested.clear()
        return wanted

    async def _refresh_once(self, topics: list[str]) -> None:
        loop = asyncio.get_running_loop()
        try:
            await self.refresh(topics)
        except KafkaError as error:
            self._failures += 1
            if self._failures == 1:
                self._failing_since = loop.time()
            elif (
                loop.time() - self._failing_since
            ) * 1000 >= self._config.metadata_recovery_rebootstrap_trigger_ms:
                self._failing_since = loop.time()
                self._rebootstrap("no metadata for metadata_recovery_rebootstrap_trigger_ms")
            # Which broker can't be reached is said where connections are made.
            if not self._noted and not isinstance(error, BrokerConnectionError):
                self._noted = True
                log.warning("metadata refresh failed, trying on: %s", error)
            self.last_error = error
            self._everything = True
            self._requested.set()
            self._earliest = loop.time() + self._backoff.seconds(self._failures)
        else:
            if self._noted:
                self._noted = False
                log.info("metadata is fresh again after %d failed tries", self._failures)
            self._failures = 0
            self.last_error = None
            self._earliest = loop.time() + self._config.retry_backoff_ms / 1000
        self._tell_waiters()

    async def first(self, topics: Iterable[str], *limits: str) -> None:
        """Ask for the first time, as a client starts; ``limits`` are settings: the longest counts.

        Raises:
            KafkaTimeoutError: no broker answered within the limit.
            KafkaError: none can be asked.
        """
        setting = max(limits, key=lambda name: float(getattr(self._config, name)))
        what = (
            f"starting the client (bootstrap_servers={', '.join(self._config.bootstrap_servers)})"
        )
        async with TimeLimit(getattr(self._config, setting), what, setting):
            await self.refresh(topics)

    async def refresh(self, topics: Iterable[str] | None) -> ClusterSnapshot:
        """Ask now for these topics, or for all that there are, and put the answer into the
        snapshot.

        Raises:
            KafkaError: no broker answers.
        """
        wanted = (
            None
            if topics is None or self.want_all_topics
            else [MetadataRequestTopic(name=name) for name in topics]
        )
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=self._create_topics)

        async def ask(connection: Connection) -> tuple[str, MetadataResponse]:
            return connection.address, await connection.request(request)

        address, reply = await self._brokers.ask_any(ask)
        if reply.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._rebootstrap("the broker asks for it")
            raise BrokerError(ErrorCode.REBOOTSTRAP_REQUIRED, f"{address}: Metadata")
        if not reply.brokers:
            raise ProtocolError(f"{address}: metadata without a broker")
        self.refreshed_at = asyncio.get_running_loop().time()
        self._replace(self.snapshot.updated(reply, () if wanted is None else self._last_used))
        return self.snapshot

    def take_leaders(
        self, leaders: Mapping[TopicPartition, tuple[int, int]], nodes: Iterable[Node]
    ) -> None:
        """Take over leaders (node id, epoch) that a broker named in its answer to something else
        (KIP-951).
        """
        snapshot = self.snapshot.with_leaders(leaders, nodes)
        if snapshot is not self.snapshot:
            self._replace(snapshot)

    def _replace(self, snapshot: ClusterSnapshot) -> None:
        self.snapshot = snapshot
        self._brokers.update_nodes(snapshot.nodes)
        if self.on_update is not None:
            self.on_update(snapshot)

    def _rebootstrap(self, why: str) -> None:
        if self._config.metadata_recovery_strategy == "rebootstrap":
            log.info("starting again from the bootstrap servers: %s", why)
            self._brokers.forget_nodes()

    def _forget_idle(self, now: float) -> None:
        oldest = now - self._config.metadata_max_idle_ms / 1000
        for topic in [name for name, used in self._last_used.items() if used < oldest]:
            del self._last_used[topic]
