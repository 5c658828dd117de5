"""The parts of a share consumer that do no I/O."""

from __future__ import annotations

import uuid
from functools import partial
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioprod import (
    AcknowledgeType,
    ConfigError,
    ConsumerRecord,
    DeserializationError,
    ProtocolError,
    ShareConsumer,
    ShareRecord,
    TopicPartition,
)
from aioprod.consumer.record_conversion import RecordConverter
from aioprod.consumer.share.acknowledgements import (
    GAP,
    Acknowledgements,
    OffsetRun,
    SharePartition,
    offset_runs,
)
from aioprod.consumer.share.broker import ShareBroker
from aioprod.consumer.share.buffer import FetchedRecords
from aioprod.consumer.share.member import HeartbeatFields
from aioprod.consumer.share.outcomes import Outcomes
from aioprod.consumer.share.requests import (
    Acquired,
    AcquiredRange,
    acquired_ranges,
    read_acquired,
)
from aioprod.consumer.share.session import OPENING_EPOCH, ShareSession
from aioprod.interceptors import ConsumerInterceptorChain
from aioprod.preparation import NotPrepared
from aioprod.protocol.messages.share_fetch import AcquiredRecords
from aioprod.protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.consumer.share.share_groups import reporter_to
from tests.protocol.record_bytes import handmade, record

TP = TopicPartition("t", 0)
PARTITIONS = [SharePartition(uuid.UUID(int=1), "t", number) for number in range(4)]
ACCEPT, RELEASE, RENEW = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.RENEW


def batch_of(offsets: list[int], end: int) -> bytes:
    """A batch that ends at an offset, and has records at these."""
    base = offsets[0]
    return handmade(
        *(record(0, offset - base, -1, 1, b"x", 0) for offset in offsets),
        last_delta=end - base,
        base_offset=base,
    )


def spread(runs: list[OffsetRun]) -> dict[int, int]:
    """The type of each offset of runs, as a broker reads them."""
    found: dict[int, int] = {}
    for first, last, types in runs:
        assert len(types) in (1, last - first + 1)
        for offset in range(first, last + 1):
            assert offset not in found
            found[offset] = types[0] if len(types) == 1 else types[offset - first]
    return found


# -- acknowledgements ------------------------------------------------------------------------------


def acknowledgements() -> Acknowledgements:
    """Those for one broker; none yet."""
    reporter = reporter_to()
    return Acknowledgements(1, Outcomes(None, reporter), reporter, "User:alice", 10.0)


@given(st.dictionaries(st.integers(0, 60), st.sampled_from([GAP, *AcknowledgeType])))
def test_runs_say_of_each_offset_what_was_said(types: dict[int, int]) -> None:
    records = {offset: kind for offset, kind in types.items() if kind != GAP}
    gaps = [OffsetRun(offset, offset, [GAP]) for offset, kind in types.items() if kind == GAP]
    runs = offset_runs(records, gaps)
    assert spread(runs) == types
    assert runs == sorted(runs)
    # Neighboring records are one run.
    assert len(runs) - len(gaps) == sum(offset - 1 not in records for offset in records)


def test_records_of_one_type_have_it_once() -> None:
    assert offset_runs({5: ACCEPT, 6: ACCEPT, 7: ACCEPT, 9: RELEASE, 10: ACCEPT}, ()) == [
        OffsetRun(5, 7, [ACCEPT]),
        OffsetRun(9, 10, [RELEASE, ACCEPT]),
    ]


def test_what_waits_is_sent_once_and_the_last_word_counts() -> None:
    waiting = acknowledgements()
    waiting.add(PARTITIONS[0], [1], RENEW, 9.0, locked_until=5.0)
    assert waiting.renews
    waiting.add(PARTITIONS[0], [1], ACCEPT, 9.0, locked_until=6.0)
    waiting.add_runs(PARTITIONS[1], [(3, 7)], GAP, 9.0, 9.0)
    assert waiting.waits
    assert not waiting.renews
    assert waiting.only_of(frozenset(PARTITIONS[:2]))
    assert not waiting.only_of(frozenset(PARTITIONS[:1]))
    sent, late = waiting.take(4.0)
    assert {partition: each.batches(OffsetRun) for partition, each in sent.items()} == {
        PARTITIONS[0]: [OffsetRun(1, 1, [ACCEPT])],
        PARTITIONS[1]: [OffsetRun(3, 7, [GAP])],
    }
    assert late == {}
    assert not waiting.waits


def test_what_is_sent_again_does_not_replace_a_later_word() -> None:
    waiting = acknowledgements()
    waiting.add(PARTITIONS[0], [1], RENEW, 5.0, locked_until=50.0)
    waiting.add(PARTITIONS[0], [2], RELEASE, 5.0, locked_until=50.0)
    sent, _ = waiting.take(0.0)
    waiting.add(PARTITIONS[0], [1], ACCEPT, 9.0, locked_until=60.0)
    waiting.put_back(PARTITIONS[0], sent[PARTITIONS[0]])
    again, _ = waiting.take(0.0)
    assert again[PARTITIONS[0]].types == {1: ACCEPT, 2: RELEASE}
    assert again[PARTITIONS[0]].locked_until == {1: 60.0, 2: 50.0}
    assert again[PARTITIONS[0]].since == 5.0


