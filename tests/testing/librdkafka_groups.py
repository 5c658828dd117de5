"""Runs members of groups by librdkafka."""

from __future__ import annotations

from aioprod import Admin, TopicPartition


async def commit_beginnings(bootstrap: str, group_id: str, topic: str, partitions: int) -> None:
    """Commit the beginnings of a topic before the first member joins, so that librdkafka need not
    look them up: it reads a partition again if a rebalance begins during that
    (tests/interop/test_librdkafka_look_up.py).
    """
    beginnings = {TopicPartition(topic, number): 0 for number in range(partitions)}
    async with Admin(bootstrap) as admin:
        (await admin.alter_consumer_group_offsets(group_id, beginnings)).check()
