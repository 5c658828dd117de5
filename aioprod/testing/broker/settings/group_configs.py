"""The settings that clients set for groups, and the effective ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta

from aioprod.testing.broker.settings.configs import Configs, DescribedSetting, Synonym
from aioprod.testing.broker.settings.group_settings import (
    GroupSetting,
    group_settings,
    parse_duration,
    parse_settings,
)
from aioprod.testing.broker.settings.setting import Source


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """The effective settings of a share group.

    Attributes:
        lock_duration_ms: the time for which a member acquires a record.
        delivery_count_limit: the maximum number of deliveries of a record.
        max_record_locks: the maximum number of records between a partition's start and end offset.
            Further records wait.
        from_earliest: True if the group begins with the first record, False if with the next one.
        from_age: if not None, the group begins with the records that are not older than this.
        committed_only: True if records of open and aborted transactions are skipped.
        may_renew: True if members may renew their locks.
        dead_letter_topic: the topic for records that are not delivered again; "" for none.
        copies_dead_letters: True if dead letters contain the record's key, value and headers.
    """

    heartbeat_interval_ms: int
    session_timeout_ms: int
    lock_duration_ms: int
    delivery_count_limit: int
    max_record_locks: int
    from_earliest: bool
    from_age: timedelta | None
    committed_only: bool
    may_renew: bool
    dead_letter_topic: str
    copies_dead_letters: bool

    @classmethod
    def parse(cls, values: Mapping[str, str]) -> ShareSettings:
        """Parse the effective settings of a group."""
        reset = values["share.auto.offset.reset"]
        return cls(
            heartbeat_interval_ms=int(values["share.heartbeat.interval.ms"]),
            session_timeout_ms=int(values["share.session.timeout.ms"]),
            lock_duration_ms=int(values["share.record.lock.duration.ms"]),
            delivery_count_limit=int(values["share.delivery.count.limit"]),
            max_record_locks=int(values["share.partition.max.record.locks"]),
            from_earliest=reset == "earliest",
            from_age=parse_duration(reset),
            committed_only=values["share.isolation.level"] == "read_committed",
            may_renew=values["share.renew.acknowledge.enable"] == "true",
            dead_letter_topic=values["errors.deadletterqueue.topic.name"],
            copies_dead_letters=values["errors.deadletterqueue.copy.record.enable"] == "true",
        )


class GroupConfigs:
    """The settings of all groups.

    Args:
        brokers: the broker settings, which are defaults and limits.
    """

    def __init__(self, brokers: Configs) -> None:
        self._brokers = brokers
        self._overrides: dict[str, dict[str, str]] = {}
        self._of_share_groups: dict[str, ShareSettings] = {}  # by group, of the requested ones

    @property
    def group_ids(self) -> list[str]:
        """The groups that have settings."""
        return [group_id for group_id, overrides in self._overrides.items() if overrides]

    def overrides(self, group_id: str) -> dict[str, str]:
        """Return the settings that were set for a group."""
        return dict(self._overrides.get(group_id, {}))

    def parse(self, overrides: Mapping[str, str]) -> dict[str, str]:
        """Return settings in the form in which they are stored; raise RequestError (INVALID_CONFIG)
        if one is unknown or has an invalid value.
        """
        return parse_settings(overrides, self._brokers.broker_value)

    def replace(self, group_id: str, parsed: Mapping[str, str]) -> None:
        """Replace the settings of a group."""
        self._overrides[group_id] = dict(parsed)
        self._of_share_groups.pop(group_id, None)

    def describe(
        self, group_id: str, names: Collection[str] | None, node_id: int
    ) -> list[DescribedSetting]:
        """Describe all settings of a group, or those in ``names``, from the view of one broker."""
        return [
            self._describe(group_id, each, node_id)
            for name, each in group_settings().items()
            if names is None or name in names
        ]

    def _describe(
        self, group_id: str, known: GroupSetting, node_id: int | None
    ) -> DescribedSetting:
        setting = known.setting
        synonyms = (
            self._brokers.synonyms(setting.broker_name, node_id)
            if setting.broker_name
            else [Synonym(setting.name, setting.default, Source.DEFAULT)]
        )
        own = self._overrides.get(group_id, {}).get(setting.name)
        if own is not None:
            synonyms.insert(0, Synonym(setting.name, own, Source.GROUP))
        return DescribedSetting(setting, synonyms[0].value, synonyms[0].source, synonyms)

    def values(self, group_id: str) -> dict[str, str]:
        """Return the effective settings of a group."""
        return {
            name: self._describe(group_id, each, None).value or ""
            for name, each in group_settings().items()
        }

    def share(self, group_id: str) -> ShareSettings:
        """Return the effective settings of a share group."""
        found = self._of_share_groups.get(group_id)
        if found is None:
            found = self._of_share_groups[group_id] = ShareSettings.parse(self.values(group_id))
        return found
