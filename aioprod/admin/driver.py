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
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from aioprod.admin.results import Results
from aioprod.arguments import check_positive_timeout_ms
from aioprod.cluster.coordinators import Coordinators, CoordinatorType
from aioprod.cluster.home import Home
from aioprod.cluster.metadata import Metadata
from aioprod.cluster.snapshot import ClusterSnapshot, PartitionInfo
from aioprod.config.admin import AdminConfig
from aioprod.error_codes import ErrorCode
from aioprod.errors import (
    AdminClosedError,
    BrokerConnectionError,
    BrokerError,
    KafkaError,
    KafkaTimeoutError,
    ProtocolError,
    RequestTimedOutError,
)
from aioprod.net.backoff import Backoff
from aioprod.net.brokers import Brokers
from aioprod.net.connection import Connection
from aioprod.protocol.message import Message, Request
from aioprod.types import TopicPartition

K = TypeVar("K")
V = TypeVar("V")
ResponseT = TypeVar("ResponseT", bound=Message)

_SIDE_BY_SIDE = 32
# A topic that was made a moment ago may not be known to every broker yet.
_UNKNOWN_TOPIC_LIMIT_S = 0.5
_UNKNOWN_TOPIC = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_IN_DOUBT = "(an attempt before had no answer: it may have been the cause)"
# Retriable for a client that sends or reads; here they are answers.
_FINAL = (
    ErrorCode.ELECTION_NOT_NEEDED,
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
)


@dataclass(frozen=True, slots=True)
class Attempt(Generic[K]):
    """One try.

    Attributes:
        items: those that have no outcome yet.
        number: 1 for the first.
        timeout_ms: how long a broker may take.
    """

    items: list[K]
    number: int
    timeout_ms: int


Ask = Callable[[Attempt[K]], Awaitable[Mapping[K, V | KafkaError]]]


class AdminDriver:
    """Of one :class:`aioprod.Admin`: its connections and its tries.

    Args:
        config: the client's settings.
        rng: source of jitter.
    """

    def __init__(self, config: AdminConfig, rng: random.Random) -> None:
        self.config = config
        self.home = Home(f"admin client {config.client_id!r}")
        self._brokers = Brokers(config, rng, on_silence=lambda: self._metadata.broker_silent())
        self._metadata = Metadata(config, self._brokers, rng, create_topics=False)
        self._coordinators = Coordinators(config, self._brokers, rng)
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng)
        self._starting = asyncio.Lock()
        self._started = False
        self._closing = asyncio.Event()
        self._released: asyncio.Future[None] | None = None

    # -- life --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect and learn the brokers; may be called again after a failure."""
        self.home.check()
        async with self._starting:
            if self._closing.is_set():
                raise _closed()
            if self._started:
                return
            async with self.home.starting(
                lambda: _closed() if self._closing.is_set() else None, self._brokers.close
            ):
                self._brokers.open()
                await self._metadata.first((), "default_api_timeout_ms")
            self._metadata.start()
            self._started = True

    async def close(self) -> None:
        """Fail what is under way and close all connections; a cancelled ``close`` still closes."""
        if self.home.is_gone:  # no task runs and no connection is open any more
            self._closing.set()
            self._released = asyncio.get_running_loop().create_future()
            self._released.set_result(None)
            self.home.leave()
            return
        self.home.check()
        if self._released is None:
            self.home.end_start()
            self._released = asyncio.get_running_loop().create_task(
                self.abandon(), name="aioprod-close"
            )
        await asyncio.shield(self._released)

    def abandon(self) -> Coroutine[Any, Any, None]:
        """Fail what is under way; what is returned closes all connections."""
        self._closing.set()
        return self._release()

    async def _release(self) -> None:
        await self._metadata.close()
        await self._brokers.close()
        self.home.leave()

    @property
    def released(self) -> bool:
        """Whether it is closed, or being closed."""
        return self._released is not None

    def _check_open(self) -> None:
        self.home.check()
        if self._closing.is_set():
            raise _closed()
        if not self._started:
            raise AdminClosedError(
                "the admin client is not started: use 'async with Admin(...)' or await start()"
            )

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
        self._check_open()
        tries: _Tries[K, V] = _Tries(call, items)
        limit_ms, limit_name = self._limit(timeout_ms)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            async with asyncio.timeout_at(begun + limit_ms / 1000) as timer:
                while tries.pending:
                    left_ms = limit_ms - (loop.time() - begun) * 1000
                    attempt = Attempt(
                        list(tries.pending),
                        tries.count + 1,
                        max(1, int(min(left_ms, self.config.request_timeout_ms))),
                    )
                    tries.take(await _answers(ask, attempt), loop.time() - begun)
                    if tries.pending:
                        await self._prepare_retry(tries.count)
        except TimeoutError:
            if not timer.expired():
                raise
            tries.give_up(f"{limit_name}={limit_ms:.0f}")
        return Results(call, tries.outcomes)

    def _limit(self, timeout_ms: float | None) -> tuple[float, str]:
        if timeout_ms is None:
            return self.config.default_api_timeout_ms, "default_api_timeout_ms"
        check_positive_timeout_ms(timeout_ms)
        return timeout_ms, "timeout_ms"

    async def _prepare_retry(self, failures: int) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._backoff.seconds(failures)):
                await self._closing.wait()
        self._check_open()
        with contextlib.suppress(KafkaError):
            await self._metadata.refresh(())

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
            self._coordinators.forget(kind, key)
        return await self._coordinators.request(kind, key, prepare)

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


