"""A member of a share group in a process of its own, which writes a ledger of what it did.
Arguments: the servers, the topic, the group, the ledger's file and the most records of a call.

Each line of the ledger is ``got PARTITION OFFSET COUNT TIME CLIENT`` before a record is
acknowledged, or ``sure ...`` after the broker has confirmed that it was accepted. The clock is that
of all processes. ``java/ShareMember.java`` does the same by Java's client.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import Iterable

from aioprod import AcknowledgeType, ShareConsumer, ShareRecord


class Ledger:
    """Appends lines; what was written survives a kill of the process.

    Args:
        client: the name of the client in it.
    """

    def __init__(self, path: str, client: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._client = client

    def write(self, kind: str, deliveries: Iterable[tuple[int, int, int]]) -> None:
        """Note partition, offset and delivery count of records."""
        now = time.monotonic_ns()
        lines = [
            f"{kind} {partition} {offset} {count} {now} {self._client}\n"
            for partition, offset, count in deliveries
        ]
        os.write(self._file, "".join(lines).encode())


def delivery_of(record: ShareRecord) -> tuple[int, int, int]:
    return record.partition, record.offset, record.delivery_count


async def work(servers: str, topic: str, group: str, path: str, max_poll_records: str) -> None:
    ledger = Ledger(path, "aioprod")
    rng = random.Random()
    async with ShareConsumer(
        servers,
        group_id=group,
        topics=[topic],
        share_acknowledgement_mode="explicit",
        share_acquire_mode="record_limit",
        max_poll_records=int(max_poll_records),
        fetch_max_wait_ms=50,
    ) as consumer:
        while True:
            records = await consumer.getmany()
            ledger.write("got", map(delivery_of, records))
            accepted = []
            for record in records:
                if rng.random() < 0.1:
                    consumer.acknowledge(record, AcknowledgeType.RELEASE)
                else:
                    consumer.acknowledge(record)
                    accepted.append(record)
            outcomes = await consumer.commit()
            if set(outcomes.values()) == {None}:
                ledger.write("sure", map(delivery_of, accepted))


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:6]))
