"""Client quotas (KIP-546): limits on bytes and requests."""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from aioprod.admin.answers import check, outcome
from aioprod.admin.attempts import Attempt
from aioprod.admin.driver import AdminDriver
from aioprod.admin.results import Results
from aioprod.arguments import check_mapping
from aioprod.errors import ConfigError, KafkaError
from aioprod.foreign_text import shown
from aioprod.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from aioprod.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)

_EXACT, _DEFAULT, _ANY = range(3)
_KINDS = {"user": "user", "client_id": "client-id", "ip": "ip"}
_FIELDS = {kind: field for field, kind in _KINDS.items()}


class QuotaMatch(Enum):
    """Selects entities otherwise than by name."""

    DEFAULT = "default"  #: entities without a quota for their name
    ANY = "any"  #: any name, or the default; only in ``describe_client_quotas``


class ClientQuotaEntity(NamedTuple):
    """The clients that a quota applies to.

    Each attribute is a name, ``QuotaMatch.DEFAULT`` for names without a quota, or None if the quota
    does not depend on it.

    Attributes:
        user: the principal of the client.
        client_id: the ``client.id``.
        ip: the address of the client; not together with the others.
    """

    user: str | QuotaMatch | None = None
    client_id: str | QuotaMatch | None = None
    ip: str | QuotaMatch | None = None

    def __str__(self) -> str:
        named = {field: who for field, who in self._asdict().items() if who is not None}
        return (
            ", ".join(
                f"{field}={who.name if isinstance(who, QuotaMatch) else who}"
                for field, who in named.items()
            )
            or "no client"
        )


class QuotaCalls:
    """Calls of :class:`aioprod.Admin`."""

    _driver: AdminDriver

    async def describe_client_quotas(
        self,
        entity: ClientQuotaEntity | None = None,
        *,
        strict: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[ClientQuotaEntity, dict[str, float]]:
        """Return quotas, by entity and name such as ``producer_byte_rate`` (brokers since 2.6).

        Args:
            entity: only quotas with all of its attributes, where ``QuotaMatch.ANY`` matches any
                name; all quotas if None.
            strict: only quotas without further attributes.
            timeout_ms: limit on the whole call.

        Raises:
            BrokerError: if the broker returns an error, such as CLUSTER_AUTHORIZATION_FAILED.
        """
        said = {} if entity is None else _checked(entity)._asdict()
        components = [
            ComponentData(_KINDS[field], *_match(who))
            for field, who in said.items()
            if who is not None
        ]

        async def ask(attempt: Attempt[str]) -> dict[ClientQuotaEntity, dict[str, float]]:
            reply = await self._driver.from_any(DescribeClientQuotasRequest(components, strict))
            check(reply.error_code, "describe_client_quotas", reply.error_message)
            return {
                _entity((part.entity_type, part.entity_name) for part in answer.entity): {
                    value.key: value.value for value in answer.values
                }
                for answer in reply.entries or ()
            }

        return await self._driver.once("describe_client_quotas", ask, timeout_ms)

    async def alter_client_quotas(
        self,
        limits: Mapping[ClientQuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> Results[ClientQuotaEntity, None]:
        """Set quotas, or remove those with the value None (brokers since 2.6).

        Args:
            limits: such as ``{ClientQuotaEntity(client_id="batch"): {"producer_byte_rate":
                1_000_000, "request_percentage": None}}``; other quotas keep their values.
            validate_only: check the change without making it.
            timeout_ms: limit on the whole call.

        Raises:
            ConfigError: if an entity contains ``QuotaMatch.ANY``.
            BrokerError: if the broker returns an error, such as INVALID_REQUEST for an unknown
                quota. Raised by ``results[entity]`` or ``results.check()``.
        """
        for entity, its in check_mapping("limits", limits, "ClientQuotaEntity").items():
            check_mapping(f"limits of {_checked(entity)}", its, "names")
        if any(QuotaMatch.ANY in entity for entity in limits):
            raise ConfigError(
                "alter_client_quotas: a quota can't be set for QuotaMatch.ANY; "
                "use QuotaMatch.DEFAULT for all names without a quota"
            )
        entries = {
            entity: EntryData(_entity_data(entity), [_change(*limit) for limit in its.items()])
            for entity, its in limits.items()
        }

        async def ask(
            attempt: Attempt[ClientQuotaEntity],
        ) -> Mapping[ClientQuotaEntity, KafkaError | None]:
            connection = await self._driver.controller()
            reply = await connection.request(
                AlterClientQuotasRequest(
                    [entries[entity] for entity in attempt.items], validate_only
                )
            )
            answers: dict[ClientQuotaEntity, KafkaError | None] = {}
            for answer in reply.entries:
                entity = _entity((part.entity_type, part.entity_name) for part in answer.entity)
                answers[entity] = outcome(
                    answer.error_code, f"limits of {entity}", answer.error_message, None
                )
            return answers

        return await self._driver.each("alter_client_quotas", entries, ask, timeout_ms)


def _checked(entity: object) -> ClientQuotaEntity:
    if not isinstance(entity, ClientQuotaEntity):
        raise ConfigError(f"limits: entity {shown(entity)}: must be a ClientQuotaEntity")
    return entity


def _match(who: str | QuotaMatch) -> tuple[int, str | None]:
    if isinstance(who, str):
        return _EXACT, who
    return (_DEFAULT if who is QuotaMatch.DEFAULT else _ANY), None


def _entity_data(entity: ClientQuotaEntity) -> list[EntityData]:
    parts = entity._asdict().items()
    return [
        EntityData(_KINDS[field], who if isinstance(who, str) else None)
        for field, who in parts
        if who is not None
    ]


def _entity(parts: Iterable[tuple[str, str | None]]) -> ClientQuotaEntity:
    named = {
        _FIELDS[kind]: QuotaMatch.DEFAULT if name is None else name
        for kind, name in parts
        if kind in _FIELDS
    }
    return ClientQuotaEntity(**named)


def _change(name: str, limit: float | None) -> OpData:
    return OpData(name, remove=True) if limit is None else OpData(name, float(limit))
