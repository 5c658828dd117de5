"""Kafka does not yet serve two-phase commit (KIP-939). When this test fails, build it.

Version 6 of InitProducerId is unstable in Kafka 4.4, so brokers offer it only with
``unstable.api.versions.enable``; and even then they refuse to keep a prepared transaction, without
which no process could complete it after a restart.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from aioprod import ErrorCode, Producer
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.messages.api_versions import ApiVersionsRequest
from aioprod.testing.real_kafka import RealKafka
from tests.testing.raw_client import RawClient

pytestmark = [pytest.mark.interop, pytest.mark.kafka, pytest.mark.timeout(180)]

STABLE, TWO_PHASE = 5, 6
UNSTABLE = {
    "unstable.api.versions.enable": "true",
    "unstable.feature.versions.enable": "true",
    "transaction.two.phase.commit.enable": "true",
}


@pytest.fixture(params=[{}, UNSTABLE], ids=["stable", "unstable"])
def kafka(request: pytest.FixtureRequest) -> Iterator[tuple[RealKafka, bool]]:
    with RealKafka(settings=request.param) as running:
        yield running, bool(request.param)


async def newest_version(client: RawClient) -> int:
    reply = await client.call(ApiVersionsRequest("test", "1"), 3)
    return next(api.max_version for api in reply.api_keys if api.api_key == ApiKey.INIT_PRODUCER_ID)


def init_producer_id(transactional_id: str, *, enable: bool, keep: bool) -> bytes:
    """A request of version 6, which has no class here."""
    name = transactional_id.encode()
    header = struct.pack(">hhihx", ApiKey.INIT_PRODUCER_ID, TWO_PHASE, 7, -1)
    body = bytes([len(name) + 1]) + name
    body += struct.pack(">iqh??x", 60_000, -1, -1, enable, keep)
    return struct.pack(">i", len(header + body)) + header + body


async def code_of(client: RawClient, request: bytes) -> ErrorCode:
    client.writer.write(request)
    answer = await client.receive_frame()
    _, _, code = struct.unpack_from(">ixih", answer)
    return ErrorCode.of(code)


async def test_prepared_transactions_can_not_be_kept(kafka: tuple[RealKafka, bool]) -> None:
    broker, unstable = kafka
    async with RawClient(broker.bootstrap_servers) as client:
        assert await newest_version(client) == (TWO_PHASE if unstable else STABLE)
        if not unstable:
            return
        # This creates the topic with the state of transactions.
        async with Producer(broker.bootstrap_servers, transactional_id="two-phase"):
            pass
        plain = init_producer_id("two-phase", enable=True, keep=False)
        code = await code_of(client, plain)
        assert code is ErrorCode.NONE
        kept = init_producer_id("two-phase", enable=True, keep=True)
        assert await code_of(client, kept) is ErrorCode.UNSUPPORTED_VERSION
