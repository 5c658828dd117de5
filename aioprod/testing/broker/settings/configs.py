"""The sources of a setting's value: the start of the broker, or a change for all brokers, one
broker or a topic (KIP-226).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from aioprod.error_codes import ErrorCode
from aioprod.testing.broker.cluster import NodeAddress
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.settings.broker_settings import broker_settings
from aioprod.testing.broker.settings.setting import Setting, SettingType, Source
from aioprod.testing.broker.settings.topic_settings import (
    TopicConfig,
    check_together,
    check_values,
    topic_settings,
)

ALL_BROKERS = ""
# Settings with these prefixes can't be set for all brokers.
_OF_ONE_BROKER = (
    "ssl.",
    "sasl.",
    "listener",
    "principal.builder.class",
)
# Settings without a default that override others. Kafka lists them only if they have a value.
_IN_OTHER_UNITS = {
    "log.flush.interval.ms": "log.flush.scheduler.interval.ms",
    "log.retention.ms": "log.retention.hours",
    "log.roll.jitter.ms": "log.roll.jitter.hours",
    "log.roll.ms": "log.roll.hours",
}
# Broker settings that are defaults for topics are checked like the topic's.
_CHECKED_AS = {
    setting.broker_name: setting for setting in topic_settings().values() if setting.broker_name
}


class Synonym(NamedTuple):
    """One of the sources of a setting's value."""

    name: str
    value: str | None
    source: Source


@dataclass(slots=True)
class DescribedSetting:
    """A setting, its effective value, and all sources of a value, the effective one first."""

    setting: Setting
    value: str | None
    source: Source
    synonyms: list[Synonym] = field(default_factory=list)


