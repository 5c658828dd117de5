"""The decisions about consumer groups, over (group, now): no broker, no clock, no waiting."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from aioprod.error_codes import ErrorCode
from aioprod.errors import ConfigError
from aioprod.protocol.messages.heartbeat import HeartbeatRequest
from aioprod.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from aioprod.protocol.messages.leave_group import MemberIdentity
from aioprod.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from aioprod.testing import GroupSettings
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.groups import membership
from aioprod.testing.broker.groups.group import Group, GroupState
from aioprod.testing.broker.groups.joining import Joining
from aioprod.testing.broker.groups.member import Caller
from aioprod.testing.broker.groups.subscription import read_partitions, read_topics
from aioprod.testing.broker.offsets import Committer

CALLER = Caller("client", "/127.0.0.1", 9)


class Play:
    """A group, a time that the test sets, and the responses so far."""

    def __init__(self, settings: GroupSettings | None = None) -> None:
        self.group = Group("g")
        self.settings = settings or GroupSettings()
        self.now = 0.0
        self._next_id = 0

    def join(
        self,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        protocols: Sequence[str] = ("range",),
        version: int = 9,
    ) -> list[JoinGroupResponse]:
        """Join; the returned list gets the response."""
        request = JoinGroupRequest(
            "g",
            session_ms,
            rebalance_ms,
            member_id,
            instance_id,
            "consumer",
            [JoinGroupRequestProtocol(each) for each in protocols],
        )
        answers: list[JoinGroupResponse] = []
        self._next_id += 1
        caller = CALLER._replace(api_version=version)
        Joining(self.group, request, caller, self.settings, self.now, answers.append).run(
            f"m{self._next_id}"
        )
        return answers

    def join_known(
        self, *, session_ms: int = 10_000, rebalance_ms: int = 60_000
    ) -> tuple[str, list[JoinGroupResponse]]:
        """Get a member id, and join with it."""
        (first,) = self.join(session_ms=session_ms, rebalance_ms=rebalance_ms)
        return first.member_id, self.join(
            first.member_id, session_ms=session_ms, rebalance_ms=rebalance_ms
        )

    def sync(self, member_id: str, **shares: bytes) -> list[SyncGroupResponse]:
        """Sync; the returned list gets the response."""
        answers: list[SyncGroupResponse] = []
        assignments = [SyncGroupRequestAssignment(*each) for each in shares.items()]
        request = SyncGroupRequest(
            "g", self.group.generation_id, member_id, assignments=assignments
        )
        membership.sync(self.group, request, self.now, answers.append)
        return answers

    def heartbeat(self, member_id: str) -> ErrorCode:
        """Send a heartbeat in the current generation."""
        return membership.heartbeat(
            self.group, HeartbeatRequest("g", self.group.generation_id, member_id), self.now
        )

    def leave(self, member_id: str) -> None:
        """Leave the group."""
        membership.leave(self.group, [MemberIdentity(member_id)], self.settings, self.now)

    def pass_time(self, seconds: float) -> None:
        """Handle all deadlines that pass meanwhile, at their times."""
        end = self.now + seconds
        while (due := min(self.group.deadlines.values(), default=end + 1)) <= end:
            self.now = due
            membership.expire(self.group, self.settings, due)
        self.now = end

    def stable(
        self, count: int = 1, *, session_ms: int = 10_000, rebalance_ms: int = 60_000
    ) -> list[str]:
        """Add members until the group is stable; the first one is the leader."""
        member_ids: list[str] = []
        for _ in range(count):
            member_id, _ = self.join_known(session_ms=session_ms, rebalance_ms=rebalance_ms)
            member_ids.append(member_id)
            for other in member_ids[:-1]:
                self.join(other, session_ms=session_ms, rebalance_ms=rebalance_ms)
            self.pass_time(0)
        for member_id in reversed(member_ids):
            self.sync(member_id, **{each: each.encode() for each in member_ids})
        assert (self.group.state, list(self.group.members)) == (GroupState.STABLE, member_ids)
        return member_ids


@pytest.fixture
def play() -> Play:
    return Play()


class TestTime:
    def test_a_silent_member_is_removed_when_its_session_expires(self, play: Play) -> None:
        first, second = play.stable(2)
        play.pass_time(9)
        assert play.heartbeat(first) is ErrorCode.NONE
        play.pass_time(0.9)
        assert play.group.state is GroupState.STABLE
        play.pass_time(0.2)
        assert (play.group.state, list(play.group.members)) == (
            GroupState.PREPARING_REBALANCE,
            [first],
        )
        assert play.heartbeat(first) is ErrorCode.REBALANCE_IN_PROGRESS
        with pytest.raises(RequestError) as caught:
            play.heartbeat(second)
        assert caught.value.code is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_commit_is_as_good_as_a_heartbeat(self, play: Play) -> None:
        (first,) = play.stable()
        play.pass_time(9)
        membership.commit_keeps_session(play.group, Committer(1, first), play.now)
        play.pass_time(9)
        assert play.group.state is GroupState.STABLE

    def test_the_last_member_leaves_an_empty_group(self, play: Play) -> None:
        play.stable()
        play.pass_time(10)
        assert (play.group.state, play.group.generation_id, play.group.deadlines) == (
            GroupState.EMPTY,
            2,
            {},
        )

    def test_who_waits_for_the_others_needs_no_heartbeats(self, play: Play) -> None:
        first, second = play.stable(2, session_ms=10_000, rebalance_ms=60_000)
        waiting = play.join(first)
        for _ in range(5):
            play.pass_time(9)
            play.heartbeat(second)
        assert (waiting, len(play.group.members)) == ([], 2)
        (answer,) = play.join(second)
        assert (answer.error_code, waiting[0].error_code, answer.generation_id) == (
            0,
            0,
            waiting[0].generation_id,
        )
        play.pass_time(9.9)
        assert len(play.group.members) == 2  # sessions restart with the responses

    def test_a_new_member_is_given_up_after_five_minutes(self, play: Play) -> None:
        (first,) = play.stable(rebalance_ms=1_000_000)
        _, waiting = play.join_known()
        for _ in range(299):
            play.pass_time(1)
            play.heartbeat(first)
        assert not waiting
        play.pass_time(1)
        assert waiting[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID

    def test_an_id_that_was_given_out_is_waited_for_as_long_as_a_session(self, play: Play) -> None:
        (first,) = play.stable()
        (pending,) = play.join(session_ms=7_000)
        waiting = play.join(first)
        play.pass_time(6.9)
        assert not waiting
        play.pass_time(0.2)
        assert waiting[0].error_code == ErrorCode.NONE
        assert play.join(pending.member_id)[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID

    def test_an_id_that_was_given_up_does_not_count_as_missing(self, play: Play) -> None:
        play.stable(session_ms=100_000)
        play.join(session_ms=7_000)
        play.pass_time(8)
        assert (play.group.state, play.group.generation_id, play.group.pending_joins) == (
            GroupState.STABLE,
            1,
            {},
        )

    def test_a_restart_before_the_assignment_was_fetched_costs_a_rebalance(
        self, play: Play
    ) -> None:
        """Kafka waits for the request of the old id, which the member no longer sends."""
        (first,) = play.stable(session_ms=100_000, rebalance_ms=5_000)
        play.join(instance_id="i", session_ms=100_000, rebalance_ms=5_000)
        play.join(first, session_ms=100_000, rebalance_ms=5_000)
        play.sync(first)
        (answer,) = play.join(instance_id="i", session_ms=100_000, rebalance_ms=5_000)
        play.sync(answer.member_id)
        play.pass_time(4.9)
        assert play.group.state is GroupState.STABLE
        play.pass_time(0.2)
        assert (play.group.state, sorted(play.group.members)) == (
            GroupState.PREPARING_REBALANCE,
            sorted([first, answer.member_id]),
        )

    def test_members_that_never_ask_for_their_assignment_are_done_without(self, play: Play) -> None:
        (first,) = play.stable(rebalance_ms=5_000)
        play.join_known(rebalance_ms=5_000)
        play.join(first, rebalance_ms=5_000)
        syncing = play.sync(first)
        assert (play.group.state, syncing[0].error_code) == (GroupState.STABLE, 0)
        play.pass_time(5)
        assert (play.group.state, list(play.group.members)) == (
            GroupState.PREPARING_REBALANCE,
            [first],
        )

    def test_a_lost_leader_is_followed_by_a_member(self, play: Play) -> None:
        first, second = play.stable(2)
        membership.rebalance(play.group, play.settings, play.now)
        waiting = play.join(second)
        play.pass_time(10.1)
        assert waiting[0].leader == second
        assert list(play.group.members) == [second]
        assert first not in [each.member_id for each in waiting[0].members]

    def test_static_members_that_do_not_join_again_stay_until_their_session_expires(
        self, play: Play
    ) -> None:
        joined = play.join(instance_id="i", session_ms=100_000, rebalance_ms=5_000)
        play.pass_time(0)
        member_id = joined[0].member_id
        play.sync(member_id)
        newcomer, waiting = play.join_known(rebalance_ms=5_000)
        play.pass_time(5)
        assert sorted(each.member_id for each in waiting[0].members) == sorted(
            [member_id, newcomer]
        )

    def test_a_rebalance_of_static_members_only_continues_with_the_first_member(
        self, play: Play
    ) -> None:
        play.join(instance_id="i", session_ms=100_000, rebalance_ms=5_000)
        play.pass_time(0)
        (member_id,) = play.group.members
        play.sync(member_id)
        membership.rebalance(play.group, play.settings, play.now)
        play.pass_time(50)
        assert play.group.state is GroupState.PREPARING_REBALANCE
        play.pass_time(50)
        assert (play.group.state, play.group.members) == (GroupState.EMPTY, {})


class TestInitialDelay:
    @pytest.fixture
    def play(self) -> Play:
        return Play(GroupSettings(initial_rebalance_delay_ms=3_000))

    def test_the_first_rebalance_waits_for_further_members(self, play: Play) -> None:
        _, first = play.join_known()
        play.pass_time(2.9)
        assert not first
        _, second = play.join_known()
        play.pass_time(3)
        assert not first
        play.pass_time(0.2)
        assert (first[0].generation_id, second[0].generation_id) == (1, 1)

    def test_but_never_longer_than_the_rebalance_timeout(self, play: Play) -> None:
        _, first = play.join_known(rebalance_ms=7_000)
        for _ in range(6):
            play.pass_time(1)
            play.join_known(rebalance_ms=7_000)
        assert not first
        play.pass_time(1)
        assert first[0].error_code == 0

    def test_it_ends_when_an_id_that_was_given_out_is_given_up(self) -> None:
        """It ends before the delay if all others have joined, as in Kafka."""
        play = Play(GroupSettings(initial_rebalance_delay_ms=9_000))
        _, waiting = play.join_known(rebalance_ms=60_000)
        play.join(session_ms=7_000)
        play.pass_time(6.9)
        assert not waiting
        play.pass_time(0.2)
        assert [each.error_code for each in waiting] == [ErrorCode.NONE]

    def test_it_ends_when_all_have_left(self, play: Play) -> None:
        member_id, waiting = play.join_known()
        play.leave(member_id)
        assert waiting[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
        play.pass_time(3)
        assert play.group.state is GroupState.EMPTY

    def test_who_comes_after_all_have_left_joins(self, play: Play) -> None:
        member_id, _ = play.join_known()
        play.leave(member_id)
        _, waiting = play.join_known()
        play.pass_time(6.1)
        assert (waiting[0].error_code, waiting[0].generation_id) == (0, 1)


class TestSize:
    def test_more_members_than_allowed_are_refused(self) -> None:
        play = Play(GroupSettings(max_size=2))
        first, second = play.stable(2)
        assert play.join()[0].error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        play.join(first)
        play.join(second)
        assert play.group.state is GroupState.COMPLETING_REBALANCE

    def test_who_joins_last_goes_where_the_group_is_too_large(self) -> None:
        play = Play()
        first, second = play.stable(2)
        play.settings = GroupSettings(max_size=1)
        waiting = play.join(first)
        assert play.join(second)[0].error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        play.pass_time(60)
        assert [each.member_id for each in waiting[0].members] == [first]


class TestMoving:
    def test_another_coordinator_begins_with_the_last_assignment(self, play: Play) -> None:
        first, second = play.stable(2)
        waiting = play.join(first)
        membership.move(play.group, play.now)
        assert waiting[0].error_code == ErrorCode.NOT_COORDINATOR
        assert (play.group.state, play.group.generation_id, list(play.group.members)) == (
            GroupState.STABLE,
            2,
            [first, second],
        )
        assert [play.sync(each)[0].assignment for each in (first, second)] == [
            first.encode(),
            second.encode(),
        ]
        assert play.heartbeat(first) is ErrorCode.NONE

    def test_what_was_not_stored_is_forgotten(self, play: Play) -> None:
        first, second = play.stable(2)
        newcomer, joining = play.join_known()
        play.join(first)
        play.join(second)
        assert (play.group.state, len(joining)) == (GroupState.COMPLETING_REBALANCE, 1)
        syncing = play.sync(newcomer)
        membership.move(play.group, play.now)
        assert syncing[0].error_code == ErrorCode.NOT_COORDINATOR
        assert (play.group.generation_id, list(play.group.members)) == (2, [first, second])
        assert play.join(newcomer)[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID

    def test_sessions_begin_again(self, play: Play) -> None:
        (first,) = play.stable()
        play.pass_time(9)
        membership.move(play.group, play.now)
        play.pass_time(9)
        assert play.heartbeat(first) is ErrorCode.NONE


class TestRepeating:
    def test_both_requests_of_an_impatient_member_are_answered(self, play: Play) -> None:
        first, second = play.stable(2)
        answers = [*[play.join(first) for _ in range(2)], play.join(second)]
        assert [each[0].generation_id for each in answers] == [3] * 3
        syncs = [play.sync(second), play.sync(second), play.sync(first)]
        assert [each[0].error_code for each in syncs] == [0] * 3


@pytest.mark.parametrize("first_seed", range(0, 300, 50))
def test_no_member_waits_forever(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 50):
        check_that_no_member_waits_forever(seed)


def check_that_no_member_waits_forever(seed: int) -> None:
    """Members act at random; after they stop, all requests are answered and the group becomes
    empty.
    """
    random_ = random.Random(seed)
    play = Play(
        GroupSettings(
            initial_rebalance_delay_ms=random_.choice([0, 500]), max_size=random_.choice([3, 100])
        )
    )
    answers: list[list[JoinGroupResponse] | list[SyncGroupResponse]] = []
    known = ["m0"]

    def anybody() -> str:
        return random_.choice(known)

    def join() -> None:
        instance_id = random_.choice([None, None, "i", "j"])
        member_id = random_.choice(["", anybody()])
        protocols = random_.choice([("range",), ("range", "roundrobin"), ("roundrobin",)])
        answer = play.join(
            member_id,
            instance_id=instance_id,
            protocols=protocols,
            rebalance_ms=random_.choice([50, 5_000]),
            version=random_.choice([3, 8, 9]),
        )
        answers.append(answer)
        known.extend(play.group.members.keys() | play.group.pending_joins.keys())

    actions: list[Callable[[], object]] = [
        join,
        join,
        lambda: answers.append(play.sync(anybody())),
        lambda: play.sync(play.group.leader_id or ""),
        lambda: play.heartbeat(anybody()),
        lambda: play.leave(anybody()),
        lambda: play.pass_time(random_.choice([0, 0.1, 3, 11])),
    ]
    generations = [0]
    for _ in range(80):
        try:
            random_.choice(actions)()
        except RequestError:
            pass
        generations.append(play.group.generation_id)
        assert (play.group.leader_id in play.group.members) == bool(play.group.members), seed
        assert set(play.group.static_members.values()) <= play.group.members.keys(), seed
        assert (play.group.state is GroupState.EMPTY) <= (not play.group.members), seed
    assert generations == sorted(generations), seed
    play.pass_time(1_000)
    assert all(len(answer) == 1 for answer in answers), seed
    assert (play.group.state, play.group.members, play.group.deadlines) == (
        GroupState.EMPTY,
        {},
        {},
    ), seed


class TestBytesOfConsumers:
    def test_an_invalid_subscription_or_assignment_is_passed_over(self) -> None:
        for rubbish in (
            b"\x00",
            b"\x00\x00\x00\x00\x00\x09",
            b"\x00\x00\xff\xff\xff\xff",
            b"\x00\x00\x00\x00\x00\x01\x00\x02\xff\xff",
        ):
            assert read_topics(rubbish) is None
            assert read_partitions(rubbish) is None
        assert (read_topics(b""), read_partitions(b"")) == (None, ())


@pytest.mark.parametrize(
    "wrong",
    [
        {"initial_rebalance_delay_ms": -1},
        {"min_session_timeout_ms": 0},
        {"min_session_timeout_ms": 10, "max_session_timeout_ms": 9},
        {"max_size": 0},
    ],
)
def test_settings_out_of_range_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=list(wrong)[-1]):
        GroupSettings(**wrong)
