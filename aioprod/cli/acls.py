"""``aioprod acls``."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from aioprod.cli.client import UsageError, command
from aioprod.cli.cluster import admin_client
from aioprod.cli.confirm import add_confirmation, check_can_ask, confirmed
from aioprod.cli.output import note, say, show, table
from aioprod.cli.parser import Parser, name_choices
from aioprod.cli.topics import report
from aioprod.counts import counted

if TYPE_CHECKING:
    from aioprod.admin import AclBinding, AclFilter, Admin, PatternType, ResourceType
    from aioprod.errors import KafkaError

# The values of options: listing them here keeps `aioprod.admin` out of the parser.
OPERATIONS = (
    *("all", "read", "write", "create", "delete", "alter", "describe", "cluster-action"),
    *("describe-configs", "alter-configs", "idempotent-write", "create-tokens"),
    *("describe-tokens", "two-phase-commit"),
)
RESOURCES = ("topic", "group", "transactional-id", "delegation-token", "user")
_CLUSTER = "kafka-cluster"
_USER = "user"


def add_arguments(parser: Parser) -> None:
    """Add the arguments of ``aioprod acls``."""
    actions = parser.add_subparsers(dest="action", required=True, parser_class=Parser)
    listed = actions.add_parser("list", help="print ACLs", allow_abbrev=False)
    _add_selection(listed, ("literal", "prefixed", "match", "any"), "any")
    listed.add_argument("--json", action="store_true", help="print JSON")
    command(listed, _list)
    added = actions.add_parser(
        "add", help="add ACLs: one for each resource, principal and operation", allow_abbrev=False
    )
    _add_selection(added, ("literal", "prefixed"), "literal")
    command(added, _add)
    removed = actions.add_parser(
        "remove", help="remove the ACLs that the options select, and print them", allow_abbrev=False
    )
    _add_selection(removed, ("literal", "prefixed", "match", "any"), "literal")
    removed.add_argument("--all", action="store_true", help="remove all ACLs of the cluster")
    add_confirmation(removed)
    removed.add_argument("--json", action="store_true", help="print JSON")
    command(removed, _remove)
    name_choices(actions)


def _add_selection(parser: Parser, patterns: tuple[str, ...], default: str) -> None:
    for name in RESOURCES:
        what = "name of a " + name.replace("-", " ")
        parser.add_argument(
            f"--{name}",
            action="append",
            default=[],
            metavar="TYPE:NAME" if name == _USER else "NAME",
            help=f"{'a user, such as User:bob' if name == _USER else what}; may be repeated",
        )
    parser.add_argument("--cluster", action="store_true", help="the cluster itself")
    parser.add_argument(
        "--pattern",
        choices=patterns,
        type=_as_options,
        default=default,
        help=f"how names are matched (default: {default})",
    )
    parser.add_argument(
        "--principal",
        action="append",
        default=[],
        metavar="TYPE:NAME",
        help="such as User:alice, or User:* for all; may be repeated",
    )
    parser.add_argument(
        "--operation",
        action="append",
        default=[],
        choices=OPERATIONS,
        type=_as_options,
        metavar="OPERATION",
        help=f"one of {', '.join(OPERATIONS)}; may be repeated",
    )
    parser.add_argument(
        "--permission",
        choices=("allow", "deny"),
        type=_as_options,
        help="whether the ACLs allow or deny",
    )
    parser.add_argument("--host", metavar="ADDRESS", help="address of clients")


def _as_options(name: str) -> str:
    """Convert a name, also as `acls list` prints it, to the value of an option."""
    return name.lower().replace("_", "-")


async def _list(options: argparse.Namespace) -> int:
    filters = _filters(options)
    async with admin_client(options) as admin:
        _print(options, await _find(admin, filters))
    return 0


async def _find(admin: Admin, filters: list[AclFilter]) -> list[AclBinding]:
    found: dict[AclBinding, None] = {}
    for chosen in filters:
        found |= dict.fromkeys(await admin.describe_acls(chosen))
    return sorted(found)


async def _add(options: argparse.Namespace) -> int:
    from aioprod.admin import AclBinding, AclOperation, AclPermission, PatternType

    resources = _resources(options)
    if not (resources and options.principal and options.operation):
        raise UsageError("set a resource (such as --topic NAME), --principal and --operation")
    pattern = PatternType[options.pattern.upper()]
    wanted = [
        AclBinding(
            kind,
            name,
            _principal("principal", principal),
            AclOperation[_member(operation)],
            AclPermission[(options.permission or "allow").upper()],
            _pattern(pattern, name, options),
            options.host or "*",
        )
        for kind, name in resources
        for principal in options.principal
        for operation in options.operation
    ]
    async with admin_client(options) as admin:
        created = await admin.create_acls(wanted)
    return report(options, created.errors.values())


async def _remove(options: argparse.Namespace) -> int:
    filters = _filters(options)
    given = [options.principal, options.operation, options.permission, options.host]
    if not (any(given) or _resources(options) or options.all):
        raise UsageError("set what to remove, such as --principal User:alice, or --all")
    check_can_ask(options)
    async with admin_client(options) as admin:
        if not options.yes:
            found = await _find(admin, filters)
            question = f"remove {counted(len(found), 'ACL')}"
            if not found:
                return _none_selected(options)
            if not await confirmed(options, _rows(found), question):
                return 0
        deleted = await admin.delete_acls(filters)
    removed = dict.fromkeys(acl for each in deleted.successes.values() for acl in each)
    _print(options, sorted(removed))
    errors: Iterable[KafkaError] = deleted.errors.values()
    if not removed and not deleted.errors:
        return _none_selected(options)
    return report(options, errors)


def _none_selected(options: argparse.Namespace) -> int:
    note(f"{options.parser.prog}: the options select no ACL")
    return 1


def _filters(options: argparse.Namespace) -> list[AclFilter]:
    """Return a filter for each resource, principal and operation."""
    from aioprod.admin import AclFilter, AclOperation, AclPermission, PatternType, ResourceType

    pattern = PatternType[options.pattern.upper()]
    permission = AclPermission[(options.permission or "any").upper()]
    resources: list[tuple[ResourceType, str | None]] = [*_resources(options)]
    return [
        AclFilter(
            kind,
            name,
            principal and _principal("principal", principal),
            AclOperation[_member(operation)],
            permission,
            PatternType.ANY if name is None else _pattern(pattern, name, options),
            options.host,
        )
        for kind, name in resources or [(ResourceType.ANY, None)]
        for principal in options.principal or [None]
        for operation in options.operation or ["any"]
    ]


def _resources(options: argparse.Namespace) -> list[tuple[ResourceType, str]]:
    from aioprod.admin import ResourceType

    found = [
        (ResourceType[_member(name)], _principal(name, each) if name == _USER else each)
        for name in RESOURCES
        for each in getattr(options, name.replace("-", "_"))
    ]
    return [*found, *([(ResourceType.CLUSTER, _CLUSTER)] if options.cluster else [])]


def _pattern(pattern: PatternType, name: str, options: argparse.Namespace) -> PatternType:
    """Return the pattern for a resource: the cluster has one name."""
    if not name:
        raise UsageError("the name of a resource must not be empty; '*' is all names")
    return type(pattern).LITERAL if name == _CLUSTER and options.cluster else pattern


def _principal(option: str, text: str) -> str:
    kind, colon, name = text.partition(":")
    if not (kind and colon and name) and not (option == _USER and text == "*"):
        raise UsageError(f"--{option} {text}: must be TYPE:NAME, such as User:alice")
    return text


def _member(name: str) -> str:
    return name.replace("-", "_").upper()


def _print(options: argparse.Namespace, acls: list[AclBinding]) -> None:
    if options.json:
        show([
            {
                name: value.name if hasattr(value, "name") else value
                for name, value in acl._asdict().items()
            }
            for acl in acls
        ])  # fmt: skip
    elif acls:
        say(table(_rows(acls)))


def _rows(acls: list[AclBinding]) -> list[tuple[str, ...]]:
    return [
        ("RESOURCE", "NAME", "PATTERN", "PRINCIPAL", "PERMISSION", "OPERATION", "HOST"),
        *(
            (
                *(acl.resource_type.name, acl.resource_name, acl.pattern_type.name),
                *(acl.principal, acl.permission.name, acl.operation.name, acl.host),
            )
            for acl in acls
        ),
    ]
