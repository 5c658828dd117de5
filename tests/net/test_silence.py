"""A broker that does not reply is detected within a second, and avoided, but its connections are
not closed for that alone.
"""

from __future__ import annotations

import asyncio
import gc
import random
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from aioprod.cluster.client import ClusterClient
from aioprod.config.client import ClientConfig
from aioprod.error_codes import ErrorCode
from aioprod.errors import (
    BrokerConnectionError,
    BrokerError,
    KafkaError,
    ProtocolError,
    RequestTimedOutError,
)
from aioprod.net import brokers as brokers_module
from aioprod.net import silence
from aioprod.net.brokers import BrokerAddress, Brokers
from aioprod.net.connection import Connection
from aioprod.net.race import first_answer
from aioprod.net.silence import SilenceWatch
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from aioprod.protocol.messages.init_producer_id import InitProducerIdRequest
from aioprod.protocol.messages.metadata import MetadataRequest, MetadataResponse
from aioprod.testing import EmbeddedCluster, hold_answer
from tests.waiting import until

LIMIT_SECONDS = 5.0
SILENCE_SECONDS = 0.05


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "SILENCE_S", SILENCE_SECONDS)
    monkeypatch.setattr(brokers_module, "HESITATION_S", SILENCE_SECONDS / 2)


@pytest.fixture
async def three() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(nodes=3) as broker:
        yield broker


@asynccontextmanager
async def brokers_of(
    broker: EmbeddedCluster,
    *connected: int,
    bootstrap: str | None = None,
    on_silence: Callable[[], object] = lambda: None,
) -> AsyncIterator[Brokers]:
    """Brokers that know all nodes and are connected to some."""
    brokers = Brokers(
        ClientConfig(bootstrap_servers=bootstrap or broker.bootstrap_servers),  # type: ignore[arg-type]
        random.Random(1),
        on_silence=on_silence,
    )
    nodes = {}
    for node_id in broker.node_ids:
        host, _, port = broker.address(node_id).rpartition(":")
        nodes[node_id] = BrokerAddress(node_id, host, int(port))
    brokers.update_nodes(nodes)
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            for node_id in connected:
                await brokers.connection(node_id)
            yield brokers
    finally:
        await brokers.close()


async def ask(connection: Connection) -> str:
    await connection.request(MetadataRequest())
    return connection.address


