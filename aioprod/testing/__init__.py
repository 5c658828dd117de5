"""Tools for testing applications that use Kafka: a broker in the same process, and hooks that make it misbehave.

``RealKafka`` (a real broker) is in ``aioprod.testing.real_kafka``.
"""

from __future__ import annotations

from aioprod.testing.broker.broker import EmbeddedBroker, ThreadedBroker
from aioprod.testing.broker.control import Action, Rule, close, delay, drop_after, drop_before, fail, hold, hold_answer
from aioprod.testing.broker.dispatcher import SeenRequest

__all__ = [
    "Action",
    "EmbeddedBroker",
    "Rule",
    "SeenRequest",
    "ThreadedBroker",
    "close",
    "delay",
    "drop_after",
    "drop_before",
    "fail",
    "hold",
    "hold_answer",
]