def _closed() -> AdminClosedError:
    return AdminClosedError("the admin client is closed")


class _Tries(Generic[K, V]):
    """What became of each item so far."""

    def __init__(self, call: str, items: Iterable[K]) -> None:
        self._call = call
        self._order = list(dict.fromkeys(items))
        self.pending = dict.fromkeys(self._order)
        self.count = 0
        self._found: dict[K, V | KafkaError] = {}
        self._last: dict[K, KafkaError] = {}
        self._unanswered: set[K] = set()

    @property
    def outcomes(self) -> dict[K, V | KafkaError]:
        """In the order in which the items were given."""
        return {item: self._found[item] for item in self._order}

    def take(self, answers: Mapping[K, V | KafkaError], seconds: float) -> None:
        """An attempt's answers, so many seconds after the call began."""
        self.count += 1
        for item in list(self.pending):
            answer = (
                answers[item]
                if item in answers
                else ProtocolError(f"{self._call}: the broker's answer leaves out {item}")
            )
            if isinstance(answer, KafkaError) and _may_pass(answer, seconds):
                self._last[item] = answer
                if (
                    not isinstance(answer, BrokerError)
                    or answer.code is ErrorCode.REQUEST_TIMED_OUT
                ):
                    self._unanswered.add(item)
                continue
            del self.pending[item]
            if (
                isinstance(answer, BrokerError)
                and item in self._unanswered
                and _IN_DOUBT not in str(answer)
            ):
                answer.args = (f"{answer} {_IN_DOUBT}",)
            self._found[item] = answer

    def give_up(self, limit: str) -> None:
        """The time is over."""
        for item in self.pending:
            why = self._last.get(item) or "there was no answer, so it may still be done"
            about = "" if item == self._call else f" {item}"
            self._found[item] = KafkaTimeoutError(
                f"{self._call}{about}: not done within {limit}; {why}"
            )


async def _answers(ask: Ask[K, V], attempt: Attempt[K]) -> Mapping[K, V | KafkaError]:
    try:
        return await ask(attempt)
    except KafkaError as error:
        return dict.fromkeys(attempt.items, error)


def _may_pass(error: KafkaError, seconds: float) -> bool:
    """Whether another attempt may bring something else."""
    if isinstance(error, BrokerError):
        if error.code in _UNKNOWN_TOPIC:
            return seconds < _UNKNOWN_TOPIC_LIMIT_S
        return error.code.retriable and error.code not in _FINAL
    return isinstance(error, BrokerConnectionError | RequestTimedOutError)


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


def single(answers: list[V], what: str) -> V:
    """The one answer to a request about one thing."""
    if len(answers) != 1:
        raise ProtocolError(f"{what}: {len(answers)} answers to a request about one")
    return answers[0]


def outcome(code: int, what: str, text: str | None, result: V) -> V | KafkaError:
    """``result`` where the code is that of success, else the error, with the broker's own text in
    it.
    """
    return result if code == ErrorCode.NONE else refusal(code, what, text)


def refusal(code: int, what: str, text: str | None = None) -> BrokerError:
    """The error for a code that a broker answered with."""
    known = ErrorCode.of(code)
    return BrokerError(known, what if not text or text == known.description else f"{what} ({text})")


def check(code: int, what: str, text: str | None = None) -> None:
    """Raise the error for a code that is not that of success."""
    if code != ErrorCode.NONE:
        raise refusal(code, what, text)


def place(tp: TopicPartition) -> str:
    """A partition's name for errors."""
    return f"{tp.topic}-{tp.partition}"
