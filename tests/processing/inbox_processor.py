"""The processor of the inbox's tests, and its records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aioprod import Producer, ProducerRecord
from aioprod.processing import Processor
from aioprod.processing.inbox import Inbox
from aioprod.testing import EmbeddedCluster


async def fill(servers: str, numbers: range) -> None:
    """Send numbers to the two partitions of the topic in turn."""
    async with Producer(servers) as producer:
        records = [ProducerRecord("orders", b"%d" % n, partition=n % 2) for n in numbers]
        await (await producer.send_many("orders", records)).wait()


def inbox_processor(
    broker: EmbeddedCluster, inbox: Inbox, handle: Callable[[Any], Any], **more: Any
) -> Processor[Any, Any]:
    """Return a processor that handles each record exactly once in the inbox's database."""
    return Processor(
        handle,
        "orders",
        bootstrap_servers=broker.bootstrap_servers,
        group_id="g",
        order="partition",
        guarantee="exactly_once_in_database",
        inbox=inbox,
        **more,
    )
