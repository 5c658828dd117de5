"""Java's own assignors and Java's own bytes, compared with ours."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from aioprod.consumer.group.assignors import (
    Assignor,
    MemberSubscription,
    RangeAssignor,
    RoundRobinAssignor,
)
from aioprod.consumer.group.assignors.sticky import StickyAssignor, decode_previous, encode_previous
from aioprod.protocol.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from aioprod.types import TopicPartition
from tests.testing.java_client import JavaClients, java_clients

pytestmark = pytest.mark.kafka

CONSUMER = "org.apache.kafka.clients.consumer"
TOPICS = ["a", "b", "c", "d"]


@pytest.fixture(scope="module")
def java() -> Iterator[JavaClients]:
    with java_clients() as running:
        yield running


def of(java: JavaClients, name: str) -> Any:
    """A class of Java's consumer."""
    found = java.jvm
    for part in f"{CONSUMER}.{name}".split("."):
        found = getattr(found, part)
    return found


def java_list(java: JavaClients, items: list[Any]) -> Any:
    made = java.jvm.java.util.ArrayList()
    for item in items:
        made.add(item)
    return made


def java_subscription(
    java: JavaClients, subscription: Subscription, instance: str | None = None
) -> Any:
    optional = java.jvm.java.util.Optional
    made = of(java, "ConsumerPartitionAssignor.Subscription")(
        java_list(java, list(subscription.topics)),
        None
        if subscription.user_data is None
        else java.jvm.java.nio.ByteBuffer.wrap(subscription.user_data),
        java_list(java, [java.partition(*tp) for tp in subscription.owned]),
        subscription.generation,
        optional.ofNullable(subscription.rack),
    )
    made.setGroupInstanceId(optional.ofNullable(instance))
    return made


def java_assignment(
    java: JavaClients, assignor: Any, counts: dict[str, int], members: list[MemberSubscription]
) -> dict[str, list[TopicPartition]]:
    subscriptions = java.jvm.java.util.HashMap()
    for each in members:
        subscription = Subscription(each.topics, each.user_data, each.owned, each.generation)
        subscriptions.put(
            each.member_id, java_subscription(java, subscription, each.group_instance_id)
        )
    partitions = java.jvm.java.util.HashMap()
    for topic, count in counts.items():
        partitions.put(topic, count)
    result = assignor.assign(partitions, subscriptions)
    return {
        member_id: sorted(TopicPartition(tp.topic(), tp.partition()) for tp in result[member_id])
        for member_id in result
    }


def random_group(rng: random.Random) -> tuple[dict[str, int], list[MemberSubscription]]:
    counts = {topic: rng.randint(1, 6) for topic in rng.sample(TOPICS, rng.randint(1, 4))}
    members = [
        MemberSubscription(
            f"{rng.choice('zyxé')}{number}",
            tuple(rng.sample(TOPICS, rng.randint(1, 4))),
            rng.choice([None, None, f"i{rng.randint(10, 99)}{number}"]),
        )
        for number in range(rng.randint(1, 6))
    ]
    return counts, members


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(RangeAssignor(), "RangeAssignor"), (RoundRobinAssignor(), "RoundRobinAssignor")],
)
def test_same_results(java: JavaClients, ours: Assignor, theirs: str) -> None:
    for seed in range(60):
        counts, members = random_group(random.Random(seed))
        expected = java_assignment(java, of(java, theirs)(), counts, members)
        assert {
            name: sorted(partitions) for name, partitions in ours.assign(counts, members).items()
        } == expected, seed


def test_sticky_loads_and_kept_partitions_are_as_good_as_javas(java: JavaClients) -> None:
    """If all read the same topics, each member gets as many partitions as in Java, and keeps as
    many.
    """
    for seed in range(40):
        rng = random.Random(seed)
        counts, members = random_group(rng)
        had = of(java, "StickyAssignor")()
        first = [
            MemberSubscription(each.member_id, tuple(counts), each.group_instance_id)
            for each in members
        ]
        before = java_assignment(java, had, counts, first)
        left = [*first[rng.randint(0, len(first) - 1) :], MemberSubscription("new", tuple(counts))]
        again = [
            replace(each, user_data=encode_previous(before.get(each.member_id, []), 3))
            for each in left
        ]
        theirs = java_assignment(java, of(java, "StickyAssignor")(), counts, again)
        ours = StickyAssignor().assign(counts, again)
        assert sorted(map(len, ours.values())) == sorted(map(len, theirs.values())), seed
        kept = [
            sum(len(set(before.get(name, [])) & set(result[name])) for name in result)
            for result in (ours, theirs)
        ]
        assert kept[0] >= kept[1], (seed, kept)


def test_java_reads_our_bytes_and_writes_the_same(java: JavaClients) -> None:
    protocol = of(java, "internals.ConsumerProtocol")
    wrap = java.jvm.java.nio.ByteBuffer.wrap
    for subscription in (
        Subscription(("t",)),
        Subscription(
            ("a", "t"),
            b"user",
            (TopicPartition("a", 1), TopicPartition("t", 0), TopicPartition("t", 3)),
            9,
            "rack",
        ),
    ):
        theirs = bytes(
            protocol.serializeSubscription(java_subscription(java, subscription)).array()
        )
        assert encode_subscription(subscription) == theirs
        assert decode_subscription(theirs) == subscription
        read = protocol.deserializeSubscription(wrap(encode_subscription(subscription)))
        assert (list(read.topics()), read.generationId().orElse(-1)) == (
            list(subscription.topics),
            subscription.generation,
        )
        assert [(tp.topic(), tp.partition()) for tp in read.ownedPartitions()] == list(
            subscription.owned
        )
    assignment = Assignment((TopicPartition("a", 1), TopicPartition("t", 0)), b"x")
    made = of(java, "ConsumerPartitionAssignor.Assignment")(
        java_list(java, [java.partition(*tp) for tp in assignment.partitions]), wrap(b"x")
    )
    assert bytes(protocol.serializeAssignment(made).array()) == encode_assignment(assignment)
    assert decode_assignment(encode_assignment(assignment)) == assignment


def test_sticky_user_data_is_javas(java: JavaClients) -> None:
    theirs = of(java, "StickyAssignor")()
    places = java_list(
        java, [java.partition("t", 0), java.partition("t", 2), java.partition("u", 1)]
    )
    given = of(java, "ConsumerPartitionAssignor.Assignment")(places)
    theirs.onAssignment(
        given, of(java, "ConsumerGroupMetadata")("g", 7, "m", java.jvm.java.util.Optional.empty())
    )
    data = bytes(theirs.subscriptionUserData(java.jvm.java.util.HashSet()).array())
    partitions = (TopicPartition("t", 0), TopicPartition("t", 2), TopicPartition("u", 1))
    assert decode_previous(data) == (partitions, 7)
    ours = encode_previous(partitions, 7)
    # Java orders the topics as its HashMap does, so the bytes may differ.
    assert (len(ours), decode_previous(ours)) == (len(data), (partitions, 7))
