"""The declarations of a share consumer's settings."""

from __future__ import annotations

from collections.abc import Mapping

from aioprod.config.checks import check_name, list_of
from aioprod.config.setting import Section, Setting, Source, choice, number, section
from aioprod.config.settings.client import CONNECTIONS, METRICS
from aioprod.config.settings.consumer import FETCHING, GROUP, RECORDS
from aioprod.config.settings.security import SECURITY
from aioprod.metrics import ShareConsumerObserver

#: The names of acquire modes, and their numbers in requests.
ACQUIRE_MODES: Mapping[str, int] = {"batch_optimized": 0, "record_limit": 1}

#: A week.
MAX_LOCK_RENEWAL_MS = 7 * 24 * 3_600_000

SHARE_GROUP = section(
    Setting("group_id", "str | None", None, "Share group. Required.", check_name),
    choice(
        "share_acknowledgement_mode",
        "implicit",
        ("implicit", "explicit"),
        "`implicit` accepts returned records by the next call for records or by `commit`. With "
        "`explicit`, the application acknowledges each record before the next call.",
        change_case=str.lower,
        since="4.1, KIP-932",
    ),
    choice(
        "share_acquire_mode",
        "batch_optimized",
        ACQUIRE_MODES,
        "`batch_optimized` acquires whole batches, perhaps more than `max_poll_records` records. "
        "`record_limit` acquires at most `max_poll_records`. It requires Kafka 4.2.",
        change_case=str.lower,
        since="4.2, KIP-1206",
    ),
    number(
        "max_lock_renewal_ms",
        0,
        0,
        "With a value above 0, the application may keep records while further ones are fetched: "
        "the client renews their locks, each for this time at most, until they are acknowledged. "
        "It requires `explicit` and Kafka 4.2.",
        high=MAX_LOCK_RENEWAL_MS,
        unit="ms",
        kafka_name=None,
    ),
    GROUP["max_poll_records"]._replace(
        meaning="Number of records to acquire from a broker at a time, and largest number that "
        "`getmany` returns, unless the call sets `max_records`.",
    ),
    GROUP["max_poll_interval_ms"],
)

SHARE_FETCHING = section(
    *(
        FETCHING[name]
        for name in (
            "fetch_min_bytes",
            "fetch_max_bytes",
            "fetch_max_wait_ms",
            "check_crcs",
            "client_rack",
            "default_api_timeout_ms",
        )
    ),
    RECORDS["key_deserializer"],
    RECORDS["value_deserializer"],
)

SHARE_OBSERVERS = section(
    FETCHING["stall_timeout_ms"]._replace(
        meaning="Time after which a partition counts as stalled that is not read although the "
        "application polls, or whose acknowledgements fail; also a group that can't be joined. "
        "The reason is logged, and is in `state` and the metrics. 0: never.",
    ),
    Setting(
        "observers",
        "Sequence[ShareConsumerObserver]",
        (),
        "`ShareConsumerObserver` objects, which are called for polls, records, acknowledgements, "
        "assignments, stalls and connections.",
        list_of(ShareConsumerObserver),
        kafka_name=None,
        source=Source.PLUGINS,
    ),
)

#: The settings that a share consumer has in addition to those of all clients.
SHARE_CONSUMER_ONLY: Section = {**SHARE_GROUP, **SHARE_FETCHING, **SHARE_OBSERVERS, **METRICS}
SHARE_CONSUMER_SETTINGS: Mapping[str, Setting] = {**SECURITY, **CONNECTIONS, **SHARE_CONSUMER_ONLY}
