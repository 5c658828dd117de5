"""Leaders move, nodes die, freeze and return at other addresses, and idle connections are closed: a
producer survives this, at a limited cost.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aioprod import DeliveryTimeoutError, ErrorCode, Producer
from aioprod.metrics import BatchSent, ProducerObserver
from aioprod.producer.delivery import Delivery
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.message import Message
from aioprod.protocol.messages.metadata import MetadataResponse
from aioprod.protocol.messages.produce import LeaderIdAndEpoch, NodeEndpoint, ProduceResponse
from aioprod.testing import (
    Action,
    EmbeddedCluster,
    change_answer,
    fail,
    hold,
    hold_answer,
    throttle,
)
from tests.testing.bounded_producer import running
from tests.waiting import stored, until

LIMIT_SECONDS = 10.0
FAST = {
    "linger_ms": 0,
    "retry_backoff_ms": 5,
    "retry_backoff_max_ms": 20,
    "reconnect_backoff_ms": 5,
    "reconnect_backoff_max_ms": 20,
}
# A single pause of this length breaks every limit here: what passes had none.
NO_PAUSE = {"linger_ms": 0, "retry_backoff_ms": 60_000, "retry_backoff_max_ms": 60_000}


@pytest.fixture
async def three() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(nodes=3) as broker:
        broker.create_topic("t", 3)
        yield broker


@pytest.fixture
async def single() -> AsyncIterator[EmbeddedCluster]:
    """One replica per partition: partition 0 is on node 1 or nowhere."""
    async with EmbeddedCluster(nodes=3, replication_factor=1) as broker:
        broker.create_topic("t", 3)
        yield broker


class Watcher(ProducerObserver):
    """Keeps what was sent."""

    def __init__(self) -> None:
        self.sent: list[BatchSent] = []

    def on_batch_sent(self, event: BatchSent) -> None:
        self.sent.append(event)


@asynccontextmanager
async def producer_of(addresses: str, **settings: Any) -> AsyncIterator[Producer]:
    """A producer for at most ten seconds, and one that a failed test does not wait for."""
    async with running(Producer(addresses, **settings), LIMIT_SECONDS) as producer:
        yield producer


def metadata_requests(broker: EmbeddedCluster) -> int:
    return sum(seen.api_key == ApiKey.METADATA for seen in broker.requests)


def produced_at(broker: EmbeddedCluster) -> list[int]:
    """The nodes that produce requests went to."""
    return [seen.node_id for seen in broker.requests if seen.api_key == ApiKey.PRODUCE]


async def send_one_by_one(producer: Producer, partitions: list[int], rounds: int) -> None:
    for number in range(rounds):
        for partition in partitions:
            await producer.send_and_wait("t", b"%d" % number, partition=partition)


class TestNewLeaderInTheAnswer:
    """KIP-951: the refusal names the new leader, and that is all that a producer needs."""

    @pytest.mark.parametrize("idempotent", [True, False])
    async def test_it_costs_no_metadata_request_and_no_pause(
        self, three: EmbeddedCluster, idempotent: bool
    ) -> None:
        async with producer_of(
            three.bootstrap_servers, enable_idempotence=idempotent, **NO_PAUSE
        ) as producer:
            await producer.send_and_wait("t", b"before", partition=0)
            asked = metadata_requests(three)
            three.move_leader("t", 0, 2)
            await producer.send_and_wait("t", b"after", partition=0)
            await producer.send_and_wait("t", b"later", partition=0)
            assert metadata_requests(three) == asked
        assert stored(three, partition=0) == [b"before", b"after", b"later"]
        assert produced_at(three) == [1, 1, 2, 2]

    async def test_all_that_was_in_flight_goes_over_at_once_and_in_order(
        self, three: EmbeddedCluster
    ) -> None:
        watcher = Watcher()
        settings = {**NO_PAUSE, "batch_size": 0, "observers": [watcher]}  # each record is a batch
        async with producer_of(three.bootstrap_servers, **settings) as producer:
            await producer.send_and_wait("t", b"first", partition=0)
            asked = metadata_requests(three)
            event = asyncio.Event()
            three.on(ApiKey.PRODUCE, hold(event), node=1)
            deliveries = [
                await producer.send("t", b"%d" % number, partition=0) for number in range(20)
            ]
            await until(lambda: len(watcher.sent) == 6)
            three.move_leader("t", 0, 3)
            event.set()
            for delivery in deliveries:
                await delivery
            assert metadata_requests(three) == asked
        assert stored(three, partition=0) == [b"first", *[b"%d" % number for number in range(20)]]
        # The five that were in flight were refused; each went once more, and the rest only to the
        # new leader.
        assert [event.node_id for event in watcher.sent] == [1] * 6 + [3] * 20

    async def test_partitions_that_did_not_move_are_not_disturbed(
        self, three: EmbeddedCluster
    ) -> None:
        three.create_topic("u", 3)
        async with producer_of(three.bootstrap_servers, **NO_PAUSE) as producer:
            for topic in ("t", "u"):
                await producer.send_and_wait(topic, b"first", partition=0)
            three.move_leader("t", 0, 2)
            both = [await producer.send(topic, b"second", partition=0) for topic in ("t", "u")]
            for delivery in both:
                await delivery
        assert len(three.records("u", 0)) == len(three.records("t", 0)) == 2

    async def test_a_leader_that_moves_on_is_followed(self, three: EmbeddedCluster) -> None:
        async with producer_of(three.bootstrap_servers, **NO_PAUSE) as producer:
            await producer.send_and_wait("t", b"0", partition=0)
            asked = metadata_requests(three)
            for step, node_id in enumerate((2, 3, 1, 3), start=1):
                three.move_leader("t", 0, node_id)
                await producer.send_and_wait("t", b"%d" % step, partition=0)
            assert metadata_requests(three) == asked
        assert produced_at(three) == [1, 1, 2, 2, 3, 3, 1, 1, 3]

    async def test_a_node_that_was_never_seen_is_reached_by_the_address_in_the_answer(
        self, three: EmbeddedCluster
    ) -> None:
        await three.stop_node(3)
        async with producer_of(three.bootstrap_servers, **NO_PAUSE) as producer:
            await producer.send_and_wait("t", b"before", partition=0)
            asked = metadata_requests(three)
            await three.start_node(3, new_port=True)
            three.move_leader("t", 0, 3)
            await producer.send_and_wait("t", b"after", partition=0)
            assert metadata_requests(three) == asked
        assert produced_at(three) == [1, 1, 3]

    async def test_a_node_that_changed_its_address_is_reached_by_the_one_in_the_answer(
        self, three: EmbeddedCluster
    ) -> None:
        async with producer_of(three.address(1), **NO_PAUSE) as producer:
            await producer.send_and_wait("t", b"before", partition=0)
            asked = metadata_requests(three)
            await three.stop_node(2)
            await three.start_node(2, new_port=True)
            three.move_leader("t", 0, 2)
            await producer.send_and_wait("t", b"after", partition=0)
            assert metadata_requests(three) == asked
        assert produced_at(three) == [1, 1, 2]

    @pytest.mark.parametrize(
        "reported",
        ["nothing", "no leader", "an older epoch", "the epoch it knows", "a node without address"],
    )
    async def test_an_answer_that_does_not_help_leads_to_metadata(
        self, three: EmbeddedCluster, reported: str
    ) -> None:
        def change(answer: ProduceResponse) -> None:
            part = answer.responses[0].partition_responses[0]
            hints = {
                "nothing": LeaderIdAndEpoch(),
                "no leader": LeaderIdAndEpoch(-1, 9),
                "an older epoch": LeaderIdAndEpoch(3, 0),
                "the epoch it knows": LeaderIdAndEpoch(3, 2),
                "a node without address": LeaderIdAndEpoch(7, 9),
            }
            part.current_leader, answer.node_endpoints = hints[reported], []

        for node_id in (2, 1):
            three.move_leader("t", 0, node_id)  # so that the known epoch is 2
        async with producer_of(three.bootstrap_servers, **FAST) as producer:
            await producer.send_and_wait("t", b"before", partition=0)
            asked = metadata_requests(three)
            three.move_leader("t", 0, 2)
            three.on(ApiKey.PRODUCE, change_answer(change), node=1, times=None)
            await producer.send_and_wait("t", b"after", partition=0)
            assert metadata_requests(three) > asked
        assert stored(three, partition=0) == [b"before", b"after"]
        assert 3 not in produced_at(three)
        assert produced_at(three)[-1] == 2

    async def test_metadata_that_is_older_than_the_hint_does_not_take_it_back(
        self, three: EmbeddedCluster
    ) -> None:
        """A broker that does not know of the move yet answers a metadata request (Kafka's clients
        compare leader epochs).
        """
        stale: list[MetadataResponse] = []

        def remember(answer: MetadataResponse) -> None:
            stale[:] = [answer]

        def repeat(answer: MetadataResponse) -> None:
            answer.topics = stale[0].topics

        async with producer_of(three.bootstrap_servers, metadata_max_age_ms=50, **FAST) as producer:
            rule = three.on(
                ApiKey.METADATA,
                change_answer(remember),
                times=None,
                where=lambda request: bool(getattr(request, "topics", None)),
            )
            await producer.send_and_wait("t", b"before", partition=0)
            rule.cancel()
            repeated = three.on(
                ApiKey.METADATA,
                change_answer(repeat),
                times=None,
                where=lambda request: bool(getattr(request, "topics", None)),
            )
            three.move_leader("t", 0, 2)
            await producer.send_and_wait("t", b"after", partition=0)
            seen = repeated.used
            await until(lambda: repeated.used >= seen + 2)
            await producer.send_and_wait("t", b"later", partition=0)
        assert produced_at(three) == [1, 1, 2, 2]


class TestDeadNodes:
    @pytest.mark.parametrize("how", ["stopped", "frozen", "frozen before it was first needed"])
    async def test_a_dead_node_does_not_delay_records_to_the_others(
        self, single: EmbeddedCluster, how: str
    ) -> None:
        addresses = ",".join(single.address(node_id) for node_id in (2, 3))
        pending: list[Delivery] = []
        async with producer_of(addresses, **FAST) as producer:
            await send_one_by_one(producer, [1, 2] if "first" in how else [0, 1, 2], 1)
            if how == "stopped":
                await single.stop_node(1)
            else:
                single.freeze_node(1)
            before = stored(single, partition=0)
            pending += [
                await producer.send("t", b"%d" % number, partition=0) for number in range(50)
            ]
            async with asyncio.timeout(LIMIT_SECONDS / 2):  # far less than request_timeout_ms
                await send_one_by_one(producer, [1, 2], 100)
            assert not any(delivery.done() for delivery in pending)
            if how == "stopped":
                await single.start_node(1)
            else:
                single.unfreeze_node(1)
            for delivery in pending:
                await delivery
        assert stored(single, partition=0) == before + [b"%d" % number for number in range(50)]

    async def test_a_new_topic_is_learned_while_a_node_is_silent(
        self, single: EmbeddedCluster
    ) -> None:
        single.create_topic("new", 3)
        async with producer_of(single.bootstrap_servers, **FAST) as producer:
            await send_one_by_one(producer, [0, 1, 2], 1)
            single.freeze_node(1)
            waiting = await producer.send("t", b"waits", partition=0)
            async with asyncio.timeout(LIMIT_SECONDS / 2):
                await producer.send_and_wait("new", b"x", partition=1)
            assert not waiting.done()
            single.unfreeze_node(1)
            await waiting

    async def test_keyless_records_go_to_partitions_with_a_leader(
        self, single: EmbeddedCluster
    ) -> None:
        async with producer_of(single.bootstrap_servers, **FAST) as producer:
            await send_one_by_one(producer, [0, 1, 2], 1)
            await single.stop_node(1)
            waiting = await producer.send("t", b"waits", partition=0)
            asked = metadata_requests(single)
            await until(lambda: metadata_requests(single) >= asked + 2)
            for number in range(100):
                await producer.send_and_wait("t", b"%d" % number)
            assert not waiting.done()
            await single.start_node(1)
            await waiting
        assert len(stored(single, partition=1)) + len(stored(single, partition=2)) == 102

    async def test_metadata_is_not_kept_waiting_by_silent_nodes(self) -> None:
        """The only connection is lost, and most of the nodes that metadata could be asked of take
        connections and say nothing.
        """
        async with EmbeddedCluster(nodes=6) as broker:
            broker.create_topic("t")
            async with producer_of(broker.address(1), **FAST) as producer:
                await producer.send_and_wait("t", b"before")
                for node_id in (3, 4, 5, 6):
                    broker.freeze_node(node_id)
                await broker.stop_node(1)
                # Each of them may take socket_connection_setup_timeout_ms, 10 s.
                async with asyncio.timeout(LIMIT_SECONDS / 2):
                    await producer.send_and_wait("t", b"after")
        assert stored(broker, partition=0) == [b"before", b"after"]

    async def test_a_stopped_leader_costs_no_more_than_the_name_of_the_next(
        self, three: EmbeddedCluster
    ) -> None:
        async with producer_of(three.bootstrap_servers, **FAST) as producer:
            for number in range(30):
                if number in (10, 20):
                    await three.stop_node(three.leader("t", 0))
                await producer.send_and_wait("t", b"%d" % number, partition=0)
        assert stored(three, partition=0) == [b"%d" % number for number in range(30)]


class TestBootstrapAgain:
    """KIP-899 and KIP-1102: no broker that is known answers, but the bootstrap servers do."""

    @pytest.fixture
    async def two(self) -> AsyncIterator[EmbeddedCluster]:
        """Node 1 is down: a producer knows its address from bootstrap_servers only."""
        async with EmbeddedCluster(nodes=2) as broker:
            broker.create_topic("t")
            await broker.stop_node(1)
            yield broker

    @staticmethod
    def addresses(broker: EmbeddedCluster) -> str:
        return f"{broker.address(1)},{broker.address(2)}"

    async def test_all_known_brokers_are_gone(self, two: EmbeddedCluster) -> None:
        async with producer_of(self.addresses(two), **FAST) as producer:
            await producer.send_and_wait("t", b"before")
            await two.stop_node(2)
            waiting = await producer.send("t", b"meanwhile")
            await two.start_node(1)
            await two.start_node(2, new_port=True)  # only it has all records, so it leads
            await waiting
            await producer.send_and_wait("t", b"after")
        assert stored(two, partition=0) == [b"before", b"meanwhile", b"after"]

    @pytest.mark.virtual_time
    async def test_with_the_strategy_none_it_does_not(self, two: EmbeddedCluster) -> None:
        settings = {
            **FAST,
            "metadata_recovery_strategy": "none",
            "request_timeout_ms": 300,
            "delivery_timeout_ms": 800,
        }
        async with producer_of(self.addresses(two), **settings) as producer:
            await producer.send_and_wait("t", b"before")
            await two.stop_node(2)
            await two.start_node(1)
            with pytest.raises(DeliveryTimeoutError):
                await producer.send_and_wait("t", b"lost")
            await two.start_node(2)
            await producer.send_and_wait("t", b"after")
        assert stored(two, partition=0) == [b"before", b"after"]

    async def test_all_known_brokers_are_silent(self, two: EmbeddedCluster) -> None:
        settings = {
            **FAST,
            "request_timeout_ms": 200,
            "metadata_recovery_rebootstrap_trigger_ms": 300,
        }
        async with producer_of(self.addresses(two), **settings) as producer:
            await producer.send_and_wait("t", b"before")
            two.freeze_node(2)
            await two.start_node(1)
            two.move_leader("t", 0, 1)
            await producer.send_and_wait("t", b"after")
        assert stored(two, partition=0) == [b"before", b"after"]

    async def test_a_broker_asks_for_it(self, two: EmbeddedCluster) -> None:
        def send_away(answer: MetadataResponse) -> None:
            answer.error_code, answer.brokers, answer.topics = (
                ErrorCode.REBOOTSTRAP_REQUIRED,
                [],
                [],
            )

        async with producer_of(self.addresses(two), metadata_max_age_ms=100, **FAST) as producer:
            await producer.send_and_wait("t", b"before")
            await two.start_node(1)
            two.on(ApiKey.METADATA, change_answer(send_away), node=2, times=None)
            two.move_leader("t", 0, 1)
            await until(
                lambda: any(
                    seen.api_key == ApiKey.METADATA and seen.node_id == 1 for seen in two.requests
                )
            )
            await producer.send_and_wait("t", b"after")
        assert stored(two, partition=0) == [b"before", b"after"]

    async def test_the_addresses_of_two_brokers_are_mixed_up(self, two: EmbeddedCluster) -> None:
        """A restart may do this, if the brokers get each other's addresses."""

        def mix_up(answer: MetadataResponse) -> None:
            one, other = answer.brokers
            one.port, other.port = other.port, one.port

        await two.start_node(1)
        two.on(ApiKey.METADATA, change_answer(mix_up), times=3)
        async with producer_of(self.addresses(two), **FAST) as producer:
            await producer.send_and_wait("t", b"one")
        assert stored(two, partition=0) == [b"one"]
        asked = [seen for seen in two.requests if seen.api_key == ApiKey.API_VERSIONS]
        assert len(asked) > 3
        # A broker that does not lead the partition has got no records.
        assert produced_at(two) == [2]

    async def test_all_nodes_come_back_and_only_the_bootstrap_server_at_its_address(
        self, three: EmbeddedCluster
    ) -> None:
        async with producer_of(three.address(1), **FAST) as producer:
            await send_one_by_one(producer, [0, 1, 2], 1)
            await three.stop_all()
            waiting = [
                await producer.send("t", b"meanwhile", partition=partition)
                for partition in range(3)
            ]
            await three.start_node(1)
            for node_id in (2, 3):
                await three.start_node(node_id, new_port=True)
                three.move_leader("t", node_id - 1, node_id)
            for delivery in waiting:
                await delivery
            await send_one_by_one(producer, [0, 1, 2], 1)
        assert [stored(three, partition=partition) for partition in range(3)] == [
            [b"0", b"meanwhile", b"0"]
        ] * 3
        assert sorted(produced_at(three)[-3:]) == [1, 2, 3]


