"""An address or login that fails affects only its broker, is retried with backoff, and ends no task
of the client.

In virtual time: the attempts of seconds are counted in milliseconds.
"""

from __future__ import annotations

import asyncio
import random
import string
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aioprod import Consumer, KafkaError, OAuthToken, Producer, TopicPartition
from aioprod.config.addresses import split_address
from aioprod.config.client import ClientConfig
from aioprod.errors import AuthenticationError, BrokerConnectionError, ConfigError
from aioprod.net.brokers import Brokers
from aioprod.net.handshake import connect
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.messages.metadata import MetadataResponseBroker
from aioprod.protocol.messages.produce import NodeEndpoint
from aioprod.testing import BrokerSecurity, EmbeddedCluster, change_answer, drop_before
from aioprod.testing.simulation import SimulatedLoop

SECONDS = 5
# The backoff doubles from 50 ms to a second, varied by a fifth: at 0, 0.05, 0.15, 0.35, 0.75, 1.55,
# 2.55 ...; other parts make some more attempts.
MOST_TRIES = 4 * SECONDS
ODD = 77
TP = TopicPartition("t", 0)

_LABELS = st.text(alphabet=string.ascii_letters + "-_\0\n\u2488ß\ud800", max_size=70)
HOSTS = st.one_of(
    st.text(max_size=8),
    st.lists(_LABELS, max_size=3).map(".".join),
    st.just("a" * 40_000),
    st.just("127.0.0.1"),
    st.just("nowhere"),
)
PORTS = st.one_of(
    st.sampled_from([-(2**31), -5, 0, 1, 9, 65_535, 65_536, 70_000, 2**31 - 1]),
    st.integers(-(2**31), 2**31 - 1),
)
# A message has only valid UTF-8.
SENT_HOSTS = HOSTS.filter(lambda host: "\ud800" not in host and len(host) < 32_000)

quick = settings(max_examples=25)


class CountingLoop(SimulatedLoop):
    """Counts attempts to connect by address, and keeps errors that no task handled."""

    def __init__(self, seed: int = 1) -> None:
        super().__init__(seed, time_limit_seconds=600)
        self.tries: Counter[tuple[Any, Any]] = Counter()
        self.unhandled: list[dict[str, Any]] = []
        self.set_exception_handler(lambda _, context: self.unhandled.append(context))

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **more: Any
    ) -> Any:
        self.tries[host, port] += 1
        return await super().create_connection(protocol_factory, host, port, **more)


def simulate(main: Callable[[CountingLoop], Any]) -> CountingLoop:
    loop = CountingLoop()
    loop.run(main(loop))
    assert loop.unhandled == []
    return loop


async def serves(cluster: EmbeddedCluster, bootstrap: str) -> None:
    """A producer and a consumer of the healthy broker run for some seconds, while connections end
    and metadata become old.
    """
    hurried: dict[str, Any] = {
        "metadata_max_age_ms": 300,
        "connections_max_idle_ms": 200,
        "request_timeout_ms": 2_000,
    }
    producer = Producer(
        bootstrap, linger_ms=0, delivery_timeout_ms=4_000, max_block_ms=4_000, **hurried
    )
    consumer = Consumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=100, **hurried
    )
    consumer.assign([TP])
    loop = asyncio.get_running_loop()
    async with producer, consumer:
        for number in range(SECONDS * 2):
            sent_at = loop.time()
            await producer.send_and_wait("t", b"%d" % number, partition=0)
            assert loop.time() - sent_at < 1.5
            assert (await consumer.getone(timeout_ms=3_000)).value == b"%d" % number
            await asyncio.sleep(0.5)


def name_odd_broker(host: str, port: int) -> Callable[[Any], None]:
    def change(reply: Any) -> None:
        reply.brokers.append(MetadataResponseBroker(ODD, host, port, None))

    return change


@quick
@given(SENT_HOSTS, PORTS)
@example("a..b", 9092)
@example("127.0.0.1", 70_000)
@example("a\0b", 9092)
@example("", 9092)
def test_an_odd_address_in_metadata_costs_that_broker_alone(host: str, port: int) -> None:
    async def main(loop: CountingLoop) -> None:
        async with EmbeddedCluster() as cluster:
            cluster.create_topic("t")
            cluster.on_every(ApiKey.METADATA, change_answer(name_odd_broker(host, port)))
            await serves(cluster, cluster.bootstrap_servers)

    assert simulate(main).tries[host, port] <= 2 * MOST_TRIES


