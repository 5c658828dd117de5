"""ShareFetch: acknowledge records, then wait for other records and acquire them (KIP-932)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from aioprod.protocol.record_batch import read_header
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.handlers.share_requests import (
    Outcome,
    acknowledge_all,
    by_topic,
    end_session,
    is_last,
    open_partition,
    session_key,
)
from aioprod.testing.broker.leaders import leader_addresses
from aioprod.testing.broker.log import wait_for_append
from aioprod.testing.broker.partition import Partition
from aioprod.testing.broker.request_context import RequestContext
from aioprod.testing.broker.settings.group_configs import ShareSettings
from aioprod.testing.broker.share_groups.records import Acquired, LogBatch
from aioprod.testing.broker.share_groups.sessions import (
    FIRST_EPOCH,
    SessionKey,
    SharedPlace,
    ShareSession,
)

_RECORD_LIMIT = 1  # the acquire mode that never returns more records than requested (KIP-1206)


@dataclass(slots=True)
class _Got:
    """The records of one partition for a member."""

    outcome: Outcome = field(default_factory=Outcome)
    records: bytes = b""
    acquired: list[Acquired] = field(default_factory=list)


@handles(ShareFetchRequest)
async def handle(request: ShareFetchRequest, context: RequestContext) -> ShareFetchResponse:
    """Respond when there are records, after ``max_wait_ms``, if a partition has an error, or if the
    client disconnects.
    """
    try:
        key = session_key(request, context)
        _check_renewal(request)
        session = _use_session(request, key, context)
    except RequestError as error:
        return ShareFetchResponse(error_code=error.code, error_message=error.text)
    asked = [
        (SharedPlace(topic.topic_id, each.partition_index), each.acknowledgement_batches)
        for topic in request.topics
        for each in topic.partitions
        if each.acknowledgement_batches
    ]
    outcomes = acknowledge_all(request, asked, key, context)
    got: dict[SharedPlace, _Got] = {}
    if session is None:
        end_session(key, context)
    elif not request.is_renew_ack:
        got = await _acquire_some(request, key, session, context)
    return _answer(got, outcomes, key, context)


def _check_renewal(request: ShareFetchRequest) -> None:
    """Raise RequestError (INVALID_REQUEST) if a request both renews locks and requests records."""
    numbers = request.max_wait_ms, request.min_bytes, request.max_bytes, request.max_records
    if request.is_renew_ack and any(numbers):
        raise RequestError(
            ErrorCode.INVALID_REQUEST, "a request that renews locks can't ask for records"
        )


def _use_session(
    request: ShareFetchRequest, key: SessionKey, context: RequestContext
) -> ShareSession | None:
    """Return the session of a request, or None if the request closes it."""
    sessions = context.store.shares.sessions(context.node.node_id, context.disconnected)
    if is_last(request):
        sessions.find(key)
        return None
    if request.share_session_epoch == FIRST_EPOCH:
        if any(
            each.acknowledgement_batches for topic in request.topics for each in topic.partitions
        ):
            raise RequestError(
                ErrorCode.INVALID_REQUEST, "the first request of a session can't acknowledge"
            )
        session = sessions.begin(key, context.disconnected)
    else:
        session = sessions.use(key, request.share_session_epoch)
    session.update(
        (
            SharedPlace(topic.topic_id, each.partition_index)
            for topic in request.topics
            for each in topic.partitions
        ),
        (
            SharedPlace(topic.topic_id, number)
            for topic in request.forgotten_topics_data
            for number in topic.partitions
        ),
    )
    return session


async def _acquire_some(
    request: ShareFetchRequest, key: SessionKey, session: ShareSession, context: RequestContext
) -> dict[SharedPlace, _Got]:
    """Wait for records, and acquire them."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + max(request.max_wait_ms, 0) / 1000
    while not context.disconnected.done():
        left = deadline - loop.time()
        logs, is_due = _look(request, key, session, context)
        if left <= 0 or is_due or not logs:
            return _acquire(request, key, session, context)
        await wait_for_append([each.log for each in logs], left, context.disconnected)
    return {}


