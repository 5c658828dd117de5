"""A producer's settings: Kafka's names in snake_case, each checked by itself and against the
others. Kafka's dotted form: ``properties.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from aioprod.config.checks import (
    MAX_INT,
    check_callable,
    check_choice,
    check_list,
    check_numbers,
    check_switches,
    shown,
)
from aioprod.config.client import ClientConfig
from aioprod.config.kafka_properties import ClientSettings, client_arguments
from aioprod.config.security import SecuritySettings
from aioprod.config.unsupported import SECURITY_ABSENT
from aioprod.errors import ConfigError
from aioprod.interceptors import ProducerInterceptor
from aioprod.metrics import ProducerObserver
from aioprod.serialization import Serializer

TopicCompression = Mapping[str, str | tuple[str, int]]
"""Topic -> codec, or (codec, level)."""

#: Codecs (``compression.type``) and whether a level is one of the codec's.
CODECS: Mapping[str, Callable[[int], bool]] = {
    "none": lambda level: False,
    "gzip": lambda level: level == -1 or 1 <= level <= 9,
    "snappy": lambda level: False,
    "lz4": lambda level: 1 <= level <= 17,
    "zstd": lambda level: -131_072 <= level <= 22,
}
_LEVELS = {"gzip": "-1 (zlib's own) or 1 to 9", "lz4": "1 to 17", "zstd": "-131072 to 22"}


class CustomPartitioner(Protocol):
    """What a producer needs of ``partitioner``; see :class:`aioprod.Partitioner`."""

    def partition(
        self, topic: str, key: bytes | None, value: bytes | None, partitions: Any, /
    ) -> int:
        """The number of a partition."""
        ...


@dataclass(frozen=True, slots=True)
class ProducerConfig(ClientConfig):
    """Settings of a producer; all are in docs/configuration.md.

    Raises:
        ConfigError: a value is out of its limits, or contradicts another setting.
    """

    acks: int | str = "all"
    enable_idempotence: bool = True
    retries: int = MAX_INT
    delivery_timeout_ms: int = 120_000
    max_block_ms: int = 60_000
    max_in_flight_requests_per_connection: int = 5
    max_request_size: int = 1_048_576
    linger_ms: float = 5
    batch_size: int = 16_384
    buffer_memory: int = 33_554_432
    compression_type: str = "none"
    compression_level: int | None = None
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    topic_compression: TopicCompression = field(default_factory=dict)
    key_serializer: Serializer | None = None
    value_serializer: Serializer | None = None
    interceptors: Sequence[ProducerInterceptor] = ()
    partitioner: CustomPartitioner | None = None
    partitioner_adaptive_partitioning_enable: bool = True
    partitioner_availability_timeout_ms: int = 0
    partitioner_ignore_keys: bool = False
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000
    observers: Sequence[ProducerObserver] = ()
    metrics_sample_window_ms: int = 30_000
    metrics_num_samples: int = 2

    def __post_init__(self) -> None:
        # Zero-argument super() does not work in a slots dataclass.
        ClientConfig.__post_init__(self)
        acks = {"all": -1, "-1": -1, "0": 0, "1": 1}.get(str(self.acks))
        if acks is None or isinstance(self.acks, bool):
            raise ConfigError(f"acks={self.acks!r}: must be 'all', -1, 0 or 1")
        object.__setattr__(self, "acks", acks)
        check_numbers(self, _LIMITS)
        check_switches(self, _SWITCHES)
        _check_parts(self)
        _check_compression(self)
        _check_delivery(self)
        _check_identity(self)
        _check_partitioning(self)

    def compression_of(self, topic: str) -> tuple[str, int | None]:
        """Codec and level for a topic's batches; the level is None where the codec has none."""
        own = self.topic_compression.get(topic)
        if isinstance(own, tuple):
            return own
        if own is None and self.compression_level is not None:
            return self.compression_type, self.compression_level
        codec = own or self.compression_type
        return codec, getattr(self, f"compression_{codec}_level", None)


