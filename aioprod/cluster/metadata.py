"""Refreshes the metadata of a cluster, by age and on demand. One request is sent at a time."""

from __future__ import annotations

import asyncio
import contextlib
import random
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from aioprod.cluster.retry import RetryLimit, retry
from aioprod.cluster.snapshot import ClusterSnapshot, FormerTopicIds
from aioprod.config.client import ClientConfig
from aioprod.counts import counted
from aioprod.error_codes import ErrorCode
from aioprod.errors import (
    BrokerConnectionError,
    BrokerError,
    KafkaError,
    ProtocolError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from aioprod.logs import LOG_AGAIN_S, LastingProblem, Logger, get_logger
from aioprod.net.backoff import Backoff
from aioprod.net.brokers import BrokerAddress, Brokers
from aioprod.net.connection import Connection
from aioprod.net.refusals import principal_of
from aioprod.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from aioprod.running_loop import start_task
from aioprod.types import TopicPartition

log: Logger = get_logger(__name__)

#: The response of a broker that has just started, or has moved to another cluster.
NOT_READY = (ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.REBOOTSTRAP_REQUIRED)
#: The first version of Metadata that has topic ids (KIP-516).
TOPIC_IDS_FROM = 10
# Brokers with older versions may respond with an outdated leader epoch (KAFKA-9212).
_EPOCHS_FROM = 9
# A rebootstrap for the same reason within this time is not logged again.
_SAME_REASON_S = 60.0


def check_topic_ids(connection: Connection, purpose: str) -> None:
    """Check that the metadata of a broker contains topic ids.

    Args:
        purpose: the feature that needs them, such as "share groups".

    Raises:
        UnsupportedVersionError: if it contains none.
    """
    version = connection.pick_version(MetadataRequest)
    if version < TOPIC_IDS_FROM:
        raise UnsupportedVersionError(
            f"{connection.address} has no topic ids in its metadata (version {version}, needed: "
            f"{TOPIC_IDS_FROM}), without which {purpose} can't work"
        )


class Metadata:
    """The current snapshot of the cluster and the task that refreshes it.

    Args:
        config: the settings.
        brokers: the connections; their addresses are kept up to date.
        rng: source of jitter.
        create_topics: whether a request for an unknown topic may create it
            (``allow.auto.create.topics``).

    Attributes:
        snapshot: brokers, topics and leaders.
        last_error: why the last refresh failed; None if it succeeded.
        refreshed_at: loop time of the last success.
        want_all_topics: whether each refresh requests all topics, for subscriptions by pattern.
    """

    def __init__(
        self, config: ClientConfig, brokers: Brokers, rng: random.Random, *, create_topics: bool
    ) -> None:
        self.snapshot: ClusterSnapshot = ClusterSnapshot(principal=principal_of(config))
        self.last_error: KafkaError | None = None
        self.refreshed_at: float = 0.0
        self.want_all_topics = False
        self._on_update: Callable[[ClusterSnapshot], None] | None = None
        self._on_fault: Callable[[KafkaError], None] | None = None
        self._config = config
        self._brokers = brokers
        self._connections = [brokers]
        self._create_topics = create_topics
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng)
        self._last_used: dict[str, float] = {}
        self._former_ids = FormerTopicIds()
        self._failures = 0
        self._failing_since = 0.0
        self._failure = LastingProblem(0, LOG_AGAIN_S)
        self._topic_problems: dict[str, LastingProblem] = {}
        self._rebootstraps: dict[str, float] = {}  # loop time at which each reason was logged last
        self._next_refresh_at = 0.0
        # Whether the next request is for all topics in use, or only for new ones (KIP-526).
        self._refresh_all = False
        self._refreshed_all_at = 0.0
        self._requested_topics: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._urgent = asyncio.Event()
        # No task awaits anything else while it holds the lock, so acquiring it never blocks.
        self._updated = asyncio.Condition()
        self._last_notice: asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._refresh_on_silence = False

    def start(
        self,
        on_update: Callable[[ClusterSnapshot], None] | None = None,
        on_fault: Callable[[KafkaError], None] | None = None,
    ) -> None:
        """Start the task that refreshes by age and on demand.

        Args:
            on_update: called with each new snapshot.
            on_fault: called if the task fails, which ends the updates.
        """
        self._on_update = on_update
        self._on_fault = on_fault
        self._task = start_task(self._refresh_always(), name="aioprod-metadata")
        self._task.add_done_callback(self._ended)

    def refresh_on_silence(self) -> None:
        """Request the list of brokers whenever one is silent, so that requests to a broker that has
        left the cluster fail. For clients without the task of :meth:`start`.
        """
        self._refresh_on_silence = True

    def inform(self, brokers: Brokers) -> None:
        """Keep the addresses of further connections up to date."""
        self._connections.append(brokers)

    async def close(self) -> None:
        """End the task and all calls of :meth:`await_update`."""
        self.end()
        await self._notify_all()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=1)

    def end(self) -> None:
        """Cancel the task."""
        if self._task is not None:
            self._task.remove_done_callback(self._ended)
            self._task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        reason = (
            "was cancelled from outside" if task.cancelled() else f"failed: {task.exception()!r}"
        )
        if not task.cancelled():
            who = self._config.client_id
            log.error("%s: the metadata task failed", who, exc_info=task.exception())
        if self._on_fault is not None:
            self._on_fault(
                KafkaError(f"the client's metadata task {reason}; close the client, make a new one")
            )
        self._last_notice = start_task(self._notify_all(), name="aioprod-metadata-ended")

    async def _notify_all(self) -> None:
        async with self._updated:
            self._updated.notify_all()

    def touch(self, topic: str) -> None:
        """Mark a topic as in use. The metadata of a new topic is requested at once."""
        new = topic not in self._last_used
        self._last_used[topic] = asyncio.get_running_loop().time()
        if new:
            if not self._failures:
                self._urgent.set()
            self._requested_topics[topic] = None
            self._wake.set()

    def request_topic(self, topic: str) -> int:
        """Request a refresh of one topic: at once if it is new, else after the backoff.

        Returns:
            The version of the current snapshot, for :meth:`await_update`.
        """
        self.touch(topic)
        self._requested_topics[topic] = None
        self._wake.set()
        return self.snapshot.version

    def request_update(self) -> int:
        """Request a refresh of all topics in use, after the backoff.

        Returns:
            The version of the current snapshot, for :meth:`await_update`.
        """
        self._refresh_all = True
        self._wake.set()
        return self.snapshot.version

    def broker_silent(self) -> None:
        """Request a refresh because a broker is silent: its partitions may have new leaders."""
        if self._refresh_on_silence:
            self._refresh_brokers()
        elif self._task is not None:
            self.request_update()

    async def await_update(self, version: int) -> None:
        """Wait for a snapshot newer than ``version``, for a refresh that fails, or for
        :meth:`close`. The caller sets the time limit.
        """
        if self.snapshot.version > version:
            return
        async with self._updated:
            await self._updated.wait()

    async def _refresh_always(self) -> None:
        loop = asyncio.get_running_loop()
        max_age = self._config.metadata_max_age_ms / 1000
        self._refreshed_all_at = loop.time()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._refreshed_all_at + max_age):
                    await self._wake.wait()
            # New topics are requested without a backoff.
            if self._next_refresh_at > loop.time():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(self._next_refresh_at):
                        await self._urgent.wait()
            self._urgent.clear()
            self._forget_idle(loop.time())
            await self._refresh_once(self._choose_topics(loop.time()))

    def _refresh_brokers(self) -> None:
        if self._task is None or self._task.done():
            self._task = start_task(self._refresh_brokers_once(), name="aioprod-metadata-brokers")

    async def _refresh_brokers_once(self) -> None:
        with contextlib.suppress(KafkaError):
            await self.refresh(())

    def _choose_topics(self, now: float) -> list[str]:
        """Return the topics to request now. New topics delay the others by at most the backoff."""
        age = now - self._refreshed_all_at
        due = now >= self._next_refresh_at or age * 1000 >= self._config.retry_backoff_ms
        if (
            not self._requested_topics
            or (self._refresh_all and due)
            or age * 1000 >= self._config.metadata_max_age_ms
        ):
            self._refresh_all = False
            self._refreshed_all_at = now
            wanted = list(self._last_used)
        else:
            wanted = list(self._requested_topics)
        self._requested_topics.clear()
        if not self._refresh_all:
            self._wake.clear()
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
            # Connections log which broker can't be reached.
            if not isinstance(error, BrokerConnectionError) and self._failure.lasts(loop.time()):
                log.warning(
                    "%s: metadata refresh failed%s: %s; retrying, logged once a minute",
                    self._config.client_id,
                    self._failure.duration(loop.time()),
                    error,
                )
            self.last_error = error
            self._refresh_all = True
            self._wake.set()
            self._next_refresh_at = loop.time() + self._backoff.seconds(self._failures)
        else:
            if self._failure.is_logged:
                log.info(
                    "%s: metadata refreshed after %s",
                    self._config.client_id,
                    counted(self._failures, "failed attempt"),
                )
            self._failure = LastingProblem(0, LOG_AGAIN_S)
            self._log_topics(topics, loop.time())
            self._failures = 0
            self.last_error = None
            self._next_refresh_at = loop.time() + self._config.retry_backoff_ms / 1000
        await self._notify_all()

    def _log_topics(self, topics: Iterable[str], now: float) -> None:
        """Log topics that can't be used for some time, such as one that does not exist."""
        for topic in topics:
            error = self.snapshot.problem_of(topic)
            if error is None:
                problem = self._topic_problems.pop(topic, None)
                if problem is not None and problem.is_logged:
                    seconds = problem.seconds(now)
                    who = self._config.client_id
                    log.info("%s: topic %r can be used, after %.0f s", who, topic, seconds)
                continue
            problem = self._topic_problems.setdefault(topic, LastingProblem())
            if problem.lasts(now):
                seconds = problem.seconds(now)
                who = self._config.client_id
                log.warning("%s: still waiting after %.0f s: %s", who, seconds, error)

    async def first(self, topics: Iterable[str], *limits: str) -> None:
        """Refresh for the first time, when the client starts. Retry within the limit as long as
        brokers accept connections.

        Args:
            topics: the topics to request.
            limits: names of settings; their largest value is the limit.

        Raises:
            KafkaTimeoutError: if no broker responds within the limit.
            KafkaError: if no broker can be reached.
        """
        setting = max(limits, key=lambda name: float(getattr(self._config, name)))
        servers = ", ".join(self._config.bootstrap_servers)
        what = f"starting the client (bootstrap_servers={servers})"
        limit = RetryLimit(getattr(self._config, setting), what, setting)
        await retry(
            lambda: self.refresh(topics),
            self._backoff.seconds,
            is_retriable=_FirstAnswer(len(self._config.bootstrap_servers)).may_follow,
            limit=limit,
            on_failure=partial(_report_start, self._config.client_id, limit),
        )

    async def refresh(self, topics: Iterable[str] | None) -> ClusterSnapshot:
        """Request topics now, and update the snapshot.

        Args:
            topics: the topics; all topics of the cluster if None.

        Raises:
            KafkaError: if no broker responds.
        """
        wanted = (  # sorted, so that each run of a simulation sends the same
            None
            if topics is None or self.want_all_topics
            else [MetadataRequestTopic(name=name) for name in sorted(topics)]
        )
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=self._create_topics)

        async def ask(connection: Connection) -> tuple[str, MetadataResponse]:
            version = connection.pick_version(MetadataRequest)
            reply = await connection.request(request, version=version)
            if version < _EPOCHS_FROM:
                _forget_epochs(reply)
            return connection.address, reply

        address, reply = await self._brokers.ask_any(ask)
        if reply.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._rebootstrap(f"requested by {address}")
            raise BrokerError(ErrorCode.REBOOTSTRAP_REQUIRED, f"{address}: Metadata")
        if not reply.brokers:
            # Such as one that has just started.
            raise BrokerError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"{address}: the metadata contains no broker"
            )
        self.refreshed_at = now = asyncio.get_running_loop().time()
        kept = () if wanted is None else self._last_used
        snapshot = self.snapshot.updated(reply, kept, self._former_ids.late(now))
        self._former_ids.note(snapshot, now)
        self._replace(snapshot)
        return self.snapshot

    def last_topic_ids(self, names: Collection[str]) -> dict[str, uuid.UUID]:
        """Return the ids of topics; of a deleted topic, its last id. The result is empty if one was
        never known, since a request contains either the ids or the names of all its topics.
        """
        return self._former_ids.last_known(names)

    def take_leaders(
        self, leaders: Mapping[TopicPartition, tuple[int, int]], nodes: Iterable[BrokerAddress]
    ) -> None:
        """Update leaders (node id, epoch) from the response to another request (KIP-951)."""
        snapshot = self.snapshot.with_leaders(leaders, nodes)
        if snapshot is not self.snapshot:
            self._replace(snapshot)

    def _replace(self, snapshot: ClusterSnapshot) -> None:
        self.snapshot = snapshot
        for brokers in self._connections:
            brokers.cluster_id = snapshot.cluster_id
            brokers.update_nodes(snapshot.nodes)
        if self._on_update is not None:
            self._on_update(snapshot)

    def misrouted(self, address: str) -> None:
        """Start again from the bootstrap servers: a connection to a known address led to another
        node or cluster (KIP-1242).
        """
        self._rebootstrap(f"{address} is not the broker that the metadata names")
        if self._task is not None:
            self.request_update()

    def _rebootstrap(self, why: str) -> None:
        if self._config.metadata_recovery_strategy != "rebootstrap":
            return
        now = asyncio.get_running_loop().time()
        recent = {
            reason: last
            for reason, last in self._rebootstraps.items()
            if now - last < _SAME_REASON_S
        }
        if why not in recent:
            who = self._config.client_id
            log.info("%s: connecting to the bootstrap servers again: %s", who, why)
        self._rebootstraps = {**recent, why: now}
        self._brokers.forget_nodes()

    def _forget_idle(self, now: float) -> None:
        oldest = now - self._config.metadata_max_idle_ms / 1000
        for topic in [name for name, used in self._last_used.items() if used < oldest]:
            del self._last_used[topic]
            self._topic_problems.pop(topic, None)


