"""A `ShareProcessor` in a process of its own, which writes the ledger that ``share_member.py``
describes: ``got`` when the handler begins with a record, ``sure`` when its acceptance is confirmed.

Records of which the handler fails are released, and at the second delivery sent to the topic
``TOPIC.dead``.
"""

from __future__ import annotations

import asyncio
import random
import sys
from typing import Any

from aioprod.processing import (
    Acknowledged,
    DeadLettered,
    ProcessorObserver,
    Record,
    RetryPolicy,
    ShareProcessor,
)
from tests.consumer.share.share_member import Ledger

_MOST_SECONDS_OF_HANDLER = 0.02


class Notes(ProcessorObserver):
    """Notes which acceptances are confirmed."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._done: dict[tuple[int, int], int] = {}  # the delivery count

    async def handle(self, record: Record[Any, Any]) -> None:
        """Fail with one of ten records."""
        place, count = (record.partition, record.offset), record.delivery_count
        self._ledger.write("got", [(*place, count)])
        await asyncio.sleep(random.uniform(0, _MOST_SECONDS_OF_HANDLER))
        if random.random() < 0.1:
            raise ValueError("not this time")
        self._done[place] = count

    def on_dead_letter(self, event: DeadLettered) -> None:
        self._done[event.record[1:3]] = 2

    def on_acknowledged(self, event: Acknowledged) -> None:
        places = [
            (tp.partition, offset) for tp, offsets in event.offsets.items() for offset in offsets
        ]
        done = [(*place, self._done.pop(place)) for place in places if place in self._done]
        if event.error is None and done:
            self._ledger.write("sure", done)


async def work(servers: str, topic: str, group: str, path: str, max_pending_records: str) -> None:
    notes = Notes(Ledger(path, "processor"))
    await ShareProcessor(
        notes.handle,
        topic,
        bootstrap_servers=servers,
        group_id=group,
        retry=RetryPolicy(attempts=1),
        dead_letter_topic=f"{topic}.dead",
        max_pending_records=int(max_pending_records),
        consumer={"fetch_max_wait_ms": 50},
        observers=[notes],
    ).run()


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:6]))
