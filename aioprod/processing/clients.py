"""Makes the consumer, the producer and the guarantee of a processor from its settings."""

from __future__ import annotations

import random
from typing import Any, cast

from aioprod import Consumer, ConsumerSettings, Producer, ProducerSettings
from aioprod.processing.config import ProcessorConfig

# As Kafka Streams: an open transaction of a process that died holds up readers for this long.
_TRANSACTION_TIMEOUT_MS = 10_000


def make_consumer(
    config: ProcessorConfig, shared: dict[str, Any], rng: random.Random, most_poll_records: int
) -> Consumer:
    """Make a consumer of bytes that commits only what the processor asks for.

    Raises:
        ConfigError: if a setting is invalid, or contradicts another.
    """
    settings: dict[str, Any] = {"auto_offset_reset": "earliest", **shared, **config.consumer}
    most = settings.get("max_poll_records", most_poll_records)
    settings["max_poll_records"] = min(most, most_poll_records) if isinstance(most, int) else most
    settings["group_id"] = config.group_id
    settings["enable_auto_commit"] = False
    if config.is_exactly_once:
        settings["isolation_level"] = "read_committed"
    servers = settings.pop("bootstrap_servers", "localhost:9092")
    return Consumer(bootstrap_servers=servers, rng=rng, **cast("ConsumerSettings", settings))


def make_producer(config: ProcessorConfig, shared: dict[str, Any], rng: random.Random) -> Producer:
    """Make the producer of outputs, retries and dead letters.

    Raises:
        ConfigError: if a setting is invalid, or contradicts another.
    """
    settings: dict[str, Any] = {**shared, **config.producer}
    if config.is_exactly_once:
        settings["transactional_id"] = config.transactional_id or _transactional_id(config, rng)
        settings.setdefault("transaction_timeout_ms", _TRANSACTION_TIMEOUT_MS)
    servers = settings.pop("bootstrap_servers", "localhost:9092")
    return Producer(servers, rng=rng, **cast("ProducerSettings", settings))


def _transactional_id(config: ProcessorConfig, rng: random.Random) -> str:
    instance = config.consumer.get("group_instance_id")
    return f"{config.group_id}-{instance or format(rng.getrandbits(64), '016x')}"
