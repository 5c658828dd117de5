"""The consumer's fetch sessions, compared with the embedded broker's: after each request the broker
reads what is wanted, and nothing else.
"""

from __future__ import annotations

import random
import uuid

from hypothesis import given
from hypothesis import strategies as st

from aioprod import ErrorCode, TopicPartition
from aioprod.consumer.fetch_sessions import Asked, FetchSession
from aioprod.protocol.framing import encode_request
from aioprod.protocol.messages.fetch import FetchRequest, PartitionData
from aioprod.protocol.primitives import ZERO_UUID, Reader
from aioprod.protocol.request_headers import decode_request_header
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.fetch_sessions import FetchSessions, RequestedPartition

VERSION = 13
# Zero: the metadata has no ids.
IDS = [uuid.UUID(int=number) for number in range(4)]
PARTITIONS = [TopicPartition(f"t{number % 2}", number) for number in range(6)]


def request_of(
    session: FetchSession, wanted: dict[TopicPartition, Asked]
) -> tuple[FetchRequest, int]:
    """The next request as the broker gets it, and its version."""
    made = session.begin(wanted)
    request = FetchRequest(
        session_id=made.session_id,
        session_epoch=made.epoch,
        topics=made.topics,
        forgotten_topics_data=made.forgotten,
    )
    version = VERSION if made.newest is None else made.newest
    frame = encode_request(request, version, 1, "c")[4:]
    body = decode_request_header(frame).body_offset
    return FetchRequest.read(Reader(frame, body), version), version


def places(wanted: dict[TopicPartition, Asked]) -> dict[RequestedPartition, int]:
    """By id if all are known, else by name."""
    by_id = all(asked.topic_id.int for asked in wanted.values())
    return {
        RequestedPartition("", asked.topic_id, tp.partition)
        if by_id
        else RequestedPartition(tp.topic, ZERO_UUID, tp.partition): asked.offset
        for tp, asked in wanted.items()
    }


steps = st.lists(
    st.tuples(
        st.dictionaries(
            st.sampled_from(PARTITIONS),
            st.tuples(st.sampled_from(IDS), st.integers(0, 2)),
            min_size=1,
        ),
        st.sampled_from(["answered"] * 4 + ["lost", "forgotten by the broker"]),
    ),
    max_size=12,
)


@given(steps)
def test_the_broker_reads_what_is_wanted(
    chosen: list[tuple[dict[TopicPartition, tuple[uuid.UUID, int]], str]],
) -> None:
    broker, session = FetchSessions(random.Random(1)), FetchSession()
    names: dict[uuid.UUID, set[str]] = {}
    for wanted_ids, end in chosen:
        topic_ids = {tp.topic: topic_id for tp, (topic_id, _) in wanted_ids.items()}
        wanted = {
            tp: Asked(topic_ids[tp.topic], offset, 0, 1_000)
            for tp, (_, offset) in wanted_ids.items()
        }
        for _ in range(2):
            try:
                context = broker.begin(*request_of(session, wanted), 0.0)
            except RequestError as error:
                session.answered(error.code, 0)
                continue
            assert {place: asked.fetch_offset for place, asked in context.asked.items()} == places(
                wanted
            )
            for tp, asked in wanted.items():
                names.setdefault(asked.topic_id, set()).add(tp.topic)
            for tp, asked in wanted.items():
                if names[asked.topic_id] == {tp.topic}:  # two topics may have had one id here
                    assert session.names[asked.topic_id] == tp.topic
            break
        else:
            raise AssertionError(
                "the second request begins a new session, which nothing can be wrong with"
            )
        if end == "lost":
            session.lost()
            continue
        session_id, _ = context.finish(
            {place: PartitionData(partition_index=place.partition) for place in context.asked}, 0.0
        )
        session.answered(0, session_id)
        if end == "forgotten by the broker":
            broker = FetchSessions(random.Random(2))


def test_only_changes_are_sent() -> None:
    session = FetchSession()
    wanted = {tp: Asked(IDS[0], 0, 0, 1_000) for tp in PARTITIONS}
    assert [len(topic.partitions) for topic in session.begin(wanted).topics] == [3, 3]
    session.answered(0, 77)
    second = session.begin(wanted)
    assert (second.session_id, second.epoch, second.topics, second.forgotten) == (77, 1, [], [])
    session.answered(0, 77)
    moved = {**wanted, PARTITIONS[0]: Asked(IDS[0], 5, 0, 1_000)}
    del moved[PARTITIONS[1]]
    third = session.begin(moved)
    assert [
        (topic.topic, [each.fetch_offset for each in topic.partitions]) for topic in third.topics
    ] == [("t0", [5])]
    assert [(topic.topic, topic.partitions) for topic in third.forgotten] == [("t1", [1])]
    assert third.epoch == 2


def test_after_a_lost_answer_the_old_session_is_ended() -> None:
    session = FetchSession()
    session.begin({PARTITIONS[0]: Asked(IDS[0], 0, 0, 1)})
    session.answered(0, 77)
    session.begin({PARTITIONS[0]: Asked(IDS[0], 0, 0, 1)})
    session.lost()
    again = session.begin({PARTITIONS[0]: Asked(IDS[0], 0, 0, 1)})
    assert (again.session_id, again.epoch, len(again.topics)) == (77, 0, 1)


def test_the_epoch_begins_again_after_the_highest() -> None:
    session = FetchSession(77, 2**31 - 1)
    session.answered(ErrorCode.NONE, 77)
    assert session.epoch == 1
