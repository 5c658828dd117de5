"""What the handlers of transaction and group requests have in common."""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.testing.broker.cluster import GROUP, TRANSACTION
from aioprod.testing.broker.exchange import Exchange
from aioprod.testing.broker.store import StoreError
from aioprod.types import TopicPartition


def check_coordinator(exchange: Exchange, transactional_id: str) -> None:
    """Raise StoreError (NOT_COORDINATOR) where another node coordinates this transactional id."""
    _check(exchange, TRANSACTION, transactional_id)


def check_group_coordinator(exchange: Exchange, group_id: str) -> None:
    """Raise StoreError (NOT_COORDINATOR) where another node coordinates this group."""
    _check(exchange, GROUP, group_id)


def check_group(exchange: Exchange, group_id: str) -> None:
    """Raise StoreError where a request of a group's member can't be handled here: a test wants it
    so, the id is empty, or it is not ours.
    """
    if code := exchange.failure():
        raise StoreError(code, code.description)
    if not group_id:
        raise StoreError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    check_group_coordinator(exchange, group_id)


def _check(exchange: Exchange, kind: int, key: str) -> None:
    if exchange.store.coordinator_node(kind, key) != exchange.node.node_id:
        raise StoreError(ErrorCode.NOT_COORDINATOR, f"another node coordinates {key!r}")


def check_place(exchange: Exchange, place: TopicPartition, refusal: ErrorCode) -> ErrorCode:
    """Why no offset is committed for a partition: a test wants it so, there is none such, or the
    request is refused as a whole; else NONE.
    """
    topic = exchange.store.find_topic(place.topic)
    code = exchange.failure(*place)
    if not code and (topic is None or topic.partition(place.partition) is None):
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return code or refusal


def fenced_code(code: ErrorCode, version: int, known_from: int) -> ErrorCode:
    """Return the code as clients of this request version know it: PRODUCER_FENCED is younger than
    the requests (KIP-588).
    """
    return (
        ErrorCode.INVALID_PRODUCER_EPOCH
        if code is ErrorCode.PRODUCER_FENCED and version < known_from
        else code
    )
