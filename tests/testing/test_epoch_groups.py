"""Groups of the consumer protocol (KIP-848) as a state machine, and their assignors: no partition
has two owners, and everything is assigned in the end.
"""

from __future__ import annotations

import random
import uuid
from itertools import combinations

import pytest

from aioprod import BrokerError, ErrorCode
from aioprod.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from aioprod.testing.broker.epoch_groups.assignors import (
    Subscriber,
    Targets,
    assign_range,
    assign_uniform,
)
from aioprod.testing.broker.epoch_groups.checks import compile_pattern
from aioprod.testing.broker.epoch_groups.group import EpochGroup
from aioprod.testing.broker.epoch_groups.member import NO_PARTITIONS, Partitions
from aioprod.testing.broker.epoch_groups.modern import EpochGroupState, TopicInfo
from aioprod.testing.broker.groups.member import Caller
from aioprod.testing.broker.groups.settings import GroupSettings
from aioprod.testing.broker.share_groups.group import ShareGroup

IDS = [uuid.UUID(int=number) for number in range(1, 5)]
SETTINGS = GroupSettings(consumer_session_timeout_ms=10_000)
CALLER = Caller("client", "/127.0.0.1", 1)


class Client:
    """A member that does what it is reported, some time later.

    Attributes:
        owned: the partitions that it reads.
        wanted: its last assignment.
    """

    def __init__(self, group: EpochGroup, name: str) -> None:
        self.group = group
        self.name = name
        self.epoch = 0
        self.owned = self.wanted = NO_PARTITIONS
        self.topics = ["a"]
        self.joined = False

    def beat(self, topics: dict[str, TopicInfo], now: float, *, says: bool = True) -> None:
        """Send a heartbeat; ``says`` that it names its partitions."""
        request = ConsumerGroupHeartbeatRequest("g", self.name, self.epoch)
        if not self.joined or says:
            request.topic_partitions = [
                TopicPartitions(topic, [n for each, n in self.owned if each == topic])
                for topic in {topic for topic, _ in self.owned}
            ]
        if not self.joined:
            request.rebalance_timeout_ms = 5_000
            request.subscribed_topic_names = self.topics
        try:
            beat = self.group.heartbeat(request, "", CALLER, topics, SETTINGS, now)
        except BrokerError as error:
            assert error.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
            self.__init__(self.group, self.name)  # type: ignore[misc]
            return
        self.joined, self.epoch = True, beat.epoch
        if beat.assignment is not None:
            self.wanted = beat.assignment

    def follow(self) -> None:
        """Give up partitions, or take new ones."""
        gives_up = self.owned - self.wanted
        self.owned = self.owned & self.wanted if gives_up else self.wanted


@pytest.mark.parametrize("seed", range(200))
def test_no_partition_has_two_owners_and_all_have_one_in_the_end(seed: int) -> None:
    rng = random.Random(seed)
    topics = {"a": TopicInfo(IDS[0], 5), "b": TopicInfo(IDS[1], rng.randrange(1, 4))}
    group = EpochGroup("g")
    clients = [Client(group, f"m{number}") for number in range(rng.randrange(1, 5))]
    now = 0.0
    for _ in range(300):
        now += rng.expovariate(2)
        client = rng.choice(clients)
        match rng.randrange(20):
            case 0:
                topics["b"] = TopicInfo(IDS[1], topics["b"].partition_count + 1)
            case 1 if client.joined and client.name in group.members:
                group.leave(ConsumerGroupHeartbeatRequest("g", client.name, -1))
                client.__init__(group, client.name)  # type: ignore[misc]
            case 2:
                client.topics, client.joined, client.epoch = rng.choice([["a"], ["a", "b"]]), *_NEW
                client.owned = NO_PARTITIONS
            case 3 | 4 | 5 | 6:
                client.follow()
            case _:
                client.beat(topics, now, says=rng.random() < 0.7)
        group.expire(now)
        for each in clients:
            if each.name not in group.members:
                each.owned = NO_PARTITIONS  # its session has expired, which it knows by its clock
        check_owners(clients, group)
    for _ in range(10):
        for client in clients:
            now += 0.01
            client.beat(topics, now)
            client.follow()
            check_owners(clients, group)
    assert group.state is EpochGroupState.STABLE
    read = {topic for client in clients for topic in client.topics}
    expected = {(topics[name].topic_id, n) for name in read for n in _numbers(topics[name])}
    assert frozenset[tuple[uuid.UUID, int]]().union(*(each.owned for each in clients)) == expected