@pytest.mark.virtual_time
class TestIdleConnections:
    async def test_they_are_closed_and_opened_again(self, three: EmbeddedCluster) -> None:
        async with producer_of(
            three.bootstrap_servers, connections_max_idle_ms=50, **FAST
        ) as producer:
            for number in range(3):
                await send_one_by_one(producer, [0, 1, 2], 1)
                assert sum(three.connection_count(node_id) for node_id in three.node_ids) >= 1
                await until(
                    lambda: not any(three.connection_count(node_id) for node_id in three.node_ids)
                )
                assert len(stored(three, partition=0)) == number + 1

    async def test_one_that_waits_for_an_answer_is_not_idle(self, three: EmbeddedCluster) -> None:
        async with producer_of(three.address(1), connections_max_idle_ms=30, **FAST) as producer:
            await producer.send_and_wait("t", b"first", partition=0)
            event = asyncio.Event()
            three.on(ApiKey.PRODUCE, hold_answer(event))
            waiting = await producer.send("t", b"second", partition=0)
            await asyncio.sleep(0.2)  # several times the limit
            assert three.connection_count(1) >= 1
            event.set()
            assert (await waiting).offset == 1
        assert produced_at(three) == [1, 1]

    @pytest.mark.parametrize("seed", range(4))
    async def test_closing_in_the_moment_of_a_send_loses_and_doubles_nothing(
        self, three: EmbeddedCluster, seed: int
    ) -> None:
        rng = random.Random(seed)
        async with producer_of(
            three.bootstrap_servers, connections_max_idle_ms=10, **FAST
        ) as producer:
            for number in range(150):
                await producer.send_and_wait("t", b"%d" % number, partition=0)
                await asyncio.sleep(rng.uniform(0, 0.02))
        assert stored(three, partition=0) == [b"%d" % number for number in range(150)]


