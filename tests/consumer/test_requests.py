"""Requests that wait for a connection: sent when it is there, failed when connecting fails, taken
back, bounded in time.
"""

from __future__ import annotations

import asyncio
import random
import socket

import pytest

from aioprod import (
    AuthenticationError,
    BrokerConnectionError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from aioprod.config.addresses import split_address
from aioprod.config.client import ClientConfig
from aioprod.consumer.requests import Requests
from aioprod.net.brokers import BrokerAddress, Brokers
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.messages.list_offsets import ListOffsetsRequest
from aioprod.protocol.messages.metadata import MetadataRequest
from aioprod.testing import BrokerSecurity, EmbeddedCluster, hold, throttle


def requests_to(address: str, **settings: object) -> tuple[Requests, Brokers]:
    config = ClientConfig(bootstrap_servers=(address,), **settings)  # type: ignore[arg-type]
    brokers = Brokers(config, random.Random(1), on_change=lambda: requests.brokers_changed())
    requests = Requests(config, brokers)
    brokers.update_nodes({7: BrokerAddress(7, *split_address(address))})
    return requests, brokers


async def test_what_is_sent_before_there_is_a_connection_goes_out_in_order(
    broker: EmbeddedCluster,
) -> None:
    requests, brokers = requests_to(broker.bootstrap_servers)
    answers = [requests.send(7, MetadataRequest()) for _ in range(3)]
    assert requests.unsent == 3
    assert [len((await answer).brokers) for answer in answers] == [1, 1, 1]
    assert requests.unsent == 0
    at_once = requests.send(7, MetadataRequest())
    assert requests.unsent == 0
    assert (await at_once).brokers
    assert [seen.api_key for seen in broker.requests] == [
        ApiKey.API_VERSIONS,
        *[ApiKey.METADATA] * 4,
    ]
    await brokers.close()


async def test_a_connection_that_can_not_be_made_fails_what_waits_for_it() -> None:
    requests, brokers = requests_to("127.0.0.1:1", reconnect_backoff_ms=500)
    answers = [requests.send(7, MetadataRequest()) for _ in range(3)]
    for answer in answers:
        with pytest.raises(BrokerConnectionError, match=r"127\.0\.0\.1:1"):
            await answer
    refused = requests.send(7, MetadataRequest())
    assert refused.done(), "during the backoff nothing waits"
    assert isinstance(refused.exception(), BrokerConnectionError)
    await brokers.close()


async def test_a_connection_that_breaks_fails_its_requests_in_flight(
    broker: EmbeddedCluster,
) -> None:
    requests, brokers = requests_to(broker.bootstrap_servers)
    await requests.send(7, MetadataRequest())
    broker.on(ApiKey.METADATA, hold(), times=None)
    answers = [requests.send(7, MetadataRequest()) for _ in range(2)]
    await broker.wait_for_request(ApiKey.METADATA, 2)
    await broker.stop()
    for answer in answers:
        with pytest.raises(BrokerConnectionError):
            await answer
    await brokers.close()


async def test_a_node_that_is_not_in_the_cluster() -> None:
    requests, brokers = requests_to("127.0.0.1:1")
    with pytest.raises(BrokerConnectionError, match="broker 8 is not in the cluster"):
        await requests.send(8, MetadataRequest())
    await brokers.close()


async def test_the_time_limit_applies_to_what_was_never_sent() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        requests, brokers = requests_to(
            f"127.0.0.1:{silent.getsockname()[1]}", request_timeout_ms=50
        )
        with pytest.raises((RequestTimedOutError, BrokerConnectionError)):
            await asyncio.wait_for(requests.send(7, MetadataRequest()), 2)
        assert requests.unsent == 0
        await brokers.close()


async def test_a_request_that_is_cancelled_is_not_sent(broker: EmbeddedCluster) -> None:
    requests, brokers = requests_to(broker.bootstrap_servers)
    first, second = requests.send(7, MetadataRequest()), requests.send(7, MetadataRequest())
    first.cancel()
    await second
    assert broker.request_count(ApiKey.METADATA) == 1
    await brokers.close()


async def test_a_broker_that_wants_fewer_requests_gets_them_later(broker: EmbeddedCluster) -> None:
    requests, brokers = requests_to(broker.bootstrap_servers)
    broker.on(ApiKey.METADATA, throttle(80), times=1)
    await requests.send(7, MetadataRequest())
    loop = asyncio.get_running_loop()
    began = loop.time()
    kept_back = requests.send(7, MetadataRequest())
    assert requests.unsent == 1
    await kept_back
    assert loop.time() - began >= 0.07
    await brokers.close()


async def test_a_request_that_the_broker_does_not_know(
    broker: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests, brokers = requests_to(broker.bootstrap_servers)
    await requests.send(7, MetadataRequest())
    monkeypatch.setattr(ListOffsetsRequest, "MIN_VERSION", 99)
    monkeypatch.setattr(ListOffsetsRequest, "MAX_VERSION", 99)
    with pytest.raises(UnsupportedVersionError):
        await requests.send(7, ListOffsetsRequest())
    await brokers.close()


async def test_closing_fails_what_waits(broker: EmbeddedCluster) -> None:
    requests, brokers = requests_to(broker.bootstrap_servers)
    waiting = requests.send(7, MetadataRequest())
    requests.close()
    with pytest.raises(BrokerConnectionError, match="closed"):
        await waiting
    with pytest.raises(BrokerConnectionError, match="closed"):
        await requests.send(7, MetadataRequest())
    await brokers.close()


async def test_a_refused_login_is_the_error_of_what_waits() -> None:
    async with EmbeddedCluster(
        security=BrokerSecurity(users={"anna": "secret"}, mechanisms=("PLAIN",))
    ) as broker:
        settings = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_username": "anna",
            "sasl_password": "wrong",
        }
        requests, brokers = requests_to(broker.bootstrap_servers, **settings)
        with pytest.raises(AuthenticationError):
            await requests.send(7, MetadataRequest())
        await brokers.close()
