"""Clients use tansu's topics, records and classic groups. With its records in memory it has no
transactions; it does not support groups of KIP-848 and KIP-932.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from aioprod import Producer
from aioprod.errors import KafkaError, UnsupportedVersionError
from tests.strangers.tansu import running_tansu
from tests.strangers.test_releases import LIMIT_S, VALUES, new_topic, read


@pytest.fixture(scope="module")
def tansu() -> Iterator[str]:
    with running_tansu() as address:
        yield address


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True])
async def test_records(tansu: str, codec: Any, idempotent: bool) -> None:
    topic = await new_topic(tansu)
    async with asyncio.timeout(LIMIT_S):
        async with Producer(
            tansu, compression_type=codec, enable_idempotence=idempotent
        ) as producer:
            await (await producer.send_many(topic, VALUES)).wait()
        assert await read(topic, tansu) == sorted(VALUES)
        assert await read(topic, tansu, isolation_level="read_committed") == sorted(VALUES)


async def test_a_classic_group_continues_from_its_commit(tansu: str) -> None:
    topic, group = await new_topic(tansu), f"g{uuid.uuid4().hex[:8]}"
    async with asyncio.timeout(LIMIT_S), Producer(tansu) as producer:
        await (await producer.send_many(topic, VALUES)).wait()
        assert await read(topic, tansu, group_id=group) == sorted(VALUES)
        await producer.send_and_wait(topic, b"next")
        assert await read(topic, tansu, 1, group_id=group) == [b"next"]


async def test_what_it_does_not_offer_is_an_error_that_says_so(tansu: str) -> None:
    topic = await new_topic(tansu)
    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(UnsupportedVersionError, match="group_protocol"):
            await read(topic, tansu, group_id="g", group_protocol="consumer")
        with pytest.raises(KafkaError, match="EndTxn"):
            async with Producer(tansu, transactional_id="x") as producer:
                async with producer.transaction():
                    await producer.send(topic, b"v")
