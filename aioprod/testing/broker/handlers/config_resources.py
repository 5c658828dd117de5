"""Shared by the handlers of configuration requests: resources, and changes of their settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from aioprod.error_codes import ErrorCode
from aioprod.protocol.acls import CLUSTER_NAME, ResourceType
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.request_context import RequestContext
from aioprod.testing.broker.settings.configs import ALL_BROKERS
from aioprod.testing.broker.store import Topic, check_topic_name

TOPIC = 2
BROKER = 4
GROUP = 32


class Resource(Protocol):
    """A resource in a request that changes settings; two APIs have their own class for it."""

    resource_type: int
    resource_name: str


ResourceT = TypeVar("ResourceT", bound=Resource)


class AlterResult(NamedTuple):
    """The result for one resource: the fields of a response."""

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
) -> list[AlterResult]:
    """Replace the settings of each resource with those that ``new_overrides`` returns. Each
    resource has a separate result and may occur only once.
    """
    counts = Counter((asked.resource_type, asked.resource_name) for asked in resources)
    results = []
    for asked in resources:
        kind, name = place = asked.resource_type, asked.resource_name
        try:
            if kind == TOPIC and (code := context.failure(name)):
                raise RequestError(code, code.description)
            if counts[place] > 1:
                raise RequestError(ErrorCode.INVALID_REQUEST, "a resource is named twice")
            _replace_overrides(
                kind,
                name,
                new_overrides(asked, context),
                validate_only=validate_only,
                context=context,
            )
            results.append(AlterResult(ErrorCode.NONE, None, kind, name))
        except RequestError as error:
            results.append(AlterResult(error.code, error.text, kind, name))
    return results


def check_names_and_values(names: Sequence[str], without_value: Sequence[str]) -> None:
    """Raise RequestError (INVALID_REQUEST) if a request names a setting twice, or if a required
    value is missing.
    """
    if len(set(names)) < len(names):
        raise RequestError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    if without_value:
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            f"Null value not supported for : {','.join(without_value)}",
        )


def find_topic(name: str, context: RequestContext) -> Topic:
    """Return a topic; raise RequestError if it does not exist, or if a test's rule makes it
    fail.
    """
    if code := context.failure(name):
        raise RequestError(code, code.description)
    check_topic_name(name)
    return context.store.get_topic(name)


def check_broker_name(name: str, context: RequestContext) -> None:
    """Raise RequestError (INVALID_REQUEST) unless a request names this node or all brokers ("")."""
    if code := context.refusal_of(ResourceType.CLUSTER, CLUSTER_NAME):
        raise RequestError(code, code.description)
    if name not in (ALL_BROKERS, str(context.node.node_id)):
        raise RequestError(
            ErrorCode.INVALID_REQUEST, f"broker {name!r}: this broker is {context.node.node_id}"
        )


def check_group_name(name: str, context: RequestContext, refusal: str) -> None:
    """Raise RequestError if the client is not authorized for a group, or if the name is empty
    (INVALID_REQUEST, with this text).
    """
    if code := context.refusal_of(ResourceType.GROUP, name):
        raise RequestError(code, code.description)
    if not name:
        raise RequestError(ErrorCode.INVALID_REQUEST, refusal)


def unknown_kind(kind: int) -> str:
    """Return the message for a resource type without settings."""
    return f"resource type {kind}: must be {TOPIC} (topic), {BROKER} (broker) or {GROUP} (group)"


def current_overrides(kind: int, name: str, context: RequestContext) -> dict[str, str]:
    """Return the settings that were set for a resource; raise RequestError if the resource is
    invalid.
    """
    if kind == TOPIC:
        if not name:
            raise RequestError(ErrorCode.INVALID_REQUEST, "the topic's name is empty")
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
    if kind == GROUP:
        check_group_name(name, context, "Default group resources are not allowed.")
        return context.store.group_configs.overrides(name)
    raise RequestError(ErrorCode.INVALID_REQUEST, unknown_kind(kind))


def _replace_overrides(
    kind: int,
    name: str,
    overrides: Mapping[str, str],
    *,
    validate_only: bool,
    context: RequestContext,
) -> None:
    """Validate and replace the settings of a resource; raise RequestError if one is invalid."""
    store = context.store
    if kind == TOPIC:
        store.configs.parse_topic(overrides)  # as in Kafka, before the topic is looked up
        topic = find_topic(name, context)
        if not validate_only:
            store.set_topic_configs(topic, overrides)
        return
    if kind == GROUP:
        parsed = store.group_configs.parse(overrides)
        if not validate_only:
            store.group_configs.replace(name, parsed)
        return
    store.configs.check_broker(overrides, name)
    if not validate_only:
        store.configs.set_broker(overrides, name)
