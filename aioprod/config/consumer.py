"""A consumer's settings: Kafka's names in snake_case, each checked by itself and against the
others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from aioprod.config.checks import (
    MAX_INT,
    check_callable,
    check_choice,
    check_list,
    check_numbers,
    check_switches,
)
from aioprod.config.client import ClientConfig
from aioprod.config.kafka_properties import ClientSettings
from aioprod.config.security import SecuritySettings
from aioprod.config.unsupported import SECURITY_ABSENT
from aioprod.errors import ConfigError
from aioprod.interceptors import ConsumerInterceptor
from aioprod.serialization import Deserializer

EARLIEST = "earliest"
LATEST = "latest"
NONE = "none"
BY_DURATION = "by_duration"

ISOLATION_LEVELS: Mapping[str, int] = {"read_uncommitted": 0, "read_committed": 1}
_DURATION = re.compile(
    r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,9})?)S)?)?", re.IGNORECASE
)


class OffsetReset(NamedTuple):
    """Where reading begins without a valid position (``auto.offset.reset``): the strategy, and for
    ``by_duration`` how long ago (KIP-1106).
    """

    strategy: str
    duration_ms: int = 0

    @classmethod
    def parse(cls, text: object) -> OffsetReset:
        """Of ``earliest``, ``latest``, ``none`` or ``by_duration:`` and a duration of ISO 8601 such
        as ``P1DT6H``.

        Raises:
            ConfigError: it is none of these.
        """
        if isinstance(text, str):
            strategy, colon, duration = text.strip().lower().partition(":")
            if not colon and strategy in (EARLIEST, LATEST, NONE):
                return cls(strategy)
            match = _DURATION.fullmatch(duration)
            if strategy == BY_DURATION and match is not None and any(match.groups()):
                days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
                return cls(
                    strategy, round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)
                )
        raise ConfigError(
            f"auto_offset_reset={text!r}: must be earliest, latest, none, or by_duration: "
            "and a duration such as P1DT6H"
        )


@dataclass(frozen=True, slots=True)
class ConsumerConfig(ClientConfig):
    """Settings of a consumer; times in milliseconds, sizes in bytes. Names and defaults are those
    of Java's consumer where it has them.

    Attributes:
        group_id: the group; None reads without one, so nothing is committed (``group.id``).
        group_instance_id: this member's own name, which makes it a static one
            (``group.instance.id``, KIP-345).
        group_protocol: ``classic``, or ``consumer`` for the protocol of KIP-848
            (``group.protocol``).
        group_remote_assignor: the broker's assignor for the latter; None leaves it to the broker
            (``group.remote.assignor``).
        partition_assignment_strategy: names of assignors, or objects, the best first
            (``partition.assignment.strategy``).
        session_timeout_ms, heartbeat_interval_ms: as in Kafka; not used by
            ``group_protocol="consumer"``, where the broker decides.
        max_poll_interval_ms: longest time between two calls for records before the member leaves
            its group (``max.poll.interval.ms``).
        max_poll_records: most records that one ``getmany`` returns, unless the call says otherwise
            (``max.poll.records``).
        enable_auto_commit, auto_commit_interval_ms: whether positions are committed by themselves,
        and how often.
        auto_offset_reset: where to begin without a valid offset: ``earliest``, ``latest``, ``none``
            (an error) or ``by_duration:PT1H``.
        fetch_min_bytes, fetch_max_bytes, fetch_max_wait_ms, max_partition_fetch_bytes: as in Kafka.
        max_buffered_bytes: most bytes of fetched batches that wait for the application, and are
            asked for; one batch above it may still come.
        isolation_level: ``read_committed`` leaves out what transactions have not committed.
        check_crcs: whether checksums are checked (``check.crcs``).
        client_rack: where this consumer is; brokers may then name a nearer replica to read from
            (``client.rack``, KIP-392).
        allow_auto_create_topics: whether asking for an unknown topic may create it
            (``allow.auto.create.topics``).
        exclude_internal_topics: whether a pattern leaves out Kafka's own topics
            (``exclude.internal.topics``).
        default_api_timeout_ms: the limit of calls that have no other, such as ``position`` and
            ``commit`` (``default.api.timeout.ms``).
        key_deserializer, value_deserializer: called with (topic, headers, bytes); None leaves the
            bytes.
        interceptors: see :class:`aioprod.ConsumerInterceptor` (``interceptor.classes``).
        metrics_sample_window_ms, metrics_num_samples: what rates and averages are taken over.

    Raises:
        ConfigError: a value is out of its limits, or contradicts another setting.
    """

    group_id: str | None = None
    group_instance_id: str | None = None
    group_protocol: str = "classic"
    group_remote_assignor: str | None = None
    partition_assignment_strategy: Sequence[Any] = ("range", "cooperative-sticky")
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    max_poll_records: int = 500
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    auto_offset_reset: str = LATEST
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 52_428_800
    fetch_max_wait_ms: int = 500
    max_partition_fetch_bytes: int = 1_048_576
    max_buffered_bytes: int = 67_108_864
    isolation_level: str = "read_uncommitted"
    check_crcs: bool = True
    client_rack: str = ""
    allow_auto_create_topics: bool = True
    exclude_internal_topics: bool = True
    default_api_timeout_ms: int = 60_000
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None
    interceptors: Sequence[ConsumerInterceptor] = ()
    metrics_sample_window_ms: int = 30_000
    metrics_num_samples: int = 2

    def __post_init__(self) -> None:
        # Zero-argument super() does not work in a slots dataclass.
        ClientConfig.__post_init__(self)
        check_numbers(self, _LIMITS)
        check_switches(self, _SWITCHES)
        check_choice(self, "isolation_level", tuple(ISOLATION_LEVELS))
        check_choice(self, "group_protocol", ("classic", "consumer"))
        if not isinstance(self.client_rack, str):
            raise ConfigError(f"client_rack={self.client_rack!r}: must be a string")
        OffsetReset.parse(self.auto_offset_reset)
        check_callable(self, "key_deserializer")
        check_callable(self, "value_deserializer")
        check_list(self, "interceptors", ConsumerInterceptor)
        _check_fetch(self)
        _check_group(self)

    @property
    def offset_reset(self) -> OffsetReset:
        """``auto_offset_reset``, taken apart."""
        return OffsetReset.parse(self.auto_offset_reset)


class ConsumerSettings(SecuritySettings, total=False):
    """The keyword arguments of :class:`aioprod.Consumer`."""

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
    group_id: str | None
    group_instance_id: str | None
    group_protocol: str
    group_remote_assignor: str | None
    partition_assignment_strategy: Sequence[Any]
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    max_poll_records: int
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    auto_offset_reset: str
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    max_buffered_bytes: int
    isolation_level: str
    check_crcs: bool
    client_rack: str
    allow_auto_create_topics: bool
    exclude_internal_topics: bool
    default_api_timeout_ms: int
    key_deserializer: Deserializer | None
    value_deserializer: Deserializer | None
    interceptors: Sequence[ConsumerInterceptor]
    metrics_sample_window_ms: int
    metrics_num_samples: int


_LIMITS: dict[str, tuple[int, int]] = {
    "session_timeout_ms": (1, MAX_INT),
    "heartbeat_interval_ms": (1, MAX_INT),
    "max_poll_interval_ms": (1, MAX_INT),
    "max_poll_records": (1, MAX_INT),
    "auto_commit_interval_ms": (0, MAX_INT),
    "fetch_min_bytes": (0, MAX_INT),
    "fetch_max_bytes": (1, MAX_INT),
    "fetch_max_wait_ms": (0, MAX_INT),
    "max_partition_fetch_bytes": (1, MAX_INT),
    "max_buffered_bytes": (1, 2**63 - 1),
    "default_api_timeout_ms": (1, MAX_INT),
    "metrics_sample_window_ms": (1, MAX_INT),
    "metrics_num_samples": (1, MAX_INT),
}
_SWITCHES = (
    "enable_auto_commit",
    "check_crcs",
    "allow_auto_create_topics",
    "exclude_internal_topics",
)


def _check_fetch(config: ConsumerConfig) -> None:
    if config.fetch_max_wait_ms >= config.request_timeout_ms:
        raise ConfigError(
            f"fetch_max_wait_ms={config.fetch_max_wait_ms}: must be below "
            f"request_timeout_ms={config.request_timeout_ms}, "
            "or waiting for records would pass for a broker that does not answer"
        )


def _check_group(config: ConsumerConfig) -> None:
    for name in ("group_id", "group_instance_id", "group_remote_assignor"):
        value = getattr(config, name)
        if value is not None and (not isinstance(value, str) or not value):
            raise ConfigError(f"{name}={value!r}: must be a string that is not empty")
    strategies = config.partition_assignment_strategy
    if isinstance(strategies, str) or not isinstance(strategies, Iterable) or not list(strategies):
        raise ConfigError(
            f"partition_assignment_strategy={strategies!r}: must be a list of assignors, "
            "such as ['range']"
        )
    object.__setattr__(config, "partition_assignment_strategy", tuple(strategies))
    if config.group_id is None:
        if config.group_instance_id is not None:
            raise ConfigError(f"group_instance_id={config.group_instance_id!r}: needs a group_id")
        return
    if (
        config.group_protocol == "classic"
        and config.heartbeat_interval_ms >= config.session_timeout_ms
    ):
        raise ConfigError(
            f"heartbeat_interval_ms={config.heartbeat_interval_ms}: must be below "
            f"session_timeout_ms={config.session_timeout_ms}"
        )


_JAVA_CONSUMER = "org.apache.kafka.clients.consumer."


#: How a consumer's settings are read.
CONSUMER = ClientSettings(
    ConsumerConfig,
    "consumer",
    {"interceptor.classes": "interceptors"},
    {
        **SECURITY_ABSENT,
        "enable.metrics.push": (
            "metrics are not pushed to brokers (KIP-714); read Consumer.metrics()"
        ),
        "metric.reporters": "it names Java classes; read Consumer.metrics()",
        "metrics.recording.level": "all metrics are always recorded",
        "share.acknowledgement.mode": "share groups (KIP-932) are not there",
    },
    ("key_deserializer", "value_deserializer"),
    ("interceptors",),
    {
        "partition_assignment_strategy": {
            _JAVA_CONSUMER + "RangeAssignor": "range",
            _JAVA_CONSUMER + "RoundRobinAssignor": "roundrobin",
            _JAVA_CONSUMER + "StickyAssignor": "sticky",
            _JAVA_CONSUMER + "CooperativeStickyAssignor": "cooperative-sticky",
        }
    },
)
