"""Creates the clients of a processor from its settings."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, cast

from aioprod import (
    AdminSettings,
    Consumer,
    ConsumerSettings,
    KafkaError,
    Producer,
    ProducerSettings,
    ShareConsumer,
    ShareConsumerSettings,
    TopicPartition,
)
from aioprod.admin import Admin
from aioprod.config.settings.share_consumer import MAX_LOCK_RENEWAL_MS
from aioprod.processing.config import CommonConfig, ProcessorConfig
from aioprod.processing.share_config import ShareProcessorConfig

# As in Kafka Streams: the open transaction of a dead process delays consumers for this long.
_TRANSACTION_TIMEOUT_MS = 10_000


def make_consumer(
    config: ProcessorConfig, shared: dict[str, Any], rng: random.Random, most_poll_records: int
) -> Consumer:
    """Create a consumer without deserializers that commits only when the processor says so.

    Raises:
        ConfigError: if a setting is invalid, or contradicts another.
    """
    settings: dict[str, Any] = {"auto_offset_reset": "earliest", **shared, **config.consumer}
    most = settings.get("max_poll_records", most_poll_records)
    settings["max_poll_records"] = min(most, most_poll_records) if isinstance(most, int) else most
    settings["group_id"] = config.group_id
    settings["enable_auto_commit"] = False
    if config.reads_committed:
        settings["isolation_level"] = "read_committed"
    servers = settings.pop("bootstrap_servers", "localhost:9092")
    return Consumer(bootstrap_servers=servers, rng=rng, **cast("ConsumerSettings", settings))


def make_share_consumer(
    config: ShareProcessorConfig,
    shared: dict[str, Any],
    rng: random.Random,
    on_acknowledged: Callable[[Mapping[TopicPartition, frozenset[int]], KafkaError | None], object],
) -> ShareConsumer:
    """Create a share consumer without deserializers whose records are acknowledged one by one.

    Raises:
        ConfigError: if a setting is invalid, or contradicts another.
    """
    settings: dict[str, Any] = {
        "share_acquire_mode": "record_limit",
        "max_lock_renewal_ms": MAX_LOCK_RENEWAL_MS,
        **shared,
        **config.consumer,
    }
    room = config.most_pending // 2
    most = settings.get("max_poll_records", room)
    settings["max_poll_records"] = min(most, room) if isinstance(most, int) else most
    settings["group_id"] = config.group_id
    settings["share_acknowledgement_mode"] = "explicit"
    servers = settings.pop("bootstrap_servers", "localhost:9092")
    return ShareConsumer(
        servers,
        acknowledgement_commit_callback=on_acknowledged,
        rng=rng,
        **cast("ShareConsumerSettings", settings),
    )


def make_admin(shared: Mapping[str, Any]) -> Admin:
    """Create the client that requests the ids of topics."""
    settings = dict(shared)
    servers = settings.pop("bootstrap_servers", "localhost:9092")
    return Admin(servers, **cast("AdminSettings", settings))


def make_producer(config: CommonConfig, shared: dict[str, Any], rng: random.Random) -> Producer:
    """Create the producer of outputs, retries and dead letters.

    Raises:
        ConfigError: if a setting is invalid, or contradicts another.
    """
    settings: dict[str, Any] = {**shared, **config.producer}
    if isinstance(config, ProcessorConfig) and config.is_exactly_once:
        settings["transactional_id"] = config.transactional_id or _transactional_id(config, rng)
        settings.setdefault("transaction_timeout_ms", _TRANSACTION_TIMEOUT_MS)
    servers = settings.pop("bootstrap_servers", "localhost:9092")
    return Producer(servers, rng=rng, **cast("ProducerSettings", settings))


def _transactional_id(config: ProcessorConfig, rng: random.Random) -> str:
    instance = config.consumer.get("group_instance_id")
    return f"{config.group_id}-{instance or format(rng.getrandbits(64), '016x')}"
