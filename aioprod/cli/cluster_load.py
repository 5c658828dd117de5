"""What ``aioprod top`` shows: groups, their lag, and the throughput between two samples."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from aioprod.admin import Admin, GroupDescription, Results
    from aioprod.types import TopicPartition

K = TypeVar("K")
V = TypeVar("V")

_MAX_CONCURRENT = 32


class Sample(NamedTuple):
    """A cluster at one moment.

    Attributes:
        taken_at: loop time.
        cluster_id, brokers: its id, and the number of running brokers.
        groups: the consumer groups.
        committed: the committed offsets of each group.
        ends: the offset of the next record of each partition; partitions without a leader are left
            out.
    """

    taken_at: float
    cluster_id: str | None
    brokers: int
    groups: Mapping[str, GroupDescription]
    committed: Mapping[str, Mapping[TopicPartition, int]]
    ends: Mapping[TopicPartition, int]


class PartitionLoad(NamedTuple):
    """The progress of a group in a partition; None if unknown.

    Attributes:
        client_id: the member that has the partition.
    """

    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    client_id: str | None


class GroupLoad(NamedTuple):
    """A group between two samples.

    Attributes:
        lag: of all partitions with a committed offset.
        consumed_per_s: by committed offsets.
        catches_up_in_s: at these speeds; None if its lag does not become smaller.
    """

    group: str
    type: str
    state: str
    members: int
    lag: int
    consumed_per_s: float
    catches_up_in_s: float | None
    partitions: tuple[PartitionLoad, ...]


class TopicLoad(NamedTuple):
    """A topic between two samples."""

    topic: str
    partitions: int
    written_per_s: float


class ClusterLoad(NamedTuple):
    """A cluster between two samples; groups by lag and topics by throughput, the largest first."""

    cluster_id: str | None
    brokers: int
    interval_s: float
    groups: tuple[GroupLoad, ...]
    topics: tuple[TopicLoad, ...]


async def take(admin: Admin, groups: Collection[str], topics: Collection[str]) -> Sample:
    """Ask the cluster.

    Args:
        groups, topics: only these; all if empty.

    Raises:
        KafkaError: if it does not answer.
    """
    from aioprod.admin import OffsetSpec

    cluster, listed, names = await asyncio.gather(
        admin.describe_cluster(), admin.list_groups(), admin.list_topics()
    )
    wanted = [
        each.group_id
        for each in listed.values()
        if each.protocol_type in ("consumer", "") and each.type != "share"
        if not groups or each.group_id in groups
    ]
    described, found = await asyncio.gather(
        admin.describe_consumer_groups(wanted),
        admin.describe_topics([name for name in names if not topics or name in topics]),
    )
    present = _found(described)
    committed = await _committed(admin, list(present))
    partitions = {
        _partition(topic.name, each.partition)
        for topic in _found(found).values()
        for each in topic.partitions
    }
    if not topics:
        partitions |= {tp for of_group in committed.values() for tp in of_group}
    ends = await admin.list_offsets(dict.fromkeys(sorted(partitions), OffsetSpec.LATEST))
    return Sample(
        asyncio.get_running_loop().time(),
        cluster.cluster_id,
        len(cluster.nodes),
        present,
        committed,
        {tp: end.offset for tp, end in _found(ends).items()},
    )


def _found(results: Results[K, V]) -> dict[K, V]:
    """Return what there is: a topic or group may have been deleted meanwhile, or have no leader or
    coordinator, or need an authorization.
    """
    failed = results.errors
    return {item: results[item] for item in results if item not in failed}


async def _committed(admin: Admin, groups: list[str]) -> dict[str, dict[TopicPartition, int]]:
    admitted = asyncio.Semaphore(_MAX_CONCURRENT)

    async def of(group: str) -> dict[TopicPartition, int]:
        async with admitted:
            offsets = await admin.list_consumer_group_offsets(group)
        return {tp: at.offset for tp, at in offsets.items() if at is not None}

    return dict(zip(groups, await asyncio.gather(*map(of, groups)), strict=True))


def compare(before: Sample, after: Sample) -> ClusterLoad:
    """Return what happened between two samples."""
    seconds = max(after.taken_at - before.taken_at, 1e-9)
    written: defaultdict[str, float] = defaultdict(float)
    counts: defaultdict[str, int] = defaultdict(int)
    speeds: dict[TopicPartition, float] = {}
    for tp, end in after.ends.items():
        speeds[tp] = max(end - before.ends.get(tp, end), 0) / seconds
        written[tp.topic] += speeds[tp]
        counts[tp.topic] += 1
    topics = [TopicLoad(topic, counts[topic], speed) for topic, speed in written.items()]
    loads = [
        _group_load(
            group,
            before.committed.get(name, {}),
            after.committed[name],
            after.ends,
            speeds,
            seconds,
        )
        for name, group in after.groups.items()
    ]
    return ClusterLoad(
        after.cluster_id,
        after.brokers,
        seconds,
        tuple(sorted(loads, key=lambda each: (-each.lag, each.group))),
        tuple(sorted(topics, key=lambda each: (-each.written_per_s, each.topic))),
    )


def _group_load(
    group: GroupDescription,
    before: Mapping[TopicPartition, int],
    after: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    speeds: Mapping[TopicPartition, float],
    seconds: float,
) -> GroupLoad:
    readers = {tp: member.client_id for member in group.members for tp in member.assignment}
    partitions = []
    consumed = written = 0.0
    for tp in sorted({*after, *(tp for tp in readers if tp in ends)}):
        at, end = after.get(tp), ends.get(tp)
        lag = None if at is None or end is None else max(end - at, 0)
        partitions.append(PartitionLoad(*tp, at, end, lag, readers.get(tp)))
        if at is not None:
            consumed += max(at - before.get(tp, at), 0) / seconds
            written += speeds.get(tp, 0.0)
    lag = sum(each.lag or 0 for each in partitions)
    gain = consumed - written
    catches_up_in_s = 0.0 if not lag else lag / gain if gain > 0 else None
    members = len(group.members)
    return GroupLoad(
        group.group_id,
        group.type,
        group.state,
        members,
        lag,
        consumed,
        catches_up_in_s,
        tuple(partitions),
    )


def _partition(topic: str, number: int) -> TopicPartition:
    from aioprod.types import TopicPartition

    return TopicPartition(topic, number)