def test_what_comes_after_the_end_of_the_lock_is_not_sent() -> None:
    waiting = acknowledgements()
    waiting.add(PARTITIONS[0], [1], ACCEPT, 2.0, locked_until=5.0)
    waiting.add(PARTITIONS[0], [2], ACCEPT, 4.0, locked_until=6.0)
    waiting.add(PARTITIONS[1], [3], ACCEPT, 3.0, locked_until=5.0)
    sent, late = waiting.take(5.0)
    assert {partition: set(each.types) for partition, each in sent.items()} == {PARTITIONS[0]: {2}}
    assert {partition: (each.types, each.since) for partition, each in late.items()} == {
        PARTITIONS[0]: ({1: ACCEPT}, 2.0),
        PARTITIONS[1]: ({3: ACCEPT}, 3.0),
    }


def test_releases_and_gaps_are_not_sent_after_the_end_of_the_lock() -> None:
    waiting = acknowledgements()
    waiting.add_runs(PARTITIONS[0], [(1, 2)], RELEASE, 99.0, locked_until=5.0)
    waiting.add_runs(PARTITIONS[0], [(3, 3)], GAP, 99.0, locked_until=6.0)
    waiting.add_runs(PARTITIONS[1], [(4, 4)], GAP, 99.0, locked_until=5.0)
    sent, late = waiting.take(5.0)
    assert {partition: each.batches(OffsetRun) for partition, each in sent.items()} == {
        PARTITIONS[0]: [OffsetRun(3, 3, [GAP])]
    }
    assert late == {}


def test_a_renewal_counts_for_what_was_said_since() -> None:
    waiting = acknowledgements()
    waiting.add(PARTITIONS[0], [1], ACCEPT, 99.0, locked_until=5.0)
    waiting.extend_lock(PARTITIONS[0], 1, 8.0)
    waiting.extend_lock(PARTITIONS[0], 2, 8.0)
    waiting.extend_lock(PARTITIONS[1], 1, 8.0)
    sent, late = waiting.take(6.0)
    assert sent.keys() == {PARTITIONS[0]}
    assert late == {}


def test_the_end_of_a_session_renews_nothing() -> None:
    waiting = acknowledgements()
    waiting.add(PARTITIONS[0], [1], RENEW, 9.0, locked_until=5.0)
    waiting.add(PARTITIONS[1], [2], ACCEPT, 9.0, locked_until=5.0)
    waiting.add(PARTITIONS[1], [3], RENEW, 9.0, locked_until=5.0)
    waiting.drop_renewals()
    sent, _ = waiting.take(0.0)
    assert {each: waits.types for each, waits in sent.items()} == {PARTITIONS[1]: {2: ACCEPT}}


# -- sessions --------------------------------------------------------------------------------------


@given(
    st.lists(
        st.one_of(
            st.frozensets(st.sampled_from(PARTITIONS), min_size=1),
            st.sampled_from(["acknowledge", "lose"]),
        )
    )
)
def test_the_broker_fetches_what_is_wanted(steps: list[frozenset[SharePartition] | str]) -> None:
    """A broker that follows the rules of KIP-932 has the partitions and the epoch of the client."""
    session = ShareSession()
    at_broker: set[SharePartition] | None = None
    expected = 0
    for step in steps:
        if isinstance(step, frozenset):
            change = session.change(step)
            if change.epoch == OPENING_EPOCH:
                at_broker, expected = set(), 0
                assert not change.forgotten
            assert at_broker is not None
            assert change.epoch == expected
            at_broker |= change.added
            at_broker -= change.forgotten
            session.fetched(step)
            expected += 1
            assert at_broker == step
        elif step == "lose":
            before = session.generation
            session.lost()
            assert not session.is_open
            assert session.generation == before + 1
        elif session.is_open:
            assert session.epoch == expected
            session.acknowledged()
            expected += 1


def test_epochs_begin_again_at_one() -> None:
    session = ShareSession()
    session.fetched(frozenset(PARTITIONS))
    session.epoch = 2**31 - 1
    session.acknowledged()
    assert session.epoch == 1


def test_a_heartbeat_says_what_the_coordinator_does_not_know() -> None:
    fields = HeartbeatFields("g", "m", "rack")
    topics = frozenset(["b", "a"])
    joining = fields.request(topics)
    assert (joining.member_epoch, joining.rack_id) == (0, "rack")
    assert joining.subscribed_topic_names == ["a", "b"]
    topic_id = uuid.UUID(int=7)
    assigned = fields.answered(
        ShareGroupHeartbeatResponse(
            member_epoch=3, assignment=Assignment([TopicPartitions(topic_id, [0, 2])])
        )
    )
    assert assigned == frozenset([(topic_id, 0), (topic_id, 2)])
    following = fields.request(topics)
    assert following.member_epoch == 3
    assert (following.rack_id, following.subscribed_topic_names) == (None, None)
    assert fields.answered(ShareGroupHeartbeatResponse(member_epoch=4)) is None
    assert fields.request(frozenset(["c"])).subscribed_topic_names == ["c"]
    assert not fields.knows(frozenset(["c"]))
    fields.unanswered()
    assert fields.request(topics).subscribed_topic_names == ["a", "b"]
    assert fields.leave().member_epoch == -1
    fields.begin()
    assert fields.request(topics).member_epoch == 0


