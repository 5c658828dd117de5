"""The declarations of the settings that all clients have, or several of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aioprod.config.addresses import parse_servers
from aioprod.config.checks import check_string
from aioprod.config.setting import Setting, choice, milliseconds, number, section, switch

DNS_LOOKUPS = ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")
RECOVERY_STRATEGIES = ("rebootstrap", "none")
#: The names of isolation levels, and their numbers in requests.
ISOLATION_LEVELS: Mapping[str, int] = {"read_uncommitted": 0, "read_committed": 1}


def _check_servers(name: str, value: Any) -> Any:
    return parse_servers(value)


CONNECTIONS = section(
    Setting(
        "bootstrap_servers",
        "tuple[str, ...]",
        ("localhost:9092",),
        "Addresses of the brokers to connect to first, `host:port`: a list, or text separated by "
        "commas. Java has no default.",
        _check_servers,
    ),
    Setting(
        "client_id",
        "str",
        "aioprod",
        "Name of the client in the logs, metrics and quotas of brokers. KIND is `producer`, "
        "`consumer` or `admin`; N is the `transactional_id`, or a number, for consumers after the "
        "`group_id`.",
        check_string,
        shown_default='"aioprod-KIND-N"',
    ),
    milliseconds(
        "request_timeout_ms",
        30_000,
        1,
        "Longest wait for the response to a request. Then the connection is closed, and the "
        "request is retried if possible.",
    ),
    milliseconds(
        "retry_backoff_ms",
        100,
        0,
        "Wait before the first retry of a request. It doubles with each failure, and varies by "
        "20 %.",
    ),
    milliseconds(
        "retry_backoff_max_ms",
        1_000,
        0,
        "Longest wait before a retry.",
        since="3.7, KIP-580",
    ),
    milliseconds(
        "reconnect_backoff_ms",
        50,
        0,
        "Wait before the client connects to a broker again. It doubles with each failure, and "
        "varies by 20 %.",
    ),
    milliseconds(
        "reconnect_backoff_max_ms",
        1_000,
        0,
        "Longest wait before the client connects to a broker again.",
        since="0.11, KIP-144",
    ),
    milliseconds(
        "metadata_max_age_ms",
        300_000,
        1,
        "Age at which metadata is refreshed, even without an error.",
    ),
    milliseconds(
        "metadata_max_idle_ms",
        300_000,
        5_000,
        "Time after which the metadata of an unused topic is dropped. Java has it for producers "
        "only.",
        since="2.5, KIP-526",
    ),
    milliseconds(
        "connections_max_idle_ms",
        540_000,
        1,
        "Time after which an unused connection is closed.",
    ),
    milliseconds(
        "socket_connection_setup_timeout_ms",
        10_000,
        1,
        "Longest wait for a connection, including TLS and SASL. It doubles with each failure.",
        since="2.7, KIP-601",
    ),
    milliseconds(
        "socket_connection_setup_timeout_max_ms",
        30_000,
        1,
        "Longest wait for a connection after failures.",
        since="2.7, KIP-601",
    ),
    number(
        "send_buffer_bytes",
        -1,
        -1,
        "Send buffer of a socket; -1 for the default of the system. The default of Java is "
        "131,072.",
        unit="bytes",
    ),
    number(
        "receive_buffer_bytes",
        -1,
        -1,
        "Receive buffer of a socket; -1 for the default of the system. The default of Java is "
        "32,768 for producers and 65,536 for other clients.",
        unit="bytes",
    ),
    choice(
        "client_dns_lookup",
        "use_all_dns_ips",
        DNS_LOOKUPS,
        "`use_all_dns_ips` tries all addresses of a host name. "
        "`resolve_canonical_bootstrap_servers_only` also replaces each bootstrap server by the "
        "canonical names of its addresses.",
        since="2.1, KIP-302",
    ),
    choice(
        "metadata_recovery_strategy",
        "rebootstrap",
        RECOVERY_STRATEGIES,
        "`rebootstrap` connects to `bootstrap_servers` again if no known broker is available; "
        "`none` retries the known brokers.",
        change_case=str.lower,
        since="3.8, KIP-899",
    ),
    milliseconds(
        "metadata_recovery_rebootstrap_trigger_ms",
        300_000,
        0,
        "Time without metadata after which `rebootstrap` connects to `bootstrap_servers` again.",
        since="4.0, KIP-1102",
    ),
    switch(
        "metadata_cluster_check_enable",
        True,
        "Send brokers (Kafka 4.4 or newer) the cluster and node that a connection is meant for. "
        "One that leads to another is refused, and the client connects to `bootstrap_servers` "
        "again. Ignored with `metadata_recovery_strategy=none`.",
        since="4.4, KIP-1242",
    ),
)

METRICS_PUSH = switch(
    "enable_metrics_push",
    True,
    "Push metrics to brokers that ask for them: those that have a receiver of client metrics and a "
    "subscription that matches this client.",
    since="3.7, KIP-714",
)

METRICS = section(
    METRICS_PUSH,
    milliseconds(
        "metrics_sample_window_ms",
        30_000,
        1,
        "Length of a window of `metrics()`, over which rates and averages are computed.",
    ),
    number("metrics_num_samples", 2, 1, "Number of such windows that `metrics()` uses."),
)
