"""The limits of consumer groups."""

from __future__ import annotations

from dataclasses import dataclass

from aioprod.errors import ConfigError
from aioprod.public_module import set_module


@set_module("aioprod.testing")
@dataclass(slots=True, frozen=True)
class GroupSettings:
    """The broker's settings for consumer groups. Except for ``initial_rebalance_delay_ms`` and
    ``consumer_heartbeat_interval_ms``, the defaults are Kafka's.

    Args:
        initial_rebalance_delay_ms: the time that the first rebalance of an empty group waits for
            more members (group.initial.rebalance.delay.ms; Kafka's default is 3000). With 0, a
            consumer gets its partitions at once.
        min_session_timeout_ms: the minimum session.timeout.ms of a member
            (group.min.session.timeout.ms). Shorter timeouts are refused with
            INVALID_SESSION_TIMEOUT.
        max_session_timeout_ms: the maximum session.timeout.ms (group.max.session.timeout.ms).
        max_size: the maximum number of members of a group (group.max.size; for groups of the
            consumer protocol group.consumer.max.size). Further members are refused with
            GROUP_MAX_SIZE_REACHED.
        consumer_session_timeout_ms: the session timeout of members of the consumer protocol
            (KIP-848, group.consumer.session.timeout.ms).
        consumer_heartbeat_interval_ms: the interval of their heartbeats, whose responses contain
            changes (group.consumer.heartbeat.interval.ms; Kafka's default is 5000).

    Raises:
        ConfigError: if a value is out of range.
    """

    initial_rebalance_delay_ms: int = 0
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 200

    def __post_init__(self) -> None:
        limits = {
            "initial_rebalance_delay_ms": 0,
            "min_session_timeout_ms": 1,
            "max_session_timeout_ms": self.min_session_timeout_ms,
            "max_size": 1,
            "consumer_heartbeat_interval_ms": 1,
            "consumer_session_timeout_ms": self.consumer_heartbeat_interval_ms + 1,
        }
        for name, lowest in limits.items():
            value = getattr(self, name)
            if value < lowest:
                raise ConfigError(f"{name}={value}: must be at least {lowest}")

    def as_broker_settings(self) -> dict[str, str]:
        """Return the settings of all brokers, by Kafka's names. Members get changes quickly, and
        the settings of groups may be lower than Kafka's defaults allow.
        """
        session, interval = self.consumer_session_timeout_ms, self.consumer_heartbeat_interval_ms
        numbers = {
            "group.consumer.assignment.interval.ms": 0,
            "group.consumer.heartbeat.interval.ms": interval,
            "group.consumer.max.heartbeat.interval.ms": max(interval, 15_000),
            "group.consumer.max.session.timeout.ms": max(session, 60_000),
            "group.consumer.max.size": self.max_size,
            "group.consumer.min.heartbeat.interval.ms": 1,
            "group.consumer.min.session.timeout.ms": 1,
            "group.consumer.session.timeout.ms": session,
            "group.initial.rebalance.delay.ms": self.initial_rebalance_delay_ms,
            "group.max.session.timeout.ms": self.max_session_timeout_ms,
            "group.max.size": self.max_size,
            "group.min.session.timeout.ms": self.min_session_timeout_ms,
            "group.share.assignment.interval.ms": 0,
            "group.share.heartbeat.interval.ms": 200,
            "group.share.min.heartbeat.interval.ms": 1,
            "group.share.min.record.lock.duration.ms": 1,
            "group.share.min.session.timeout.ms": 1,
        }
        return {name: str(number) for name, number in numbers.items()}
