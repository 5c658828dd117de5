"""The parts of a group's member that decide alone: what codes mean, who is asked how often, what a
KIP-848 heartbeat has in it.
"""

from __future__ import annotations

import asyncio
import math
import uuid

import pytest

from aioprod.cluster.snapshot import ClusterSnapshot, PartitionInfo, TopicInfo
from aioprod.config.consumer import ConsumerConfig
from aioprod.consumer.group.error_actions import ErrorAction, GroupApi, action_for
from aioprod.consumer.group.leading import Leadership
from aioprod.consumer.group.member_state import Generation, JoinStage, MemberState
from aioprod.consumer.group.poll_watch import GRACE_S, PollWatch
from aioprod.consumer.group.session import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    MemberEpochs,
    TopicIds,
    Wishes,
)
from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
    TopicPartitions,
)

E = ErrorCode
A, B = uuid.UUID(int=1), uuid.UUID(int=2)


@pytest.mark.parametrize("api", GroupApi)
def test_each_code_has_an_action_for_each_request(api: GroupApi) -> None:
    for code in ErrorCode:
        action = action_for(api, code)
        assert (action is ErrorAction.DONE) == (code is E.NONE)
        if code.retriable:
            assert action is not ErrorAction.REFUSED, code


@pytest.mark.parametrize(
    ("api", "code", "action"),
    [
        (GroupApi.JOIN, E.MEMBER_ID_REQUIRED, ErrorAction.TAKE_MEMBER_ID),
        (GroupApi.JOIN, E.UNKNOWN_MEMBER_ID, ErrorAction.LOST_MEMBER),
        (GroupApi.JOIN, E.INCONSISTENT_GROUP_PROTOCOL, ErrorAction.REFUSED),
        (GroupApi.SYNC, E.REBALANCE_IN_PROGRESS, ErrorAction.REJOIN),
        (GroupApi.HEARTBEAT, E.REBALANCE_IN_PROGRESS, ErrorAction.REJOIN),
        (GroupApi.HEARTBEAT, E.ILLEGAL_GENERATION, ErrorAction.LOST_GENERATION),
        (GroupApi.HEARTBEAT, E.FENCED_INSTANCE_ID, ErrorAction.FENCED),
        (GroupApi.COMMIT, E.OFFSET_METADATA_TOO_LARGE, ErrorAction.REFUSED),
        (GroupApi.COMMIT, E.REQUEST_TIMED_OUT, ErrorAction.NEW_COORDINATOR),
        (GroupApi.COMMIT, E.STALE_MEMBER_EPOCH, ErrorAction.STALE_EPOCH),
        (GroupApi.FETCH_OFFSETS, E.UNSTABLE_OFFSET_COMMIT, ErrorAction.RETRY),
        (GroupApi.FETCH_OFFSETS, E.GROUP_AUTHORIZATION_FAILED, ErrorAction.REFUSED),
        (GroupApi.CONSUMER_HEARTBEAT, E.FENCED_MEMBER_EPOCH, ErrorAction.LOST_GENERATION),
        (GroupApi.CONSUMER_HEARTBEAT, E.UNKNOWN_MEMBER_ID, ErrorAction.LOST_GENERATION),
        (GroupApi.CONSUMER_HEARTBEAT, E.UNRELEASED_INSTANCE_ID, ErrorAction.REFUSED),
    ],
)
def test_what_java_does(api: GroupApi, code: ErrorCode, action: ErrorAction) -> None:
    assert action_for(api, code) is action


def test_a_member_that_stops_waiting_for_a_rebalance_still_has_its_generation() -> None:
    state = MemberState()
    state.begin_joining()
    state.give_up_joining()
    assert state.stage is JoinStage.UNJOINED
    state.joined(Generation(3, "m", "range"))
    state.synced()
    state.begin_joining()
    state.give_up_joining()
    assert (state.stage, state.generation.generation_id) == (JoinStage.STABLE, 3)
    state.lose(keep_member_id=True)
    assert (state.stage, state.generation) == (JoinStage.UNJOINED, Generation(-1, "m"))


def test_the_leader_notices_other_partitions() -> None:
    def snapshot(**counts: int) -> ClusterSnapshot:
        topics = {
            name: TopicInfo(name, partitions=tuple(PartitionInfo(n, 1, 0) for n in range(count)))
            for name, count in counts.items()
        }
        return ClusterSnapshot(1, topics=topics)

    leadership = Leadership({"t": 2, "missing": 0})
    assert not leadership.is_outdated(snapshot(t=2, other=5))
    assert leadership.is_outdated(snapshot(t=3))
    assert leadership.is_outdated(snapshot(t=2, missing=1))
    assert leadership.is_outdated(snapshot())


