"""The data that ``aioprod top`` shows: groups, their lag, and the throughput between two
samples.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from aioprod.admin import (
        Admin,
        GroupDescription,
        Results,
        ShareGroupDescription,
        ShareGroupOffset,
    )
    from aioprod.types import TopicPartition

K = TypeVar("K")
V = TypeVar("V")

_MAX_CONCURRENT = 32


class Sample(NamedTuple):
    """A cluster at one moment.

    Attributes:
        taken_at: loop time.
        cluster_id, brokers: its id, and the number of running brokers.
        groups: the consumer and share groups.
        committed: the committed offsets of each group; of a share group its start offsets.
        lags: of share groups, whose records are not processed in order; a partition is left out if
            the broker does not report its lag.
        ends: the offset of the next record of each partition; partitions without a leader are left
            out.
    """

    taken_at: float
    cluster_id: str | None
    brokers: int
    groups: Mapping[str, GroupDescription | ShareGroupDescription]
    committed: Mapping[str, Mapping[TopicPartition, int]]
    lags: Mapping[str, Mapping[TopicPartition, int]]
    ends: Mapping[TopicPartition, int]

    def done(self, group: str) -> Mapping[TopicPartition, int]:
        """Return a group's position in each partition; of a share group, the end minus its lag."""
        if group not in self.lags:
            return self.committed.get(group, {})
        return {tp: self.ends[tp] - lag for tp, lag in self.lags[group].items() if tp in self.ends}


class PartitionLoad(NamedTuple):
    """The progress of a group in a partition; None if unknown.

    Attributes:
        client_id: the member that has the partition; of a share group all that have it.
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
        lag: the sum over all partitions with a committed offset.
        consumed_per_s: from the committed offsets; of a share group, from its lag.
        catches_up_in_s: at the measured speeds; None if the lag does not become smaller.
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
    """Take a sample of the cluster.

    Args:
        groups, topics: limit the sample to these; all if empty.

    Raises:
        KafkaError: if the cluster does not answer.
    """
    from aioprod.admin import OffsetSpec

    cluster, listed, names = await asyncio.gather(
        admin.describe_cluster(), admin.list_groups(), admin.list_topics()
    )
    chosen = [each for each in listed.values() if not groups or each.group_id in groups]
    shared = [each.group_id for each in chosen if each.type == "share"]
    wanted = [
        each.group_id
        for each in chosen
        if each.protocol_type in ("consumer", "") and each.type != "share"
    ]
    described, described_shared, found = await asyncio.gather(
        admin.describe_consumer_groups(wanted),
        admin.describe_share_groups(shared),
        admin.describe_topics([name for name in names if not topics or name in topics]),
    )
    consumers, sharing = _found(described), _found(described_shared)
    committed = await _of_groups(consumers, partial(_committed, admin))
    offsets = await _of_groups(sharing, partial(_share_offsets, admin))
    for name, its in offsets.items():
        committed[name] = {tp: at.start_offset for tp, at in its.items()}
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
        {**consumers, **sharing},
        committed,
        {
            name: {tp: at.lag for tp, at in its.items() if at.lag is not None}
            for name, its in offsets.items()
        },
        {tp: end.offset for tp, end in _found(ends).items()},
    )


def _found(results: Results[K, V]) -> dict[K, V]:
    """Return the successful results. A topic or group may have been deleted meanwhile, have no
    leader or coordinator, or require an authorization.
    """
    failed = results.errors
    return {item: results[item] for item in results if item not in failed}


async def _committed(admin: Admin, group: str) -> dict[TopicPartition, int]:
    offsets = _found(await admin.list_consumer_group_offsets(group))
    return {tp: at.offset for tp, at in offsets.items() if at is not None}


async def _share_offsets(admin: Admin, group: str) -> dict[TopicPartition, ShareGroupOffset]:
    offsets = _found(await admin.list_share_group_offsets(group))
    return {tp: at for tp, at in offsets.items() if at is not None}


async def _of_groups(groups: Iterable[str], ask: Callable[[str], Awaitable[V]]) -> dict[str, V]:
    admitted = asyncio.Semaphore(_MAX_CONCURRENT)

    async def of(group: str) -> V:
        async with admitted:
            return await ask(group)

    names = list(groups)
    return dict(zip(names, await asyncio.gather(*map(of, names)), strict=True))


def compare(before: Sample, after: Sample) -> ClusterLoad:
    """Return the changes between two samples."""
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
            before.done(name),
            after.done(name),
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
    group: GroupDescription | ShareGroupDescription,
    before: Mapping[TopicPartition, int],
    after: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    speeds: Mapping[TopicPartition, float],
    seconds: float,
) -> GroupLoad:
    readers: defaultdict[TopicPartition, list[str]] = defaultdict(list)
    for member in group.members:
        for tp in member.assignment:
            readers[tp].append(member.client_id)
    partitions = []
    consumed = written = 0.0
    for tp in sorted({*committed, *(tp for tp in readers if tp in ends)}):
        at, end = after.get(tp), ends.get(tp)
        lag = None if at is None or end is None else max(end - at, 0)
        clients = ", ".join(sorted(readers[tp])) if tp in readers else None
        partitions.append(PartitionLoad(*tp, committed.get(tp), end, lag, clients))
        if at is not None:
            consumed += max(at - before.get(tp, at), 0) / seconds
            written += speeds.get(tp, 0.0)
    lag = sum(each.lag or 0 for each in partitions)
    gain = consumed - written
    # Less than a record is a rounding error, and would be centuries.
    catches_up_in_s = 0.0 if not lag else lag / gain if gain * seconds > 0.5 else None
    members = len(group.members)
    return GroupLoad(
        group.group_id,
        getattr(group, "type", "share"),
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