@quick
@given(HOSTS, PORTS)
@example("a..b", 9092)
@example("a" * 64, 9092)
@example("a\0b", 9092)
def test_an_odd_bootstrap_address_next_to_a_healthy_one(host: str, port: int) -> None:
    odd = f"{host}:{port}"
    try:
        split_address(odd)
    except ConfigError:
        return  # refused before it is ever tried

    async def main(loop: CountingLoop) -> None:
        async with EmbeddedCluster() as cluster:
            cluster.create_topic("t")
            await serves(cluster, [odd, cluster.bootstrap_servers])  # type: ignore[arg-type]
            alone = Brokers(ClientConfig(bootstrap_servers=(odd,)), random.Random(1))
            until = loop.time() + SECONDS
            while loop.time() < until:  # the caller does not pause, connecting does
                with pytest.raises(BrokerConnectionError):
                    await alone.any()
            await alone.close()

    assert sum(simulate(main).tries.values()) <= 6 * MOST_TRIES


@quick
@given(SENT_HOSTS, PORTS)
@example("a..b", 9092)
@example("127.0.0.1", 70_000)
def test_an_odd_coordinator_is_looked_for_again_with_a_pause(host: str, port: int) -> None:
    """Another broker becomes leader after some seconds; then the consumer gets its records."""

    def change(reply: Any) -> None:
        for found in reply.coordinators:
            found.node_id, found.host, found.port = ODD, host, port

    async def main(loop: CountingLoop) -> None:
        async with EmbeddedCluster() as cluster:
            cluster.create_topic("t")
            moved = cluster.on_every(ApiKey.FIND_COORDINATOR, change_answer(change))
            async with Producer(cluster.bootstrap_servers) as producer:
                await producer.send_and_wait("t", b"1")
            async with Consumer(
                "t",
                bootstrap_servers=cluster.bootstrap_servers,
                group_id="g",
                auto_offset_reset="earliest",
            ) as consumer:
                assert not await consumer.getmany(timeout_ms=SECONDS * 1000)
                assert loop.tries[host, port] <= MOST_TRIES
                assert cluster.request_count(ApiKey.FIND_COORDINATOR) <= 3 * MOST_TRIES
                moved.cancel()
                assert (await consumer.getone(timeout_ms=10_000)).value == b"1"

    simulate(main)


@quick
@given(SENT_HOSTS, PORTS)
@example("a..b", 9092)
@example("127.0.0.1", 70_000)
def test_an_odd_leader_named_by_an_answer_to_produce(host: str, port: int) -> None:
    """KIP-951: the next metadata refresh corrects it."""

    def change(reply: Any) -> None:
        reply.node_endpoints = [NodeEndpoint(ODD, host, port, None)]
        for topic in reply.responses:
            for partition in topic.partition_responses:
                partition.error_code = 6  # NOT_LEADER_OR_FOLLOWER
                partition.current_leader.leader_id, partition.current_leader.leader_epoch = (
                    ODD,
                    1_000,
                )

    async def main(loop: CountingLoop) -> None:
        async with EmbeddedCluster() as cluster:
            cluster.create_topic("t")
            cluster.create_topic("other")
            moved = cluster.on(ApiKey.PRODUCE, change_answer(change))
            async with Producer(
                cluster.bootstrap_servers,
                linger_ms=0,
                delivery_timeout_ms=4_000,
                request_timeout_ms=2_000,
            ) as producer:
                lost = await producer.send("t", b"1")
                await moved.wait()
                for number in range(SECONDS * 2):
                    await producer.send_and_wait("other", b"%d" % number)
                    await asyncio.sleep(0.5)
                assert loop.tries[host, port] <= MOST_TRIES
                assert loop.tries[host, port] or not (host and 1 <= port <= 65_535), (
                    "it was never tried"
                )
                # The metadata never reaches that epoch.
                with pytest.raises(KafkaError, match="1 attempt"):
                    await lost

    simulate(main)


# -- logins ----------------------------------------------------------------------------------------

Outcome = Callable[[], Any]


def _raiser(error: BaseException) -> Outcome:
    def give() -> Any:
        raise error

    return give


def _coroutine_of(value: Any) -> Outcome:
    async def give() -> Any:
        return value

    return give


def _failing(error: Exception) -> Outcome:
    async def give() -> Any:
        raise error

    return give


async def _never() -> Any:
    await asyncio.sleep(10**9)


_ERRORS = st.sampled_from(
    [
        ValueError("x"),
        OSError(111, "x"),
        TimeoutError("x"),
        KeyError("x"),
        UnicodeError("x"),
        RuntimeError(),
        AuthenticationError("x"),
        MemoryError(),
    ]
)
_VALUES = st.one_of(
    st.none(),
    st.binary(max_size=8),
    st.integers(),
    st.just(""),
    st.text(max_size=8),
    st.just("x" * 2_000_000),
    st.just("\ud800"),
    st.just("ä"),
)
_EXTENSIONS = st.one_of(
    st.just({}),
    st.just({"auth": "x"}),
    st.none(),
    st.just({"a": 1}),
    st.just({1: "a"}),
    st.just({"a": "\ud800"}),
    st.just([1]),
)
BAD_TOKENS: st.SearchStrategy[Outcome] = st.one_of(
    st.builds(OAuthToken, _VALUES, _EXTENSIONS).map(_coroutine_of),
    st.one_of(st.none(), st.text(max_size=3), st.just(OAuthToken), st.integers()).map(
        _coroutine_of
    ),
    st.one_of(st.none(), st.text(max_size=3)).map(lambda value: lambda: value),
    _ERRORS.map(_failing),
    _ERRORS.map(_raiser),
    st.just(_never),
)


