"""The settings of a share processor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from aioprod import ConfigError, ProducerSettings, ShareConsumerSettings
from aioprod.config.checks import in_range, one_of
from aioprod.config.keywords.client import ClientSettings
from aioprod.processing.config import CommonConfig, refuse
from aioprod.processing.observers import ProcessorObserver
from aioprod.processing.retries import RetryPolicy
from aioprod.public_module import set_module

#: Every share group allows at least this number of deliveries
#: (``group.share.min.delivery.count.limit`` of brokers).
SURE_DELIVERIES = 2
# The most that brokers allow for group.share.max.delivery.count.limit.
_MOST_DELIVERIES = 10


@set_module("aioprod.processing")
class ShareProcessorSettings(ClientSettings, total=False):
    """The keyword arguments of :class:`ShareProcessor`: the fields of
    :class:`ShareProcessorConfig`, and the settings that all clients share.
    """

    bootstrap_servers: str | Iterable[str]
    group_id: str
    concurrency: int
    retry: RetryPolicy | None
    max_deliveries: int
    dead_letter_topic: str | None
    reject_failed: bool
    max_pending_records: int | None
    drain_timeout_ms: int
    unhealthy_after_ms: int
    observers: Sequence[ProcessorObserver]
    consumer: ShareConsumerSettings
    producer: ProducerSettings


@set_module("aioprod.processing")
@dataclass(frozen=True, slots=True, kw_only=True)
class ShareProcessorConfig(CommonConfig):
    """The settings of a share processor, in addition to those of clients.

    Attributes:
        group_id: the share group. Required.
        concurrency: the maximum number of handlers that run at the same time.
        retry: the retries in place, at each delivery; ``RetryPolicy()`` by default. Retry topics
            are not supported.
        max_deliveries: a record that failed is released to any member, until it was delivered this
            often. More than 2 requires permission to describe the group's configuration, because
            the group's ``share.delivery.count.limit`` must not be lower.
        dead_letter_topic: the topic for records whose retries have failed, and for those that a
            deserializer can't read. They are accepted when they are acknowledged there.
        reject_failed: without ``dead_letter_topic``: reject such records. The broker drops them, or
            writes them to the group's dead-letter queue (KIP-1191). One of the two is required.
        max_pending_records: the maximum number of records locked for this processor: in handlers,
            waiting for one, or for a retry; half as many more for each further broker. Other
            members can't receive them meanwhile. By default twice ``concurrency``.
        drain_timeout_ms: how long handlers of locked records may run on after the processor is
            stopped. Then the other records are released.
        unhealthy_after_ms: how long the consumer may fail, or a handler may run, before ``healthy``
            is false. Set it above the duration of the longest handler.
        observers: ``ProcessorObserver`` objects.
        consumer, producer: settings for only the consumer or only the producer.

    Raises:
        ConfigError: if a value is invalid, or contradicts another.
    """

    max_deliveries: int = SURE_DELIVERIES
    reject_failed: bool = False
    max_pending_records: int | None = None
    consumer: ShareConsumerSettings = field(default_factory=ShareConsumerSettings)

    def __post_init__(self) -> None:
        self.check_common()
        in_range(1, _MOST_DELIVERIES)("max_deliveries", self.max_deliveries)
        one_of((True, False))("reject_failed", self.reject_failed)
        if self.max_pending_records is None:
            object.__setattr__(self, "max_pending_records", 2 * self.concurrency)
        in_range(2, 1_000_000)("max_pending_records", self.max_pending_records)
        if self.policy.retry_topics:
            raise ConfigError(
                "retry: retry_topics: not supported in a share group; a failed record is "
                "released to any member, up to max_deliveries times"
            )
        if (self.dead_letter_topic is None) is not self.reject_failed:
            raise ConfigError(
                f"dead_letter_topic={self.dead_letter_topic!r} with reject_failed="
                f"{self.reject_failed}: name a topic for records that can't be processed, or set "
                "reject_failed=True, so that the broker drops them or writes them to the group's "
                "dead-letter queue (KIP-1191)"
            )
        self._check_consumer()

    def _check_consumer(self) -> None:
        given = self.consumer
        refuse("consumer", given, "bootstrap_servers", "group_id", "share_acknowledgement_mode")
        refuse("consumer", given, "key_deserializer", "value_deserializer")
        if given.get("max_lock_renewal_ms") == 0:
            raise ConfigError(
                "consumer: max_lock_renewal_ms=0: must be at least 1: the locks of records in "
                "handlers are renewed"
            )

    @property
    def most_pending(self) -> int:
        """``max_pending_records``."""
        assert self.max_pending_records is not None
        return self.max_pending_records