class ProducerSettings(SecuritySettings, total=False):
    """The keyword arguments of :class:`aioprod.Producer`."""

    client_id: str
    client_dns_lookup: str
    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    metadata_max_age_ms: int
    metadata_max_idle_ms: int
    metadata_recovery_strategy: str
    metadata_recovery_rebootstrap_trigger_ms: int
    connections_max_idle_ms: int
    socket_connection_setup_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    acks: int | str
    enable_idempotence: bool
    retries: int
    delivery_timeout_ms: int
    max_block_ms: int
    max_in_flight_requests_per_connection: int
    max_request_size: int
    linger_ms: float
    batch_size: int
    buffer_memory: int
    compression_type: str
    compression_level: int | None
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    topic_compression: TopicCompression
    key_serializer: Serializer | None
    value_serializer: Serializer | None
    interceptors: Sequence[ProducerInterceptor]
    partitioner: CustomPartitioner | None
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: int
    partitioner_ignore_keys: bool
    transactional_id: str | None
    transaction_timeout_ms: int
    observers: Sequence[ProducerObserver]
    metrics_sample_window_ms: int
    metrics_num_samples: int


_LIMITS: dict[str, tuple[int, int]] = {
    "retries": (0, MAX_INT),
    "delivery_timeout_ms": (1, MAX_INT),
    "max_block_ms": (0, MAX_INT),
    "max_in_flight_requests_per_connection": (1, MAX_INT),
    "max_request_size": (1, MAX_INT),
    "linger_ms": (0, MAX_INT),
    "batch_size": (0, MAX_INT),
    "buffer_memory": (1, 2**63 - 1),
    "partitioner_availability_timeout_ms": (0, MAX_INT),
    "transaction_timeout_ms": (1, MAX_INT),
    "metrics_sample_window_ms": (1, MAX_INT),
    "metrics_num_samples": (1, MAX_INT),
}
_SWITCHES = (
    "enable_idempotence",
    "partitioner_adaptive_partitioning_enable",
    "partitioner_ignore_keys",
)


def _check_parts(config: ProducerConfig) -> None:
    check_callable(config, "key_serializer")
    check_callable(config, "value_serializer")
    partitioner = config.partitioner
    if partitioner is not None and (
        isinstance(partitioner, type) or not callable(getattr(partitioner, "partition", None))
    ):
        raise ConfigError(
            f"partitioner={shown(partitioner)}: must be an object with a method "
            "partition(topic, key, value, partitions)"
        )
    check_list(config, "interceptors", ProducerInterceptor)
    check_list(config, "observers", ProducerObserver)


def _check_compression(config: ProducerConfig) -> None:
    check_choice(config, "compression_type", tuple(CODECS))
    for codec in _LEVELS:
        _check_level(
            f"compression_{codec}_level", codec, getattr(config, f"compression_{codec}_level")
        )
    level, codec = config.compression_level, config.compression_type
    if level is not None:
        _check_level("compression_level", codec, level)
        own = f"compression_{codec}_level"
        if getattr(config, own) not in (level, ProducerConfig.__dataclass_fields__[own].default):
            raise ConfigError(
                f"compression_level={level} and {own}={getattr(config, own)} contradict one "
                "another: give one of them"
            )
    _check_topic_compression(config)


def _check_topic_compression(config: ProducerConfig) -> None:
    given = config.topic_compression
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"topic_compression={given!r}: must map topics to a codec or (codec, level)"
        )
    checked: dict[str, str | tuple[str, int]] = {}
    for topic, wanted in given.items():
        match topic, wanted:
            case str(), str() as codec if codec in CODECS:
                checked[topic] = codec
            case str(), (str() as codec, level) if codec in CODECS:
                _check_level(f"topic_compression[{topic!r}]", codec, level)
                checked[topic] = codec, level
            case _:
                raise ConfigError(
                    f"topic_compression[{topic!r}]={wanted!r}: must be one of "
                    f"{', '.join(CODECS)}, or (codec, level)"
                )
    object.__setattr__(config, "topic_compression", MappingProxyType(checked))


def _check_level(name: str, codec: str, level: object) -> None:
    if codec not in _LEVELS:
        raise ConfigError(f"{name}={level!r}: {codec} has no levels")
    if isinstance(level, bool) or not isinstance(level, int) or not CODECS[codec](level):
        raise ConfigError(f"{name}={level!r}: {codec} takes {_LEVELS[codec]}")


