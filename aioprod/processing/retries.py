"""Decides what follows a failure: a retry in place, a delivery to another member, a retry topic,
the dead-letter topic, or the end of the processor. Synchronous: no clock, no waiting.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from aioprod import ConfigError, DeserializationError
from aioprod.config.checks import in_range
from aioprod.public_module import set_module

_MAX_DELAY_MS = 7 * 24 * 3_600_000


@set_module("aioprod.processing")
class RetryTopic(NamedTuple):
    """A topic for records that failed. The processor reads it, too.

    Attributes:
        topic: the name. Create it with enough partitions for the number of retries.
        delay_ms: how long after its arrival a record is handled again.
    """

    topic: str
    delay_ms: int


@set_module("aioprod.processing")
@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Determines how often and when a record is handled again after a failure.

    A record is first retried in place, then it passes through the retry topics, and finally it is
    sent to the dead-letter topic.

    Attributes:
        attempts: the number of calls of the handler, including the first one, before the record is
            sent to the first retry topic; 1 means no retry in place. After each retry topic there
            is one.
        backoff_ms: the wait before the first retry in place. It doubles with each further retry,
            and varies by 20 %.
        backoff_max_ms: the longest wait before a retry in place.
        keep_order: whether later records of the key (or of the partition, depending on ``order``)
            wait while a record is retried; otherwise they overtake it. Retry topics need False.
        retry_topics: the retry topics, in order.
        not_retriable: errors that a retry can't fix: the record is sent to the dead-letter topic
            without a retry. DeserializationError is always one of them.

    Raises:
        ConfigError: if a value is invalid, or contradicts another.
    """

    attempts: int = 3
    backoff_ms: int = 200
    backoff_max_ms: int = 10_000
    keep_order: bool = True
    retry_topics: Sequence[RetryTopic] = ()
    not_retriable: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        in_range(1, 1_000_000)("attempts", self.attempts)
        in_range(0, _MAX_DELAY_MS)("backoff_ms", self.backoff_ms)
        in_range(0, _MAX_DELAY_MS)("backoff_max_ms", self.backoff_max_ms)
        topics = tuple(RetryTopic(*each) for each in self.retry_topics)
        object.__setattr__(self, "retry_topics", topics)
        object.__setattr__(self, "not_retriable", tuple(self.not_retriable))
        for topic, delay_ms in topics:
            if not isinstance(topic, str) or not topic:
                raise ConfigError(f"retry_topics: topic {topic!r}: must be a name")
            in_range(0, _MAX_DELAY_MS)(f"retry_topics: delay_ms of {topic!r}", delay_ms)
        if len({topic for topic, _ in topics}) < len(topics):
            raise ConfigError(f"retry_topics={topics!r}: each topic may be listed once")
        if topics and self.keep_order:
            raise ConfigError(
                "retry_topics with keep_order=True: later records of a key would overtake those "
                "in a retry topic; set keep_order=False, or leave out retry_topics"
            )


class RetryInPlace(NamedTuple):
    """Handle the record again after this delay."""

    delay_s: float


class Release(NamedTuple):
    """Release the record to any member of the share group."""


class Forward(NamedTuple):
    """Send the record to a retry topic, or to the dead-letter topic."""

    topic: str
    is_dead_letter: bool


class GiveUp(NamedTuple):
    """Stop the processor: the record must not be skipped. Some guarantees skip it."""


Decision = RetryInPlace | Release | Forward | GiveUp


def decide(
    policy: RetryPolicy,
    dead_letter_topic: str | None,
    error: BaseException,
    topic: str,
    attempts_here: int,
    rng: random.Random,
    *,
    may_release: bool = False,
) -> Decision:
    """Decide what follows a failed call of the handler.

    Args:
        topic: the topic that the record was read from, which may be a retry topic.
        attempts_here: the calls of the handler since it was read from there, with the failed one.
        may_release: whether the record may be released to another member.
    """
    if not isinstance(error, (DeserializationError, *policy.not_retriable)):
        tiers = [retry.topic for retry in policy.retry_topics]
        tier = tiers.index(topic) + 1 if topic in tiers else 0
        if not tier and attempts_here < policy.attempts:
            # 2.0 ** 1100 would overflow.
            backoff_ms = min(
                policy.backoff_ms * 2.0 ** min(attempts_here - 1, 64), policy.backoff_max_ms
            )
            return RetryInPlace(backoff_ms / 1000 * rng.uniform(0.8, 1.2))
        if tier < len(tiers):
            return Forward(tiers[tier], is_dead_letter=False)
        if may_release:
            return Release()
    if dead_letter_topic is not None:
        return Forward(dead_letter_topic, is_dead_letter=True)
    return GiveUp()


def retry_delay_s(policy: RetryPolicy, topic: str, timestamp_ms: int, now_ms: float) -> float:
    """Return how long a record that was just read must wait: 0 unless it is in a retry topic.

    Args:
        timestamp_ms: the record's, in the retry topic.
        now_ms: the current time; both are in milliseconds since 1970. If the clocks of the machines
            differ, the wait is at most the delay of the topic.
    """
    for retry_topic, delay_ms in policy.retry_topics:
        if retry_topic == topic:
            return max(0.0, min(timestamp_ms + delay_ms - now_ms, float(delay_ms))) / 1000
    return 0.0
