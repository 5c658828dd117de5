"""Runs a group member in a separate process. It commits regularly, and before revocations.

Its arguments are the topic and settings (name=value). It prints a line per event, as
GroupMember.java does, and leaves when its input ends.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby

from aioprod import Consumer, ConsumerRecord, TopicPartition
from aioprod.consumer.group.assignors.assignor import Assignor, MemberSubscription
from aioprod.consumer.group.assignors.cooperative import CooperativeStickyAssignor
from aioprod.consumer.group.assignors.sticky import StickyAssignor
from aioprod.consumer.rebalance_listener import RebalanceListener
from aioprod.errors import CommitFailedError, RebalanceInProgressError

COMMIT_INTERVAL_S = 0.15


def say(line: str) -> None:
    """The reader of this knows of a record before it can be committed."""
    print(line, flush=True)


class Cooperative(CooperativeStickyAssignor):
    """Shows when it shares out the partitions for all."""

    def assign(
        self, partitions_per_topic: Mapping[str, int], members: Sequence[MemberSubscription]
    ) -> dict[str, list[TopicPartition]]:
        say(f"leads {len(members)}")
        return super().assign(partitions_per_topic, members)


class Sticky(StickyAssignor):
    """The same with eager rebalances."""

    def assign(
        self, partitions_per_topic: Mapping[str, int], members: Sequence[MemberSubscription]
    ) -> dict[str, list[TopicPartition]]:
        say(f"leads {len(members)}")
        return super().assign(partitions_per_topic, members)


class Listener(RebalanceListener):
    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        report("assigned", partitions)

    async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        report("revoked", partitions)
        try:
            await self.consumer.commit()
        except (RebalanceInProgressError, CommitFailedError) as error:
            say(f"refused {error}")

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        report("lost", partitions)


def report(event: str, partitions: Collection[TopicPartition]) -> None:
    say(" ".join([event, *(str(tp.partition) for tp in partitions)]))


def process(records: Sequence[ConsumerRecord]) -> None:
    for partition, found in groupby(records, key=lambda record: record.partition):
        say(
            " ".join(
                [
                    f"read {partition}",
                    *(f"{record.offset}:{record.value.decode()}" for record in found),
                ]
            )
        )


async def run(topic: str, settings: dict[str, str]) -> None:
    loop = asyncio.get_running_loop()
    left = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), left.set)
    strategy: dict[str, Assignor] = {"cooperative-sticky": Cooperative(), "sticky": Sticky()}
    assignor = strategy.get(settings.pop("partition.assignment.strategy", ""))
    async with Consumer.from_config(
        {**settings, **({"partition.assignment.strategy": [assignor]} if assignor else {})}
    ) as consumer:
        consumer.subscribe([topic], listener=Listener(consumer))
        committed = loop.time()
        while not left.is_set():
            process(await consumer.getmany(timeout_ms=20))
            if loop.time() - committed > COMMIT_INTERVAL_S:
                committed = loop.time()
                try:
                    await consumer.commit()
                except RebalanceInProgressError:
                    pass  # what comes next ends it
                except CommitFailedError as error:
                    say(f"refused {error}")
    say("left")


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], dict(each.split("=", 1) for each in sys.argv[2:])))
