"""Shared by the handlers of requests of share sessions: partitions and acknowledgements."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from aioprod.error_codes import ErrorCode
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.leaders import NotLeaderError, check_leader
from aioprod.testing.broker.partition import Partition
from aioprod.testing.broker.request_context import RequestContext
from aioprod.testing.broker.share_groups.records import Acknowledge, Acknowledgements
from aioprod.testing.broker.share_groups.sessions import FINAL_EPOCH, SessionKey, SharedPlace
from aioprod.testing.broker.share_groups.share_partition import SharePartition
from aioprod.testing.broker.share_groups.share_partitions import Shared, ShareKey

_RENEWAL_FROM = 2  # KIP-1222


class Run(Protocol):
    """Acknowledgements in a request; two APIs have their own class for them."""

    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


class ShareRequest(Protocol):
    """The common fields of the requests of a share session."""

    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    is_renew_ack: bool


@dataclass(slots=True)
class Outcome:
    """The result for one partition, with an error or without.

    Attributes:
        leader: the node that leads the partition, if it is another one.
    """

    code: ErrorCode = ErrorCode.NONE
    text: str | None = None
    leader: int = -1
    leader_epoch: int = -1

    @classmethod
    def of(cls, error: RequestError) -> Outcome:
        """Return the outcome of a refused request."""
        if isinstance(error, NotLeaderError):
            return cls(error.code, error.text, error.leader, error.epoch)
        return cls(error.code, error.text)


def session_key(request: ShareRequest, context: RequestContext) -> SessionKey:
    """Return the key of a request's session; raise RequestError if the request can't be handled."""
    if code := context.failure():
        raise RequestError(code, code.description)
    if not request.group_id or not request.member_id:
        raise RequestError(ErrorCode.INVALID_REQUEST, "the group's or the member's id is empty")
    return SessionKey(request.group_id, request.member_id)


def open_partition(
    group_id: str, place: SharedPlace, context: RequestContext
) -> tuple[Partition, Shared, SharePartition]:
    """Return a partition and its state for a group; raise RequestError unless this node leads
    it.
    """
    topic = context.store.find_topic("", place.topic_id)
    if topic is None:
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic {place.topic_id}")
    if code := context.failure(topic.name, place.partition):
        raise RequestError(code, code.description)
    partition = topic.partition(place.partition)
    if partition is None:
        raise RequestError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"{topic.name} has no partition {place.partition}",
        )
    check_leader(partition, context)
    return partition, *context.store.shares.open(ShareKey(group_id, *place), partition)


def acknowledge_all(
    request: ShareRequest,
    asked: Iterable[tuple[SharedPlace, Sequence[Run]]],
    key: SessionKey,
    context: RequestContext,
) -> dict[SharedPlace, Outcome]:
    """Apply the acknowledgements of a request, with a separate result for each partition."""
    outcomes = {}
    for place, runs in asked:
        try:
            _acknowledge(request, place, runs, key, context)
            outcomes[place] = Outcome()
        except RequestError as error:
            outcomes[place] = Outcome.of(error)
    return outcomes


def _acknowledge(
    request: ShareRequest,
    place: SharedPlace,
    runs: Sequence[Run],
    key: SessionKey,
    context: RequestContext,
) -> None:
    checked = _checked(runs, may_renew=context.api_version >= _RENEWAL_FROM)
    _, shared, state = open_partition(key.group_id, place, context)
    settings = context.store.group_configs.share(key.group_id)
    renews = any(Acknowledge.RENEW in run.types for run in checked)
    if renews and not request.is_renew_ack:
        raise RequestError(ErrorCode.INVALID_REQUEST, "a request with renewals needs IsRenewAck")
    if renews and not settings.may_renew:
        raise RequestError(
            ErrorCode.INVALID_RECORD_STATE,
            "share.renew.acknowledge.enable of the group is false",
        )
    now = context.disconnected.get_loop().time()
    state.acknowledge(key.member_id, checked, settings, now)
    context.store.shares.changed(shared)


def _checked(runs: Sequence[Run], *, may_renew: bool) -> list[Acknowledgements]:
    """Return acknowledgements; raise RequestError (INVALID_REQUEST) if one is invalid."""
    highest = Acknowledge.RENEW if may_renew else Acknowledge.REJECT
    previous = -1
    for run in runs:
        types, count = run.acknowledge_types, run.last_offset - run.first_offset + 1
        if (
            run.first_offset < previous
            or count < 1
            or len(types) not in (1, count)
            or not all(0 <= kind <= highest for kind in types)
        ):
            raise RequestError(
                ErrorCode.INVALID_REQUEST,
                f"records {run.first_offset} to {run.last_offset}: not in order, or not valid "
                f"acknowledgements: {types}",
            )
        previous = run.last_offset
    return [
        Acknowledgements(run.first_offset, run.last_offset, run.acknowledge_types) for run in runs
    ]


def end_session(key: SessionKey, context: RequestContext) -> None:
    """End a session, and release the records that its member has acquired at this node."""
    shares, node_id = context.store.shares, context.node.node_id
    shares.sessions(node_id, context.disconnected).end(key)
    shares.release(key, node_id)


def is_last(request: ShareRequest) -> bool:
    """Return whether a request closes its session."""
    return request.share_session_epoch == FINAL_EPOCH


def by_topic(places: Iterable[SharedPlace]) -> dict[object, list[SharedPlace]]:
    """Return the partitions by topic id."""
    topics: dict[object, list[SharedPlace]] = defaultdict(list)
    for place in places:
        topics[place.topic_id].append(place)
    return topics
