"""Sizes, pauses, intervals and lifetimes that a broker sends have bounds. A field of a response
without a row here fails a test.
"""

from __future__ import annotations

import asyncio
import re
import struct
import typing
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aioprod import Consumer, Producer, TopicPartition
from aioprod.config.client import ClientConfig
from aioprod.errors import ProtocolError, RequestTimedOutError
from aioprod.net.bounds import (
    MAX_HEARTBEAT_MS,
    MAX_REPLY_BYTES_BEFORE_LOGIN,
    MAX_THROTTLE_MS,
    MIN_HEARTBEAT_MS,
)
from aioprod.net.handshake import connect
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.framing import encode_response
from aioprod.protocol.message import Struct
from aioprod.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from aioprod.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from aioprod.protocol.messages.metadata import MetadataRequest
from aioprod.protocol.messages.registry import REQUESTS
from aioprod.protocol.request_headers import decode_request_header
from aioprod.testing import BrokerSecurity, EmbeddedCluster, change_answer, throttle
from aioprod.testing.simulation import run
from tests.plain_server import serving
from tests.testing.bad_servers import coordinate

ANY_INT = st.one_of(
    st.integers(-(2**31), 2**31 - 1), st.sampled_from([-(2**31), -1, 0, 1, 99, 2**31 - 1])
)
quick = settings(max_examples=25)

# Times and counts in responses that could make a client wait, hurry or allocate memory, and the
# bound of each.
BOUNDED = {
    "throttle_time_ms": "net/bounds.py MAX_THROTTLE_MS",
    "session_lifetime_ms": "net/bounds.py MIN_SESSION_MS, MAX_SESSION_MS",
    "heartbeat_interval_ms": "net/bounds.py MIN_HEARTBEAT_MS, MAX_HEARTBEAT_MS",
    "acquisition_lock_timeout_ms": "net/bounds.py MIN_LOCK_MS, MAX_LOCK_MS",
    "push_interval_ms": "net/bounds.py MIN_PUSH_INTERVAL_MS, MAX_PUSH_INTERVAL_MS",
}
# Fields that the client only returns or compares.
ONLY_REPORTED = {
    "transaction_timeout_ms",
    "transaction_start_time_ms",
    "log_append_time_ms",
    "timestamp",
    "last_timestamp",
    "retention_ms",
    "rebalance_timeout_ms",
    "session_timeout_ms",
    "max_timestamp",
    "max_timestamp_ms",
    "issue_timestamp",
    "issue_timestamp_ms",
    "expiry_timestamp",
    "expiry_timestamp_ms",
}
SUSPICIOUS = re.compile(
    r"_ms$|interval|lifetime|timeout|backoff|throttle|delay|duration|_time\b|timestamp"
)


def fields_of_answers() -> set[str]:
    found: set[str] = set()
    for request in REQUESTS.values():
        found |= set(_field_names(request.RESPONSE, set()))
    return found


def _field_names(message: type[Struct], seen: set[type[Struct]]) -> Iterator[str]:
    if message in seen:
        return
    seen.add(message)
    kinds = typing.get_type_hints(message.__init__)
    for name in message.__slots__:
        yield name
        for kind in (kinds[name], *typing.get_args(kinds[name])):
            for inner in (kind, *typing.get_args(kind)):
                if isinstance(inner, type) and issubclass(inner, Struct):
                    yield from _field_names(inner, seen)


def test_each_time_in_an_answer_is_known_to_be_bounded_or_only_reported() -> None:
    suspicious = {name for name in fields_of_answers() if SUSPICIOUS.search(name)}
    assert suspicious - ONLY_REPORTED == set(BOUNDED)


# -- sizes -----------------------------------------------------------------------------------------

_SIZE = struct.Struct(">i")


async def _request(reader: asyncio.StreamReader) -> Any:
    (size,) = _SIZE.unpack(await reader.readexactly(4))
    return decode_request_header(await reader.readexactly(size))


def _versions(correlation_id: int) -> bytes:
    return encode_response(
        ApiVersionsResponse(api_keys=[ApiVersion(key, 0, 1) for key in range(80)]),
        3,
        correlation_id,
    )


@pytest.mark.parametrize(
    "answers", [0, 1, 2], ids=["ApiVersions", "SaslHandshake", "SaslAuthenticate"]
)
def test_a_reply_before_the_login_is_complete_has_a_small_limit(answers: int) -> None:
    """At any step of the login: the connection ends at the size, before memory is allocated."""

    def enlarge(reply: Any) -> None:
        if hasattr(reply, "api_keys"):
            reply.api_keys = [ApiVersion(key % 32_000, 0, 1) for key in range(160_000)]
        elif hasattr(reply, "mechanisms"):
            reply.mechanisms = ["x" * 30_000] * 40
        else:
            reply.auth_bytes = bytes(MAX_REPLY_BYTES_BEFORE_LOGIN)

    api_key = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)[answers]

    async def main() -> None:
        login = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_username": "alice",
            "sasl_password": "b",
        }
        async with EmbeddedCluster(security=BrokerSecurity(users={"alice": "b"})) as cluster:
            host, _, port = cluster.bootstrap_servers.rpartition(":")
            config = ClientConfig(bootstrap_servers=(cluster.bootstrap_servers,), **login)  # type: ignore[arg-type]
            await (await connect(host, int(port), config)).close()
            cluster.on_every(api_key, change_answer(enlarge))
            with pytest.raises(
                ProtocolError,
                match=f"4 to {MAX_REPLY_BYTES_BEFORE_LOGIN} before the login is complete",
            ):
                await connect(host, int(port), config)

    run(main(), 1)


