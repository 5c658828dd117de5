"""The settings of share groups, which clients set as those of the resource GROUP."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from aioprod.error_codes import ErrorCode
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.settings.configs import DescribedSetting, Synonym
from aioprod.testing.broker.settings.setting import Setting, SettingType, Source

HEARTBEAT_INTERVAL_MS = "share.heartbeat.interval.ms"
SESSION_TIMEOUT_MS = "share.session.timeout.ms"
_NUMBERS = (
    Setting(HEARTBEAT_INTERVAL_MS, SettingType.INT, "200", allowed=((1, 15_000),)),
    Setting(SESSION_TIMEOUT_MS, SettingType.INT, "45000", allowed=((1, 60_000),)),
    Setting("share.record.lock.duration.ms", SettingType.INT, "30000", allowed=((1, 60_000),)),
    Setting("share.delivery.count.limit", SettingType.INT, "5", allowed=((2, 10),)),
    Setting("share.partition.max.record.locks", SettingType.INT, "2000", allowed=((100, 4_000),)),
)
_WORDS = (
    Setting(
        "share.auto.offset.reset", SettingType.STRING, "latest", allowed=("latest", "earliest")
    ),
    Setting(
        "share.isolation.level",
        SettingType.STRING,
        "read_uncommitted",
        allowed=("read_uncommitted", "read_committed"),
    ),
    Setting("share.renew.acknowledge.enable", SettingType.BOOLEAN, "true"),
)

#: The settings by name. The defaults are Kafka's, but the heartbeat's interval (5000). Kafka's
#: brokers allow no shorter times than those of their own settings, such as
#: group.share.min.record.lock.duration.ms.
SHARE_SETTINGS = {setting.name: setting for setting in _NUMBERS + _WORDS}


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """The effective settings of a share group.

    Attributes:
        lock_duration_ms: how long a member may have a record.
        delivery_count_limit: how often a record is delivered at most.
        max_record_locks: how many records of a partition are between its start and its end offset
            at most, so that further ones wait.
        from_earliest: whether the group begins with the first record, else with the next one.
        committed_only: whether records of open and aborted transactions are left out.
        may_renew: whether members may renew their locks.
    """

    heartbeat_interval_ms: int
    session_timeout_ms: int
    lock_duration_ms: int
    delivery_count_limit: int
    max_record_locks: int
    from_earliest: bool
    committed_only: bool
    may_renew: bool

    @classmethod
    def parse(cls, overrides: Mapping[str, str]) -> ShareSettings:
        """Return the effective settings for valid ones of a group."""
        values = {
            name: overrides.get(name, setting.default or "")
            for name, setting in SHARE_SETTINGS.items()
        }
        return cls(
            heartbeat_interval_ms=int(values[HEARTBEAT_INTERVAL_MS]),
            session_timeout_ms=int(values[SESSION_TIMEOUT_MS]),
            lock_duration_ms=int(values["share.record.lock.duration.ms"]),
            delivery_count_limit=int(values["share.delivery.count.limit"]),
            max_record_locks=int(values["share.partition.max.record.locks"]),
            from_earliest=values["share.auto.offset.reset"] == "earliest",
            committed_only=values["share.isolation.level"] == "read_committed",
            may_renew=values["share.renew.acknowledge.enable"].strip().lower() == "true",
        )


class GroupConfigs:
    """The settings of all groups that have some."""

    def __init__(self) -> None:
        self._overrides: dict[str, dict[str, str]] = {}

    def overrides(self, group_id: str) -> dict[str, str]:
        """Return the settings that were set for a group."""
        return dict(self._overrides.get(group_id, {}))

    def check(self, overrides: Mapping[str, str]) -> None:
        """Raise RequestError (INVALID_CONFIG) if a setting is unknown or its value is invalid."""
        for name, text in overrides.items():
            setting = SHARE_SETTINGS.get(name)
            if setting is None:
                raise RequestError(
                    ErrorCode.INVALID_CONFIG,
                    f"{name}: must be one of {', '.join(SHARE_SETTINGS)}",
                )
            setting.check(text)
        values = ShareSettings.parse(overrides)
        if values.session_timeout_ms <= values.heartbeat_interval_ms:
            raise RequestError(
                ErrorCode.INVALID_CONFIG,
                f"{SESSION_TIMEOUT_MS}={values.session_timeout_ms}: must be more than "
                f"{HEARTBEAT_INTERVAL_MS}={values.heartbeat_interval_ms}",
            )

    def replace(self, group_id: str, overrides: Mapping[str, str]) -> None:
        """Replace the settings of a group."""
        self._overrides[group_id] = dict(overrides)

    def describe(self, group_id: str, names: Collection[str] | None) -> list[DescribedSetting]:
        """Describe all settings of a group, or those in ``names``."""
        described = []
        for name, setting in SHARE_SETTINGS.items():
            own = self._overrides.get(group_id, {}).get(name)
            source = Source.DEFAULT if own is None else Source.GROUP
            value = setting.default if own is None else own
            if names is None or name in names:
                synonyms = [Synonym(name, value, source)]
                described.append(DescribedSetting(setting, value, source, synonyms))
        return described

    def of(self, group_id: str) -> ShareSettings:
        """Return the effective settings of a group."""
        return ShareSettings.parse(self._overrides.get(group_id, {}))