@quick
@given(st.lists(BAD_TOKENS, min_size=1, max_size=3), st.booleans())
@example([_coroutine_of(OAuthToken(None))], True)  # type: ignore[arg-type]
@example([_coroutine_of(OAuthToken(b"x"))], True)  # type: ignore[arg-type]
def test_providers_are_asked_with_a_pause_until_they_give_a_token(
    outcomes: list[Outcome], bad_at_first: bool
) -> None:
    async def main(loop: CountingLoop) -> None:
        calls, good = 0, not bad_at_first

        def provider() -> Any:
            nonlocal calls
            calls += 1
            return (
                _coroutine_of(OAuthToken("good"))() if good else outcomes[calls % len(outcomes)]()
            )

        security = BrokerSecurity(
            token_validator=lambda token, _: "alice" if token == "good" else None
        )
        given: dict[str, Any] = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": provider,
        }
        async with EmbeddedCluster(security=security) as cluster:
            cluster.create_topic("t")
            limits: dict[str, Any] = {
                "request_timeout_ms": 1_000,
                "delivery_timeout_ms": 5_000,
                "max_block_ms": 3_000,
            }
            producer = Producer(cluster.bootstrap_servers, linger_ms=0, **limits, **given)
            if bad_at_first:
                with pytest.raises(KafkaError):
                    await producer.start()
                good = True
                # Rejected credentials are retried after reconnect_backoff_max_ms, not earlier.
                await asyncio.sleep(1.5)
            await producer.start()
            good, calls = False, 0
            with pytest.raises(KafkaError):
                await producer.send_and_wait("t", b"1")
            assert calls <= 4 * SECONDS, (
                "of a login that fails only one a second is tried, for the node and for metadata"
            )
            good = True
            await asyncio.sleep(3)
            await producer.send_and_wait("t", b"2")
            await producer.close(timeout_ms=100)

    simulate(main)


@quick
@given(st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from([-1, 0, 1, 2, 50, 2**31 - 1])))
@example(1)
@example(-1)
def test_session_lifetimes_of_any_length(lifetime_ms: int) -> None:
    async def main(loop: CountingLoop) -> None:
        calls = 0

        async def provider() -> OAuthToken:
            nonlocal calls
            calls += 1
            return OAuthToken("good")

        def change(reply: Any) -> None:
            reply.session_lifetime_ms = lifetime_ms

        given: dict[str, Any] = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": provider,
        }
        async with EmbeddedCluster(
            security=BrokerSecurity(token_validator=lambda token, _: "alice")
        ) as cluster:
            cluster.create_topic("t")
            cluster.on_every(ApiKey.SASL_AUTHENTICATE, change_answer(change))
            async with Producer(cluster.bootstrap_servers, linger_ms=0, **given) as producer:
                for number in range(SECONDS * 20):
                    await producer.send_and_wait("t", b"%d" % number)
                    await asyncio.sleep(0.05)
        assert calls <= SECONDS * 15, (
            "ten logins a second on one connection, and those of connections that were idle"
        )

    simulate(main)


@pytest.mark.parametrize(
    "error", [RuntimeError("x"), UnicodeError("x"), OverflowError("x"), MemoryError()]
)
async def test_any_error_while_connecting_is_the_cause_of_a_connection_error(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("aioprod.net.stream.Stream.open", fail)
    with pytest.raises(BrokerConnectionError, match="b:9092: connecting failed") as caught:
        await connect("b", 9092, ClientConfig(bootstrap_servers=("b:9092",)))
    assert caught.value.__cause__ is error


@pytest.mark.virtual_time
async def test_a_broker_that_names_no_api_gets_another_request() -> None:
    """No request can be sent on such a connection: it must not be kept."""
    async with EmbeddedCluster(nodes=2) as cluster:
        cluster.create_topic("t", 2)
        empty = change_answer(lambda reply: reply.api_keys.clear())
        first = cluster.on(ApiKey.API_VERSIONS, empty)
        async with Producer(cluster.bootstrap_servers) as producer:
            assert first.used == 1
            for partition in (0, 1):  # the same on a connection to a leader
                cluster.on(ApiKey.PRODUCE, drop_before())
                again = cluster.on(ApiKey.API_VERSIONS, empty)
                await producer.send_and_wait("t", b"x", partition=partition)
                assert again.used == 1
