"""Reauthentication on an open connection (KIP-368): in time, and without losing, duplicating or
reordering requests that are sent meanwhile.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aioprod import Producer
from aioprod.config.client import ClientConfig
from aioprod.errors import AuthenticationError, BrokerConnectionError
from aioprod.net.connection import Connection
from aioprod.net.handshake import connect
from aioprod.net.reauthentication import Reauthentication
from aioprod.oauth_token import OAuthToken
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.framing import encode_request
from aioprod.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from aioprod.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from aioprod.protocol.record_writer import RecordBatchWriter
from aioprod.testing import BrokerSecurity, EmbeddedCluster, Rule, drop_before, hold, hold_answer
from tests.waiting import until

LIMIT_S = 10.0
SESSION_MS = 600
SCRAM: dict[str, Any] = {
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_username": "alice",
    "sasl_password": "pencil",
}


class Early(random.Random):
    """Chooses moments at a fourth of the session instead of near its end, so that sessions do not
    expire on a slow machine.
    """

    def uniform(self, a: float, b: float) -> float:
        return a * 0.3


@pytest.fixture
def security() -> BrokerSecurity:
    """Sessions are short."""
    return BrokerSecurity(
        users={"alice": "pencil"},
        token_validator=lambda token, _: "alice",
        session_lifetime_ms=SESSION_MS,
    )


@pytest.fixture
async def broker(security: BrokerSecurity) -> AsyncIterator[EmbeddedCluster]:
    """A broker whose clients often log in again."""
    async with EmbeddedCluster(security=security) as running:
        running.create_topic("t")
        yield running


@asynccontextmanager
async def connected(
    broker: EmbeddedCluster,
    on_closed: Callable[[Connection], None] = lambda _: None,
    **settings: Any,
) -> AsyncIterator[Connection]:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    config = ClientConfig(
        **{
            "security_protocol": "SASL_PLAINTEXT",
            "request_timeout_ms": 5_000,
            **(settings or SCRAM),
        }
    )
    async with asyncio.timeout(LIMIT_S):
        connection = await connect(host, int(port), config, Early(), on_closed=on_closed)
        try:
            yield connection
        finally:
            await connection.close()


async def used(rule: Rule, times: int = 1) -> None:
    """Wait until a rule was used."""
    await until(lambda: rule.used >= times)


def logins(broker: EmbeddedCluster) -> int:
    return sum(seen.api_key == ApiKey.SASL_HANDSHAKE for seen in broker.requests)


async def busy_until(connection: Connection, condition: Callable[[], bool]) -> int:
    """Send one request after another until a condition is true; return their number."""
    count = 0
    while not condition():
        assert (await connection.request(MetadataRequest(topics=[]))).brokers
        count += 1
    return count


def produce(value: bytes, acks: int) -> ProduceRequest:
    writer = RecordBatchWriter(1_000)
    writer.append(1_000, None, value)
    data = TopicProduceData(
        name="t", partition_data=[PartitionProduceData(index=0, records=writer.build())]
    )
    return ProduceRequest(acks=acks, timeout_ms=5_000, topic_data=[data])


async def test_a_busy_connection_outlives_many_sessions(broker: EmbeddedCluster) -> None:
    async with connected(broker) as connection:
        workers = [busy_until(connection, lambda: logins(broker) >= 5) for _ in range(10)]
        assert sum(await asyncio.gather(*workers)) > 10
        assert connection.error is None


@pytest.mark.parametrize("settings", [{}, {"acks": 0, "enable_idempotence": False}])
async def test_a_producer_under_load_loses_doubles_and_reorders_nothing(
    broker: EmbeddedCluster, settings: dict[str, Any]
) -> None:
    sent = 0
    async with asyncio.timeout(30):
        producer = Producer(
            broker.bootstrap_servers,
            rng=Early(),
            security_protocol="SASL_PLAINTEXT",
            **SCRAM,
            batch_size=1_000,
            linger_ms=0,
            **settings,
        )
        async with producer:
            while logins(broker) < 6:
                for _ in range(100):
                    await producer.send("t", b"%08d" % sent)
                    sent += 1
                await asyncio.sleep(0.001)
        records = await broker.wait_for_records("t", sent)
    assert [record.value for record in records] == [b"%08d" % number for number in range(sent)]
    # One connection to bootstrap and one to the node: none was lost.
    assert sum(seen.api_key == ApiKey.API_VERSIONS for seen in broker.requests) <= 2


async def test_what_is_in_flight_is_answered_first_and_what_comes_meanwhile_is_sent_afterwards(
    broker: EmbeddedCluster,
) -> None:
    async with connected(broker) as connection:
        answered, begun = asyncio.Event(), asyncio.Event()
        kept_answer = broker.on(ApiKey.METADATA, hold_answer(answered))
        first = asyncio.create_task(connection.request(MetadataRequest(topics=[])))
        await used(kept_answer)
        await until(lambda: connection.deferring)
        handshake = broker.on(ApiKey.SASL_HANDSHAKE, hold(begun))
        parked = [
            asyncio.create_task(connection.request(MetadataRequest(topics=[]))) for _ in range(3)
        ]
        await asyncio.sleep(0.02)
        assert connection.in_flight == 4 and logins(broker) == 1  # it waits for the answer
        answered.set()
        await first
        await used(handshake)
        await asyncio.sleep(0.02)
        assert not any(task.done() for task in parked)
        begun.set()
        await asyncio.gather(*parked)
    keys = [seen.api_key for seen in broker.requests][4:9]
    assert keys == [
        ApiKey.METADATA,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.METADATA,
    ]


async def test_requests_with_and_without_an_answer_keep_their_order(
    broker: EmbeddedCluster,
) -> None:
    async with connected(broker) as connection:
        begun = asyncio.Event()
        handshake = broker.on(ApiKey.SASL_HANDSHAKE, hold(begun))
        await busy_until(connection, lambda: connection.deferring)
        await used(handshake)
        replies = []
        for number in range(10):
            message, identity = (
                produce(b"%d" % number, acks=number % 2),
                connection.next_correlation_id(),
            )
            frame = encode_request(message, 9, identity, connection.client_id)
            if number % 2:
                replies.append(connection.send([frame], ProduceRequest, 9, identity))
            else:
                connection.write([frame])
        begun.set()
        await asyncio.gather(*replies)
    assert [record.value for record in broker.records("t")] == [
        b"%d" % number for number in range(10)
    ]


class TestFailure:
    async def test_refused_credentials_end_the_connection_and_all_that_waits(
        self, broker: EmbeddedCluster, security: BrokerSecurity
    ) -> None:
        ended = asyncio.Event()
        async with connected(broker, lambda _: ended.set()) as connection:
            begun = asyncio.Event()
            handshake = broker.on(ApiKey.SASL_HANDSHAKE, hold(begun))
            await busy_until(connection, lambda: connection.deferring)
            await used(handshake)
            parked = [
                asyncio.create_task(connection.request(MetadataRequest(topics=[])))
                for _ in range(3)
            ]
            await asyncio.sleep(0)
            connection.write([b"without an answer"])
            security.users = {"alice": "changed"}
            begun.set()
            for result in await asyncio.gather(*parked, return_exceptions=True):
                assert isinstance(result, AuthenticationError) and "invalid credentials" in str(
                    result
                )
            await ended.wait()
            assert isinstance(connection.error, AuthenticationError)
            assert connection.in_flight == 0

    async def test_another_user_is_refused(
        self, broker: EmbeddedCluster, security: BrokerSecurity
    ) -> None:
        names = iter(["alice", "bob"])
        security.token_validator = lambda token, _: next(names)
        async with connected(
            broker, sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=tokens()
        ) as connection:
            with pytest.raises(AuthenticationError, match="Cannot change principals"):
                await busy_until(connection, lambda: False)

    async def test_a_connection_that_breaks_meanwhile(self, broker: EmbeddedCluster) -> None:
        async with connected(broker) as connection:
            rule = broker.on(ApiKey.SASL_AUTHENTICATE, drop_before())
            with pytest.raises(BrokerConnectionError, match="closed by the broker"):
                await busy_until(connection, lambda: False)
            assert rule.used == 1

    @pytest.mark.parametrize("how", ["cancelled", "closed"])
    @pytest.mark.parametrize("api", [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE])
    async def test_an_interruption_fails_deferred_requests(
        self, broker: EmbeddedCluster, api: ApiKey, how: str
    ) -> None:
        async with connected(broker) as connection:
            stuck = broker.on(api, hold(asyncio.Event()))
            await busy_until(connection, lambda: connection.deferring)
            await used(stuck)
            parked = asyncio.create_task(connection.request(MetadataRequest(topics=[])))
            await asyncio.sleep(0)
            if how == "cancelled":
                renewal = connection.reauthentication
                assert isinstance(renewal, Reauthentication) and renewal.task is not None
                renewal.task.cancel()
            else:
                await connection.close()
            with pytest.raises(
                BrokerConnectionError,
                match="interrupted" if how == "cancelled" else "closed by this client",
            ):
                await parked


def tokens(*moments: Awaitable[None] | Exception | None) -> Callable[[], Awaitable[OAuthToken]]:
    """Return a provider that waits for, or raises, one of these at each call; later it returns
    tokens at once.
    """
    left = list(moments)

    async def provide() -> OAuthToken:
        moment = left.pop(0) if left else None
        if isinstance(moment, Exception):
            raise moment
        if moment is not None:
            await moment
        return OAuthToken("token")

    return provide


@pytest.mark.virtual_time
class TestTokenProvider:
    async def test_requests_go_out_while_it_is_asked(self, broker: EmbeddedCluster) -> None:
        asked, go_on = asyncio.Event(), asyncio.Event()

        async def slow() -> None:
            asked.set()
            await go_on.wait()

        async with connected(
            broker, sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=tokens(None, slow())
        ) as connection:
            await busy_until(connection, asked.is_set)
            for _ in range(3):
                await connection.request(MetadataRequest(topics=[]))
            assert not connection.deferring
            go_on.set()
            await busy_until(connection, lambda: logins(broker) >= 3)

    async def test_it_may_fail_for_a_while(
        self, broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
    ) -> None:
        provider = tokens(None, OSError("unreachable"), OSError("unreachable"))
        settings: dict[str, Any] = {
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": provider,
            "reconnect_backoff_max_ms": 5,
        }
        async with connected(broker, **settings) as connection:
            await busy_until(connection, lambda: logins(broker) >= 2)
        of_renewals = [each for each in caplog.records if each.name.endswith("reauthentication")]
        assert [record.getMessage().partition(": ")[2] for record in of_renewals] == [
            (
                f"{broker.bootstrap_servers}: sasl_oauth_token_provider failed with OSError; "
                "retrying until the session expires"
            )
        ]

    async def test_one_that_fails_permanently_ends_the_connection_before_the_broker_does(
        self, broker: EmbeddedCluster
    ) -> None:
        provider = tokens(None, *[OSError("unreachable")] * 100)
        settings: dict[str, Any] = {
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": provider,
            "reconnect_backoff_max_ms": 30,
        }
        async with connected(broker, **settings) as connection:
            with pytest.raises(AuthenticationError, match="failed with OSError"):
                await busy_until(connection, lambda: False)


async def test_an_unused_connection_is_closed_instead(broker: EmbeddedCluster) -> None:
    ended = asyncio.Event()
    async with connected(broker, lambda _: ended.set()) as connection:
        await ended.wait()
        assert "idle for a whole session" in str(connection.error)
    assert logins(broker) == 1


async def test_a_broker_that_ends_its_limit_is_not_asked_again(
    broker: EmbeddedCluster, security: BrokerSecurity
) -> None:
    async with connected(broker) as connection:
        security.session_lifetime_ms = 0
        await busy_until(connection, lambda: logins(broker) == 2 and not connection.deferring)
        await asyncio.sleep(1.5 * SESSION_MS / 1000)
        assert (
            await connection.request(MetadataRequest(topics=[MetadataRequestTopic(name="t")]))
        ).topics
    assert logins(broker) == 2


async def test_the_moment_is_chosen_at_random_in_the_last_part_of_the_session(
    broker: EmbeddedCluster, security: BrokerSecurity
) -> None:
    security.session_lifetime_ms = 100_000
    async with connected(broker) as connection:
        loop = asyncio.get_running_loop()
        moments = []
        for seed in range(200):
            renewal = Reauthentication(ClientConfig(), random.Random(seed), "localhost")
            now = loop.time()
            renewal.schedule(connection, 100_000)
            moments.append(renewal.due - now)
            renewal.cancel()
        assert 84.9 <= min(moments) < 87 and 93 < max(moments) <= 95.1