@pytest.mark.parametrize("size", [MAX_REPLY_BYTES_BEFORE_LOGIN + 1, 512 * 1024 * 1024, 2**31 - 1])
async def test_a_size_before_the_login_is_refused_without_waiting_for_the_bytes(size: int) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _request(reader)
        writer.write(_SIZE.pack(size))
        await reader.read()

    async with serving(talk) as port:
        config = ClientConfig(bootstrap_servers=(f"127.0.0.1:{port}",))
        with pytest.raises(ProtocolError, match=f"reply of {size} bytes"):
            await asyncio.wait_for(connect("127.0.0.1", port, config), 5)


def test_large_replies_are_taken_after_the_login() -> None:
    async def main() -> int:
        async with EmbeddedCluster() as cluster:
            cluster.create_topic("t")
            async with Producer(cluster.bootstrap_servers) as producer:
                await producer.send_many("t", [bytes(900_000)] * 3)
            most = 4 * MAX_REPLY_BYTES_BEFORE_LOGIN
            consumer = Consumer(
                bootstrap_servers=cluster.bootstrap_servers,
                auto_offset_reset="earliest",
                max_partition_fetch_bytes=most,
            )
            consumer.assign([TopicPartition("t", 0)])
            async with consumer:
                return sum(
                    len(record.value or b"") for record in await consumer.getmany(timeout_ms=5_000)
                )

    assert run(main(), 1) == 2_700_000


# -- pauses ----------------------------------------------------------------------------------------


@quick
@given(ANY_INT)
@example(2**31 - 1)
def test_a_throttle_is_kept_for_a_minute_at_most(milliseconds: int) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with EmbeddedCluster() as cluster:
            host, _, port = cluster.bootstrap_servers.rpartition(":")
            connection = await connect(
                host,
                int(port),
                ClientConfig(
                    bootstrap_servers=(cluster.bootstrap_servers,), request_timeout_ms=5_000
                ),
            )
            cluster.on(
                ApiKey.METADATA,
                change_answer(lambda reply: setattr(reply, "throttle_time_ms", milliseconds)),
            )
            await connection.request(MetadataRequest())
            begun = loop.time()
            kept = min(max(milliseconds, 0), MAX_THROTTLE_MS)
            while connection.throttled_until > loop.time() + 5:
                with pytest.raises(RequestTimedOutError, match="throttles this client"):
                    await connection.request(MetadataRequest())
            await connection.request(MetadataRequest())
            assert kept <= (loop.time() - begun) * 1000 <= kept + 5_200
            await connection.close()

    run(main(), 1)


def test_a_producer_goes_on_behind_an_endless_throttle() -> None:
    async def main() -> None:
        async with EmbeddedCluster() as cluster:
            cluster.create_topic("t")
            async with Producer(cluster.bootstrap_servers, linger_ms=0) as producer:
                cluster.on(ApiKey.PRODUCE, throttle(2**31 - 1))
                await producer.send_and_wait("t", b"1")
                await producer.send_and_wait("t", b"2")

    run(main(), 1)


@settings(quick, max_examples=8)
@given(ANY_INT)
@example(0)
@example(-1)
@example(2**31 - 1)
def test_heartbeats_of_any_interval_neither_flood_nor_stop(interval_ms: int) -> None:
    """KIP-848: the coordinator sends the interval."""
    seconds = 130

    async def main() -> int:
        reply = ConsumerGroupHeartbeatResponse(
            member_id="m", member_epoch=1, heartbeat_interval_ms=interval_ms
        )
        async with EmbeddedCluster() as cluster:
            cluster.create_topic("t")
            heartbeats = coordinate(cluster, lambda: reply)
            given: dict[str, Any] = {"group_id": "g", "group_protocol": "consumer"}
            async with Consumer(
                "t", bootstrap_servers=cluster.bootstrap_servers, **given
            ) as consumer:
                for _ in range(seconds):
                    await consumer.getmany(timeout_ms=1_000)
            return len(heartbeats)

    fewest, most = seconds * 1000 / MAX_HEARTBEAT_MS, seconds * 1000 / MIN_HEARTBEAT_MS + 5
    assert fewest <= run(main(), 1) <= most
