"""Converts aiokafka's settings to those of aioprod."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from aioprod import OAuthToken
from aioprod.compat.aiokafka.abc import AbstractTokenProvider

# Settings that both clients have, with the same values.
_SAME_FOR_ALL = (
    "client_id",
    "metadata_max_age_ms",
    "request_timeout_ms",
    "retry_backoff_ms",
    "security_protocol",
    "ssl_context",
)
_NEVER_MS = -1  # value of connections_max_idle_ms


def warn_deprecated(loop: object, api_version: object) -> None:
    """Issue the warnings that aiokafka issues for settings without an effect."""
    for name, given in (("loop", loop), ("api_version", api_version)):
        if given is not None:
            warnings.warn(
                f"{name} is deprecated in aiokafka and has no effect",
                DeprecationWarning,
                stacklevel=3,
            )


def servers(given: str | Iterable[str]) -> list[str]:
    """Return bootstrap servers with ports, 9092 by default."""
    listed = given.split(",") if isinstance(given, str) else list(given)
    return [_with_port(address.strip()) for address in listed if address.strip()]


def _with_port(address: str) -> str:
    protocol, sign, rest = address.rpartition("://")
    return f"{protocol}{sign}{_plain_with_port(rest)}"


def _plain_with_port(address: str) -> str:
    host = address.rpartition("]")[2] if address.startswith("[") else address
    if address.count(":") > 1 and not address.startswith("["):
        return f"[{address}]:9092"  # an IPv6 address
    return address if ":" in host else f"{address}:9092"


def client_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that producers and consumers share, with aioprod's names."""
    _check_security(given)
    settings = {name: given[name] for name in _SAME_FOR_ALL}
    idle_ms = given["connections_max_idle_ms"]
    settings["connections_max_idle_ms"] = _NEVER_MS if idle_ms is None else idle_ms
    settings["bootstrap_servers"] = servers(given["bootstrap_servers"])
    if "SASL" in given["security_protocol"]:
        settings["sasl_mechanism"] = given["sasl_mechanism"]
        for theirs, ours in (
            ("sasl_plain_username", "sasl_username"),
            ("sasl_plain_password", "sasl_password"),
        ):
            if given[theirs] is not None:
                settings[ours] = given[theirs]
        if given["sasl_mechanism"] == "GSSAPI":
            for name in ("sasl_kerberos_service_name", "sasl_kerberos_domain_name"):
                settings[name] = given[name]
        if given["sasl_oauth_token_provider"] is not None:
            settings["sasl_oauth_token_provider"] = _Tokens(given["sasl_oauth_token_provider"])
    return settings


def _check_security(given: Mapping[str, Any]) -> None:
    """Raise aiokafka's ValueErrors, with the same text."""
    protocol, mechanism = given["security_protocol"], given["sasl_mechanism"]
    if protocol not in ("SSL", "PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL"):
        raise ValueError(f"`security_protocol` should be SSL or PLAINTEXT: {protocol!r}")
    if protocol.endswith("SSL") and given["ssl_context"] is None:
        raise ValueError("`ssl_context` is mandatory if security_protocol=='SSL'")
    login = given["sasl_plain_username"], given["sasl_plain_password"]
    if protocol.startswith("SASL") and mechanism == "PLAIN" and None in login:
        raise ValueError("sasl_plain_username and sasl_plain_password required for PLAIN sasl")


def producer_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments for :class:`aioprod.Producer`."""
    timeout_ms = given["request_timeout_ms"]
    settings = {
        **client_settings(given),
        "acks": given["acks"],
        "enable_idempotence": given["enable_idempotence"],
        "batch_size": given["max_batch_size"],
        "max_request_size": given["max_request_size"],
        "linger_ms": given["linger_ms"],
        "compression_type": given["compression_type"] or "none",
        "max_block_ms": timeout_ms,
        "delivery_timeout_ms": int(timeout_ms + given["linger_ms"] + 1),
    }
    if not given["enable_idempotence"]:
        # As in aiokafka, one request in flight for each broker keeps the order.
        settings["max_in_flight_requests_per_connection"] = 1
    if given["transactional_id"] is not None:
        settings["transactional_id"] = given["transactional_id"]
        settings["transaction_timeout_ms"] = given["transaction_timeout_ms"]
    return settings


_SAME_FOR_CONSUMERS = (
    "group_id",
    "group_instance_id",
    "fetch_max_wait_ms",
    "fetch_max_bytes",
    "fetch_min_bytes",
    "max_partition_fetch_bytes",
    "auto_offset_reset",
    "check_crcs",
    "session_timeout_ms",
    "heartbeat_interval_ms",
    "exclude_internal_topics",
    "isolation_level",
)


def consumer_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments for :class:`aioprod.Consumer`, except for topics and assignors."""
    rebalance_ms = given["rebalance_timeout_ms"]
    if given["isolation_level"] not in ("read_uncommitted", "read_committed"):
        raise ValueError(f"Incorrect isolation level {given['isolation_level']}")
    return {
        **client_settings(given),
        **{name: given[name] for name in _SAME_FOR_CONSUMERS},
        "client_rack": given["client_rack"] or "",
        "default_api_timeout_ms": given["request_timeout_ms"],
        "allow_auto_create_topics": True,
        # Records are read ahead: only the driver knows which ones the application has taken.
        "enable_auto_commit": False,
        # The driver polls all the time, so this only limits how long a rebalance may take.
        "max_poll_interval_ms": given["session_timeout_ms"]
        if rebalance_ms is None
        else rebalance_ms,
    }


class _Tokens:
    """Calls a token provider of aiokafka."""

    def __init__(self, provider: AbstractTokenProvider) -> None:
        self._provider = provider

    async def __call__(self) -> OAuthToken:
        value = await self._provider.token()
        return OAuthToken(value, self._provider.extensions())