def _report_start(who: str, limit: RetryLimit, error: KafkaError, failures: int) -> None:
    if failures == 1:
        log.warning(
            "%s: %s: %s; retrying for %s=%.0f, further failures are not logged",
            who,
            limit.what,
            error,
            limit.setting,
            limit.limit_ms,
        )


def _forget_epochs(reply: MetadataResponse) -> None:
    for topic in reply.topics:
        for partition in topic.partitions:
            partition.leader_epoch = -1


class _FirstAnswer:
    """Decides whether a client retries its first request.

    Args:
        servers: the number of bootstrap servers.
    """

    def __init__(self, servers: int) -> None:
        self._servers = servers
        self._reached = False
        self._unreadable = 0

    def may_follow(self, error: KafkaError) -> bool:
        """Return whether another attempt may succeed after this error."""
        if isinstance(error, BrokerConnectionError):
            # If no server could be reached so far, the addresses are probably wrong.
            self._reached = self._reached or error.was_open
            return self._reached
        self._reached = True
        if isinstance(error, BrokerError):
            return error.code.retriable or error.code in NOT_READY
        if isinstance(error, ProtocolError):
            self._unreadable += 1
            return self._unreadable < self._servers  # the next one may be a Kafka broker
        return isinstance(error, RequestTimedOutError)
