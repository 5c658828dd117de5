"""Describing and changing the settings of topics, brokers and groups."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Self, TypeVar, overload

from aioprod.admin.answers import outcome
from aioprod.admin.attempts import Attempt
from aioprod.admin.driver import AdminDriver, gather_outcomes
from aioprod.admin.results import Results
from aioprod.arguments import check_items, check_mapping, check_names
from aioprod.config.redaction import is_secret
from aioprod.errors import ConfigError, KafkaError
from aioprod.foreign_text import shown
from aioprod.net.connection import Connection
from aioprod.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from aioprod.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from aioprod.secret_forms import secret_forms

V = TypeVar("V")
EnumT = TypeVar("EnumT", bound=IntEnum)


class ConfigResourceType(IntEnum):
    """The types of resources with settings, with the numbers of the protocol."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """The source of a setting's value."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class ConfigType(IntEnum):
    """The type of the value of a setting."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigResource(NamedTuple):
    """A resource with settings: a topic, broker, group, or subscription to client metrics."""

    type: ConfigResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> Self:
        """Return the resource of a topic."""
        return cls(ConfigResourceType.TOPIC, name)

    @classmethod
    def broker(cls, node_id: int | None = None) -> Self:
        """Return the resource of a broker; without a node id, of the defaults of all brokers."""
        return cls(ConfigResourceType.BROKER, "" if node_id is None else str(node_id))

    @classmethod
    def group(cls, group_id: str) -> Self:
        """Return the resource of a group (KIP-848)."""
        return cls(ConfigResourceType.GROUP, group_id)

    @classmethod
    def client_metrics(cls, name: str) -> Self:
        """Return the resource of a subscription to client metrics, with the settings ``metrics``,
        ``interval.ms`` and ``match`` (KIP-714).
        """
        return cls(ConfigResourceType.CLIENT_METRICS, name)

    def __str__(self) -> str:
        return f"{self.type.name.lower()} {self.name or '(all)'}"


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A source of the value of a setting; the first source with a value is used."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A setting.

    Attributes:
        value: its value as text; None if it has no value, or if the value is secret.
        source: where the value comes from.
        read_only: True if it can't be changed while the broker runs.
        sensitive: True if the value is secret.
        synonyms: all sources of a value, by precedence; empty if not requested.
        documentation: Kafka's description; None if not requested.
    """

    name: str
    value: str | None
    source: ConfigSource = ConfigSource.UNKNOWN
    read_only: bool = False
    sensitive: bool = False
    type: ConfigType = ConfigType.UNKNOWN
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        """True if it has its default value."""
        return self.source is ConfigSource.DEFAULT_CONFIG


class Append(NamedTuple):
    """A change that appends items, separated by commas, to a setting that is a list."""

    items: str


class Subtract(NamedTuple):
    """A change that removes items, separated by commas, from a setting that is a list."""

    items: str


ConfigValue = str | int | float | bool
"""The value of a setting; numbers and booleans are converted to Kafka's text."""

ConfigChange = ConfigValue | Append | Subtract | None
"""A value, :class:`Append`, :class:`Subtract`, or None to restore the default."""

_AskResources = Callable[
    [Connection, list[ConfigResource]], Awaitable[Mapping[ConfigResource, V | KafkaError]]
]

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)


