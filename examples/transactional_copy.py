"""Copies a topic to another one, changing each record. Each record is written exactly once, even if
this program is killed.

python transactional_copy.py orders orders-in-capitals --instance 1
python transactional_copy.py orders orders-in-capitals --instance 2  # shares the partitions

The records written and the offsets read are committed in one transaction (KIP-447). Consumers with
isolation_level="read_committed" see either both or neither. Each process needs its own instance
name, and keeps it when it restarts: a restarted process with the same transactional id aborts the
transaction of the killed one, and its place in the group is still reserved.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence

from aioprod import (
    AbortableTransactionError,
    Consumer,
    ConsumerRecord,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
    connection_settings,
)

GROUP = "transactional-copy"


def transform(value: bytes) -> bytes:
    """Change one record."""
    return value.upper()


async def copy(source: str, target: str, instance: str, session_timeout_ms: int) -> None:
    """Copy until the program ends."""
    # The producer starts first, to abort the transaction of an earlier process of this instance
    # before the first record is read.
    async with Producer(
        **connection_settings(),
        transactional_id=f"{GROUP}-{instance}",
        transaction_timeout_ms=30_000,
    ) as producer:
        async with Consumer(
            source,
            **connection_settings(),
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
    """Write records and commit their offsets in one transaction."""
    try:
        async with producer.transaction():
            for record in records:
                await producer.send(target, transform(record.value), key=record.key)
            # Partitions are revoked only inside getmany: either this member still has them, or the
            # coordinator refuses the offsets.
            read = {
                TopicPartition(r.topic, r.partition): OffsetAndMetadata(
                    r.offset + 1, "", r.leader_epoch
                )
                for r in records
            }
            await producer.send_offsets_to_transaction(read, consumer.group_metadata())
    except AbortableTransactionError:
        # Nothing was written: read the same records again, unless another member now has their
        # partitions.
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
        help="a name for this process; processes that run at the same time need different names",
    )
    parser.add_argument("--session-timeout-ms", type=int, default=45_000)
    options = parser.parse_args()
    asyncio.run(
        copy(
            options.source,
            options.target,
            options.instance,
            options.session_timeout_ms,
        )
    )


if __name__ == "__main__":
    main()
