"""Tools for testing applications that use Kafka: a broker in the same process, and hooks that make it misbehave.

``RealKafka`` (a real broker) is in ``aioprod.testing.real_kafka``.
"""

from __future__ import annotations

from aioprod.testing.broker.control import Action, Rule, change_answer, close, delay, drop_after, drop_before, fail, hold, hold_answer, throttle
from aioprod.testing.broker.dispatcher import SeenRequest
from aioprod.testing.broker.embedded import EmbeddedCluster
from aioprod.testing.broker.security import BrokerSecurity
from aioprod.testing.broker.threaded import ThreadedCluster

__all__ = [
    "Action",
    "BrokerSecurity",
    "EmbeddedCluster",
    "Rule",
    "SeenRequest",
    "ThreadedCluster",
    "change_answer",
    "close",
    "delay",
    "drop_after",
    "drop_before",
    "fail",
    "hold",
    "hold_answer",
    "throttle",
]
