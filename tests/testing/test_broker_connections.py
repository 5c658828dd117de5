"""Connections of the embedded broker: order of responses, invalid bytes, and an end within a time
limit.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time

import pytest

from aioprod.errors import ConfigError, KafkaTimeoutError
from aioprod.protocol.framing import encode_request
from aioprod.protocol.messages.api_versions import ApiVersionsRequest
from aioprod.protocol.messages.metadata import MetadataRequest
from aioprod.protocol.messages.produce import ProduceRequest
from aioprod.testing import EmbeddedCluster
from tests.testing.raw_client import RawClient, fetch_request, make_batch, produce_request
from tests.waiting import until


async def test_requests_sent_together_are_answered_in_their_order(broker: EmbeddedCluster) -> None:
    broker.create_topic("t")
    async with RawClient(broker.bootstrap_servers) as client:
        ids = [client.send(produce_request("t", make_batch([b"x"])), 9) for _ in range(300)]
        answers = [await client.receive(ProduceRequest, 9) for _ in ids]
    assert [correlation_id for correlation_id, _ in answers] == ids
    assert [
        answer.responses[0].partition_responses[0].base_offset for _, answer in answers
    ] == list(range(300))


async def test_a_client_that_does_not_read_is_not_read_from_either(broker: EmbeddedCluster) -> None:
    broker.create_topic("t")
    async with RawClient(broker.bootstrap_servers) as client:
        await client.produce("t", make_batch([b"x" * 1_000_000]))
        for _ in range(50):
            client.send(fetch_request("t", 0), 12)
        await asyncio.sleep(0.2)
        assert len(broker.requests) < 40  # 50 answers are 50 MB: the broker waits for the client
        for _ in range(50):
            assert len(await client.receive_frame()) > 1_000_000


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\0\0\0\0",
        b"\xff\xff\xff\xff",
        b"\0\0\0\x01\0",
        b"\0\0\0\x08" + b"\xff" * 8,
        encode_request(MetadataRequest(), 9, 1, "raw")[:4] + b"\0" * 1000,
        b"\0\0\0\x0e\0\x03\0\x63\0\0\0\x07\0\x03raw\0",  # a version of Metadata that does not exist
        b"\0\0\0\x0d\0\x0b\0\x05\0\0\0\x07\0\x03raw",  # JoinGroup: not handled
    ],
)
async def test_garbage_ends_that_connection_with_a_log_line_and_no_other(
    broker: EmbeddedCluster, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        RawClient(broker.bootstrap_servers) as good,
        RawClient(broker.bootstrap_servers) as bad,
    ):
        with caplog.at_level(logging.WARNING, "aioprod.testing"):
            bad.writer.write(garbage)
            assert await bad.is_closed()
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "closing the connection from" in caplog.text
        await good.call(ApiVersionsRequest(), 0)


async def test_random_bytes_never_break_the_broker(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    source = random.Random(seed)
    valid = encode_request(produce_request("t", make_batch([b"x"])), 9, 1, "raw")
    broker.create_topic("t")
    for _ in range(100):
        changed = bytearray(valid)
        for _ in range(source.randrange(1, 4)):
            changed[source.randrange(4, len(changed))] = source.randrange(256)
        async with RawClient(broker.bootstrap_servers) as client:
            client.writer.write(bytes(changed))
            client.writer.write_eof()
            async with asyncio.timeout(5):
                await client.reader.read()
    # The broker must not log errors.
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    async with RawClient(broker.bootstrap_servers) as client:
        assert (await client.produce("t", make_batch([b"x"]))).error_code == 0


async def test_stop_ends_waiting_fetches_at_once_and_leaves_no_task() -> None:
    before = asyncio.all_tasks()
    broker = await EmbeddedCluster().start()
    broker.create_topic("t")
    async with RawClient(broker.bootstrap_servers) as client, RawClient(broker.bootstrap_servers):
        client.send(fetch_request("t", 0, max_wait_ms=60_000), 12)
        await until(lambda: len(broker.requests) == 1)
        started = time.monotonic()
        await broker.stop()
        assert time.monotonic() - started < 2
        assert await client.is_closed()
        assert asyncio.all_tasks() == before
        with pytest.raises(ConnectionRefusedError):
            async with RawClient(broker.bootstrap_servers):
                pass
    await broker.stop()  # again does nothing


async def test_a_stopped_broker_starts_again_on_its_port_with_its_records() -> None:
    broker = EmbeddedCluster()
    async with broker:
        address = broker.bootstrap_servers
        broker.create_topic("t")
        async with RawClient(address) as client:
            await client.produce("t", make_batch([b"x"]))
    async with broker, RawClient(address) as client:
        assert broker.bootstrap_servers == address
        assert (await client.produce("t", make_batch([b"y"]))).base_offset == 1


async def test_a_client_that_goes_away_frees_its_waiting_fetch(broker: EmbeddedCluster) -> None:
    before = asyncio.all_tasks()
    broker.create_topic("t")
    async with RawClient(broker.bootstrap_servers) as client:
        client.send(fetch_request("t", 0, max_wait_ms=60_000), 12)
        await until(lambda: len(broker.requests) == 1)
        assert len(asyncio.all_tasks()) > len(before)
    await until(lambda: asyncio.all_tasks() == before)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ConfigError, match="num_partitions=0"):
        EmbeddedCluster(num_partitions=0)
    with pytest.raises(ConfigError, match="start it first"):
        EmbeddedCluster().bootstrap_servers  # noqa: B018


async def test_waiting_for_records_has_a_limit(broker: EmbeddedCluster) -> None:
    broker.create_topic("t")
    with pytest.raises(KafkaTimeoutError, match="0 of 1 records"):
        await broker.wait_for_records("t", 1, timeout_seconds=0.05)