class TestWatch:
    async def test_it_calls_each_second_while_a_caller_waits(self) -> None:
        loop = asyncio.get_running_loop()
        since: float | None = loop.time()
        called: list[float] = []
        enough = asyncio.Event()

        def received_nothing() -> None:
            called.append(loop.time())
            if len(called) == 3:
                enough.set()

        watch = SilenceWatch(lambda: since, received_nothing)
        watch.begin()
        async with asyncio.timeout(LIMIT_SECONDS):
            await enough.wait()
        assert watch.silent
        assert all(later - earlier >= SILENCE_SECONDS * 0.9 for earlier, later in pairwise(called))
        since = None
        assert not watch.silent
        await asyncio.sleep(SILENCE_SECONDS * 3)
        assert len(called) == 3

    async def test_a_response_begins_the_second_again(self) -> None:
        loop = asyncio.get_running_loop()
        received_at = loop.time()
        called: list[float] = []
        watch = SilenceWatch(lambda: received_at, lambda: called.append(loop.time()))
        watch.begin()
        for _ in range(8):
            await asyncio.sleep(SILENCE_SECONDS / 4)
            received_at = loop.time()
        busy_until = received_at
        await until(lambda: called, LIMIT_SECONDS)
        watch.stop()
        assert called[0] >= busy_until + SILENCE_SECONDS * 0.9

    async def test_a_suspended_process_takes_no_broker_for_silent(
        self, three: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The reply is there, but not read yet."""
        monkeypatch.setattr(silence, "_DOUBT", 1.0)  # of a second that is so short here
        called: list[None] = []
        async with brokers_of(three, 1, on_silence=lambda: called.append(None)) as brokers:
            connection = brokers.live(1)
            assert connection is not None
            called.clear()
            for _ in range(3):
                asking = asyncio.create_task(ask(connection))
                await asyncio.sleep(0)
                time.sleep(SILENCE_SECONDS * 1.5)  # noqa: ASYNC251
                await asking
            assert not called

    async def test_stopped_it_calls_no_more(self) -> None:
        called: list[None] = []

        def stop() -> None:
            called.append(None)
            watch.stop()

        began = asyncio.get_running_loop().time()
        watch = SilenceWatch(lambda: began, stop)
        watch.begin()
        await asyncio.sleep(SILENCE_SECONDS * 3)
        watch.begin()
        await asyncio.sleep(SILENCE_SECONDS * 2)
        assert called == [None]


class TestConnection:
    async def test_it_is_silent_only_while_an_answer_is_due(self, three: EmbeddedCluster) -> None:
        received = asyncio.Event()
        async with brokers_of(three, 1, on_silence=received.set) as brokers:
            connection = brokers.live(1)
            assert connection is not None
            await asyncio.sleep(SILENCE_SECONDS * 2)
            assert not connection.silent
            received.clear()
            three.freeze_node(1)
            asked = asyncio.create_task(ask(connection))
            await received.wait()
            assert connection.silent
            three.unfreeze_node(1)
            await asked
            assert not connection.silent and not connection.closed

    async def test_a_socket_that_takes_no_more_is_silence_too(self) -> None:
        """Without acknowledgments there are no replies to wait for."""
        with socket.create_server(("127.0.0.1", 0)) as deaf:
            host, port = deaf.getsockname()
            received = asyncio.Event()
            connection = await Connection.open(
                host,
                port,
                client_id="c",
                request_timeout_ms=30_000,
                setup_timeout_ms=1_000,
                on_silence=received.set,
            )
            connection.write([bytes(8 << 20)])
            draining = asyncio.create_task(connection.drained())
            async with asyncio.timeout(LIMIT_SECONDS):
                await received.wait()
            connection.abort(BrokerConnectionError("enough"))
            await draining
            await connection.close()


class TestAskingAny:
    async def test_one_that_falls_silent_is_not_waited_for(self, three: EmbeddedCluster) -> None:
        async with brokers_of(three, 1, 2) as brokers:
            three.freeze_node(1)
            assert await brokers.ask_any(ask) == three.address(2)
            first = brokers.live(1)
            assert first is not None and first.waited_s >= SILENCE_SECONDS / 2, (
                "it was the one asked first"
            )
            assert await brokers.any() is brokers.live(2), "from now on it is passed over"

    async def test_nodes_without_a_connection_are_tried_when_all_others_are_silent(
        self, three: EmbeddedCluster
    ) -> None:
        async with brokers_of(three, 1, 2, bootstrap=three.address(1)) as brokers:
            three.freeze_node(1)
            three.freeze_node(2)
            assert await brokers.ask_any(ask) == three.address(3)

    async def test_a_bootstrap_server_is_asked_in_place_of_a_silent_one(
        self, three: EmbeddedCluster
    ) -> None:
        async with brokers_of(three, bootstrap=f"{three.address(1)},{three.address(2)}") as brokers:
            brokers.update_nodes({})
            first = await brokers.any()
            frozen = next(node_id for node_id in (1, 2) if three.address(node_id) == first.address)
            three.freeze_node(frozen)
            assert await brokers.ask_any(ask) == three.address(3 - frozen)
            assert first.closed, "one bootstrap connection is kept, and it is one that answers"

    async def test_when_all_are_silent_the_first_that_wakes_up_answers(
        self, three: EmbeddedCluster
    ) -> None:
        async with brokers_of(three, 1, 2, 3) as brokers:
            for node_id in three.node_ids:
                three.freeze_node(node_id)
            asking = asyncio.create_task(brokers.ask_any(ask))
            await asyncio.sleep(SILENCE_SECONDS * 4)
            assert not asking.done()
            three.unfreeze_node(2)
            assert await asking == three.address(2)

    async def test_a_question_does_not_queue_up_behind_a_request_that_waits(
        self, three: EmbeddedCluster
    ) -> None:
        """A broker answers the requests of a connection in order: Metadata behind a Produce that
        waits for a dead replica waits as long.
        """
        async with brokers_of(three, 1) as brokers:
            brokers.update_nodes({1: brokers._nodes[1]})
            connection = brokers.live(1)
            assert connection is not None
            released = asyncio.Event()
            three.on(ApiKey.INIT_PRODUCER_ID, hold_answer(released))
            waiting = asyncio.create_task(connection.request(InitProducerIdRequest()))
            assert await brokers.ask_any(ask) in three.bootstrap_servers.split(",")
            assert not waiting.done() and not connection.closed
            released.set()
            await waiting

    @pytest.mark.virtual_time
    async def test_a_slow_answer_is_taken_from_whom_it_comes_first(
        self, three: EmbeddedCluster
    ) -> None:
        async with brokers_of(three, 1, 2) as brokers:
            released = asyncio.Event()
            three.on(ApiKey.METADATA, hold_answer(released), times=None)
            asking = asyncio.create_task(brokers.ask_any(ask))
            await until(
                lambda: [seen.api_key for seen in three.requests].count(ApiKey.METADATA) >= 2
            )
            released.set()
            assert await asking in (three.address(1), three.address(2))
            assert brokers.connected == 2

    @pytest.mark.parametrize("able", [1, 2, 3])
    async def test_after_retriable_errors_the_others_are_asked(
        self, three: EmbeddedCluster, able: int
    ) -> None:
        """Two of three may return errors for minutes, if one was the controller and is cut off."""

        async def ask_one(connection: Connection) -> str:
            if connection.address != three.address(able):
                raise BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, connection.address)
            return connection.address

        unable = set[str]()
        async with brokers_of(three, 1, bootstrap=three.address(1)) as brokers:
            refused: list[str] = []
            while len(refused) < 3:
                try:
                    assert await brokers.ask_any(ask_one, unable) == three.address(able)
                    break
                except BrokerError as error:
                    refused.append(str(error))
        assert len({*refused}) == len(refused) < 3
        assert unable == set()

    async def test_one_that_is_unable_is_asked_if_no_other_can_be_reached(
        self, three: EmbeddedCluster
    ) -> None:
        async with brokers_of(three, 1, bootstrap=three.address(1)) as brokers:
            assert await brokers.ask_any(ask, {three.address(1)}) != three.address(1)
            await three.stop_node(2)
            await three.stop_node(3)
            assert await brokers.ask_any(ask, {three.address(1)}) == three.address(1)

    async def test_the_only_broker_gets_the_next_request_too(self, three: EmbeddedCluster) -> None:
        async def refuse(connection: Connection) -> str:
            raise BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, connection.address)

        unable = set[str]()
        async with brokers_of(three, 1, bootstrap=three.address(1)) as brokers:
            brokers.update_nodes({1: brokers._nodes[1]})
            for _ in range(3):
                with pytest.raises(BrokerError):
                    await brokers.ask_any(refuse, unable)
            assert brokers.connected == 1

    async def test_cancelling_it_leaves_nothing_behind(self, three: EmbeddedCluster) -> None:
        async with brokers_of(three, 1, 2, 3) as brokers:
            for node_id in three.node_ids:
                three.freeze_node(node_id)
            asking = asyncio.create_task(brokers.ask_any(ask))
            await asyncio.sleep(SILENCE_SECONDS * 3)
            asking.cancel()
            await asyncio.wait([asking])
            assert asking.cancelled()


class TestFirstAnswer:
    """Cases that need replies at certain moments."""

    @staticmethod
    def saying(outcome: str | KafkaError, after: float) -> Callable[[], Coroutine[Any, Any, str]]:
        async def answer() -> str:
            await asyncio.sleep(after)
            if isinstance(outcome, KafkaError):
                raise outcome
            return outcome

        return answer

    async def first(self, *answers: Callable[[], Coroutine[Any, Any, str]]) -> str:
        others = list(answers[1:])
        async with asyncio.timeout(LIMIT_SECONDS):
            return await first_answer(
                answers[0](), lambda: others.pop(0)(), lambda: bool(others), SILENCE_SECONDS
            )

    async def test_a_broken_connection_is_not_an_answer_while_another_may_come(self) -> None:
        broken = self.saying(BrokerConnectionError("broken"), SILENCE_SECONDS * 1.5)
        assert await self.first(broken, self.saying("answer", SILENCE_SECONDS * 2)) == "answer"

    async def test_a_refusal_is_an_answer(self) -> None:
        with pytest.raises(ProtocolError):
            await self.first(self.saying("late", 60), self.saying(ProtocolError("refused"), 0))

    async def test_a_failure_within_the_second_asks_no_other_broker(self) -> None:
        with pytest.raises(RequestTimedOutError):
            await self.first(
                self.saying(RequestTimedOutError("no reply"), 0), self.saying("answer", 0)
            )

    async def test_when_all_have_failed_the_last_error_is_raised(self) -> None:
        with pytest.raises(RequestTimedOutError, match="last"):
            await self.first(
                self.saying(BrokerConnectionError("first"), SILENCE_SECONDS * 1.5),
                self.saying(RequestTimedOutError("last"), SILENCE_SECONDS),
            )

    async def test_the_error_of_one_that_fails_together_with_the_answer_is_not_reported_as_lost(
        self,
    ) -> None:
        """Found by the simulation: both ended in one turn of the loop, and the failure was not
        retrieved.
        """
        reported: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: reported.append(context)
        )
        for answer_first in (True, False):
            together = asyncio.Event()

            async def ends(outcome: str | KafkaError, together: asyncio.Event = together) -> str:
                await together.wait()
                if isinstance(outcome, KafkaError):
                    raise outcome
                return outcome

            outcomes: list[str | KafkaError] = ["answer", BrokerConnectionError("no other")]
            first, second = outcomes if answer_first else outcomes[::-1]
            asked = asyncio.ensure_future(
                self.first(lambda first=first: ends(first), lambda second=second: ends(second))  # type: ignore[misc]
            )
            await asyncio.sleep(SILENCE_SECONDS * 1.5)
            together.set()
            assert await asked == "answer"
        gc.collect()
        assert reported == []


async def test_a_conversation_gets_what_it_asked_for(three: EmbeddedCluster) -> None:
    async with brokers_of(three, 1) as brokers:
        reply = await brokers.ask_any(lambda connection: connection.request(MetadataRequest()))
        assert isinstance(reply, MetadataResponse)


async def test_what_changes_something_is_asked_of_one_broker_only(three: EmbeddedCluster) -> None:
    """However long it takes: a second request would get an error."""
    async with asyncio.timeout(LIMIT_SECONDS), ClusterClient(three.bootstrap_servers) as client:
        released = asyncio.Event()
        three.on(ApiKey.CREATE_TOPICS, hold_answer(released), times=None)
        creating = asyncio.create_task(
            client.request(CreateTopicsRequest([CreatableTopic("new", 1, 1)]))
        )
        await asyncio.sleep(SILENCE_SECONDS * 3)
        released.set()
        assert (await creating).topics[0].error_code == 0
        assert sum(seen.api_key == ApiKey.CREATE_TOPICS for seen in three.requests) == 1
