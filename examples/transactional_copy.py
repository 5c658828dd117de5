"""Copies a topic to another one and changes each record. Each record is written exactly once,
even if this program is killed.

python transactional_copy.py orders orders-in-capitals --instance 1
python transactional_copy.py orders orders-in-capitals --instance 2  # shares the partitions

The records written and the offsets read are committed in one transaction (KIP-447). Consumers with
isolation_level="read_committed" see both or neither. Each process needs its own instance name, and
keeps it when it is restarted: its transactional id aborts the transaction of the killed process,
and its place in the group is still reserved.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Sequence

from aioprod import (
    AbortableTransactionError,
    Consumer,
    ConsumerRecord,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)

GROUP = "transactional-copy"


def transform(value: bytes) -> bytes:
    """Change one record."""
    return value.upper()


async def copy(
    servers: str, source: str, target: str, instance: str, session_timeout_ms: int
) -> None:
    """Copy until the program ends."""
    # The producer starts first: that aborts the transaction of an earlier process of this instance,
    # before the first record is read.
    async with Producer(
        servers, transactional_id=f"{GROUP}-{instance}", transaction_timeout_ms=30_000
    ) as producer:
        async with Consumer(
            source,
            bootstrap_servers=servers,
            group_id=GROUP,
            group_instance_id=instance,
            session_timeout_ms=session_timeout_ms,
            heartbeat_interval_ms=min(3_000, session_timeout_ms // 3),
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            while True:
                records = await consumer.getmany(timeout_ms=1_000)
                if records:
                    await copy_batch(producer, consumer, records, target)


async def copy_batch(
    producer: Producer, consumer: Consumer, records: Sequence[ConsumerRecord], target: str
) -> None:
    """Write records and commit their offsets, both or neither."""
    try:
        async with producer.transaction():
            for record in records:
                await producer.send(target, transform(record.value), key=record.key)
            # Partitions are revoked only inside getmany: this member still has these, or the
            # coordinator refuses the offsets.
            read = {
                TopicPartition(r.topic, r.partition): OffsetAndMetadata(
                    r.offset + 1, "", r.leader_epoch
                )
                for r in records
            }
            await producer.send_offsets_to_transaction(read, consumer.group_metadata())
    except AbortableTransactionError:
        # Nothing was written: read the same records again, unless another member has their
        # partitions now.
        for record in reversed(records):
            place = TopicPartition(record.topic, record.partition)
            if place in consumer.assignment():
                consumer.seek(place, record.offset)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Copy a topic to another one, each record exactly once."
    )
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument(
        "--instance",
        default="1",
        help="a name for this process; another one for each that runs at the same time",
    )
    parser.add_argument(
        "--bootstrap-servers", default=os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092")
    )
    parser.add_argument("--session-timeout-ms", type=int, default=45_000)
    options = parser.parse_args()
    asyncio.run(
        copy(
            options.bootstrap_servers,
            options.source,
            options.target,
            options.instance,
            options.session_timeout_ms,
        )
    )


if __name__ == "__main__":
    main()
