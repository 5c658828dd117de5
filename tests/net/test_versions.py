"""If a broker closes the connection at an unknown version of ApiVersions, the client uses an older
one, and remembers for a while what the address accepts.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from aioprod import Admin, Consumer, Producer
from aioprod.config.client import ClientConfig
from aioprod.error_codes import ErrorCode
from aioprod.errors import (
    BrokerConnectionError,
    BrokerError,
    KafkaError,
    ProtocolError,
    RequestTimedOutError,
)
from aioprod.net.brokers import BrokerAddress, Brokers
from aioprod.net.handshake import connect
from aioprod.net.versions import DOUBTED_S, REMEMBERED_S, STEPS, AcceptedVersions, older
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.messages.api_versions import ApiVersionsRequest
from aioprod.protocol.primitives import Reader
from aioprod.protocol.request_headers import decode_request_header
from aioprod.testing import BrokerSecurity, EmbeddedCluster, delay, drop_before, fail
from aioprod.testing.broker.actions import DropConnection
from aioprod.testing.broker.quirks import QUIRKS
from tests.net.certificates import Certificates

pytestmark = pytest.mark.virtual_time
NEWEST = STEPS[0]


Refuses = Callable[[ApiVersionsRequest, int], bool]


def picky(cluster: EmbeddedCluster, refuses: Refuses, *, silently: bool = False) -> list[int]:
    """End each connection whose ApiVersions is refused, or do not answer it; return the versions
    that are asked.
    """
    asked: list[int] = []
    dispatcher: Any = cluster._dispatcher
    well = dispatcher.answer

    async def answer(frame: bytes, *more: Any) -> Any:
        header = decode_request_header(frame)
        if header.api_key == ApiKey.API_VERSIONS:
            asked.append(header.api_version)
            request = ApiVersionsRequest.read(Reader(frame, header.body_offset), header.api_version)
            if refuses(request, header.api_version):
                if silently:
                    await asyncio.Event().wait()
                raise DropConnection
        return await well(frame, *more)

    dispatcher.answer = answer
    return asked


def newer_than(limit: int) -> Refuses:
    return lambda _, version: version > limit


async def open_and_close(
    cluster: EmbeddedCluster, accepted: AcceptedVersions
) -> dict[int, tuple[int, int]]:
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    config = ClientConfig(bootstrap_servers=(cluster.bootstrap_servers,))
    expected = cluster._cluster.cluster_id, 1
    connection = await connect(
        host, int(port), config, random.Random(1), expected=expected, accepted=accepted
    )
    await connection.close()
    return connection.versions


@pytest.mark.parametrize(
    ("limit", "steps"),
    [(5, [5]), (4, [5, 3]), (3, [5, 3])]
    # These announce version 3, so they are asked for it once more, on the open connection.
    + [(limit, [5, 3, 0, 3, 0]) for limit in (2, 1, 0)],
)
async def test_each_older_step_has_its_own_connection(limit: int, steps: list[int]) -> None:
    async with EmbeddedCluster() as cluster:
        asked = picky(cluster, newer_than(limit))
        versions = await open_and_close(cluster, AcceptedVersions())
    assert asked == steps
    assert ApiKey.FETCH in versions


async def test_two_lost_connections_lose_no_feature() -> None:
    """Else a transactional producer would use the protocol of old brokers."""
    async with EmbeddedCluster() as cluster:
        asked: list[int] = picky(cluster, lambda *_: len(asked) <= 2)
        host, _, port = cluster.bootstrap_servers.rpartition(":")
        config = ClientConfig(bootstrap_servers=(cluster.bootstrap_servers,))
        accepted = AcceptedVersions()
        for _ in range(2):
            connection = await connect(host, int(port), config, random.Random(1), accepted=accepted)
            await connection.close()
            assert connection.finalized_features["transaction.version"] == 2
    assert asked == [5, 3, 0, 3, 3]


async def test_a_broker_that_ends_the_connection_at_the_ids() -> None:
    """With tansu 0.6, the first connection, which knows no cluster, gets through in version 5."""
    async with EmbeddedCluster() as cluster:
        asked = picky(cluster, lambda request, _: request.cluster_id is not None)
        accepted = AcceptedVersions()
        await open_and_close(cluster, accepted)
        await open_and_close(cluster, accepted)
    assert asked == [5, 3, 3]


async def test_what_an_address_accepts_is_remembered_for_a_while() -> None:
    accepted = AcceptedVersions()
    async with EmbeddedCluster(imitate="resets-api-versions-4") as cluster:
        asked = picky(cluster, lambda *_: False)
        for _ in range(3):
            await open_and_close(cluster, accepted)
        assert asked == [5, 3, 3, 3]
        await asyncio.sleep(REMEMBERED_S)
        await open_and_close(cluster, accepted)
        assert asked[4:] == [5, 3]


async def test_an_outage_loses_no_feature_for_long() -> None:
    """A broker that restarts may end one connection, and then answer an older version."""
    accepted = AcceptedVersions()
    down = [True]
    async with EmbeddedCluster() as cluster:
        asked = picky(cluster, lambda *_: bool(down) and down.pop())
        await open_and_close(cluster, accepted)
        await asyncio.sleep(DOUBTED_S)
        await open_and_close(cluster, accepted)
        await open_and_close(cluster, accepted)
    assert asked == [5, 3, 5, 5]


async def test_a_broker_that_accepts_nothing_costs_one_connection_per_step() -> None:
    async with EmbeddedCluster() as cluster:
        asked = picky(cluster, lambda *_: True)
        accepted = AcceptedVersions()
        for attempt in (1, 2):
            with pytest.raises(BrokerConnectionError) as caught:
                await open_and_close(cluster, accepted)
            assert caught.value.was_open
            assert asked == list(STEPS) * attempt


async def test_all_connections_of_an_attempt_share_its_time() -> None:
    """A server that accepts and ends each connection late: no step doubles the time of another."""
    loop = asyncio.get_running_loop()

    async with EmbeddedCluster() as cluster:
        cluster.on_every(ApiKey.API_VERSIONS, delay(8), drop_before())
        begun = loop.time()
        with pytest.raises(KafkaError):
            await open_and_close(cluster, AcceptedVersions())
        assert loop.time() - begun <= 20.5  # twice socket_connection_setup_timeout_ms


async def test_a_broker_that_does_not_answer_newer_versions() -> None:
    """It drops the request, and keeps the connection open: clients must not wait forever."""
    loop = asyncio.get_running_loop()
    accepted = AcceptedVersions()
    async with EmbeddedCluster() as cluster:
        asked = picky(cluster, newer_than(3), silently=True)
        begun = loop.time()
        for _ in range(3):
            assert ApiKey.FETCH in await open_and_close(cluster, accepted)
        assert asked == [5, 3, 3, 3]
        assert loop.time() - begun == pytest.approx(5.0, abs=0.1)
        cluster.create_topic("t")
        async with Producer(cluster.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"v")


async def test_a_silent_broker_takes_no_longer_than_a_single_question() -> None:
    loop = asyncio.get_running_loop()
    async with EmbeddedCluster() as cluster:
        asked = picky(cluster, lambda *_: True, silently=True)
        begun = loop.time()
        with pytest.raises(RequestTimedOutError, match="setup_timeout_ms=10000"):
            await open_and_close(cluster, AcceptedVersions())
        assert loop.time() - begun == pytest.approx(10.0, abs=0.1)
        assert asked == list(STEPS)


async def test_the_clients_connections_share_what_they_learned() -> None:
    """One connection is lost for all, not one for fetches, one for the group, one for the rest."""
    async with EmbeddedCluster() as cluster:
        asked = picky(cluster, newer_than(3))
        cluster.create_topic("t")
        async with Producer(cluster.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"v")
        assert asked == [5, 3, 3]
        asked.clear()
        async with Consumer(
            "t",
            group_id="g",
            bootstrap_servers=cluster.bootstrap_servers,
            auto_offset_reset="earliest",
        ) as consumer:
            assert (await consumer.getone()).value == b"v"
            await consumer.commit()
        assert asked[:2] == [5, 3]
        assert set(asked[2:]) == {3}
        async with Admin(cluster.bootstrap_servers) as admin:
            assert await admin.list_topics()


async def test_the_usual_broker_gets_one_connection_and_one_question() -> None:
    async with EmbeddedCluster() as cluster:
        brokers = Brokers(
            ClientConfig(bootstrap_servers=(cluster.bootstrap_servers,)), random.Random(1)
        )
        await brokers.any()
        host, _, port = cluster.bootstrap_servers.rpartition(":")
        brokers.update_nodes({1: BrokerAddress(1, host, int(port))})
        await brokers.connection(1)
        await brokers.close()
        asked = [each.api_version for each in cluster.requests if each.api_key == 18]
    assert asked == [NEWEST, NEWEST]


@pytest.mark.real_time
@pytest.mark.parametrize("quirk", ["resets-api-versions-4", "resets-api-versions-1"])
async def test_real_resets_of_a_service_with_tls_and_a_login(
    certificates: Certificates, quirk: str
) -> None:
    security = BrokerSecurity(
        ssl_context=certificates.server_context(), users={"alice": "pencil"}, mechanisms=("PLAIN",)
    )
    async with EmbeddedCluster(imitate=quirk, security=security) as cluster:
        async with Producer(
            cluster.bootstrap_servers,
            security_protocol="SASL_SSL",
            ssl_truststore_location=certificates.truststore,
            sasl_mechanism="PLAIN",
            sasl_username="alice",
            sasl_password="pencil",
        ) as producer:
            assert (await producer.send_and_wait("t", b"v")).offset == 0
        asked = [each.api_version for each in cluster.requests if each.api_key == 18]
    accepted = QUIRKS[quirk].resets_api_versions_above
    assert accepted is not None
    # The first connection uses older versions; that to the node begins where it ended.
    assert asked == [*(step for step in STEPS if step >= accepted), accepted]


@pytest.mark.parametrize("code", [ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST])
async def test_a_broker_that_answers_newer_versions_with_an_error(code: ErrorCode) -> None:
    async with EmbeddedCluster() as cluster:
        cluster.on(ApiKey.API_VERSIONS, fail(code), times=2)
        async with Admin(cluster.bootstrap_servers) as admin:
            assert (await admin.describe_cluster()).nodes


def test_no_reason_for_an_older_version() -> None:
    refused = BrokerConnectionError("connection refused")
    assert older(NEWEST, refused) is None
    assert older(NEWEST, BrokerError(ErrorCode.REBOOTSTRAP_REQUIRED, "b")) is None
    refused.was_open = True
    assert older(NEWEST, refused) == 3
    assert older(4, ProtocolError("a reply can't be decoded")) == 3
    assert older(0, refused) is None


def test_no_more_than_a_thousand_addresses_are_remembered() -> None:
    accepted = AcceptedVersions()
    for number in range(1_500):
        accepted.note("h", number, 3, (0, 3), now=1.0)
    assert accepted.first("h", 0, now=2.0) == NEWEST
    assert accepted.first("h", 1_499, now=2.0) == 3
    assert sum(accepted.first("h", number, 2.0) == 3 for number in range(1_500)) == 1_000
