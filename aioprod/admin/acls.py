"""Access control lists (KIP-11, KIP-140, KIP-290)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from enum import IntEnum
from typing import TypeVar

from aioprod.admin.answers import broker_error, check, outcome
from aioprod.admin.attempts import Attempt
from aioprod.admin.driver import AdminDriver
from aioprod.admin.results import Results
from aioprod.arguments import check_items
from aioprod.errors import ConfigError, KafkaError, ProtocolError
from aioprod.foreign_text import shown
from aioprod.protocol.acls import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from aioprod.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from aioprod.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
)
from aioprod.protocol.messages.describe_acls import DescribeAclsRequest

E = TypeVar("E", bound=IntEnum)


class AclCalls:
    """Calls of :class:`aioprod.Admin`."""

    _driver: AdminDriver

    async def create_acls(
        self, acls: Iterable[AclBinding], *, timeout_ms: float | None = None
    ) -> Results[AclBinding, None]:
        """Create ACLs. ACLs that exist already are left unchanged.

        Args:
            acls: the ACLs.
            timeout_ms: limit on the whole call.

        Raises:
            ConfigError: if an ACL has a value that is only for filters.
            BrokerError: SECURITY_DISABLED if the cluster has no authorizer,
                CLUSTER_AUTHORIZATION_FAILED, or INVALID_REQUEST; from ``results[acl]`` or
                ``results.check()``.
        """
        wanted = check_items("acls", acls, AclBinding, "AclBinding")
        for acl in wanted:
            _check_types("create_acls", acl)
            _check(acl)

        async def ask(attempt: Attempt[AclBinding]) -> Mapping[AclBinding, KafkaError | None]:
            connection = await self._driver.controller()
            reply = await connection.request(
                CreateAclsRequest([_creation(acl) for acl in attempt.items])
            )
            _same_number(reply.results, attempt.items, "create_acls")
            return {
                acl: outcome(answer.error_code, f"create ACL {acl}", answer.error_message, None)
                for acl, answer in zip(attempt.items, reply.results, strict=True)
            }

        return await self._driver.each("create_acls", wanted, ask, timeout_ms)

    async def describe_acls(
        self, selected: AclFilter | None = None, *, timeout_ms: float | None = None
    ) -> list[AclBinding]:
        """Return the ACLs that match a filter; all by default.

        Args:
            selected: the filter.
            timeout_ms: limit on the whole call.

        Raises:
            BrokerError: SECURITY_DISABLED if the cluster has no authorizer, or
                CLUSTER_AUTHORIZATION_FAILED.
        """
        chosen = AclFilter() if selected is None else selected
        if not isinstance(chosen, AclFilter):
            raise ConfigError(f"selected={shown(chosen)}: must be an AclFilter")
        _check_types("describe_acls", chosen)
        request = DescribeAclsRequest(
            resource_type_filter=chosen.resource_type,
            resource_name_filter=chosen.resource_name,
            pattern_type_filter=chosen.pattern_type,
            principal_filter=chosen.principal,
            host_filter=chosen.host,
            operation=chosen.operation,
            permission_type=chosen.permission,
        )

        async def ask(attempt: Attempt[str]) -> list[AclBinding]:
            reply = await self._driver.from_any(request)
            check(reply.error_code, f"describe_acls: {chosen}", reply.error_message)
            return [
                AclBinding(
                    _known(ResourceType, found.resource_type),
                    found.resource_name,
                    acl.principal,
                    _known(AclOperation, acl.operation),
                    _known(AclPermission, acl.permission_type),
                    _known(PatternType, found.pattern_type),
                    acl.host,
                )
                for found in reply.resources
                for acl in found.acls
            ]

        return await self._driver.once("describe_acls", ask, timeout_ms)

    async def delete_acls(
        self, selected: Iterable[AclFilter], *, timeout_ms: float | None = None
    ) -> Results[AclFilter, list[AclBinding]]:
        """Delete the ACLs that match filters; return the deleted ACLs of each filter.

        Args:
            selected: the filters.
            timeout_ms: limit on the whole call.

        Raises:
            BrokerError: as in :meth:`create_acls`; from ``results[filter]`` or
                ``results.check()``.
        """
        filters = check_items("selected", selected, AclFilter, "AclFilter")
        for chosen in filters:
            _check_types("delete_acls", chosen)

        async def ask(
            attempt: Attempt[AclFilter],
        ) -> Mapping[AclFilter, list[AclBinding] | KafkaError]:
            connection = await self._driver.controller()
            reply = await connection.request(
                DeleteAclsRequest([_deletion(chosen) for chosen in attempt.items])
            )
            _same_number(reply.filter_results, attempt.items, "delete_acls")
            return {
                chosen: _deleted(chosen, answer)
                for chosen, answer in zip(attempt.items, reply.filter_results, strict=True)
            }

        return await self._driver.each("delete_acls", filters, ask, timeout_ms)


def _check_types(call: str, given: AclBinding | AclFilter) -> None:
    """Check the types of the attributes; only those of a filter may be None."""
    for name, default in AclFilter()._asdict().items():
        value = getattr(given, name)
        kind = type(default) if default is not None else str
        if not isinstance(value, kind) and (value is not None or isinstance(given, AclBinding)):
            wanted = "text" if kind is str else f"of {kind.__name__}"
            raise ConfigError(f"{call}: {name}={shown(value)}: must be {wanted}")


def _check(acl: AclBinding) -> None:
    for name, value in acl._asdict().items():
        if isinstance(value, IntEnum) and value.name in ("UNKNOWN", "ANY", "MATCH"):
            raise ConfigError(f"create_acls: {name}={value.name} is only valid in filters: {acl}")


def _creation(acl: AclBinding) -> AclCreation:
    return AclCreation(
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        resource_pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _deletion(chosen: AclFilter) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=chosen.resource_type,
        resource_name_filter=chosen.resource_name,
        pattern_type_filter=chosen.pattern_type,
        principal_filter=chosen.principal,
        host_filter=chosen.host,
        operation=chosen.operation,
        permission_type=chosen.permission,
    )


def _deleted(chosen: AclFilter, answer: DeleteAclsFilterResult) -> list[AclBinding] | KafkaError:
    if answer.error_code:
        return broker_error(answer.error_code, f"delete_acls: {chosen}", answer.error_message)
    deleted = []
    for acl in answer.matching_acls:
        binding = AclBinding(
            _known(ResourceType, acl.resource_type),
            acl.resource_name,
            acl.principal,
            _known(AclOperation, acl.operation),
            _known(AclPermission, acl.permission_type),
            _known(PatternType, acl.pattern_type),
            acl.host,
        )
        if acl.error_code:
            return broker_error(acl.error_code, f"delete ACL {binding}", acl.error_message)
        deleted.append(binding)
    return deleted


def _same_number(answers: Sized, asked: Sized, call: str) -> None:
    if len(answers) != len(asked):
        raise ProtocolError(f"{call}: {len(answers)} answers to a request about {len(asked)} items")


def _known(kind: type[E], number: int) -> E:
    """Return the member of an enumeration; UNKNOWN for a number that only newer brokers have."""
    try:
        return kind(number)
    except ValueError:
        return kind(0)
