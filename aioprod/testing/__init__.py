"""Tools for testing applications that use Kafka: a broker in the same process, and hooks that make it misbehave.

``RealKafka`` (a real broker) is in ``aioprod.testing.real_kafka``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aioprod.protocol.api_keys import ApiKey
    from aioprod.testing.broker.control import (
        Action,
        change_answer,
        close,
        cut_answer,
        delay,
        drop_after,
        drop_before,
        fail,
        hold,
        hold_answer,
        split,
        throttle,
    )
    from aioprod.testing.broker.embedded import EmbeddedCluster
    from aioprod.testing.broker.groups.settings import GroupSettings
    from aioprod.testing.broker.groups.view import ConsumerGroup, GroupMember
    from aioprod.testing.broker.request_log import SeenRequest
    from aioprod.testing.broker.rules import Rule
    from aioprod.testing.broker.security import BrokerSecurity
    from aioprod.testing.broker.threaded import ThreadedCluster
    from aioprod.testing.cancellation import cancel_at_each_point

__all__ = [
    "Action",
    "ApiKey",
    "BrokerSecurity",
    "ConsumerGroup",
    "EmbeddedCluster",
    "GroupMember",
    "GroupSettings",
    "Rule",
    "SeenRequest",
    "ThreadedCluster",
    "cancel_at_each_point",
    "change_answer",
    "close",
    "cut_answer",
    "delay",
    "drop_after",
    "drop_before",
    "fail",
    "hold",
    "hold_answer",
    "split",
    "throttle",
]

# Names are imported when they are asked for: every run of pytest imports this package for the plugin's sake, whatever it tests.
_HOMES = {
    "Action": "aioprod.testing.broker.control",
    "ApiKey": "aioprod.protocol.api_keys",
    "BrokerSecurity": "aioprod.testing.broker.security",
    "ConsumerGroup": "aioprod.testing.broker.groups.view",
    "EmbeddedCluster": "aioprod.testing.broker.embedded",
    "GroupMember": "aioprod.testing.broker.groups.view",
    "GroupSettings": "aioprod.testing.broker.groups.settings",
    "Rule": "aioprod.testing.broker.rules",
    "SeenRequest": "aioprod.testing.broker.request_log",
    "ThreadedCluster": "aioprod.testing.broker.threaded",
    "cancel_at_each_point": "aioprod.testing.cancellation",
    "change_answer": "aioprod.testing.broker.control",
    "close": "aioprod.testing.broker.control",
    "cut_answer": "aioprod.testing.broker.control",
    "delay": "aioprod.testing.broker.control",
    "drop_after": "aioprod.testing.broker.control",
    "drop_before": "aioprod.testing.broker.control",
    "fail": "aioprod.testing.broker.control",
    "hold": "aioprod.testing.broker.control",
    "hold_answer": "aioprod.testing.broker.control",
    "split": "aioprod.testing.broker.control",
    "throttle": "aioprod.testing.broker.control",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