def _check_delivery(config: ProducerConfig) -> None:
    if config.buffer_memory < config.batch_size:
        raise ConfigError(
            f"buffer_memory={config.buffer_memory}: must be at least "
            f"batch_size={config.batch_size}, or no batch could be opened"
        )
    if config.delivery_timeout_ms < config.linger_ms + config.request_timeout_ms:
        raise ConfigError(
            f"delivery_timeout_ms={config.delivery_timeout_ms}: must be at least linger_ms + "
            "request_timeout_ms "
            f"= {config.linger_ms} + {config.request_timeout_ms}"
        )


def _check_identity(config: ProducerConfig) -> None:
    transactional_id = config.transactional_id
    if transactional_id is not None and (
        not isinstance(transactional_id, str) or not transactional_id
    ):
        raise ConfigError(
            f"transactional_id={transactional_id!r}: must be a string that is not empty"
        )
    if not config.enable_idempotence:
        if transactional_id is not None:
            raise ConfigError(
                f"transactional_id={transactional_id!r}: transactions need enable_idempotence=True"
            )
        return
    if config.acks != -1:
        raise ConfigError(
            f"acks={config.acks!r}: idempotence needs acks='all'; set it, or "
            "enable_idempotence=False"
        )
    if config.retries == 0:
        raise ConfigError(
            "retries=0: idempotence needs at least one; raise it, or set enable_idempotence=False"
        )
    if config.max_in_flight_requests_per_connection > 5:
        raise ConfigError(
            "max_in_flight_requests_per_connection="
            f"{config.max_in_flight_requests_per_connection}: "
            "idempotence allows at most 5; lower it, or set enable_idempotence=False"
        )


def _check_partitioning(config: ProducerConfig) -> None:
    if (
        config.partitioner_availability_timeout_ms
        and not config.partitioner_adaptive_partitioning_enable
    ):
        raise ConfigError(
            f"partitioner_availability_timeout_ms={config.partitioner_availability_timeout_ms}: "
            "has no effect with partitioner_adaptive_partitioning_enable=False"
        )
    if config.partitioner is None:
        return
    for name in (
        "partitioner_availability_timeout_ms",
        "partitioner_adaptive_partitioning_enable",
        "partitioner_ignore_keys",
    ):
        value = getattr(config, name)
        if value != ProducerConfig.__dataclass_fields__[name].default:
            raise ConfigError(
                f"{name}={value!r}: is for the built-in choice of partitions, and "
                "partitioner is set"
            )


#: Kafka's names that are more than ours with dots.
RENAMED: Mapping[str, str] = {
    "interceptor.classes": "interceptors",
    "partitioner.class": "partitioner",
}


#: Settings of Java 4.1's ProducerConfig that are not here, and why.
ABSENT: Mapping[str, str] = {
    **SECURITY_ABSENT,
    "enable.metrics.push": (
        "metrics are not pushed to brokers (KIP-714); read Producer.metrics() or give observers"
    ),
    "metric.reporters": "it names Java classes; give observers",
    "metrics.recording.level": "all metrics are always recorded, they are counted per batch",
    "transaction.two.phase.commit.enable": (
        "transactions can't yet take part in another system's two-phase commit (KIP-939)"
    ),
}


#: How a producer's settings are read.
PRODUCER = ClientSettings(
    ProducerConfig,
    "producer",
    RENAMED,
    ABSENT,
    ("key_serializer", "value_serializer", "partitioner"),
    ("interceptors", "observers"),
)


@contextmanager
def producer_arguments(
    settings: Mapping[str, Any], new_client_id: Callable[[str | None], str]
) -> Iterator[dict[str, Any]]:
    """Kafka's own names and values as keyword arguments of :class:`aioprod.Producer`; see
    :func:`client_arguments`.

    Args:
        new_client_id: makes the ``client.id`` where none is set, of the ``transactional.id``.
    """
    with client_arguments(
        PRODUCER, settings, lambda given: new_client_id(given.get("transactional_id"))
    ) as arguments:
        yield arguments
