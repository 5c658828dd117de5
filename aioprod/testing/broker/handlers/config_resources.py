"""What the handlers of configuration requests have in common: which resources there are, and how
their settings are changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from aioprod.error_codes import ErrorCode
from aioprod.testing.broker.exchange import Exchange
from aioprod.testing.broker.settings.configs import ALL_BROKERS
from aioprod.testing.broker.store import StoreError, Topic, check_topic_name

TOPIC = 2
BROKER = 4


class Resource(Protocol):
    """What a request to change settings names; both such APIs have a class of their own for it."""

    resource_type: int
    resource_name: str


ResourceT = TypeVar("ResourceT", bound=Resource)


class Altered(NamedTuple):
    """What became of the settings of one resource: the fields of an answer."""

    error_code: ErrorCode
    error_message: str | None
    resource_type: int
    resource_name: str


def alter_each(
    resources: Sequence[ResourceT],
    new_overrides: Callable[[ResourceT, Exchange], Mapping[str, str]],
    *,
    validate_only: bool,
    exchange: Exchange,
) -> list[Altered]:
    """Give each resource the settings of its own that ``new_overrides`` says; each has its own
    result, and may be named once.
    """
    counts = Counter((asked.resource_type, asked.resource_name) for asked in resources)
    results = []
    for asked in resources:
        kind, name = place = asked.resource_type, asked.resource_name
        try:
            if counts[place] > 1:
                raise StoreError(ErrorCode.INVALID_REQUEST, "a resource may be named once")
            _replace_overrides(
                kind,
                name,
                new_overrides(asked, exchange),
                validate_only=validate_only,
                exchange=exchange,
            )
            results.append(Altered(ErrorCode.NONE, None, kind, name))
        except StoreError as error:
            results.append(Altered(error.code, error.text, kind, name))
    return results


def find_topic(name: str, exchange: Exchange) -> Topic:
    """Return a topic; raise StoreError where there is none, or a test does not want it to be
    changed or shown.
    """
    if code := exchange.failure(name):
        raise StoreError(code, code.description)
    check_topic_name(name)
    return exchange.store.get_topic(name)


def check_broker_name(name: str, exchange: Exchange) -> None:
    """Raise StoreError (INVALID_REQUEST) unless this node is asked about itself, or about all
    brokers ("").
    """
    if code := exchange.failure():
        raise StoreError(code, code.description)
    if name not in (ALL_BROKERS, str(exchange.node.node_id)):
        raise StoreError(
            ErrorCode.INVALID_REQUEST, f"broker {name!r}: this is broker {exchange.node.node_id}"
        )


def current_overrides(kind: int, name: str, exchange: Exchange) -> dict[str, str]:
    """The settings that a resource has of its own; raise StoreError where there can be no such
    resource.
    """
    if kind == TOPIC:
        if not name:
            raise StoreError(ErrorCode.INVALID_REQUEST, "there are no settings for all topics")
        check_topic_name(name)
        topic = exchange.store.find_topic(name)
        return (
            {}
            if topic is None
            else {setting: value for setting, value in topic.configs.items() if value is not None}
        )
    if kind == BROKER:
        check_broker_name(name, exchange)
        return exchange.store.configs.overrides(name)
    raise StoreError(
        ErrorCode.INVALID_REQUEST,
        f"resource type {kind}: there are topics ({TOPIC}) and brokers ({BROKER})",
    )


def _replace_overrides(
    kind: int, name: str, overrides: Mapping[str, str], *, validate_only: bool, exchange: Exchange
) -> None:
    """Check the settings that a resource is to have of its own, and let it have them; raise
    StoreError where it can't.
    """
    store = exchange.store
    if kind == TOPIC:
        store.configs.parse_topic(overrides)  # before the topic is looked up, as Kafka does
        topic = find_topic(name, exchange)
        if not validate_only:
            store.set_topic_configs(topic, overrides)
        return
    store.configs.check_broker(overrides, name)
    if not validate_only:
        store.configs.set_broker(overrides, name)