def _look(
    request: ShareFetchRequest, key: SessionKey, session: ShareSession, context: RequestContext
) -> tuple[list[Partition], bool]:
    """Return the partitions of a session, and whether they have enough records or an error."""
    missing = max(request.min_bytes, 1)
    committed_only = context.store.group_configs.share(key.group_id).committed_only
    logs: list[Partition] = []
    for place in session.places:
        try:
            partition, _, state = open_partition(key.group_id, place, context)
        except RequestError:
            return logs, True
        logs.append(partition)
        end = partition.last_stable_offset if committed_only else partition.high_watermark
        if state.next_fetch_offset < min(state.end_offset, end):
            return logs, True  # records that were released
        missing -= partition.log.available_bytes(state.next_fetch_offset, missing, end)
    return logs, missing <= 0


def _acquire(
    request: ShareFetchRequest, key: SessionKey, session: ShareSession, context: RequestContext
) -> dict[SharedPlace, _Got]:
    """Acquire available records, up to the limits of the request."""
    settings = context.store.group_configs.share(key.group_id)
    got: dict[SharedPlace, _Got] = {}
    records_left, bytes_left = request.max_records, request.max_bytes
    for place in list(session.places):
        try:
            partition, shared, state = open_partition(key.group_id, place, context)
        except RequestError as error:
            got[place] = _Got(Outcome.of(error))
            continue
        if records_left <= 0 or bytes_left <= 0:
            continue
        raw = _read(partition, state.next_fetch_offset, bytes_left, settings)
        acquired = state.acquire(
            key.member_id,
            [_as_batch(batch, partition, settings) for batch in raw],
            records_left,
            request.batch_size,
            settings,
            asyncio.get_running_loop().time(),
            exact=request.share_acquire_mode == _RECORD_LIMIT,
        )
        context.store.shares.arm(shared)
        if acquired:
            records = b"".join(_with_any(raw, acquired))
            got[place] = _Got(Outcome(), records, acquired)
            records_left -= sum(each.last - each.first + 1 for each in acquired)
            bytes_left -= len(records)
            session.gave(place)
    if not got:
        got = {place: _Got() for place in sorted(session.unanswered)}
    session.unanswered -= got.keys()
    return got


def _read(
    partition: Partition, offset: int, max_bytes: int, settings: ShareSettings
) -> list[bytes]:
    end = partition.last_stable_offset if settings.committed_only else partition.high_watermark
    return partition.log.read(offset, max_bytes, at_least_one=True, end=end)


def _as_batch(batch: bytes, partition: Partition, settings: ShareSettings) -> LogBatch:
    header = read_header(batch)
    is_aborted = (
        settings.committed_only
        and header.is_transactional
        and not header.is_control
        and not partition.transactions.is_committed(header.producer_id, header.base_offset)
    )
    return LogBatch(header.base_offset, header.last_offset, is_aborted)


def _with_any(batches: list[bytes], acquired: list[Acquired]) -> list[bytes]:
    """Return the batches that have acquired records."""
    headers = ((batch, read_header(batch)) for batch in batches)
    return [
        batch
        for batch, header in headers
        if any(
            each.first <= header.last_offset and header.base_offset <= each.last
            for each in acquired
        )
    ]


def _answer(
    got: dict[SharedPlace, _Got],
    outcomes: dict[SharedPlace, Outcome],
    key: SessionKey,
    context: RequestContext,
) -> ShareFetchResponse:
    answers = {
        place: _partition(place, got.get(place, _Got()), outcomes.get(place, Outcome()))
        for place in [*got, *(place for place in outcomes if place not in got)]
    }
    nodes = leader_addresses((each.current_leader.leader_id for each in answers.values()), context)
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=context.store.group_configs.share(
            key.group_id
        ).lock_duration_ms,
        responses=[
            ShareFetchableTopicResponse(places[0].topic_id, [answers[place] for place in places])
            for places in by_topic(answers).values()
        ],
        node_endpoints=[NodeEndpoint(node.node_id, node.host, node.port) for node in nodes],
    )


def _partition(place: SharedPlace, got: _Got, acknowledged: Outcome) -> PartitionData:
    leader = got.outcome if got.outcome.leader >= 0 else acknowledged
    return PartitionData(
        partition_index=place.partition,
        error_code=got.outcome.code,
        error_message=got.outcome.text,
        acknowledge_error_code=acknowledged.code,
        acknowledge_error_message=acknowledged.text,
        current_leader=LeaderIdAndEpoch(leader.leader, leader.leader_epoch)
        if leader.leader >= 0
        else LeaderIdAndEpoch(),
        records=got.records,
        acquired_records=[AcquiredRecords(*each) for each in got.acquired],
    )