class ConfigCalls:
    """Calls of :class:`aioprod.Admin`."""

    _driver: AdminDriver

    @overload
    async def describe_configs(
        self,
        resources: ConfigResource,
        *,
        names: Iterable[str] | None = ...,
        include_synonyms: bool = ...,
        include_documentation: bool = ...,
        timeout_ms: float | None = ...,
    ) -> dict[str, ConfigEntry]: ...

    @overload
    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        names: Iterable[str] | None = ...,
        include_synonyms: bool = ...,
        include_documentation: bool = ...,
        timeout_ms: float | None = ...,
    ) -> Results[ConfigResource, dict[str, ConfigEntry]]: ...

    async def describe_configs(
        self,
        resources: ConfigResource | Iterable[ConfigResource],
        *,
        names: Iterable[str] | None = None,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[str, ConfigEntry] | Results[ConfigResource, dict[str, ConfigEntry]]:
        """Return the settings of topics, brokers or groups, by name.

        Args:
            resources: one, whose error is raised, or several, each with a separate result.
            names: the settings; all by default.
            include_synonyms: whether to include all sources of each value.
            include_documentation: whether to include Kafka's descriptions (brokers since 2.6).
            timeout_ms: limit on the whole call.

        Raises:
            BrokerError: if the broker returns an error, such as UNKNOWN_TOPIC_OR_PARTITION. With
                several resources, raised by ``results[resource]`` or ``results.check()``.
        """
        wanted = None if names is None else check_names("names", names)

        async def ask(
            connection: Connection, asked: list[ConfigResource]
        ) -> dict[ConfigResource, dict[str, ConfigEntry] | KafkaError]:
            reply = await connection.request(
                DescribeConfigsRequest(
                    resources=[
                        DescribeConfigsResource(each.type, each.name, wanted) for each in asked
                    ],
                    include_synonyms=include_synonyms,
                    include_documentation=include_documentation,
                )
            )
            outcomes: dict[ConfigResource, dict[str, ConfigEntry] | KafkaError] = {}
            for answer in reply.results:
                resource = ConfigResource(
                    ConfigResourceType(answer.resource_type), answer.resource_name
                )
                entries = {each.name: _entry(each) for each in answer.configs}
                outcomes[resource] = outcome(
                    answer.error_code, f"settings of {resource}", answer.error_message, entries
                )
            return outcomes

        if isinstance(resources, ConfigResource):
            return (await self._of_resources("describe_configs", [resources], ask, timeout_ms))[
                resources
            ]
        given = check_items("resources", resources, ConfigResource, "ConfigResource")
        return await self._of_resources("describe_configs", given, ask, timeout_ms)

    async def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Mapping[str, ConfigChange]],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> Results[ConfigResource, None]:
        """Change settings of topics, brokers or groups; other settings keep their values (KIP-339).

        ``{ConfigResource.topic("orders"): {"retention.ms": 1000, "cleanup.policy":
        Append("compact"), "segment.ms": None}}`` sets the first, appends to the second and restores
        the default of the third.

        Args:
            changes: the changes of each resource.
            validate_only: check the change without making it.
            timeout_ms: limit on the whole call.

        Raises:
            ConfigError: if a value has the wrong type.
            BrokerError: if the broker returns an error, such as INVALID_CONFIG. Raised by
                ``results[resource]`` or ``results.check()``.
        """
        checked = check_mapping("changes", changes, "ConfigResource")
        written = {
            _checked(resource): [
                _change(name, change)
                for name, change in check_mapping(f"changes of {resource}", its, "names").items()
            ]
            for resource, its in checked.items()
        }

        async def ask(
            connection: Connection, asked: list[ConfigResource]
        ) -> dict[ConfigResource, KafkaError | None]:
            resources = [
                AlterConfigsResource(each.type, each.name, written[each]) for each in asked
            ]
            reply = await connection.request(
                IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)
            )
            outcomes: dict[ConfigResource, KafkaError | None] = {}
            for answer in reply.responses:
                resource = ConfigResource(
                    ConfigResourceType(answer.resource_type), answer.resource_name
                )
                outcomes[resource] = outcome(
                    answer.error_code,
                    f"settings of {resource}",
                    answer.error_message,
                    None,
                    _secrets_of(written.get(resource, ())),
                )
            return outcomes

        return await self._of_resources("incremental_alter_configs", written, ask, timeout_ms)

    async def _of_resources(
        self,
        call: str,
        resources: Iterable[ConfigResource],
        ask: _AskResources[V],
        timeout_ms: float | None,
    ) -> Results[ConfigResource, V]:
        """Send a request about settings of a broker to that broker, and others to any broker."""
        places = {resource: _broker_of(resource) for resource in resources}

        async def ask_all(
            attempt: Attempt[ConfigResource],
        ) -> Mapping[ConfigResource, V | KafkaError]:
            async def at(node_id: int | None) -> Mapping[ConfigResource, V | KafkaError]:
                connection = await (
                    self._driver.any_broker() if node_id is None else self._driver.node(node_id)
                )
                return await ask(
                    connection, [each for each in attempt.items if places[each] == node_id]
                )

            outcomes: dict[ConfigResource, V | KafkaError] = {}
            for node_id, answers in (
                await gather_outcomes({places[each] for each in attempt.items}, at)
            ).items():
                if isinstance(answers, KafkaError):
                    outcomes |= {each: answers for each in attempt.items if places[each] == node_id}
                else:
                    outcomes |= answers
            return outcomes

        return await self._driver.each(call, places, ask_all, timeout_ms)


def config_text(name: str, value: ConfigValue) -> str:
    """Return the value of a setting as Kafka's text.

    Raises:
        ConfigError: if the value is not text, a number or a boolean.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise ConfigError(f"{name}={shown(value)}: must be text, a number or a boolean")


def _change(name: str, change: ConfigChange) -> AlterableConfig:
    if change is None:
        return AlterableConfig(name, _DELETE, None)
    if isinstance(change, Append):
        return AlterableConfig(name, _APPEND, change.items)
    if isinstance(change, Subtract):
        return AlterableConfig(name, _SUBTRACT, change.items)
    return AlterableConfig(name, _SET, config_text(name, change))


def _checked(resource: object) -> ConfigResource:
    if not isinstance(resource, ConfigResource):
        raise ConfigError(
            f"changes: resource {shown(resource)}: must be a ConfigResource, such as "
            "ConfigResource.topic('orders')"
        )
    if not isinstance(resource.type, ConfigResourceType):
        known = ", ".join(f"ConfigResourceType.{each.name}" for each in ConfigResourceType)
        raise ConfigError(
            f"resource {shown(resource.name)}: type={shown(resource.type)}: must be one of {known}"
        )
    return resource


def _broker_of(given: object) -> int | None:
    """Return the node id of the broker to send the request to; None for any broker."""
    resource = _checked(given)
    if (
        resource.type not in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)
        or not resource.name
    ):
        return None
    if not resource.name.isdecimal():
        raise ConfigError(f"{resource}: the name of a broker must be its node id")
    return int(resource.name)


def _entry(answer: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        answer.name,
        answer.value,
        known(ConfigSource, answer.config_source),
        answer.read_only,
        answer.is_sensitive,
        known(ConfigType, answer.config_type),
        tuple(
            ConfigSynonym(each.name, each.value, known(ConfigSource, each.source))
            for each in answer.synonyms
        ),
        answer.documentation,
    )


def known(kind: type[EnumT], number: int) -> EnumT:
    """Return the member with this number; the member 0 (unknown) for a number that only newer
    brokers have.
    """
    return kind(number) if number in kind.__members__.values() else kind(0)


def _secrets_of(changes: Iterable[AlterableConfig]) -> tuple[str, ...]:
    """Return passwords among the new values, as a broker may repeat them in an error."""
    return secret_forms(*(each.value for each in changes if is_secret(each.name)))
