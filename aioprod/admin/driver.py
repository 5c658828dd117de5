"""How an admin client's requests find their broker, and are sent again until each item has its
outcome.

A call is about items (topics, groups, partitions ...). An *attempt* asks for all that have no
outcome yet; what fails in a way that may pass is asked for again, after a pause and with fresh
metadata, until the call's limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from aioprod.admin.answers import place
from aioprod.admin.attempts import Attempt, Outcomes
from aioprod.admin.results import Results
from aioprod.arguments import check_positive_timeout_ms
from aioprod.cluster.coordinators import CoordinatorType
from aioprod.cluster.retry import retry
from aioprod.cluster.runtime import ClientRuntime, Lifecycle
from aioprod.cluster.snapshot import ClusterSnapshot, PartitionInfo
from aioprod.config.admin import AdminConfig
from aioprod.error_codes import ErrorCode
from aioprod.errors import AdminClosedError, BrokerError, KafkaError
from aioprod.net.connection import Connection
from aioprod.protocol.message import Message, Request
from aioprod.types import TopicPartition

K = TypeVar("K")
V = TypeVar("V")
ResponseT = TypeVar("ResponseT", bound=Message)
Ask = Callable[[Attempt[K]], Awaitable[Mapping[K, V | KafkaError]]]

_SIDE_BY_SIDE = 32


class AdminDriver(Lifecycle):
    """Of one :class:`aioprod.Admin`: its connections and its tries.

    Args:
        config: the client's settings.
        rng: source of jitter.
    """

    def __init__(self, config: AdminConfig, rng: random.Random) -> None:
        self.config = config
        self.runtime = ClientRuntime(
            config, rng, kind="admin client", closed_error=AdminClosedError
        )
        self._brokers = self.runtime.brokers
        self._metadata = self.runtime.metadata

    # -- life --------------------------------------------------------------------------------------

    async def connect(self) -> None:
        await self._metadata.first((), "default_api_timeout_ms")

    def begin(self) -> None:
        self._metadata.start()

    # -- tries -------------------------------------------------------------------------------------

    async def once(
        self,
        call: str,
        ask: Callable[[Attempt[str]], Awaitable[V]],
        timeout_ms: float | None = None,
    ) -> V:
        """The answer to one question; its error is raised."""

        async def ask_once(attempt: Attempt[str]) -> Mapping[str, V | KafkaError]:
            return {call: await ask(attempt)}

        return (await self.each(call, (call,), ask_once, timeout_ms))[call]

    async def each(
        self, call: str, items: Iterable[K], ask: Ask[K, V], timeout_ms: float | None = None
    ) -> Results[K, V]:
        """The outcome of each item.

        Args:
            call: what is asked for, for errors and the log.
            items: what it is about.
            ask: makes one attempt. What it raises is the outcome of all its items.
            timeout_ms: limit on all attempts together; ``default_api_timeout_ms`` where it is None.

        Raises:
            AdminClosedError: the client is closed, not started, or closed meanwhile.
            ConfigError: ``timeout_ms`` is no number above 0.
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
            outcomes.take(await _answers(ask, present), loop.time() - begun)
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
        return outcomes.results()

    def _limit(self, timeout_ms: float | None) -> tuple[float, str]:
        if timeout_ms is None:
            return self.config.default_api_timeout_ms, "default_api_timeout_ms"
        check_positive_timeout_ms(timeout_ms)
        return timeout_ms, "timeout_ms"

    # -- where to ----------------------------------------------------------------------------------

    async def any_broker(self) -> Connection:
        """A connection to some broker."""
        return await self._brokers.any()

    async def from_any(self, message: Request[ResponseT]) -> ResponseT:
        """What any broker says; several may be asked, so the message must change nothing."""

        async def ask(connection: Connection) -> ResponseT:
            return await connection.request(message)

        return await self._brokers.ask_any(ask)

    async def controller(self) -> Connection:
        """A connection to the controller; with KRaft that is some broker, which passes the request
        on.
        """
        snapshot = self._metadata.snapshot
        if snapshot.controller_id in snapshot.nodes:
            return await self._brokers.connection(snapshot.controller_id)
        return await self._brokers.any()

    async def node(self, node_id: int) -> Connection:
        """A connection to this broker."""
        return await self._brokers.connection(node_id)

    async def from_coordinator(
        self,
        kind: CoordinatorType,
        key: str,
        attempt: Attempt[K],
        prepare: Callable[[Connection], tuple[Request[ResponseT], int]],
    ) -> ResponseT:
        """What the coordinator of a group or transactional id says. After a failed attempt it is
        looked for anew.
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
        """What each partition's leader says; ``ask`` gets a leader's node id and its partitions."""
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

        for node_id, answers in (await side_by_side(by_node, at)).items():
            outcomes |= (
                dict.fromkeys(by_node[node_id], answers)
                if isinstance(answers, KafkaError)
                else answers
            )
        return outcomes

    async def from_every_broker(
        self, call: str, at: Callable[[Connection], Awaitable[list[V]]], timeout_ms: float | None
    ) -> list[V]:
        """What all brokers that run have to say, together; one that leaves the cluster meanwhile is
        not waited for.
        """
        found: dict[int, list[V]] = {}

        async def one(node_id: int) -> list[V]:
            return await at(await self.node(node_id))

        async def ask(attempt: Attempt[str]) -> list[V]:
            nodes = (await self._metadata.refresh(())).nodes
            failures: list[KafkaError] = []
            for node_id, answer in (await side_by_side(nodes.keys() - found.keys(), one)).items():
                if isinstance(answer, KafkaError):
                    failures.append(answer)
                else:
                    found[node_id] = answer
            if failures:
                raise failures[0]
            return [each for node_id in nodes for each in found[node_id]]

        return await self.once(call, ask, timeout_ms)


async def _answers(ask: Ask[K, V], attempt: Attempt[K]) -> Mapping[K, V | KafkaError]:
    try:
        return await ask(attempt)
    except KafkaError as error:
        return dict.fromkeys(attempt.items, error)


def _leader(snapshot: ClusterSnapshot, tp: TopicPartition) -> PartitionInfo | KafkaError:
    topic = snapshot.topics[tp.topic]
    if topic.error:
        return BrokerError(topic.error, f"topic {tp.topic}")
    info = next((info for info in topic.partitions if info.partition == tp.partition), None)
    if info is None:
        return BrokerError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"{place(tp)} (the topic has {len(topic.partitions)} partitions)",
        )
    return info if info.leader >= 0 else BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, place(tp))


async def side_by_side(
    items: Iterable[K], ask: Callable[[K], Awaitable[V]]
) -> dict[K, V | KafkaError]:
    """Ask for each item at the same time, as far as that is sensible; an item's error is its
    outcome.
    """
    room = asyncio.Semaphore(_SIDE_BY_SIDE)

    async def one(item: K) -> V | KafkaError:
        async with room:
            try:
                return await ask(item)
            except KafkaError as error:
                return error

    wanted = list(items)
    return dict(zip(wanted, await asyncio.gather(*map(one, wanted)), strict=True))
