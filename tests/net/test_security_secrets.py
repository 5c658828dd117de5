"""Passwords and tokens appear in no log line, repr or traceback, not even in one that shows local
variables, as error trackers record them.
"""

from __future__ import annotations

import asyncio
import gc
import io
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aioprod import Producer
from aioprod.cluster.client import ClusterClient
from aioprod.config.client import ClientConfig
from aioprod.error_codes import ErrorCode
from aioprod.errors import KafkaError
from aioprod.net.handshake import connect
from aioprod.oauth_token import OAuthToken
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.messages.metadata import MetadataRequest
from aioprod.testing import Action, BrokerSecurity, EmbeddedCluster, delay, drop_before, fail
from tests.testing import leaks
from tests.waiting import until

SECRET = "hunter2-hunter2"
SHORT = "hunter2"  # it must not appear truncated, either
RIGHT = {"alice": SECRET}


async def provide() -> OAuthToken:
    return OAuthToken(SECRET, {"extension": SECRET})


MECHANISMS: dict[str, dict[str, Any]] = {
    "PLAIN": {"sasl_username": "alice", "sasl_password": SECRET},
    "SCRAM-SHA-256": {"sasl_username": "alice", "sasl_password": SECRET},
    "OAUTHBEARER": {"sasl_oauth_token_provider": provide},
}
FAULTS: dict[str, list[Action]] = {
    "refused": [],
    "refused otherwise": [fail(ErrorCode.ILLEGAL_SASL_STATE)],
    "hung up": [drop_before()],
    "no answer": [delay(30)],
}


def settings(mechanism: str) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "request_timeout_ms": 300,
        **MECHANISMS[mechanism],
    }


@pytest.fixture
async def refusing() -> AsyncIterator[EmbeddedCluster]:
    """A broker that knows another password, and no token."""
    security = BrokerSecurity(users={"alice": "other"}, token_validator=lambda token, _: None)
    async with EmbeddedCluster(security=security) as running:
        yield running


def whole_text(error: BaseException) -> str:
    return leaks.whole_text(error, [__file__])


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_no_error_of_a_login_shows_them(
    refusing: EmbeddedCluster, everything_logged: io.StringIO, mechanism: str, fault: str
) -> None:
    if FAULTS[fault]:
        refusing.on(ApiKey.SASL_AUTHENTICATE, *FAULTS[fault])
    asyncio.get_running_loop().set_debug(True)
    host, _, port = refusing.bootstrap_servers.rpartition(":")
    with pytest.raises(KafkaError) as raised:
        await connect(host, int(port), ClientConfig(**settings(mechanism)))
    text = whole_text(raised.value)
    assert "Connection" in text  # the text includes frames
    assert SHORT not in text
    assert SHORT not in everything_logged.getvalue()


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_producer_that_is_refused_shows_none(
    refusing: EmbeddedCluster, everything_logged: io.StringIO, mechanism: str
) -> None:
    producer = Producer(
        refusing.bootstrap_servers,
        **{**settings(mechanism), "delivery_timeout_ms": 400, "linger_ms": 0},
    )
    with pytest.raises(KafkaError) as raised:
        await producer.start()
    assert SHORT not in whole_text(raised.value)
    await producer.close()
    assert SHORT not in repr(producer) + repr(producer.config) + repr(vars(producer))
    assert SHORT not in everything_logged.getvalue()


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_second_login_that_is_refused_shows_none(
    everything_logged: io.StringIO, mechanism: str
) -> None:
    security = BrokerSecurity(
        users=RIGHT, token_validator=lambda token, _: "alice", session_lifetime_ms=200
    )
    async with EmbeddedCluster(security=security) as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        connection = await connect(host, int(port), ClientConfig(**settings(mechanism)))
        security.users, security.token_validator = {"alice": "other"}, lambda token, _: None
        with pytest.raises(KafkaError) as raised:
            async with asyncio.timeout(10):
                while True:
                    await connection.request(MetadataRequest(topics=[]))
        texts = [
            whole_text(raised.value),
            repr(connection),
            repr(vars(connection)),
            repr(connection.reauthentication),
            repr(security),
        ]
        await connection.close()
    assert not any(SHORT in text for text in texts)
    assert SHORT not in everything_logged.getvalue()


async def test_a_token_provider_that_breaks_shows_none(
    refusing: EmbeddedCluster, everything_logged: io.StringIO
) -> None:
    async def stall() -> OAuthToken:
        await asyncio.sleep(30)
        return OAuthToken(SECRET)

    async def unsendable() -> OAuthToken:
        return OAuthToken(SECRET + "\x01", {"extension": SECRET})

    for provider in (stall, unsendable):
        given = {**settings("OAUTHBEARER"), "sasl_oauth_token_provider": provider}
        client = ClusterClient(refusing.bootstrap_servers, **given)
        with pytest.raises(KafkaError) as raised:
            await client.start()
        assert SHORT not in whole_text(raised.value)
    assert SHORT not in everything_logged.getvalue()


async def test_tasks_and_futures_show_none(refusing: EmbeddedCluster) -> None:
    """asyncio prints tasks and futures in its log lines, such as for an exception that was never
    retrieved.
    """
    refusing.on(ApiKey.SASL_AUTHENTICATE, delay(30))
    host, _, port = refusing.bootstrap_servers.rpartition(":")
    task = asyncio.create_task(connect(host, int(port), ClientConfig(**settings("PLAIN"))))
    await until(
        lambda: any(seen.api_key == ApiKey.SASL_AUTHENTICATE for seen in refusing.requests), 5
    )
    shown = [
        repr(each) for each in gc.get_objects() if isinstance(each, asyncio.Future | asyncio.Handle)
    ]
    assert shown and not any(SHORT in text for text in shown)
    stack = io.StringIO()
    for each in asyncio.all_tasks():
        each.print_stack(file=stack)
    assert SHORT not in stack.getvalue()
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as raised:
        await task
    assert SHORT not in whole_text(raised.value)
