"""A member of a consumer group that shuts down gracefully.

pip install aioprod
python consumer_group.py orders --group billing
python consumer_group.py orders --group billing  # in another terminal: shares the partitions

SIGTERM or Ctrl-C ends the program after the current batch: its offsets are committed, and the
member leaves the group, so that the other members take over its partitions at once. If the program
is killed instead, the batch is processed again (at least once).
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence

from aioprod import (
    BrokerConnectionError,
    CommitFailedError,
    Consumer,
    ConsumerRecord,
    WakeupError,
    connection_settings,
)


async def process(records: Sequence[ConsumerRecord]) -> None:
    """Do the application's work."""
    for record in records:
        print(record.partition, record.offset, record.value, flush=True)


async def consume(consumer: Consumer, stop: asyncio.Event) -> None:
    """Process and commit batches until `stop` is set."""
    while not stop.is_set():
        try:
            records = await consumer.getmany(max_records=500)
        except WakeupError:
            continue
        await process(records)
        await commit(consumer)


async def commit(consumer: Consumer) -> None:
    """Commit the positions, even during shutdown."""
    while True:
        try:
            return await consumer.commit()
        except WakeupError:
            continue
        except CommitFailedError:
            # Another member now has the partitions, and processes these records again.
            print("the group has rebalanced; continuing with the new partitions", file=sys.stderr)
            return None


async def run(topic: str, group: str) -> None:
    """Consume until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    consumer = Consumer(
        topic,
        group_id=group,
        **connection_settings(),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )

    def shut_down() -> None:
        stop.set()
        consumer.wakeup()  # ends the waiting getmany

    async with consumer:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, shut_down)
        await consume(consumer, stop)


def main() -> None:
    parser = argparse.ArgumentParser(description="Process the records of a topic in a group.")
    parser.add_argument("topic")
    parser.add_argument("--group", default="example")
    options = parser.parse_args()
    try:
        asyncio.run(run(options.topic, options.group))
    except BrokerConnectionError as error:
        sys.exit(f"{error}\nStart a broker for tests with: aioprod broker")


if __name__ == "__main__":
    main()
