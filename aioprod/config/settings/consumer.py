"""The declarations of a consumer's settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aioprod.config.checks import (
    MAX_INT,
    check_name,
    check_serializer,
    check_string,
    in_range,
    list_of,
    or_none,
)
from aioprod.config.offset_reset import EARLIEST, LATEST, NONE, check_offset_reset
from aioprod.config.setting import (
    MAX_LONG,
    Section,
    Setting,
    Source,
    choice,
    literal,
    milliseconds,
    number,
    section,
    switch,
)
from aioprod.config.settings.client import CONNECTIONS, ISOLATION_LEVELS, METRICS
from aioprod.config.settings.security import SECURITY
from aioprod.errors import ConfigError
from aioprod.interceptors import ConsumerInterceptor
from aioprod.metrics import ConsumerObserver

#: The names of the built-in assignors.
ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")

_JAVA = "org.apache.kafka.clients.consumer."


def _check_rack(name: str, value: Any) -> Any:
    return check_string(name, "" if value is None else value)


def _check_assignors(name: str, value: Any) -> tuple[Any, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable) or not (kept := tuple(value)):
        raise ConfigError(f"{name}={value!r}: must be a list of assignors, such as ['range']")
    return kept


GROUP = section(
    Setting(
        "group_id",
        "str | None",
        None,
        "Consumer group. Without it, the consumer commits nothing.",
        check_name,
    ),
    Setting(
        "group_instance_id",
        "str | None",
        None,
        "Name that makes this consumer a static member: it keeps its partitions if it restarts "
        "within `session_timeout_ms`. Requires `group_id`.",
        check_name,
        since="2.3, KIP-345",
    ),
    choice(
        "group_protocol",
        "classic",
        ("classic", "consumer"),
        "Group protocol; `consumer` is the one of KIP-848, in which the broker assigns partitions. "
        "It requires Kafka 4.0, or 3.7 with the protocol enabled.",
        change_case=str.lower,
        since="3.7, KIP-848",
    ),
    Setting(
        "group_remote_assignor",
        "str | None",
        None,
        "Assignor of the broker, for `group_protocol=consumer`. Without it, the broker chooses.",
        check_name,
        since="3.7, KIP-848",
    ),
    Setting(
        "partition_assignment_strategy",
        f"Sequence[{literal(*ASSIGNORS)} | CustomAssignor]",
        ("range", "cooperative-sticky"),
        "Assignors, in order of preference: `range`, `roundrobin`, `sticky`, "
        "`cooperative-sticky`, or `Assignor` objects. For `group_protocol=classic`.",
        _check_assignors,
        source=Source.NAMES_OR_PLUGINS,
        java_classes={
            _JAVA + "RangeAssignor": "range",
            _JAVA + "RoundRobinAssignor": "roundrobin",
            _JAVA + "StickyAssignor": "sticky",
            _JAVA + "CooperativeStickyAssignor": "cooperative-sticky",
        },
    ),
    milliseconds(
        "session_timeout_ms",
        45_000,
        1,
        "Time without a heartbeat after which the broker removes a member from its group. For "
        "`group_protocol=classic`.",
    ),
    milliseconds(
        "heartbeat_interval_ms",
        3_000,
        1,
        "Time between heartbeats; must be below `session_timeout_ms`. A third of "
        "`max_poll_interval_ms` if that is shorter. For "
        "`group_protocol=classic`.",
    ),
    milliseconds(
        "max_poll_interval_ms",
        300_000,
        1,
        "Longest time between two calls for records. Then the consumer leaves its group until "
        "the next call.",
        since="0.10.1, KIP-62",
    ),
    number(
        "max_poll_records",
        500,
        1,
        "Largest number of records that `getmany` returns, unless the call sets `max_records`.",
        since="0.10, KIP-41",
    ),
)

OFFSETS = section(
    switch("enable_auto_commit", True, "Whether positions are committed automatically."),
    milliseconds("auto_commit_interval_ms", 5_000, 0, "Time between automatic commits."),
    Setting(
        "auto_offset_reset",
        f"{literal(EARLIEST, LATEST, NONE)} | timedelta",
        LATEST,
        "Starting point without a valid offset: `earliest`, `latest`, `none` (raise an error), or "
        "`timedelta(hours=1)` ago; as text `by_duration:PT1H` (Kafka 4.0, KIP-1106).",
        check_offset_reset,
        "`earliest`, `latest`, `none`, a `timedelta`, `by_duration:` with an ISO duration",
    ),
)

FETCHING = section(
    number(
        "fetch_min_bytes",
        1,
        0,
        "Size of data that a broker waits for before it responds, up to `fetch_max_wait_ms`.",
        unit="bytes",
    ),
    number(
        "fetch_max_bytes",
        52_428_800,
        1,
        "Largest size of a response. A larger first batch is still returned.",
        unit="bytes",
        since="0.10.1, KIP-74",
    ),
    milliseconds(
        "fetch_max_wait_ms",
        500,
        0,
        "Longest time that a broker waits for `fetch_min_bytes`; must be below "
        "`request_timeout_ms`.",
    ),
    number(
        "max_partition_fetch_bytes",
        1_048_576,
        1,
        "Largest size of the data of a partition in a response. A larger first batch is still "
        "returned.",
        unit="bytes",
    ),
    Setting(
        "largest_partition_fetch_bytes",
        "int | None",
        None,
        "Size to which `max_partition_fetch_bytes` grows while responses are full, if the request "
        "then asks for no more in all. None: 4 MiB, up to 16 MiB from a broker that takes 100 ms "
        "or more, or `max_partition_fetch_bytes` if that is set.",
        or_none(in_range(1, MAX_INT)),
        "1 to 2147483647, or None",
        "bytes",
        kafka_name=None,
    ),
    number(
        "max_buffered_bytes",
        67_108_864,
        1,
        "Largest size of all batches that are requested, or fetched and not yet returned to the "
        "application. Java limits single responses only.",
        high=MAX_LONG,
        unit="bytes",
        kafka_name=None,
    ),
    milliseconds(
        "stall_timeout_ms",
        60_000,
        0,
        "Time after which a partition that has records but is not read counts as stalled. The "
        "reason is logged, and is in `state` and the metrics. 0: never.",
        kafka_name=None,
    ),
    choice(
        "isolation_level",
        "read_uncommitted",
        ISOLATION_LEVELS,
        "`read_committed` skips records of transactions that are open or aborted.",
        since="0.11, KIP-98",
    ),
    switch("check_crcs", True, "Whether the checksum of each batch is verified before it is read."),
    Setting(
        "client_rack",
        "str",
        "",
        "Rack of this consumer. Brokers may then name a closer replica to read from.",
        _check_rack,
        since="2.4, KIP-392",
    ),
    switch(
        "allow_auto_create_topics",
        True,
        "Whether a request for the metadata of an unknown topic may create it.",
        since="2.3, KIP-361",
    ),
    switch(
        "exclude_internal_topics",
        True,
        "Whether patterns and `topics()` exclude internal topics of Kafka.",
    ),
    milliseconds(
        "default_api_timeout_ms",
        60_000,
        1,
        "Timeout of calls without their own, such as `position` and `commit`.",
        since="2.0, KIP-266",
    ),
)

RECORDS = section(
    Setting(
        "key_deserializer",
        "AnyDeserializer | None",
        None,
        "Called with `(topic, headers, data)` or `(data)`, returns the key. Without it, keys "
        "are bytes. Java has no default.",
        check_serializer,
        source=Source.PLUGIN,
    ),
    Setting(
        "value_deserializer",
        "AnyDeserializer | None",
        None,
        "Called with `(topic, headers, data)` or `(data)`, returns the value. Without it, values "
        "are bytes. Java has no default.",
        check_serializer,
        source=Source.PLUGIN,
    ),
    Setting(
        "interceptors",
        "Sequence[ConsumerInterceptor]",
        (),
        "`ConsumerInterceptor` objects, which get records before the application does, and "
        "committed offsets.",
        list_of(ConsumerInterceptor),
        kafka_name="interceptor.classes",
        since="0.10, KIP-42",
        source=Source.PLUGINS,
    ),
    Setting(
        "observers",
        "Sequence[ConsumerObserver]",
        (),
        "`ConsumerObserver` objects, which are called for polls, records, commits, rebalances, "
        "stalls and connections.",
        list_of(ConsumerObserver),
        kafka_name=None,
        source=Source.PLUGINS,
    ),
)

#: The settings that only consumers have.
CONSUMER_ONLY: Section = {**GROUP, **OFFSETS, **FETCHING, **RECORDS, **METRICS}
CONSUMER_SETTINGS: Mapping[str, Setting] = {**SECURITY, **CONNECTIONS, **CONSUMER_ONLY}
