"""The quotas that are set, and the one that applies to a client."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from aioprod.error_codes import ErrorCode
from aioprod.testing.broker.errors import RequestError

USER, CLIENT_ID, IP = "user", "client-id", "ip"
PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE = "producer_byte_rate", "consumer_byte_rate"
ANONYMOUS = "ANONYMOUS"  # Kafka's name for a client without a login
# The highest values of quotas that are whole numbers.
_HIGHEST = {
    PRODUCER_BYTE_RATE: 2**63 - 1,
    CONSUMER_BYTE_RATE: 2**63 - 1,
    "connection_creation_rate": 2**31 - 1,
}
_CLIENT_KEYS = {
    PRODUCER_BYTE_RATE,
    CONSUMER_BYTE_RATE,
    "request_percentage",
    "controller_mutation_rate",
}
_IP_KEYS = {"connection_creation_rate"}

# Pairs of type and name; None is the default for names without a limit of their own.
Entity = frozenset[tuple[str, str | None]]


class ApplicableLimit(NamedTuple):
    """The limit that applies to a client, and the clients that share it: an empty user or client id
    means all.
    """

    limit: float
    user: str
    client_id: str


@dataclass(slots=True, frozen=True)
class QuotaCondition:
    """One condition of a filter: the entity has this type and, if ``exact``, this name (None for
    the default entity).
    """

    entity_type: str
    exact: bool
    name: str | None = None

    def fits(self, entity: Entity) -> bool:
        """Return whether an entity meets the condition."""
        return (
            (self.entity_type, self.name) in entity
            if self.exact
            else any(each == self.entity_type for each, _ in entity)
        )


class Quotas:
    """All quotas by entity."""

    def __init__(self) -> None:
        self._values: dict[Entity, dict[str, float]] = {}

    def __bool__(self) -> bool:
        return bool(self._values)

    def find(
        self, matches: Iterable[QuotaCondition], *, strict: bool
    ) -> Iterator[tuple[Entity, Mapping[str, float]]]:
        """Return the entities that meet all conditions. With ``strict``, omit those with a type
        that is in no condition.
        """
        conditions = list(matches)
        for entity, values in self._values.items():
            if all(match.fits(entity) for match in conditions) and not (
                strict and len(entity) != len(conditions)
            ):
                yield entity, values

    def alter(
        self, entity: Entity, changes: Mapping[str, float | None], *, validate_only: bool = False
    ) -> None:
        """Set quotas, or remove them (None); raise RequestError (INVALID_REQUEST) if one is
        invalid.
        """
        _check_entity(entity)
        for key, value in changes.items():
            _check_value(entity, key, value)
        if validate_only:
            return
        merged = {**self._values.get(entity, {}), **changes}
        values = {key: value for key, value in merged.items() if value is not None}
        if values:
            self._values[entity] = values
        else:
            self._values.pop(entity, None)

    def limit(self, key: str, user: str, client_id: str) -> ApplicableLimit | None:
        """Return the limit that applies to a client, or None. The most specific one wins, users
        before client ids.
        """
        for user_name, client_name in (
            (user, client_id),
            (user, None),
            (user, ""),
            (None, client_id),
            (None, None),
            (None, ""),
            ("", client_id),
            ("", None),
        ):
            entity = frozenset(
                (kind, name)
                for kind, name in ((USER, user_name), (CLIENT_ID, client_name))
                if name != ""
            )
            limit = self._values.get(entity, {}).get(key)
            if limit is not None:
                return ApplicableLimit(
                    limit, "" if user_name == "" else user, "" if client_name == "" else client_id
                )
        return None


def _check_entity(entity: Entity) -> None:
    types = {kind for kind, _ in entity}
    if (
        not types
        or not types <= {USER, CLIENT_ID, IP}
        or len(types) < len(entity)
        or (IP in types and len(types) > 1)
    ):
        raise _invalid(f"{_text(entity)}: must be a user, a client-id, both, or an ip")
    for kind, name in entity:
        if name == "":
            raise _invalid(f"{kind}: the name is empty")
        if kind == IP and name is not None:
            try:
                ipaddress.ip_address(name)
            except ValueError:
                raise _invalid(f"ip {name!r}: not an IP address") from None


def _check_value(entity: Entity, key: str, value: float | None) -> None:
    if value is None:
        return
    keys = _IP_KEYS if any(kind == IP for kind, _ in entity) else _CLIENT_KEYS
    if key not in keys:
        raise _invalid(f"{key}: must be one of {', '.join(sorted(keys))}")
    highest = _HIGHEST.get(key)
    if not value > 0 or (highest is not None and not (value <= highest and value == int(value))):
        raise _invalid(
            f"{key}={value}: must be above "
            f"0{'' if highest is None else f', whole, and at most {highest}'}"
        )


def _text(entity: Entity) -> str:
    return (
        ", ".join(f"{kind} {name or '(default)'}" for kind, name in sorted(entity, key=str))
        or "an empty entity"
    )


def _invalid(text: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_REQUEST, text)
