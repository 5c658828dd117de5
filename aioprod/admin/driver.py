"""Sends the requests of an admin client to the right brokers until each item has an outcome.

The items of a call are topics, groups, partitions and so on. An attempt covers all items without an
outcome. Items with a retriable error are requested again, after a backoff and with new metadata,
within the time limit of the call.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from aioprod.admin.answers import partition_name
from aioprod.admin.attempts import Attempt, Outcomes
from aioprod.admin.results import Results
from aioprod.arguments import check_positive_timeout_ms
from aioprod.cluster.coordinators import CoordinatorType
from aioprod.cluster.retry import retry
from aioprod.cluster.runtime import ClientKind, ClientLifecycle, ClientRuntime
from aioprod.cluster.snapshot import ClusterSnapshot, PartitionInfo
from aioprod.config.admin import AdminConfig
from aioprod.counts import counted
from aioprod.error_codes import ErrorCode
from aioprod.errors import AdminClosedError, BrokerError, KafkaError, copy_of
from aioprod.metrics import AdminObservers, CallDone, ObservedAdmin
from aioprod.metrics.admin import AdminMetrics
from aioprod.metrics.telemetry_source import TelemetrySource
from aioprod.net.connection import Connection
from aioprod.net.refusals import explain
from aioprod.protocol.message import Message, Request
from aioprod.types import TopicPartition

if TYPE_CHECKING:
    from aioprod.metrics.telemetry import MetricValue, Selection

K = TypeVar("K")
V = TypeVar("V")
ResponseT = TypeVar("ResponseT", bound=Message)
Ask = Callable[[Attempt[K]], Awaitable[Mapping[K, V | KafkaError]]]

_MAX_CONCURRENT = 32


class AdminDriver(ClientLifecycle):
    """The connections and retries of one :class:`aioprod.Admin`.

    Args:
        config: the settings.
        rng: source of jitter.
    """

    def __init__(self, config: AdminConfig, rng: random.Random) -> None:
        self.config = config
        self._observers = AdminObservers(config.observers)
        self._metrics = AdminMetrics()
        self.runtime: ClientRuntime = ClientRuntime(
            config,
            rng,
            ClientKind("admin client", AdminClosedError),
            on_connection=self._connection_changed,
            telemetry=self._telemetry() if config.enable_metrics_push else None,
        )
        self._brokers = self.runtime.brokers
        self._metadata = self.runtime.metadata

    # -- life --------------------------------------------------------------------------------------

    async def connect(self) -> None:
        self._observers.start(ObservedAdmin(self.config.client_id))
        await self._metadata.first((), "default_api_timeout_ms")

    def begin(self) -> None:
        self._metadata.start()

    def close_plugins(self) -> None:
        self._observers.close()

    def _telemetry(self) -> TelemetrySource:
        metrics = self._metrics

        def pushed(wanted: Selection) -> Iterable[MetricValue]:
            from aioprod.metrics.telemetry import admin_telemetry  # few brokers ask for metrics

            return admin_telemetry(metrics.snapshot(), wanted)

        return TelemetrySource(dict, pushed)

    def _connection_changed(
        self, node_id: int, address: str, opened: bool, error: KafkaError | None
    ) -> None:
        self._metrics.connection_changed(opened)
        self._observers.notify("on_connection", node_id, address, opened, error)

    # -- retries -----------------------------------------------------------------------------------

    async def once(
        self,
        call: str,
        ask: Callable[[Attempt[str]], Awaitable[V]],
        timeout_ms: float | None = None,
        *,
        name: str | None = None,
    ) -> V:
        """Make a call about one item, and return its result or raise its error.
        For ``name``, see :meth:`each`.
        """

        async def ask_once(attempt: Attempt[str]) -> Mapping[str, V | KafkaError]:
            return {call: await ask(attempt)}

        return (await self.each(call, (call,), ask_once, timeout_ms, name=name))[call]

    async def each_or_all(
        self,
        call: str,
        items: Iterable[K] | None,
        ask: Callable[[Attempt[Any], list[K] | None], Awaitable[Mapping[K, V | KafkaError]]],
        timeout_ms: float | None = None,
        *,
        name: str,
    ) -> Results[K, V]:
        """Make a call about several items, as :meth:`each` does. With None, the call is about all
        items that the response names; those that failed are then requested by name, as their error
        may be temporary.

        Args:
            call: describes the call in errors and logs.
            items: the items, or None for all.
            ask: makes one attempt for these items, or for all.
            timeout_ms: as in :meth:`each`.
            name: the name of the call's method.

        Raises:
            KafkaError: if the request for all items has failed.
        """

        async def ask_all(attempt: Attempt[str]) -> Mapping[K, V | KafkaError]:
            return await ask(attempt, None)

        async def ask_each(attempt: Attempt[K]) -> Mapping[K, V | KafkaError]:
            return await ask(attempt, attempt.items)

        if items is not None:
            return await self.each(call, items, ask_each, timeout_ms, name=name)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        found = await self.once(call, ask_all, timeout_ms, name=name)
        failed = [item for item, outcome in found.items() if isinstance(outcome, KafkaError)]
        if not failed:
            return Results(call, found)
        left_ms = self._limit(timeout_ms)[0] - (loop.time() - begun) * 1000
        again = await self.each(call, failed, ask_each, max(left_ms, 1.0), name=name)
        return Results(call, {**found, **again.successes, **again.errors})

    async def each(
        self,
        call: str,
        items: Iterable[K],
        ask: Ask[K, V],
        timeout_ms: float | None = None,
        *,
        name: str | None = None,
    ) -> Results[K, V]:
        """Make a call about several items, and return the result or error of each one.

        Args:
            call: the name of the call, for errors and the log.
            items: the items.
            ask: makes one attempt. An error that it raises applies to all items.
            timeout_ms: limit on all attempts together; ``default_api_timeout_ms`` if None.
            name: the name of the call's method, if ``call`` is another text.

        Raises:
            AdminClosedError: if the client is not started, or is closed before or during the call.
            ConfigError: if ``timeout_ms`` is not a number above 0.
        """
        self.runtime.check_running()
        outcomes: Outcomes[K, V] = Outcomes(call, items)
        limit_ms, limit_name = self._limit(timeout_ms)
        loop = asyncio.get_running_loop()
        begun = loop.time()

        async def attempt() -> None:
            if outcomes.attempts:
                with contextlib.suppress(KafkaError):
                    await self._metadata.refresh(())
            left_ms = limit_ms - (loop.time() - begun) * 1000
            timeout_ms = max(1, int(min(left_ms, self.config.request_timeout_ms)))
            present = Attempt(list(outcomes.pending), outcomes.attempts + 1, timeout_ms)
            answers = await self._answers(ask, present, name or call)
            outcomes.take(answers, loop.time() - begun)
            outcomes.check_complete()

        try:
            async with asyncio.timeout_at(begun + limit_ms / 1000) as timer:
                if outcomes.pending:
                    await retry(
                        attempt,
                        self.runtime.backoff.seconds,
                        is_retriable=lambda error: True,
                        sleep=self.runtime.sleep,
                    )
        except TimeoutError:
            if not timer.expired():
                raise
            outcomes.give_up(f"{limit_name}={limit_ms:.0f}")
        except KafkaError as error:  # the client was closed
            self._report(call, outcomes, len(outcomes.pending), error, loop.time() - begun)
            raise
        results = outcomes.results()
        failures = outcomes.errors()
        first = failures[0] if failures else None
        self._report(call, outcomes, len(failures), first, loop.time() - begun)
        return results

    async def _answers(
        self, ask: Ask[K, V], attempt: Attempt[K], call: str
    ) -> Mapping[K, V | KafkaError]:
        try:
            answers = await ask(attempt)
        except KafkaError as error:
            answers = dict.fromkeys(attempt.items, error)
        for answer in answers.values():
            if isinstance(answer, BrokerError):
                explain(answer, call, self._metadata.snapshot.principal)
        return answers

    def _report(
        self,
        call: str,
        outcomes: Outcomes[K, V],
        failed: int,
        error: KafkaError | None,
        seconds: float,
    ) -> None:
        if self._observers:
            shown = None if error is None else copy_of(error)
            done = CallDone(call, outcomes.items, failed, outcomes.attempts, seconds, shown)
            self._observers.notify("on_call", done)

    def _limit(self, timeout_ms: float | None) -> tuple[float, str]:
        if timeout_ms is None:
            return self.config.default_api_timeout_ms, "default_api_timeout_ms"
        check_positive_timeout_ms(timeout_ms)
        return timeout_ms, "timeout_ms"

    # -- brokers -----------------------------------------------------------------------------------

    async def any_broker(self) -> Connection:
        """Return a connection to any broker."""
        return await self._brokers.any()

    async def from_any(self, message: Request[ResponseT]) -> ResponseT:
        """Return the response of any broker. The request may be sent to several brokers, so it must
        be read-only.
        """

        async def ask(connection: Connection) -> ResponseT:
            return await connection.request(message)

        return await self._brokers.ask_any(ask)

    async def controller(self) -> Connection:
        """Return a connection to the controller, or with KRaft to a broker that forwards requests
        to it.
        """
        snapshot = self._metadata.snapshot
        if snapshot.controller_id in snapshot.nodes:
            return await self._brokers.connection(snapshot.controller_id)
        return await self._brokers.any()

    async def node(self, node_id: int) -> Connection:
        """Return a connection to this broker."""
        return await self._brokers.connection(node_id)

    async def from_coordinator(
        self,
        kind: CoordinatorType,
        key: str,
        attempt: Attempt[K],
        prepare: Callable[[Connection], tuple[Request[ResponseT], int]],
    ) -> ResponseT:
        """Return the response of the coordinator of a group or transactional id. The coordinator is
        looked up again after a failed attempt.
        """
        if attempt.number > 1:
            self.runtime.coordinators.forget(kind, key)
        return await self.runtime.coordinators.request(kind, key, prepare)

    async def from_leaders(
        self,
        partitions: Iterable[TopicPartition],
        ask: Callable[
            [int, list[TopicPartition]], Awaitable[Mapping[TopicPartition, V | KafkaError]]
        ],
    ) -> dict[TopicPartition, V | KafkaError]:
        """Return the results from the leaders of partitions. ``ask`` gets the node id of a leader
        and its partitions.
        """
        wanted = list(partitions)
        outcomes: dict[TopicPartition, V | KafkaError] = {}
        by_node: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        snapshot = await self._metadata.refresh(sorted({tp.topic for tp in wanted}))
        for tp in wanted:
            leader = _leader(snapshot, tp)
            if isinstance(leader, KafkaError):
                outcomes[tp] = leader
            else:
                by_node[leader.leader].append(tp)

        async def at(node_id: int) -> Mapping[TopicPartition, V | KafkaError]:
            return await ask(node_id, by_node[node_id])

        for node_id, answers in (await gather_outcomes(by_node, at)).items():
            outcomes |= (
                dict.fromkeys(by_node[node_id], answers)
                if isinstance(answers, KafkaError)
                else answers
            )
        return outcomes

    async def existing(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions that exist, and those of topics that can't be described."""
        wanted = list(partitions)
        snapshot = await self._metadata.refresh(sorted({tp.topic for tp in wanted}))
        return [
            tp
            for tp in wanted
            if snapshot.topic_error(tp.topic)
            or any(info.partition == tp.partition for info in snapshot.topics[tp.topic].partitions)
        ]

    async def coordinator_of(self, kind: CoordinatorType, key: str) -> int:
        """Return the node id of the current coordinator of a group or transactional id."""
        self.runtime.coordinators.forget(kind, key)
        return (await self.runtime.coordinators.nodes(kind, [key]))[key]

    async def from_every_broker(
        self,
        call: str,
        at: Callable[[Connection], Awaitable[list[V]]],
        timeout_ms: float | None,
        only: Iterable[int] | None = None,
    ) -> list[V]:
        """Return the results of all brokers, or of those in ``only``; brokers that leave the
        cluster during the call are left out.
        """
        chosen = None if only is None else list(only)
        found: dict[int, list[V]] = {}

        async def one(node_id: int) -> list[V]:
            return await at(await self.node(node_id))

        async def ask(attempt: Attempt[str]) -> list[V]:
            nodes = (await self._metadata.refresh(())).nodes.keys() if chosen is None else chosen
            failures: list[KafkaError] = []
            for node_id, answer in (await gather_outcomes(set(nodes) - found.keys(), one)).items():
                if isinstance(answer, KafkaError):
                    failures.append(answer)
                else:
                    found[node_id] = answer
            if failures:
                raise failures[0]
            return [each for node_id in nodes for each in found[node_id]]

        return await self.once(call, ask, timeout_ms)


def _leader(snapshot: ClusterSnapshot, tp: TopicPartition) -> PartitionInfo | KafkaError:
    topic = snapshot.topics[tp.topic]
    if error := snapshot.topic_error(tp.topic):
        return error
    info = next((info for info in topic.partitions if info.partition == tp.partition), None)
    if info is None:
        return BrokerError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"{partition_name(tp)} (the topic has {counted(len(topic.partitions), 'partition')})",
        )
    return (
        info
        if info.leader >= 0
        else BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, partition_name(tp))
    )


async def gather_outcomes(
    items: Iterable[K], ask: Callable[[K], Awaitable[V]]
) -> dict[K, V | KafkaError]:
    """Call ``ask`` for all items, with limited concurrency; return the result or error of each."""
    room = asyncio.Semaphore(_MAX_CONCURRENT)

    async def one(item: K) -> V | KafkaError:
        async with room:
            try:
                return await ask(item)
            except KafkaError as error:
                return error

    wanted = list(items)
    return dict(zip(wanted, await asyncio.gather(*map(one, wanted)), strict=True))