# -- acquired records ------------------------------------------------------------------------------


@given(st.data())
def test_each_acquired_offset_is_a_record_or_a_gap(data: st.DataObject) -> None:
    offsets = sorted(data.draw(st.sets(st.integers(0, 40), min_size=1), label="records"))
    cuts = sorted(data.draw(st.sets(st.integers(0, 45), max_size=8), label="ranges"))
    ranges = [
        AcquiredRange(first, last, count)
        for count, (first, last) in enumerate(zip(cuts[::2], cuts[1::2], strict=False), 1)
    ]
    end = data.draw(st.integers(offsets[-1], 45), label="end of the batch")
    found = read_acquired(TP, batch_of(offsets, end), ranges, check_crcs=True)
    acquired = {
        offset: each.delivery_count
        for each in ranges
        for offset in range(each.first, each.last + 1)
    }
    assert [each.offset for each in found.records] == [
        offset for offset in offsets if offset in acquired
    ]
    assert found.delivery_counts == [acquired[each.offset] for each in found.records]
    rest = {offset for first, last in found.gaps for offset in range(first, last + 1)}
    unread = {offset for first, last in found.unread for offset in range(first, last + 1)}
    assert rest == {offset for offset in acquired if offset <= end and offset not in offsets}
    assert unread == {offset for offset in acquired if offset > end}
    assert found.error is None


def test_what_is_behind_a_corrupt_batch_is_released_and_no_gap() -> None:
    data = bytearray(batch_of([0, 1], 1) + batch_of([2, 3], 3))
    data[-1] ^= 1
    found = read_acquired(TP, bytes(data), [AcquiredRange(0, 3, 1)], check_crcs=True)
    assert [each.offset for each in found.records] == [0, 1]
    assert found.gaps == []
    assert found.unread == [(2, 3)]
    assert "after offset 1" in str(found.error)


def test_a_huge_range_costs_nothing() -> None:
    found = read_acquired(TP, b"", [AcquiredRange(0, 2**62, 1)], check_crcs=True)
    assert (found.gaps, found.unread) == ([], [(0, 2**62)])


@pytest.mark.parametrize("ranges", [[(5, 4)], [(0, 5), (5, 6)], [(3, 4), (0, 1)]])
def test_ranges_that_do_not_ascend_are_refused(ranges: list[tuple[int, int]]) -> None:
    with pytest.raises(ProtocolError, match="are not ascending"):
        acquired_ranges([AcquiredRecords(first, last, 1) for first, last in ranges])


# -- deserializers that wait -----------------------------------------------------------------------


class Skipped:
    """Notes the offsets that are released."""

    def __init__(self) -> None:
        self.session = ShareSession()
        self.runs: list[tuple[int, int]] = []

    def skip(
        self, partition: SharePartition, runs: list[tuple[int, int]], kind: int, until: float
    ) -> None:
        assert (kind, until) == (RELEASE, 9.0)
        self.runs += runs


async def test_a_record_waits_for_its_deserializer_or_is_released() -> None:
    known: set[bytes] = set()

    async def learn(value: bytes) -> None:
        if value == b"2":
            raise ValueError("no such schema")
        known.add(value)

    def read(_topic: str, _headers: object, value: bytes | None) -> int:
        assert value is not None
        if value not in known:
            raise NotPrepared(partial(learn, value))
        return int(value)

    records = [
        ConsumerRecord("t", 0, offset, 0, 0, None, b"%d" % offset, ()) for offset in range(4)
    ]
    broker = Skipped()
    converter = RecordConverter(None, read, ConsumerInterceptorChain(()), "it is released")
    acquired = Acquired(records, [1, 2, 3, 4], [], [], None)
    fetched = FetchedRecords(cast("ShareBroker", broker), PARTITIONS[0], acquired, 9.0, converter)
    found: list[ShareRecord] = []
    errors: list[DeserializationError] = []
    while fetched:
        try:
            found += fetched.take(10).records
        except NotPrepared as needed:
            await needed.prepare()
        except DeserializationError as error:
            errors.append(error)
    assert [(record.value, record.delivery_count) for record in found] == [(0, 1), (1, 2), (3, 4)]
    assert [error.offset for error in errors] == [2]
    assert broker.runs == [(2, 2)]


async def no_callback(offsets: object, error: object) -> None: ...


@pytest.mark.parametrize(
    ("callback", "text"),
    [(5, r"called with \(offsets, error\)"), (no_callback, "must not be a coroutine function")],
)
def test_a_callback_that_can_not_be_called(callback: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=f"^acknowledgement_commit_callback=.*{text}"):
        ShareConsumer(group_id="g", acknowledgement_commit_callback=callback)
