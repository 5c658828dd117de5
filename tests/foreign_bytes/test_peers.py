"""aioprod reads everything that aiokafka, kafka-python or librdkafka reads from a real broker."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from aioprod import Consumer, TopicPartition
from tests.foreign_bytes.batches import VALUES, batch_of
from tests.foreign_bytes.corpus import CORPUS
from tests.foreign_bytes.odd_records import ODD
from tests.foreign_bytes.peer_program import CLIENTS
from tests.foreign_bytes.test_acceptance import new_topic
from tests.testing.raw_client import RawClient

pytestmark = [pytest.mark.strangers, pytest.mark.kafka, pytest.mark.timeout(900)]
_PROGRAM = Path(__file__).with_name("peer_program.py")
_LIMIT_S = 20
_AT_ONCE = 4


async def by_peer(client: str, servers: str, topic: str, count: int) -> list[bytes | None] | str:
    """Return the values, or why there are none."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(_PROGRAM), client, servers, topic, str(count)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_LIMIT_S):
            output, errors = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return "no end"
    if process.returncode:
        return (errors.decode().strip().splitlines() or [f"status {process.returncode}"])[-1]
    return [
        None if line == "null" else bytes.fromhex(line) for line in output.decode().split("\n")
    ][:-1]


async def ours(servers: str, topic: str, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    async with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        while len(found) < count:
            found += [each.value for each in await consumer.getmany(timeout_ms=5_000)]
    return found


@pytest.mark.parametrize("client", CLIENTS)
async def test_all_that_a_peer_reads(kafka: str, client: str) -> None:
    batches = {str(each): (batch_of(each), list[Any](VALUES)) for each in CORPUS}
    for odd in ODD:
        batches[str(odd)] = odd.data, [value for _, _, _, value, _ in odd.rows or ()]
    unread: dict[str, str] = {}
    turns = asyncio.Semaphore(_AT_ONCE)

    async def compare(name: str, topic: str, expected: list[bytes | None]) -> None:
        async with turns:
            assert await ours(kafka, topic, len(expected)) == expected, name
            found = await by_peer(client, kafka, topic, len(expected))
        if isinstance(found, str):
            unread[name] = found
        elif found != expected:
            unread[name] = f"{len(found)} of {len(expected)} records"

    async with RawClient(kafka) as raw, asyncio.TaskGroup() as tasks:
        for name, (data, expected) in batches.items():
            topic = await new_topic(kafka)
            if not (await raw.produce(topic, data)).error_code:
                tasks.create_task(compare(name, topic, expected))
    print(f"{client} does not read {len(unread)} of {len(batches)}:")
    for name, why in sorted(unread.items()):
        print(f"  {name}: {why[:100]}")