@pytest.mark.virtual_time
class TestThrottle:
    """KIP-219: the broker answers at once and asks for a pause; the client keeps it."""

    PAUSE_SECONDS = 0.5

    @pytest.mark.parametrize("api_key", [ApiKey.PRODUCE, ApiKey.METADATA])
    async def test_the_node_gets_nothing_for_the_time_asked_for_and_others_do(
        self, three: EmbeddedCluster, api_key: ApiKey
    ) -> None:
        loop = asyncio.get_running_loop()
        arrivals: list[float] = []
        answered: list[float] = []

        def arrived(request: Message) -> bool:
            arrivals.append(loop.time())
            return False

        def note(answer: Message) -> None:
            answered.append(loop.time())

        # So that metadata, too, is asked of node 1.
        async with producer_of(three.address(1), metadata_max_age_ms=100, **FAST) as producer:
            await send_one_by_one(producer, [0] if api_key is ApiKey.METADATA else [0, 1], 1)
            rule = three.on(
                api_key, throttle(int(self.PAUSE_SECONDS * 1000)), change_answer(note), node=1
            )
            if api_key is ApiKey.PRODUCE:
                assert (
                    await producer.send_and_wait("t", b"throttled", partition=0)
                ).offset == 1  # the answer itself is not late
            await until(lambda: bool(rule.used))
            connection = producer._brokers.live(1)
            assert connection is not None
            await until(lambda: connection.throttled_until > loop.time())  # the answer is there
            three.on(ApiKey.PRODUCE, Action(), times=None, where=arrived, node=1)
            paused = await producer.send("t", b"waits", partition=0)
            await producer.send_and_wait("t", b"other node", partition=1)
            assert not paused.done()
            await paused
        assert arrivals[0] - answered[0] >= self.PAUSE_SECONDS * 0.95


