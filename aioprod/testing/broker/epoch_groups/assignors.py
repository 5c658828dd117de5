"""The assignors of the broker: they divide the partitions of all topics between the members that
subscribe to them. Both are deterministic.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aioprod.testing.broker.epoch_groups.member import NO_PARTITIONS, Partitions, TopicIdPartition


@dataclass(frozen=True, slots=True)
class Subscriber:
    """What an assignor knows of a member.

    Attributes:
        instance_id: of a static member, which keeps its place if its member id changes.
        topics: the topics that it subscribes to and that exist.
        target: its partitions in the previous assignment.
    """

    member_id: str
    instance_id: str | None
    topics: frozenset[uuid.UUID]
    target: Partitions


Counts = Mapping[uuid.UUID, int]
Targets = dict[str, Partitions]
Assignor = Callable[[list[Subscriber], Counts], Targets]


def assign_range(subscribers: list[Subscriber], counts: Counts) -> Targets:
    """Give each member a range of each topic's partitions, in the order of instance ids, then of
    member ids.
    """
    targets: dict[str, set[TopicIdPartition]] = {each.member_id: set() for each in subscribers}
    in_order = sorted(
        subscribers,
        key=lambda each: (
            (0, each.instance_id) if each.instance_id is not None else (1, each.member_id)
        ),
    )
    for topic, count in counts.items():
        members = [each.member_id for each in in_order if topic in each.topics]
        if not members:
            continue
        size, larger = divmod(count, len(members))
        first = 0
        for index, member_id in enumerate(members):
            last = first + size + (index < larger)
            targets[member_id].update((topic, number) for number in range(first, last))
            first = last
    return _frozen(targets)


def assign_uniform(subscribers: list[Subscriber], counts: Counts) -> Targets:
    """Give all members numbers of partitions that differ by one at most, as far as their
    subscriptions allow, and let each keep as many of its partitions as that allows.
    """
    targets: dict[str, set[TopicIdPartition]] = {each.member_id: set() for each in subscribers}
    members: dict[uuid.UUID, list[str]] = defaultdict(list)
    left = {(topic, number) for topic, count in counts.items() for number in range(count)}
    for each in sorted(subscribers, key=lambda each: each.member_id):
        for topic in each.topics:
            members[topic].append(each.member_id)
        kept = {place for place in each.target & left if place[0] in each.topics}
        targets[each.member_id] = kept
        left -= kept
    for place in sorted(left):
        candidates = members[place[0]]
        if candidates:
            targets[min(candidates, key=lambda name: len(targets[name]))].add(place)
    while move := _find_move(targets, members):
        place, giver, taker = move
        targets[giver].remove(place)
        targets[taker].add(place)
    return _frozen(targets)


def _find_move(
    targets: dict[str, set[TopicIdPartition]], members: Mapping[uuid.UUID, list[str]]
) -> tuple[TopicIdPartition, str, str] | None:
    """Return a partition whose move makes two members more equal, if there is one."""
    for giver in sorted(targets, key=lambda name: -len(targets[name])):
        for place in sorted(targets[giver], reverse=True):
            taker = min(members[place[0]], key=lambda name: len(targets[name]))
            if len(targets[taker]) + 1 < len(targets[giver]):
                return place, giver, taker
    return None


def _frozen(targets: Mapping[str, set[TopicIdPartition]]) -> Targets:
    return {
        member_id: frozenset(places) if places else NO_PARTITIONS
        for member_id, places in targets.items()
    }


# The default comes first, as in group.consumer.assignors.
ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
