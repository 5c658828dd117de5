"""Shares are equal, a member that need not lose a partition keeps it, and no partition has two
readers, even in the middle of a move.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioprod.consumer.group.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    MemberSubscription,
    RangeAssignor,
    RebalanceProtocol,
    RoundRobinAssignor,
    StickyAssignor,
    make_assignors,
    rebalance_protocol,
)
from aioprod.consumer.group.assignors.balance import balance, rightful_owners
from aioprod.consumer.group.assignors.sticky import decode_previous, encode_previous
from aioprod.errors import ConfigError
from aioprod.types import TopicPartition

MANY = settings(max_examples=60)


def tps(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


def member(member_id: str, *topics: str, instance: str | None = None) -> MemberSubscription:
    return MemberSubscription(member_id, topics, instance)


class TestRange:
    """The examples are those of the javadoc and of RangeAssignorTest."""

    def test_the_first_members_get_one_more(self) -> None:
        assignment = RangeAssignor().assign(
            {"t0": 3, "t1": 3}, [member("c1", "t0", "t1"), member("c0", "t0", "t1")]
        )
        assert assignment == {
            "c0": tps("t0", 0, 1) + tps("t1", 0, 1),
            "c1": tps("t0", 2) + tps("t1", 2),
        }

    def test_only_readers_of_a_topic_share_it(self) -> None:
        assignment = RangeAssignor().assign(
            {"t1": 3, "t2": 2}, [member("a", "t1"), member("b", "t1", "t2"), member("c", "t1")]
        )
        assert assignment == {
            "a": tps("t1", 0),
            "b": tps("t1", 1) + tps("t2", 0, 1),
            "c": tps("t1", 2),
        }

    def test_members_without_a_partition_and_topics_that_do_not_exist(self) -> None:
        assert RangeAssignor().assign({"t": 1}, [member("a", "t", "gone"), member("b", "t")]) == {
            "a": tps("t", 0),
            "b": [],
        }

    def test_static_members_come_first_by_their_instance(self) -> None:
        members = [member("a", "t"), member("z", "t", instance="1"), member("y", "t", instance="2")]
        assert RangeAssignor().assign({"t": 3}, members) == {
            "z": tps("t", 0),
            "y": tps("t", 1),
            "a": tps("t", 2),
        }


class TestRoundRobin:
    """The examples are those of the javadoc."""

    def test_equal_readers(self) -> None:
        assignment = RoundRobinAssignor().assign(
            {"t0": 3, "t1": 3}, [member("c0", "t0", "t1"), member("c1", "t0", "t1")]
        )
        assert assignment == {
            "c0": tps("t0", 0, 2) + tps("t1", 1),
            "c1": tps("t0", 1) + tps("t1", 0, 2),
        }

    def test_unequal_readers(self) -> None:
        members = [member("c0", "t0"), member("c1", "t0", "t1"), member("c2", "t0", "t1", "t2")]
        assignment = RoundRobinAssignor().assign({"t0": 1, "t1": 2, "t2": 3}, members)
        assert assignment == {
            "c0": tps("t0", 0),
            "c1": tps("t1", 0),
            "c2": [*tps("t1", 1), *tps("t2", 0, 1, 2)],
        }


# -- properties ------------------------------------------------------------------------------------

TOPICS = ["a", "b", "c", "d"]
partition_counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 7))


@st.composite
def groups(draw: st.DrawFn, *, equal: bool) -> list[MemberSubscription]:
    """Members with claims of any kind, wrong ones too."""
    count = draw(st.integers(1, 6))
    common = tuple(draw(st.lists(st.sampled_from(TOPICS), min_size=1, unique=True)))
    made = []
    for number in range(count):
        topics = common if equal else tuple(draw(st.lists(st.sampled_from(TOPICS), unique=True)))
        owned = tuple(
            draw(
                st.lists(
                    st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 8)),
                    max_size=20,
                    unique=True,
                )
            )
        )
        instance = draw(st.none() | st.just(f"i{count - number}"))
        made.append(
            MemberSubscription(
                f"m{number}", topics, instance, owned=owned, generation=draw(st.integers(-1, 3))
            )
        )
    return made


def claims_of(
    members: Sequence[MemberSubscription],
) -> dict[str, tuple[Collection[TopicPartition], int]]:
    return {each.member_id: (each.owned, each.generation) for each in members}


def check_all_given(
    partitions_per_topic: Mapping[str, int],
    members: Sequence[MemberSubscription],
    assignment: Mapping[str, Collection[TopicPartition]],
) -> None:
    """Each partition that anybody reads has exactly one reader, who reads its topic."""
    assert assignment.keys() == {each.member_id for each in members}
    given_out = [partition for partitions in assignment.values() for partition in partitions]
    read = {topic for each in members for topic in each.topics}
    assert sorted(given_out) == sorted(
        TopicPartition(topic, n)
        for topic in read
        for n in range(partitions_per_topic.get(topic, 0))
    )
    for each in members:
        assert {partition.topic for partition in assignment[each.member_id]} <= set(each.topics)


def check_balanced(
    members: Sequence[MemberSubscription], assignment: Mapping[str, Collection[TopicPartition]]
) -> None:
    for poor in members:
        for rich in members:
            could_have = [
                partition
                for partition in assignment[rich.member_id]
                if partition.topic in poor.topics
            ]
            assert (
                not could_have
                or len(assignment[rich.member_id]) <= len(assignment[poor.member_id]) + 1
            )


@given(partition_counts, groups(equal=False))
@MANY
def test_each_assignor_gives_each_partition_to_one_reader(
    counts: dict[str, int], members: list[MemberSubscription]
) -> None:
    for assignor in (RangeAssignor(), RoundRobinAssignor(), StickyAssignor()):
        check_all_given(counts, members, assignor.assign(counts, members))


@given(partition_counts, groups(equal=False))
@MANY
def test_sticky_shares_are_balanced_and_do_not_depend_on_the_order_of_members(
    counts: dict[str, int], members: list[MemberSubscription]
) -> None:
    assignment = balance(counts, members, claims_of(members))
    check_all_given(counts, members, assignment)
    check_balanced(members, assignment)
    assert balance(counts, members[::-1], claims_of(members)) == assignment


@given(partition_counts, groups(equal=False))
@MANY
def test_a_balanced_assignment_stays_as_it_is(
    counts: dict[str, int], members: list[MemberSubscription]
) -> None:
    first = balance(counts, members, {})
    assert (
        balance(
            counts, members, {member_id: (partitions, 5) for member_id, partitions in first.items()}
        )
        == first
    )


@given(partition_counts, groups(equal=True))
@MANY
def test_as_many_partitions_as_possible_stay_where_all_read_the_same(
    counts: dict[str, int], members: list[MemberSubscription]
) -> None:
    owners = rightful_owners(claims_of(members))
    assignment = balance(counts, members, claims_of(members))
    total = sum(map(len, assignment.values()))
    had = {each.member_id: 0 for each in members}
    stayed = 0
    for partition, owner in owners.items():
        if partition.topic in members[0].topics and partition.partition < counts.get(
            partition.topic, 0
        ):
            had[owner] += 1
            stayed += partition in assignment[owner]
    share, larger_shares = divmod(total, len(members))
    most = sum(
        min(count, share + (rank < larger_shares))
        for rank, count in enumerate(sorted(had.values(), reverse=True))
    )
    assert stayed == most


def cooperative_rounds(counts: dict[str, int], members: list[MemberSubscription]) -> int:
    """Rebalance until nothing moves any more; returns how often partitions were given."""
    assignor = CooperativeStickyAssignor()
    for number in range(1, 10):
        assignment = assignor.assign(counts, members)
        for each in members:
            for other in members:
                # What one gains, no other one had until this moment.
                assert each is other or not (
                    set(assignment[each.member_id]) - set(each.owned)
                ) & set(other.owned)
        if all(set(each.owned) == set(assignment[each.member_id]) for each in members):
            check_all_given(counts, members, assignment)
            check_balanced(members, assignment)
            return number - 1
        members = [
            replace(each, owned=tuple(assignment[each.member_id]), generation=10 + number)
            for each in members
        ]
    raise AssertionError("it never comes to rest")


@given(partition_counts, groups(equal=True))
@MANY
def test_cooperative_moves_take_two_rebalances_where_all_read_the_same(
    counts: dict[str, int], members: list[MemberSubscription]
) -> None:
    assert cooperative_rounds(counts, members) <= 2


@given(partition_counts, groups(equal=False))
@MANY
def test_cooperative_rebalances_come_to_rest_and_give_no_partition_to_two(
    counts: dict[str, int], members: list[MemberSubscription]
) -> None:
    assert cooperative_rounds(counts, members) <= 4


def test_of_two_claims_the_newer_one_counts_and_two_equal_ones_count_for_nothing() -> None:
    t0, t1, t2 = tps("t", 0, 1, 2)
    assert rightful_owners({"a": ([t0, t1, t2], 3), "b": ([t0, t1], 4), "c": ([t1], 4)}) == {
        t0: "b",
        t2: "a",
    }


def test_a_member_that_leaves_moves_only_what_it_had() -> None:
    before = balance({"t": 9}, [member("a", "t"), member("b", "t"), member("c", "t")], {})
    after = balance(
        {"t": 9},
        [member("a", "t"), member("c", "t")],
        {name: (before[name], 1) for name in ("a", "c")},
    )
    assert set(before["a"]) <= set(after["a"])
    assert set(before["c"]) <= set(after["c"])


def test_who_gives_away_is_not_given_anything() -> None:
    before = {"a": (tps("t", *range(10)), 1), "b": (tps("u", *range(10)), 1)}
    after = balance(
        {"t": 10, "u": 10}, [member(name, "t", "u") for name in ("a", "b", "c")], before
    )
    assert {name: len(partitions) for name, partitions in after.items()} == {"a": 7, "b": 7, "c": 6}
    assert set(after["a"]) <= set(before["a"][0])
    assert set(after["b"]) <= set(before["b"][0])


def test_many_partitions_are_shared_out_in_no_time() -> None:
    members = [member(f"m{number}", "t", "u") for number in range(300)]
    first = balance({"t": 5_000, "u": 5_000}, members, {})
    assert {len(partitions) for partitions in first.values()} == {33, 34}
    claims = {name: (partitions, 1) for name, partitions in first.items()}
    after = balance({"t": 5_000, "u": 5_000}, members[:200], claims)
    assert all(set(first[each.member_id]) <= set(after[each.member_id]) for each in members[:200])


# -- what sticky members remember ------------------------------------------------------------------


def test_sticky_members_show_what_they_had() -> None:
    assignor = StickyAssignor()
    assert assignor.subscription_user_data(["t"]) is None
    assignor.on_assignment(tps("t", 2, 0), 7)
    data = assignor.subscription_user_data(["t"])
    assert data == bytes.fromhex("00000001 0001 74 00000002 00000000 00000002 00000007")
    assert decode_previous(data) == (tuple(tps("t", 0, 2)), 7)
    assert decode_previous(data[:-4]) == (tuple(tps("t", 0, 2)), -1)  # version 0
    assert decode_previous(b"\x00\x00\x00\x09rubbish") == ((), -1)
    two = [
        MemberSubscription("a", ("t",)),
        MemberSubscription("b", ("t",), user_data=encode_previous(tps("t", 0), 3)),
    ]
    assert assignor.assign({"t": 2}, two) == {"a": tps("t", 1), "b": tps("t", 0)}


def test_cooperative_members_show_their_generation() -> None:
    assignor = CooperativeStickyAssignor()
    assert assignor.subscription_user_data(["t"]) == b"\xff\xff\xff\xff"
    assignor.on_assignment([], 3)
    assert assignor.subscription_user_data(["t"]) == b"\x00\x00\x00\x03"
    # Of a member of an old client the subscription has no generation: the user data counts.
    old = MemberSubscription("a", ("t",), user_data=b"\x00\x00\x00\x05", owned=tuple(tps("t", 0)))
    new = MemberSubscription("b", ("t",), owned=tuple(tps("t", 0)), generation=4)
    assert assignor.assign({"t": 1}, [old, new]) == {"a": tps("t", 0), "b": []}


# -- the setting -----------------------------------------------------------------------------------


class Own:
    name = "own"
    supported_protocols = (RebalanceProtocol.COOPERATIVE,)

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        return None

    def assign(
        self, partitions_per_topic: Mapping[str, int], members: Sequence[MemberSubscription]
    ) -> dict[str, list[TopicPartition]]:
        return {}

    def on_assignment(self, partitions: Collection[TopicPartition], generation: int) -> None: ...


def test_assignors_are_named_or_given() -> None:
    own: Assignor = Own()
    assert [
        each.name
        for each in make_assignors(["range", "roundrobin", "sticky", "cooperative-sticky"])
    ] == [
        "range",
        "roundrobin",
        "sticky",
        "cooperative-sticky",
    ]
    assert make_assignors([own]) == [own]


def test_the_rebalance_protocol_is_the_newest_that_all_support() -> None:
    assert (
        rebalance_protocol(make_assignors(["range", "cooperative-sticky"]))
        is RebalanceProtocol.EAGER
    )
    assert (
        rebalance_protocol(make_assignors(["cooperative-sticky"])) is RebalanceProtocol.COOPERATIVE
    )


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (["rnage"], "rnage.*must be one of range"),
        ([], "is empty"),
        (["range", "range"], "occurs twice"),
        (["range", Own()], "no rebalance protocol"),
        ([Own], "your own assignor: an object with name"),
        ([5], "strategy=5: must be one of range"),
    ],
)
def test_a_strategy_that_makes_no_sense_is_refused(strategy: list[object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_assignors(strategy)