class Configs:
    """The settings of all brokers. Those of a topic are stored with the topic.

    Args:
        static: the settings at the start of the broker.
        changed: called after each change of a broker's setting.
    """

    def __init__(self, static: Mapping[str, str], changed: Callable[[], None]) -> None:
        self._static = {
            name: value
            for name, value in static.items()
            if value != broker_settings()[name].default
        }
        self._dynamic: dict[str, dict[str, str]] = {}  # by broker id as text, "" for all brokers
        self._changed = changed
        self._config_without_overrides: TopicConfig | None = None  # the settings of most topics

    # -- topics ------------------------------------------------------------------------------------

    def topic_values(
        self, overrides: Mapping[str, str | None], node_id: int | None = None
    ) -> dict[str, str]:
        """Return the effective settings of a topic."""
        return {
            setting.name: self._describe_topic_setting(setting, overrides, node_id).value or ""
            for setting in topic_settings().values()
        }

    def topic_config(self, overrides: Mapping[str, str | None]) -> TopicConfig:
        """Return the effective values of the settings that have an effect."""
        if overrides:
            return TopicConfig.parse(self.topic_values(overrides))
        if self._config_without_overrides is None:
            self._config_without_overrides = TopicConfig.parse(self.topic_values({}))
        return self._config_without_overrides

    def parse_topic(self, overrides: Mapping[str, str | None]) -> TopicConfig:
        """Return the effective settings for new topic settings; raise RequestError (INVALID_CONFIG)
        if one is invalid.
        """
        if overrides:
            check_values(overrides)
            check_together(self.topic_values(overrides))
        return self.topic_config(overrides)

    def describe_topic(
        self, overrides: Mapping[str, str | None], names: Collection[str] | None, node_id: int
    ) -> list[DescribedSetting]:
        """Describe all settings of a topic, or those in ``names``, from the view of one broker."""
        chosen = (
            setting
            for setting in topic_settings().values()
            if names is None or setting.name in names
        )
        return [self._describe_topic_setting(setting, overrides, node_id) for setting in chosen]

    def _describe_topic_setting(
        self, setting: Setting, overrides: Mapping[str, str | None], node_id: int | None
    ) -> DescribedSetting:
        synonyms = self.synonyms(setting.broker_name, node_id) if setting.broker_name else []
        own = overrides.get(setting.name)
        if own is not None:
            synonyms.insert(0, Synonym(setting.name, own, Source.TOPIC))
        if not synonyms:
            return DescribedSetting(setting, setting.default, Source.DEFAULT)
        return DescribedSetting(setting, synonyms[0].value, synonyms[0].source, synonyms)

    # -- brokers -----------------------------------------------------------------------------------

    def describe_broker(
        self, node: NodeAddress, names: Collection[str] | None
    ) -> list[DescribedSetting]:
        """Describe all settings of a broker, or those in ``names``."""
        own = _settings_of_node(node)
        chosen = (
            setting
            for setting in self._known(str(node.node_id)).values()
            if names is None or setting.name in names
        )
        return [
            _describe(setting, self._synonyms(setting.name, own, node.node_id))
            for setting in chosen
        ]

    def describe_all_brokers(self, names: Collection[str] | None) -> list[DescribedSetting]:
        """Describe the settings that were changed for all brokers."""
        values, known = self.overrides(ALL_BROKERS), self._known(ALL_BROKERS)
        chosen = (name for name in values if names is None or name in names)
        return [
            _describe(known[name], [Synonym(name, values[name], Source.ALL_BROKERS)])
            for name in chosen
        ]

    def overrides(self, broker: str) -> dict[str, str]:
        """Return the changed settings of a broker (its id as text), or of all brokers ("")."""
        return dict(self._dynamic.get(broker, {}))

    def check_broker(self, overrides: Mapping[str, str], broker: str) -> None:
        """Raise RequestError (INVALID_REQUEST) if these settings can't be changed on a running
        broker.
        """
        for name, text in overrides.items():
            setting = broker_settings().get(name)
            if setting is None:
                continue  # as in Kafka: it may be for a plugin
            if not setting.dynamic:
                raise RequestError(
                    ErrorCode.INVALID_REQUEST,
                    f"{name}: can't be changed while the broker is running",
                )
            if broker == ALL_BROKERS and name.startswith(_OF_ONE_BROKER):
                raise RequestError(
                    ErrorCode.INVALID_REQUEST, f"{name}: must be set for each broker separately"
                )
            try:
                setting.check(text)
                if name in _CHECKED_AS:
                    _CHECKED_AS[name].check(text)
            except RequestError as error:
                raise RequestError(ErrorCode.INVALID_REQUEST, error.text) from None

    def set_broker(self, overrides: Mapping[str, str], broker: str) -> None:
        """Replace the changed settings of a broker, or of all brokers ("")."""
        self._dynamic[broker] = dict(overrides)
        self._config_without_overrides = None
        self._changed()

    def broker_value(self, name: str) -> str | None:
        """Return the value of a setting of all brokers; None if it has no value or does not
        exist.
        """
        synonyms = self.synonyms(name, None)
        return synonyms[0].value if synonyms else None

    def synonyms(self, name: str, node_id: int | None) -> list[Synonym]:
        """Return the sources of a setting of a broker, or of all brokers, the effective one
        first.
        """
        return self._synonyms(name, {}, node_id)

    def _known(self, broker: str) -> dict[str, Setting]:
        """Return Kafka's settings and unknown ones that were set."""
        names = [*self._dynamic.get(broker, {}), *self._dynamic.get(ALL_BROKERS, {})]
        return {
            **{name: Setting(name, SettingType.UNKNOWN, None, dynamic=False) for name in names},
            **broker_settings(),
        }

    def _synonyms(self, name: str, own: Mapping[str, str], node_id: int | None) -> list[Synonym]:
        """Return the sources of a broker's setting, the effective one first."""
        default = broker_settings()[name].default if name in broker_settings() else None
        layers: tuple[tuple[Source, str | None], ...] = (
            (Source.BROKER, self._dynamic.get(str(node_id), {}).get(name)),
            (Source.ALL_BROKERS, self._dynamic.get(ALL_BROKERS, {}).get(name)),
            (Source.STATIC, own.get(name, self._static.get(name))),
            (Source.DEFAULT, default),
        )
        synonyms = [Synonym(name, value, source) for source, value in layers if value is not None]
        if synonyms and name in _IN_OTHER_UNITS:
            other = broker_settings()[_IN_OTHER_UNITS[name]]
            synonyms.append(Synonym(other.name, other.default, Source.DEFAULT))
        return synonyms


def _describe(setting: Setting, synonyms: list[Synonym]) -> DescribedSetting:
    if setting.is_sensitive:
        synonyms = [each._replace(value=None) for each in synonyms]
    if not synonyms:
        return DescribedSetting(setting, setting.default, Source.DEFAULT)
    return DescribedSetting(setting, synonyms[0].value, synonyms[0].source, synonyms)


def _settings_of_node(node: NodeAddress) -> dict[str, str]:
    address = f"PLAINTEXT://{node.host}:{node.port}"
    number = str(node.node_id)
    return {
        "broker.id": number,
        "node.id": number,
        "listeners": address,
        "advertised.listeners": address,
        "process.roles": "broker,controller",
    }