@pytest.mark.virtual_time
async def test_only_who_does_not_ask_is_called_overdue() -> None:
    overdue = asyncio.Event()
    watch = PollWatch(0.05, overdue.set, lambda: None, lambda: 0.0)
    loop = asyncio.get_running_loop()
    watch.begin()
    for _ in range(10):
        watch.polled(loop.time())
        await asyncio.sleep(0.01)
    assert not overdue.is_set()
    await asyncio.wait_for(overdue.wait(), 5)
    overdue.clear()
    watch.begin()
    watch.stop()
    await asyncio.sleep(0.08)
    assert not overdue.is_set()


@pytest.mark.virtual_time
async def test_records_wait_for_a_heartbeat_if_none_was_sent_for_a_session() -> None:
    loop = asyncio.get_running_loop()
    certain: list[float] = []
    watch = PollWatch(60, lambda: None, lambda: certain.append(loop.time()), loop.time)
    assert watch.polled(loop.time())
    watch.session_began(6)
    await asyncio.sleep(5)
    assert watch.polled(loop.time())
    watch.heartbeat_sent()
    await asyncio.sleep(50)  # the coordinator can't be reached: the client is not at fault
    assert watch.polled(loop.time())
    watch.heartbeat_ended(math.inf)
    await asyncio.sleep(50)
    assert watch.polled(loop.time())
    watch.heartbeat_sent()
    await asyncio.sleep(1)
    watch.heartbeat_ended(session_s=6)
    await asyncio.sleep(7)
    watch.heartbeat_sent()  # even if it is sent before the application polls
    assert not watch.polled(loop.time())
    await asyncio.sleep(1)
    assert not watch.polled(loop.time())
    assert certain == []
    watch.heartbeat_ended(session_s=6)
    assert watch.polled(loop.time())
    assert certain == [loop.time()]
    watch.heartbeat_sent()
    await asyncio.sleep(7)
    watch.heartbeat_ended(session_s=6)  # an answer that is as old as a session
    assert not watch.polled(loop.time())
    watch.heartbeat_sent()
    watch.heartbeat_ended(session_s=6)
    assert watch.polled(loop.time())
    await asyncio.sleep(7)
    assert not watch.polled(loop.time())
    watch.heartbeats_stopped()
    assert watch.polled(loop.time())
    await asyncio.sleep(7)
    assert watch.polled(loop.time())
    assert len(certain) == 3


# -- KIP-848 ---------------------------------------------------------------------------------------


def session(**settings: object) -> MemberEpochs:
    return MemberEpochs(ConsumerConfig(group_id="g", max_poll_interval_ms=7_000, **settings), "m")  # type: ignore[arg-type]


def answer(
    epoch: int, *partitions: tuple[uuid.UUID, list[int]] | None
) -> ConsumerGroupHeartbeatResponse:
    given = (
        None
        if partitions == (None,)
        else Assignment([ResponseTopicPartitions(*each) for each in partitions if each is not None])
    )
    return ConsumerGroupHeartbeatResponse(
        member_id="m", member_epoch=epoch, heartbeat_interval_ms=5_000, assignment=given
    )


def test_the_first_heartbeat_shows_everything_and_the_next_ones_what_is_new() -> None:
    talk = session(group_instance_id="i", group_remote_assignor="range", client_rack="r")
    wishes = Wishes(frozenset({"t", "a"}), None)
    first = talk.request("g", wishes, [])
    assert (first.member_epoch, first.instance_id, first.rack_id, first.rebalance_timeout_ms) == (
        JOIN_EPOCH,
        "i",
        "r",
        7_000,
    )
    assert (first.server_assignor, first.subscribed_topic_names, first.topic_partitions) == (
        "range",
        ["a", "t"],
        [],
    )
    assert talk.answered(answer(1, (A, [0, 1])))
    assert (talk.epoch, talk.target) == (1, frozenset({(A, 0), (A, 1)}))

    quiet = talk.request("g", wishes, [])
    assert (
        quiet.member_epoch,
        quiet.subscribed_topic_names,
        quiet.topic_partitions,
        quiet.server_assignor,
    ) == (1, None, None, None)
    assert not talk.answered(answer(1, None))
    acknowledging = talk.request("g", wishes, [(A, 1), (A, 0)])
    assert acknowledging.topic_partitions == [TopicPartitions(A, [0, 1])]
    assert talk.answered(answer(2, None)) is False
    assert talk.request("g", wishes, [(A, 0), (A, 1)]).topic_partitions is None
    changed = talk.request("g", Wishes(frozenset({"b"}), None), [(A, 0), (A, 1)])
    assert (changed.subscribed_topic_names, changed.topic_partitions) == (["b"], None)


