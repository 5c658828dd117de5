"""The settings of a processor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeVar

from aioprod import ConfigError, ConsumerSettings, ProducerSettings
from aioprod.config.checks import in_range, list_of, one_of
from aioprod.config.keywords.client import ClientSettings
from aioprod.processing.inbox.inbox import Inbox
from aioprod.processing.observers import ProcessorObserver
from aioprod.processing.retries import RetryPolicy
from aioprod.processing.scheduling import Order
from aioprod.public_module import set_module

T = TypeVar("T", bound=StrEnum)
C = TypeVar("C", bound="CommonConfig")

_MAX_MS = 24 * 3_600_000


class GuaranteeName(StrEnum):
    """The guarantee of a processor: how often a record is processed if something fails."""

    AT_MOST_ONCE = "at_most_once"
    AT_LEAST_ONCE = "at_least_once"
    EXACTLY_ONCE = "exactly_once"
    EXACTLY_ONCE_IN_DATABASE = "exactly_once_in_database"


@set_module("aioprod.processing")
class ProcessorSettings(ClientSettings, total=False):
    """The keyword arguments of :class:`Processor`: the fields of :class:`ProcessorConfig`, and the
    settings that all clients share.
    """

    bootstrap_servers: str | Iterable[str]
    group_id: str
    order: Literal["key", "partition", "none"]
    guarantee: Literal["at_most_once", "at_least_once", "exactly_once", "exactly_once_in_database"]
    inbox: Inbox | None
    concurrency: int
    retry: RetryPolicy | None
    dead_letter_topic: str | None
    max_pending_records: int
    commit_interval_ms: int | None
    drain_timeout_ms: int
    unhealthy_after_ms: int
    transactional_id: str | None
    observers: Sequence[ProcessorObserver]
    consumer: ConsumerSettings
    producer: ProducerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonConfig:
    """The settings that processors of consumer groups and of share groups have in common.
    :class:`ProcessorConfig` documents them.
    """

    group_id: str
    concurrency: int = 16
    retry: RetryPolicy | None = None
    dead_letter_topic: str | None = None
    drain_timeout_ms: int = 30_000
    unhealthy_after_ms: int = 60_000
    observers: Sequence[ProcessorObserver] = ()
    producer: ProducerSettings = field(default_factory=ProducerSettings)

    def check_common(self) -> None:
        """Check these settings, and set their defaults.

        Raises:
            ConfigError: if a value is invalid.
        """
        if not isinstance(self.group_id, str) or not self.group_id:
            raise ConfigError(f"group_id={self.group_id!r}: must be the name of a group")
        letters = self.dead_letter_topic
        if letters is not None and (not isinstance(letters, str) or not letters):
            raise ConfigError(
                f"dead_letter_topic={letters!r}: must be the name of a topic, or None"
            )
        in_range(1, 100_000)("concurrency", self.concurrency)
        in_range(0, _MAX_MS)("drain_timeout_ms", self.drain_timeout_ms)
        in_range(0, _MAX_MS)("unhealthy_after_ms", self.unhealthy_after_ms)
        put = object.__setattr__
        put(self, "observers", list_of(ProcessorObserver)("observers", self.observers))
        if self.retry is None:
            put(self, "retry", self._default_retry())
        refuse("producer", self.producer, "bootstrap_servers", "transactional_id")
        refuse("producer", self.producer, "key_serializer", "value_serializer")

    def _default_retry(self) -> RetryPolicy:
        return RetryPolicy()

    @property
    def policy(self) -> RetryPolicy:
        """The retries."""
        assert self.retry is not None
        return self.retry

    @property
    def topics_of_failed_records(self) -> dict[str, str]:
        """The topics that failed records are sent to, each with the setting that names it."""
        topics = {retry.topic: "retry_topics" for retry in self.policy.retry_topics}
        if self.dead_letter_topic is not None:
            topics[self.dead_letter_topic] = "dead_letter_topic"
        return topics


@set_module("aioprod.processing")
@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorConfig(CommonConfig):
    """The settings of a processor, in addition to those of clients.

    Attributes:
        group_id: the consumer group. Required.
        order: which records wait for each other: ``key`` (records of a partition with equal keys;
            records without a key do not wait), ``partition``, or ``none``.
        guarantee: ``at_most_once``, ``at_least_once``, ``exactly_once`` (outputs in Kafka) or
            ``exactly_once_in_database`` (effects in the database of ``inbox``).
        concurrency: the maximum number of handlers that run at the same time.
        retry: the retries; ``RetryPolicy()`` by default, and none with ``at_most_once``.
        dead_letter_topic: the topic for records whose retries have failed, and for those that a
            deserializer can't read. Without it, such a record stops the processor.
        max_pending_records: the maximum number of a partition's records between the position to
            commit and the last record that was read; at this number, the partition is paused. It
            limits memory, how far records of other keys overtake a slow one, and how many records
            are processed again after a crash.
        commit_interval_ms: how often positions are committed; with ``exactly_once``, how long a
            transaction collects. By default 1,000, with ``exactly_once`` 100 (as Kafka Streams).
        drain_timeout_ms: how long handlers may run on after the processor is stopped, or their
            partition is revoked. Then they are cancelled, and their records are not committed.
        unhealthy_after_ms: how long the consumer may fail, or a partition may be stalled, before
            ``healthy`` is false. Set it above the duration of the longest handler.
        transactional_id: the producer's, with ``exactly_once``. Each process that runs at the same
            time needs its own. By default it is the group with the ``group_instance_id``, or with a
            random number.
        inbox: the database, with ``exactly_once_in_database``.
        observers: ``ProcessorObserver`` objects, which are called for handlers, retries, dead
            letters and commits.
        consumer, producer: settings for only the consumer or only the producer.

    Raises:
        ConfigError: if a value is invalid, or contradicts another.
    """

    order: Literal["key", "partition", "none"] = "key"
    guarantee: Literal[
        "at_most_once", "at_least_once", "exactly_once", "exactly_once_in_database"
    ] = "at_least_once"
    inbox: Inbox | None = None
    max_pending_records: int = 1_000
    commit_interval_ms: int | None = None
    transactional_id: str | None = None
    consumer: ConsumerSettings = field(default_factory=ConsumerSettings)

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "order", _choice("order", self.order, Order))
        put(self, "guarantee", _choice("guarantee", self.guarantee, GuaranteeName))
        in_range(2, 1_000_000)("max_pending_records", self.max_pending_records)
        if self.commit_interval_ms is None:
            put(self, "commit_interval_ms", 100 if self.is_exactly_once else 1_000)
        in_range(1, _MAX_MS)("commit_interval_ms", self.commit_interval_ms)
        self.check_common()
        self._check_together()

    def _default_retry(self) -> RetryPolicy:
        at_most_once = self.guarantee == "at_most_once"
        return RetryPolicy(attempts=1) if at_most_once else RetryPolicy()

    def _check_together(self) -> None:
        policy = self.policy
        if self.guarantee == "at_most_once" and (policy.attempts > 1 or policy.retry_topics):
            raise ConfigError(
                "guarantee='at_most_once' with retries: the handler would get a record more than "
                "once; leave out retry, or choose 'at_least_once'"
            )
        if self.transactional_id is not None and not self.is_exactly_once:
            raise ConfigError(
                f"transactional_id={self.transactional_id!r} with guarantee={self.guarantee!r}: "
                "only 'exactly_once' uses it"
            )
        self._check_inbox()
        if self.dead_letter_topic in {retry.topic for retry in policy.retry_topics}:
            raise ConfigError(
                f"dead_letter_topic={self.dead_letter_topic!r}: must not be in retry_topics"
            )
        refuse(
            "consumer",
            self.consumer,
            "bootstrap_servers",
            "group_id",
            "enable_auto_commit",
            "isolation_level" if self.reads_committed else "",
            "key_deserializer",
            "value_deserializer",
        )

    def _check_inbox(self) -> None:
        if (self.inbox is not None) != self.is_in_database:
            raise ConfigError(
                f"guarantee={str(self.guarantee)!r} and inbox={self.inbox!r}: "
                "'exactly_once_in_database' needs an inbox, and the others have none"
            )
        if not self.is_in_database:
            return
        if self.order != "partition":
            raise ConfigError(
                f"order={str(self.order)!r} with guarantee='exactly_once_in_database': must be "
                "'partition', as the database has one position for each partition"
            )
        if not self.policy.keep_order:
            raise ConfigError(
                "keep_order=False with guarantee='exactly_once_in_database': the database's "
                "position would pass a record that is retried; leave it out, and retry_topics, too"
            )

    @property
    def is_in_database(self) -> bool:
        """True if positions are rows of the application's database."""
        return self.guarantee == "exactly_once_in_database"

    @property
    def reads_committed(self) -> bool:
        """True if only records of committed transactions are read: an outbox's relay sends those of
        an aborted one again.
        """
        return self.is_exactly_once or self.is_in_database

    @property
    def is_exactly_once(self) -> bool:
        """True if positions are committed in transactions."""
        return self.guarantee == "exactly_once"


