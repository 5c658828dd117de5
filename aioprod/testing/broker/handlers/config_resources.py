"""What the handlers of configuration requests have in common: which resources there are, and how
their settings are changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from aioprod.error_codes import ErrorCode
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.request_context import RequestContext
from aioprod.testing.broker.settings.configs import ALL_BROKERS
from aioprod.testing.broker.store import Topic, check_topic_name

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
    new_overrides: Callable[[ResourceT, RequestContext], Mapping[str, str]],
    *,
    validate_only: bool,
    context: RequestContext,
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
                raise RequestError(ErrorCode.INVALID_REQUEST, "a resource may be named once")
            _replace_overrides(
                kind,
                name,
                new_overrides(asked, context),
                validate_only=validate_only,
                context=context,
            )
            results.append(Altered(ErrorCode.NONE, None, kind, name))
        except RequestError as error:
            results.append(Altered(error.code, error.text, kind, name))
    return results


def find_topic(name: str, context: RequestContext) -> Topic:
    """Return a topic; raise RequestError where there is none, or a test does not want it to be
    changed or shown.
    """
    if code := context.failure(name):
        raise RequestError(code, code.description)
    check_topic_name(name)
    return context.store.get_topic(name)


def check_broker_name(name: str, context: RequestContext) -> None:
    """Raise RequestError (INVALID_REQUEST) unless this node is asked about itself, or about all
    brokers ("").
    """
    if code := context.failure():
        raise RequestError(code, code.description)
    if name not in (ALL_BROKERS, str(context.node.node_id)):
        raise RequestError(
            ErrorCode.INVALID_REQUEST, f"broker {name!r}: this is broker {context.node.node_id}"
        )


def current_overrides(kind: int, name: str, context: RequestContext) -> dict[str, str]:
    """The settings that a resource has of its own; raise RequestError where there can be no such
    resource.
    """
    if kind == TOPIC:
        if not name:
            raise RequestError(ErrorCode.INVALID_REQUEST, "there are no settings for all topics")
        check_topic_name(name)
        topic = context.store.find_topic(name)
        return (
            {}
            if topic is None
            else {setting: value for setting, value in topic.configs.items() if value is not None}
        )
    if kind == BROKER:
        check_broker_name(name, context)
        return context.store.configs.overrides(name)
    raise RequestError(
        ErrorCode.INVALID_REQUEST,
        f"resource type {kind}: there are topics ({TOPIC}) and brokers ({BROKER})",
    )


def _replace_overrides(
    kind: int,
    name: str,
    overrides: Mapping[str, str],
    *,
    validate_only: bool,
    context: RequestContext,
) -> None:
    """Check the settings that a resource is to have of its own, and let it have them; raise
    RequestError where it can't.
    """
    store = context.store
    if kind == TOPIC:
        store.configs.parse_topic(overrides)  # before the topic is looked up, as Kafka does
        topic = find_topic(name, context)
        if not validate_only:
            store.set_topic_configs(topic, overrides)
        return
    store.configs.check_broker(overrides, name)
    if not validate_only:
        store.configs.set_broker(overrides, name)
