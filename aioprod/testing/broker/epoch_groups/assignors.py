"""The assignors of the broker. They distribute the partitions of all topics among the members that
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
    """The data of a member that assignors use.

    Attributes:
        instance_id: the id of a static member, which keeps its place if its member id changes.
        topics: the existing topics that it subscribes to.
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
    """Assign each member a range of each topic's partitions, in the order of instance ids, then of
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
    """Assign all members the same number of partitions, or numbers that differ by one, if
    subscriptions allow it. Each member keeps as many of its partitions as possible.
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
    """Return a partition whose move makes the numbers of two members more equal, if there is
    one.
    """
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