def test_after_silence_everything_is_reported_again() -> None:
    talk = session()
    wishes = Wishes(frozenset({"t"}), None)
    talk.request("g", wishes, [])
    talk.answered(answer(3, (A, [0])))
    talk.request("g", wishes, [(A, 0)])
    talk.unanswered()
    again = talk.request("g", wishes, [(A, 0)])
    assert (again.member_epoch, again.subscribed_topic_names, again.topic_partitions) == (
        3,
        ["t"],
        [TopicPartitions(A, [0])],
    )


def test_an_expression_that_is_given_up_is_overwritten() -> None:
    talk = session()
    assert talk.request("g", Wishes(frozenset(), "t.*"), []).subscribed_topic_regex == "t.*"
    talk.answered(answer(1, None))
    changed = talk.request("g", Wishes(frozenset({"t"}), None), [])
    assert (changed.subscribed_topic_regex, changed.subscribed_topic_names) == ("", ["t"])


def test_a_fenced_member_begins_again_and_static_ones_leave_for_a_while() -> None:
    talk = session()
    talk.request("g", Wishes(frozenset({"t"}), None), [])
    talk.answered(answer(4, (A, [0])))
    assert talk.leave("g").member_epoch == LEAVE_EPOCH
    talk.begin()
    assert (talk.epoch, talk.target, talk.member_id) == (JOIN_EPOCH, None, "m")
    assert session(group_instance_id="i").leave("g").member_epoch == LEAVE_FOR_A_WHILE_EPOCH


def test_names_and_ids_of_topics() -> None:
    ids = TopicIds()
    ids.learn({"t": A, "old": uuid.UUID(int=0)})
    assert (ids.name(A), ids.name(B), ids.name(uuid.UUID(int=0))) == ("t", None, None)
    assert ids.with_ids([("t", 1), ("u", 0)]) == {(A, 1)}
    ids.learn({"t": B})  # deleted and created again
    assert ids.with_ids([("t", 1)]) == {(B, 1)}


class Cut:
    """A member that is cut off at a moment after a heartbeat; `answered` is the last reply."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.answered: float | None = None  # None: brokers answer all the time
        self.released: list[float] = []
        self.watch = PollWatch(
            60,
            lambda: None,
            lambda: self.released.append(self.loop.time()),
            lambda: self.loop.time() if self.answered is None else self.answered,
        )
        self.watch.session_began(6)
        self.watch.heartbeat_sent()

    @property
    def may_read(self) -> bool:
        return self.watch.polled(self.loop.time())

    async def through_a_cut(self, seconds: float = 20) -> None:
        """No broker answers for a while, then one does; not the coordinator yet."""
        self.answered = self.loop.time()
        await asyncio.sleep(seconds)
        self.answered = self.loop.time()


@pytest.mark.virtual_time
async def test_a_member_that_was_cut_off_waits_for_its_coordinator() -> None:
    cut = Cut()
    await cut.through_a_cut(5.9)
    assert cut.may_read
    await cut.through_a_cut(6.1)
    assert not cut.may_read
    await asyncio.sleep(GRACE_S * 0.9)
    assert not cut.may_read
    assert cut.released == []
    cut.watch.heartbeat_ended(session_s=60)
    assert cut.may_read
    assert cut.released == [cut.loop.time()]


@pytest.mark.virtual_time
async def test_a_heartbeat_that_fails_ends_no_doubt_of_a_member_that_is_cut_off() -> None:
    cut = Cut()
    cut.answered = cut.loop.time()
    await asyncio.sleep(20)
    cut.watch.heartbeat_ended(math.inf)
    assert not cut.may_read
    cut.watch.heartbeat_sent()
    cut.answered = cut.loop.time()  # the cut has ended, and only the coordinator is away
    assert not cut.may_read
    cut.watch.heartbeat_ended(math.inf)
    assert cut.may_read


@pytest.mark.virtual_time
async def test_a_coordinator_that_stays_away_after_a_cut_keeps_records_for_a_moment() -> None:
    cut = Cut()
    await cut.through_a_cut()
    cut.answered = None
    await asyncio.sleep(GRACE_S * 0.9)
    assert not cut.may_read
    await asyncio.sleep(GRACE_S * 0.1 + 0.5)
    assert cut.may_read
    assert len(cut.released) == 1
    await asyncio.sleep(100)
    assert cut.may_read


@pytest.mark.virtual_time
async def test_a_second_cut_during_the_first_wait_continues_it() -> None:
    cut = Cut()
    await cut.through_a_cut()
    await asyncio.sleep(GRACE_S + 1)  # one answer, then silence again
    assert not cut.may_read


@pytest.mark.virtual_time
async def test_a_member_without_a_session_is_never_cut_off() -> None:
    cut = Cut()
    await cut.through_a_cut()
    assert not cut.may_read
    cut.watch.heartbeats_stopped()
    assert cut.may_read
    await cut.through_a_cut()
    assert cut.may_read
