"""What the handlers of configuration requests have in common: which resources there are, and how their settings are changed."""

from __future__ import annotations

from collections.abc import Mapping

from aioprod.error_codes import ErrorCode
from aioprod.testing.broker.exchange import Exchange
from aioprod.testing.broker.settings.configs import ALL_BROKERS
from aioprod.testing.broker.store import StoreError, Topic, check_topic_name

TOPIC = 2
BROKER = 4


def find_topic(name: str, exchange: Exchange) -> Topic:
    """Return a topic; raise StoreError where there is none, or a test does not want it to be changed or shown."""
    if code := exchange.failure(name):
        raise StoreError(code, code.description)
    check_topic_name(name)
    return exchange.store.get_topic(name)


def check_broker_name(name: str, exchange: Exchange) -> None:
    """Raise StoreError (INVALID_REQUEST) unless this node is asked about itself, or about all brokers ("")."""
    if code := exchange.failure():
        raise StoreError(code, code.description)
    if name not in (ALL_BROKERS, str(exchange.node.node_id)):
        raise StoreError(ErrorCode.INVALID_REQUEST, f"broker {name!r}: this is broker {exchange.node.node_id}")


def current_overrides(kind: int, name: str, exchange: Exchange) -> dict[str, str]:
    """The settings that a resource has of its own; raise StoreError where there can be no such resource."""
    if kind == TOPIC:
        if not name:
            raise StoreError(ErrorCode.INVALID_REQUEST, "there are no settings for all topics")
        check_topic_name(name)
        topic = exchange.store.find_topic(name)
        return {} if topic is None else {setting: value for setting, value in topic.configs.items() if value is not None}
    if kind == BROKER:
        check_broker_name(name, exchange)
        return exchange.store.configs.overrides(name)
    raise StoreError(ErrorCode.INVALID_REQUEST, f"resource type {kind}: there are topics ({TOPIC}) and brokers ({BROKER})")


def replace_overrides(kind: int, name: str, overrides: Mapping[str, str], *, validate_only: bool, exchange: Exchange) -> None:
    """Check the settings that a resource is to have of its own, and let it have them; raise StoreError where it can't."""
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