_NEW = False, 0


def _numbers(topic: TopicInfo) -> range:
    return range(topic.partition_count)


def check_owners(clients: list[Client], group: EpochGroup) -> None:
    for one, other in combinations(clients, 2):
        assert not one.owned & other.owned, (one.name, other.name)
    for mine, theirs in combinations(group.members.values(), 2):
        assert not mine.reserved & theirs.reserved, (mine, theirs)


@pytest.mark.parametrize("kind", [EpochGroup, ShareGroup])
def test_a_group_without_members_has_nothing_to_assign_again(
    kind: type[EpochGroup] | type[ShareGroup],
) -> None:
    group = kind("g")
    with pytest.raises(BrokerError, match="'g' has no members"):
        group.assign_again()
    assert group.epoch == kind("g").epoch


# -- assignors -------------------------------------------------------------------------------------


def subscribers(rng: random.Random, targets: Targets, count: int) -> list[Subscriber]:
    return [
        Subscriber(
            f"m{number}",
            None,
            frozenset(rng.sample(IDS, rng.randrange(len(IDS) + 1))),
            targets.get(f"m{number}", NO_PARTITIONS),
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("assign", [assign_range, assign_uniform])
@pytest.mark.parametrize("seed", range(50))
def test_each_partition_has_one_owner_who_subscribes(assign: object, seed: int) -> None:
    rng = random.Random(seed)
    counts = {topic: rng.randrange(6) for topic in IDS}
    targets: Targets = {}
    for _ in range(5):
        members = subscribers(rng, targets, rng.randrange(1, 6))
        assert callable(assign)
        targets = assign(members, counts)
        given = [place for places in targets.values() for place in places]
        assert len(given) == len(set(given))
        read = {topic for each in members for topic in each.topics}
        assert set(given) == {(topic, n) for topic in read for n in range(counts[topic])}
        for each in members:
            assert {topic for topic, _ in targets[each.member_id]} <= each.topics


@pytest.mark.parametrize("seed", range(50))
def test_uniform_is_balanced_and_moves_no_more_than_it_must(seed: int) -> None:
    rng = random.Random(seed)
    counts = {topic: rng.randrange(1, 6) for topic in IDS}
    targets: Targets = {}
    total = sum(counts.values())
    for count in [rng.randrange(1, 7) for _ in range(6)]:
        members = [
            Subscriber(f"m{n}", None, frozenset(IDS), targets.get(f"m{n}", NO_PARTITIONS))
            for n in range(count)
        ]
        before, targets = targets, assign_uniform(members, counts)
        sizes = [len(places) for places in targets.values()]
        assert max(sizes) - min(sizes) <= 1
        kept = sum(len(before.get(name, NO_PARTITIONS) & targets[name]) for name in targets)
        assert kept >= most_that_can_stay([before.get(name, NO_PARTITIONS) for name in targets])
        assert sum(sizes) == total


def most_that_can_stay(present: list[Partitions]) -> int:
    """A lower bound: each member keeps up to the smaller quota."""
    quota = 0 if not present else sum(map(len, present)) // len(present)
    return sum(min(len(places), quota) for places in present)


def test_range_is_in_the_order_of_instances_then_of_member_ids() -> None:
    topic = IDS[0]
    members = [
        Subscriber(name, instance, frozenset([topic]), NO_PARTITIONS)
        for name, instance in (("a", None), ("z", "1"), ("b", None))
    ]
    targets = assign_range(members, {topic: 4})
    numbers = {name: sorted(n for _, n in places) for name, places in targets.items()}
    assert numbers == {"z": [0, 1], "a": [2], "b": [3]}


@pytest.mark.parametrize("text", ["(", "[", "(?=a)", "(?<!a)b", r"(a)\1", "(?P=x)", "(?>a)"])
def test_expressions_that_re2_does_not_know_are_refused(text: str) -> None:
    with pytest.raises(BrokerError) as caught:
        compile_pattern(text)
    assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize("text", ["a.*", r"\\1", r"\(?=a", "(?i)orders", "(?:a|b)", "(?P<x>a)"])
def test_expressions_of_re2_are_taken(text: str) -> None:
    assert compile_pattern(text)
