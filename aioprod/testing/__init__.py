"""Tools for testing applications that use Kafka: a broker in the same process, with fault
injection.

``RealKafka``, a real broker, is in ``aioprod.testing.real_kafka``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioprod.lazy_names import lazy_names as _lazy_names

if TYPE_CHECKING:
    from aioprod.protocol.api_keys import ApiKey
    from aioprod.testing.broker.access.authorizer import Authorizer
    from aioprod.testing.broker.actions import (
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
    from aioprod.testing.broker.embedded import EmbeddedCluster, ThreadedCluster
    from aioprod.testing.broker.groups.settings import GroupSettings
    from aioprod.testing.broker.groups.view import ConsumerGroup, GroupMember
    from aioprod.testing.broker.request_log import SeenRequest
    from aioprod.testing.broker.rules import Rule
    from aioprod.testing.broker.security import BrokerSecurity
    from aioprod.testing.broker.telemetry.otlp_reader import PushedMetric
    from aioprod.testing.broker.telemetry.receiver import MetricsPush
    from aioprod.testing.cancellation import cancel_at_each_point

__all__ = [
    "Action",
    "ApiKey",
    "Authorizer",
    "BrokerSecurity",
    "ConsumerGroup",
    "EmbeddedCluster",
    "GroupMember",
    "GroupSettings",
    "MetricsPush",
    "PushedMetric",
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

_HOMES = {
    "Action": "aioprod.testing.broker.actions",
    "ApiKey": "aioprod.protocol.api_keys",
    "Authorizer": "aioprod.testing.broker.access.authorizer",
    "BrokerSecurity": "aioprod.testing.broker.security",
    "ConsumerGroup": "aioprod.testing.broker.groups.view",
    "EmbeddedCluster": "aioprod.testing.broker.embedded",
    "GroupMember": "aioprod.testing.broker.groups.view",
    "GroupSettings": "aioprod.testing.broker.groups.settings",
    "MetricsPush": "aioprod.testing.broker.telemetry.receiver",
    "PushedMetric": "aioprod.testing.broker.telemetry.otlp_reader",
    "Rule": "aioprod.testing.broker.rules",
    "SeenRequest": "aioprod.testing.broker.request_log",
    "ThreadedCluster": "aioprod.testing.broker.embedded",
    "cancel_at_each_point": "aioprod.testing.cancellation",
    "change_answer": "aioprod.testing.broker.actions",
    "close": "aioprod.testing.broker.actions",
    "cut_answer": "aioprod.testing.broker.actions",
    "delay": "aioprod.testing.broker.actions",
    "drop_after": "aioprod.testing.broker.actions",
    "drop_before": "aioprod.testing.broker.actions",
    "fail": "aioprod.testing.broker.actions",
    "hold": "aioprod.testing.broker.actions",
    "hold_answer": "aioprod.testing.broker.actions",
    "split": "aioprod.testing.broker.actions",
    "throttle": "aioprod.testing.broker.actions",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = _lazy_names(globals(), _HOMES)
