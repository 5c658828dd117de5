"""``aioprod topics``."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from aioprod.cli.client import UsageError, command, text_of
from aioprod.cli.cluster import admin_client
from aioprod.cli.confirm import add_confirmation, add_dry_run, check_can_ask, confirmed
from aioprod.cli.output import note, say, show, table
from aioprod.cli.parser import Commands, Parser, assignment, name_choices, natural_int, positive_int
from aioprod.counts import counted
from aioprod.foreign_text import escaped

if TYPE_CHECKING:
    from aioprod.admin import Admin, ConfigEntry, TopicDescription
    from aioprod.errors import KafkaError
    from aioprod.types import TopicPartition


def add_arguments(parser: Parser) -> None:
    """Add the arguments of ``aioprod topics``."""
    actions = parser.add_subparsers(dest="action", required=True, parser_class=Parser)
    _add_list(actions)
    _add_create(actions)
    _add_describe(actions)
    _add_alter(actions)
    _add_delete(actions)
    _add_delete_records(actions)
    name_choices(actions)


def _add_list(actions: Commands[Parser]) -> None:
    parser = actions.add_parser("list", help="print the names of all topics", allow_abbrev=False)
    parser.add_argument("--internal", action="store_true", help="include Kafka's internal topics")
    parser.add_argument("--json", action="store_true", help="print JSON")
    command(parser, _list)


def _add_create(actions: Commands[Parser]) -> None:
    parser = actions.add_parser("create", help="create topics", allow_abbrev=False)
    parser.add_argument("topics", nargs="+", metavar="TOPIC")
    parser.add_argument(
        "--partitions",
        type=positive_int,
        default=-1,
        metavar="N",
        help="partitions of each topic (default: the broker's num.partitions)",
    )
    parser.add_argument(
        "--replication-factor",
        type=positive_int,
        default=-1,
        metavar="N",
        help="replicas of each partition (default: the broker's default.replication.factor)",
    )
    _add_set(parser)
    parser.add_argument(
        "--if-not-exists", action="store_true", help="ignore topics that exist already"
    )
    add_dry_run(parser)
    command(parser, _create)


def _add_describe(actions: Commands[Parser]) -> None:
    parser = actions.add_parser(
        "describe", help="show topics' partitions and settings", allow_abbrev=False
    )
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="default: all")
    parser.add_argument(
        "--all-settings",
        action="store_true",
        help="show all settings, not only those set for the topic",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    command(parser, _describe)


def _add_alter(actions: Commands[Parser]) -> None:
    parser = actions.add_parser(
        "alter", help="change a topic's number of partitions or settings", allow_abbrev=False
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "--partitions",
        type=positive_int,
        metavar="N",
        help="new number of partitions; keys may map to other partitions then",
    )
    _add_set(parser)
    parser.add_argument(
        "--unset",
        action="append",
        default=[],
        metavar="NAME",
        help="reset a setting to its default; may be repeated",
    )
    add_confirmation(parser)
    command(parser, _alter)


def _add_set(parser: Parser) -> None:
    parser.add_argument(
        "--set",
        type=assignment,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a topic setting; may be repeated",
    )


def _add_delete(actions: Commands[Parser]) -> None:
    parser = actions.add_parser(
        "delete", help="delete topics with all their records", allow_abbrev=False
    )
    parser.add_argument("topics", nargs="+", metavar="TOPIC")
    parser.add_argument("--if-exists", action="store_true", help="ignore topics that don't exist")
    add_confirmation(parser)
    command(parser, _delete)


def _add_delete_records(actions: Commands[Parser]) -> None:
    parser = actions.add_parser(
        "delete-records", help="delete a topic's oldest records", allow_abbrev=False
    )
    parser.add_argument("topic", metavar="TOPIC")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--before", type=natural_int, metavar="OFFSET", help="delete records before this offset"
    )
    which.add_argument("--all", action="store_true", help="delete all committed records")
    parser.add_argument(
        "--partition",
        type=natural_int,
        action="append",
        metavar="N",
        help="only in this partition; may be repeated",
    )
    add_confirmation(parser)
    command(parser, _delete_records)


async def _list(options: argparse.Namespace) -> int:
    async with admin_client(options) as admin:
        listed = await admin.list_topics(list_internal=options.internal)
    if options.json:
        show(
            [
                {
                    "name": each.name,
                    "topic_id": each.topic_id and str(each.topic_id),
                    "internal": each.internal,
                }
                for each in listed.values()
            ]
        )
    elif listed:
        say("\n".join(map(escaped, listed)))
    return 0


async def _create(options: argparse.Namespace) -> int:
    from aioprod.admin import NewTopic
    from aioprod.error_codes import ErrorCode

    wanted = [
        NewTopic(name, options.partitions, options.replication_factor, dict(options.set))
        for name in options.topics
    ]
    async with admin_client(options) as admin:
        made = await admin.create_topics(wanted, validate_only=options.dry_run)
    if options.dry_run:
        note("dry run: nothing was changed")
    return report(
        options,
        made.errors.values(),
        ErrorCode.TOPIC_ALREADY_EXISTS if options.if_not_exists else None,
    )


async def _delete(options: argparse.Namespace) -> int:
    from aioprod.error_codes import ErrorCode

    fine = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if options.if_exists else None
    check_can_ask(options)
    async with admin_client(options) as admin:
        if not options.yes:
            described = await admin.describe_topics(options.topics)
            found = list(described.successes.values())
            question = f"delete {counted(len(found), 'topic')} with all records"
            if not found or not await confirmed(options, await _sizes(admin, found), question):
                return report(options, described.errors.values(), fine)
        deleted = await admin.delete_topics(options.topics)
    return report(options, deleted.errors.values(), fine)


async def _sizes(admin: Admin, topics: Sequence[TopicDescription]) -> list[tuple[object, ...]]:
    """Return a table of topics, with the numbers of their records."""
    from aioprod.admin import OffsetSpec
    from aioprod.types import TopicPartition

    sizes = {
        each.name: [TopicPartition(each.name, part.partition) for part in each.partitions]
        for each in topics
    }
    every = [partition for partitions in sizes.values() for partition in partitions]
    begins = (await admin.list_offsets(dict.fromkeys(every, OffsetSpec.EARLIEST))).successes
    ends = (await admin.list_offsets(dict.fromkeys(every, OffsetSpec.LATEST))).successes
    return [
        ("TOPIC", "PARTITIONS", "RECORDS"),
        *(
            (
                name,
                len(partitions),
                sum(ends[each].offset - begins[each].offset for each in partitions)
                if all(each in begins and each in ends for each in partitions)
                else None,
            )
            for name, partitions in sizes.items()
        ),
    ]


def report(
    options: argparse.Namespace, errors: Iterable[KafkaError], fine: int | None = None
) -> int:
    """Print errors, one per line, except those with the code ``fine``; return the exit status."""
    bad = [error for error in errors if fine is None or getattr(error, "code", None) != fine]
    for text in dict.fromkeys(map(text_of, bad)):
        note(escaped(f"{options.parser.prog}: {text}"))
    return 1 if bad else 0


async def _describe(options: argparse.Namespace) -> int:
    from aioprod.admin import ConfigResource

    async with admin_client(options) as admin:
        names = options.topics or list(await admin.list_topics())
        described = await admin.describe_topics(names)
        settings = await admin.describe_configs(
            [ConfigResource.topic(name) for name in described.successes]
        )
    found = [
        (each, settings.successes.get(ConfigResource.topic(name), {}))
        for name, each in described.successes.items()
    ]
    if options.json:
        show([_as_json(topic, entries, options.all_settings) for topic, entries in found])
    else:
        say(
            "\n\n".join(_as_text(topic, entries, options.all_settings) for topic, entries in found),
            end="\n" if found else "",
        )
    return report(options, [*described.errors.values(), *settings.errors.values()])


def _shown(entries: dict[str, ConfigEntry], everything: bool) -> dict[str, str | None]:
    from aioprod.admin import ConfigSource

    return {
        each.name: each.value
        for each in entries.values()
        if everything or each.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    }


def _as_text(topic: TopicDescription, entries: dict[str, ConfigEntry], everything: bool) -> str:
    settings = "".join(
        f"\n  {escaped(f'{name}={value}')}" for name, value in _shown(entries, everything).items()
    )
    rows = [
        (
            each.partition,
            each.leader and each.leader.node_id,
            " ".join(map(str, each.replicas)),
            " ".join(map(str, each.isr)),
            " ".join(map(str, each.offline_replicas)) or None,
        )
        for each in topic.partitions
    ]
    heading = f"{topic.name}  {counted(len(topic.partitions), 'partition')}  id {topic.topic_id}"
    return f"{escaped(heading)}{settings}\n" + table(
        [("PARTITION", "LEADER", "REPLICAS", "IN SYNC", "OFFLINE"), *rows]
    )


def _as_json(
    topic: TopicDescription, entries: dict[str, ConfigEntry], everything: bool
) -> dict[str, object]:
    return {
        "name": topic.name,
        "topic_id": topic.topic_id and str(topic.topic_id),
        "internal": topic.internal,
        "settings": _shown(entries, everything),
        "partitions": [
            {
                "partition": each.partition,
                "leader": each.leader and each.leader.node_id,
                "leader_epoch": each.leader_epoch,
                "replicas": each.replicas,
                "isr": each.isr,
                "offline_replicas": each.offline_replicas,
            }
            for each in topic.partitions
        ],
    }


async def _alter(options: argparse.Namespace) -> int:
    from aioprod.admin import ConfigResource

    changes = {**dict(options.set), **dict.fromkeys(options.unset)}
    if not changes and options.partitions is None:
        raise UsageError("nothing to alter: give --partitions, --set or --unset")
    check_can_ask(options)
    resource = ConfigResource.topic(options.topic)
    async with admin_client(options) as admin:
        plan = [] if options.yes else await _changes(admin, options, changes)
        # For a dry run, the broker checks whether the change is possible.
        await confirmed(options, plan, f"alter topic {options.topic}")
        if changes:
            (
                await admin.incremental_alter_configs(
                    {resource: changes}, validate_only=options.dry_run
                )
            ).check()
        if options.partitions is not None:
            (
                await admin.create_partitions(
                    {options.topic: options.partitions}, validate_only=options.dry_run
                )
            ).check()
    return 0


async def _changes(
    admin: Admin, options: argparse.Namespace, changes: Mapping[str, str | None]
) -> list[tuple[object, ...]]:
    """Return a table of what ``topics alter`` changes."""
    from aioprod.admin import ConfigResource

    rows: list[tuple[object, ...]] = [("SETTING", "FROM", "TO")]
    described = await admin.describe_topics(options.topic)
    if options.partitions is not None:
        rows.append(("partitions", len(described.partitions), options.partitions))
    entries = await admin.describe_configs(ConfigResource.topic(options.topic)) if changes else {}
    for name, value in changes.items():
        entry = entries.get(name)
        rows.append((name, entry and entry.value, "the default" if value is None else value))
    return rows


async def _delete_records(options: argparse.Namespace) -> int:
    from aioprod.admin import TO_THE_END

    before = TO_THE_END if options.all else options.before
    check_can_ask(options)
    async with admin_client(options) as admin:
        partitions = await partitions_of(admin, options.topic, options.partition)
        plan = [] if options.yes else await _deletions(admin, partitions, options.before)
        if not await confirmed(options, plan, f"delete these records of topic {options.topic}"):
            return 0
        deleted = await admin.delete_records(dict.fromkeys(partitions, before))
    if deleted.successes:
        say(
            table(
                [
                    ("TOPIC", "PARTITION", "BEGINS AT"),
                    *((*partition, begins) for partition, begins in deleted.successes.items()),
                ]
            )
        )
    return report(options, deleted.errors.values())


async def _deletions(
    admin: Admin, partitions: Sequence[TopicPartition], before: int | None
) -> list[tuple[object, ...]]:
    """Return a table of the records that ``delete-records`` deletes."""
    from aioprod.admin import OffsetSpec

    begins = (await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST))).check()
    ends = (await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))).check()
    rows: list[tuple[object, ...]] = [("TOPIC", "PARTITION", "BEGINS AT", "WILL BEGIN AT")]
    for partition in partitions:
        begin = begins[partition].offset
        until = ends[partition].offset if before is None else max(begin, before)
        rows.append((*partition, begin, until))
    return rows


async def partitions_of(
    admin: Admin, topic: str, numbers: Iterable[int] | None
) -> list[TopicPartition]:
    """Return these partitions of a topic; all if none are named."""
    from aioprod.types import TopicPartition

    if numbers is not None:
        return [TopicPartition(topic, number) for number in numbers]
    return [
        TopicPartition(topic, each.partition)
        for each in (await admin.describe_topics(topic)).partitions
    ]
