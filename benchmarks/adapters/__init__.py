"""The clients that are compared, behind one interface."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.adapters.adapter import Adapter, DeliveryFailedError, Feature, started
from benchmarks.adapters.aiokafka import Aiokafka, AiokafkaNames
from benchmarks.adapters.aioprod import Aioprod, AioprodPure, AioprodSendArrow, AioprodSendMany
from benchmarks.adapters.confluent import Confluent, ConfluentAsyncio, ConfluentProduceBatch
from benchmarks.adapters.foreign import ForeignClient, FranzGo, Java, Kafkajs, Platformatic
from benchmarks.adapters.kafka_python import KafkaPython
from benchmarks.adapters.line_rate import LineRate
from benchmarks.adapters.settings import Load, Settings

__all__ = [
    "ADAPTERS",
    "Adapter",
    "AioprodPure",
    "DeliveryFailedError",
    "Feature",
    "ForeignClient",
    "FranzGo",
    "Java",
    "Load",
    "Settings",
    "able",
    "started",
]

_ALL: tuple[type[Adapter], ...] = (
    Aioprod,
    AioprodPure,
    AioprodSendMany,
    AioprodSendArrow,
    Confluent,
    ConfluentProduceBatch,
    ConfluentAsyncio,
    Aiokafka,
    AiokafkaNames,
    KafkaPython,
    FranzGo,
    Java,
    Platformatic,
    Kafkajs,
    LineRate,
)

ADAPTERS: dict[str, type[Adapter]] = {adapter.name: adapter for adapter in _ALL}
"""All adapters by name."""


def able(*features: Feature) -> Iterable[str]:
    """Return the names of the clients that support all of these features."""
    return [name for name, adapter in ADAPTERS.items() if not adapter.lacks & set(features)]