@pytest.mark.parametrize("seed", range(6))
async def test_random_moves_stops_and_freezes_lose_double_and_reorder_nothing(
    three: EmbeddedCluster, seed: int
) -> None:
    rng = random.Random(seed)
    down: set[int] = set()
    frozen: set[int] = set()

    async def disturb() -> None:
        node_id = rng.choice(three.node_ids)
        if node_id in down:
            await three.start_node(node_id)
            down.discard(node_id)
        elif node_id in frozen:
            three.unfreeze_node(node_id)
            frozen.discard(node_id)
        elif rng.random() < 0.3 and len(down | frozen) < 2:
            await three.stop_node(node_id)
            down.add(node_id)
        elif rng.random() < 0.3 and len(down | frozen) < 2:
            three.freeze_node(node_id)
            frozen.add(node_id)
        else:
            three.move_leader("t", rng.randrange(3), node_id)
        awake = [each for each in three.node_ids if each not in down | frozen]
        # The controller takes leaderships from a node that sends no heartbeats.
        for partition in range(3):
            if three.leader("t", partition) in frozen:
                three.move_leader("t", partition, rng.choice(awake))

    settings = {
        **FAST,
        "request_timeout_ms": 150,
        "socket_connection_setup_timeout_ms": 150,
        "batch_size": rng.choice([0, 100, 2000]),
        "rng": random.Random(seed),
    }
    count = 0
    async with producer_of(three.bootstrap_servers, **settings) as producer:
        for _ in range(25):
            sent = []
            for _ in range(rng.randrange(1, 60)):
                sent.append(await producer.send("t", b"%d" % count, partition=count % 3))
                count += 1
            await disturb()
            if rng.random() < 0.7:
                for delivery in sent:
                    await delivery
    for partition in range(3):
        assert stored(three, partition=partition) == [
            b"%d" % number for number in range(partition, count, 3)
        ]


async def test_a_refusal_without_a_move_backs_off(three: EmbeddedCluster) -> None:
    """A broker that refuses and names itself must not be asked in a tight loop."""

    def names_itself(answer: ProduceResponse) -> None:
        answer.responses[0].partition_responses[0].current_leader = LeaderIdAndEpoch(1, 0)
        host, _, port = three.address(1).rpartition(":")
        answer.node_endpoints = [NodeEndpoint(1, host, int(port))]

    settings = {**FAST, "retry_backoff_ms": 50, "retry_backoff_max_ms": 50}
    async with producer_of(three.bootstrap_servers, **settings) as producer:
        await producer.send_and_wait("t", b"before", partition=0)
        rule = three.on(
            ApiKey.PRODUCE,
            fail(ErrorCode.NOT_LEADER_OR_FOLLOWER),
            change_answer(names_itself),
            times=None,
        )
        delivery = await producer.send("t", b"after", partition=0)
        await asyncio.sleep(0.3)
        rule.cancel()
        await delivery
    assert 2 <= rule.used <= 10