def _choice(name: str, value: object, kind: type[T]) -> T:
    names = tuple(str(each) for each in kind)
    return kind(one_of(names)(name, str(value) if isinstance(value, str) else value))


def refuse(what: str, given: Any, *names: str) -> None:
    """Check that the settings of a client do not include those that the processor sets. Raise
    ConfigError if they do.
    """
    for name in names:
        if name in given:
            raise ConfigError(
                f"{what}: {name}={given[name]!r}: is set by the processor; see docs/processing.md"
            )


def split(
    kind: type[C], settings: Mapping[str, Any], consumer: type[ClientSettings]
) -> tuple[C, dict[str, Any]]:
    """Split settings into those of the processor, and those that its clients share.

    Args:
        kind: the class of the processor's settings.
        consumer: the class of its consumer's keyword arguments.

    Raises:
        ConfigError: if a setting is unknown or invalid, or contradicts another.
    """
    own = set(kind.__dataclass_fields__)
    if "group_id" not in settings:
        raise ConfigError("group_id is missing: name the group of the processor")
    shared = {name: settings[name] for name in settings if name not in own}
    for name in shared:
        if name not in ClientSettings.__annotations__ and name != "bootstrap_servers":
            raise ConfigError(_unknown(name, own, consumer))
    return kind(**{name: settings[name] for name in settings if name in own}), shared


def _unknown(name: str, own: set[str], consumer: type[ClientSettings]) -> str:
    for owner, kind in (("consumer", consumer), ("producer", ProducerSettings)):
        if name in kind.__annotations__:
            return f"{name}: is a setting of the {owner}; give it as {owner}={{{name!r}: ...}}"
    from aioprod.config.other_clients import cure_of  # for errors only

    cure = cure_of(name, {*own, *ClientSettings.__annotations__})
    return f"unknown setting {name!r}" + (f": {cure}" if cure else "")
