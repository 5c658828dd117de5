"""The topics that ``aioprod copy`` copies, and the topics in the target cluster."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from aioprod.cli.client import CommandError, UsageError
from aioprod.counts import counted

if TYPE_CHECKING:
    from aioprod.admin import Admin, TopicDescription

# Settings that depend on the source's brokers and disks, or that refuse or change timestamps.
_NOT_COPIED = (
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    "local.retention.bytes",
    "local.retention.ms",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.difference.max.ms",
    "message.timestamp.type",
    "min.insync.replicas",
    "remote.storage.enable",
    "unclean.leader.election.enable",
)


class TopicPair(NamedTuple):
    """A topic and its copy.

    Attributes:
        topic: the name in the source cluster.
        topic_id: its id there, which distinguishes it from a deleted topic of the same name; empty
            if the cluster has no topic ids.
        to_topic: the name in the target cluster.
        identity: the transactional id of the copy, and the group that stores its progress; both in
            the target cluster.
    """

    topic: str
    topic_id: str
    to_topic: str
    identity: str


async def plan(source: Admin, target: Admin, options: argparse.Namespace) -> list[TopicPair]:
    """Return the topics to copy; create those that the target lacks.

    Raises:
        UsageError: if a topic would be copied to itself.
        CommandError: if no topic matches, or a target topic has too few partitions.
        KafkaError: if a topic does not exist, or a cluster refuses a request.
    """
    source_id = await _cluster_id(source, "source")
    same = source_id == await _cluster_id(target, "target")
    names = await _names(source, options, same=same)
    topics = (await source.describe_topics(list(names))).check()
    partitions = {names[topic]: len(each.partitions) for topic, each in topics.items()}
    present = await _present(target, names.values())
    missing = {topic: name for topic, name in names.items() if name not in present}
    for topic, name in names.items():
        if topic not in missing:
            check_partitions(topic, partitions[name], name, len(present[name].partitions))
    if missing:
        await _create(source, target, missing, partitions, options)
    return [
        TopicPair(
            topic,
            str(topics[topic].topic_id or ""),
            name,
            # Topic names have no colon, so different copies never share an identity.
            f"aioprod-copy:{source_id}:{topic}:{name}",
        )
        for topic, name in names.items()
    ]


def check_partitions(topic: str, wanted: int, to_topic: str, present: int) -> None:
    """Raise CommandError if a target topic has fewer partitions than its source."""
    if present < wanted:
        raise CommandError(
            f"topic {to_topic} has {counted(present, 'partition')} in the target cluster, and "
            f"{topic} has {wanted} in the source, and records keep their partitions; run "
            f"aioprod topics alter {to_topic} --partitions {wanted}"
        )


async def _cluster_id(admin: Admin, which: str) -> str:
    found = (await admin.describe_cluster()).cluster_id
    if not found:
        raise CommandError(
            f"the {which} cluster reports no cluster id: the progress can't be named"
        )
    return found


async def _names(admin: Admin, options: argparse.Namespace, *, same: bool) -> dict[str, str]:
    """Return the names in the target cluster by those in the source cluster."""
    if options.matching is None:
        chosen = list(dict.fromkeys(options.topics))
    else:
        chosen = [name for name in await admin.list_topics() if options.matching.fullmatch(name)]
    names = {topic: options.to_topic or options.prefix + topic for topic in chosen}
    if options.matching is not None and same and options.prefix:
        made = set(names.values())  # copies of an earlier run also match
        names = {topic: name for topic, name in names.items() if topic not in made}
    if not names:
        raise CommandError(f"no topic matches {options.matching.pattern!r}")
    if same:
        for topic, name in names.items():
            if topic == name:
                raise UsageError(
                    f"topic {topic} would be copied to itself: source and target are the same "
                    "cluster; give --to-bootstrap-servers, --to-topic or --prefix"
                )
    return names


async def _present(admin: Admin, names: Iterable[str]) -> Mapping[str, TopicDescription]:
    from aioprod.error_codes import ErrorCode

    described = await admin.describe_topics(list(names))
    for error in described.errors.values():
        if getattr(error, "code", None) != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise error
    return described.successes


async def _create(
    source: Admin,
    target: Admin,
    missing: Mapping[str, str],
    partitions: Mapping[str, int],
    options: argparse.Namespace,
) -> None:
    from aioprod.admin import ConfigResource, ConfigSource, NewTopic

    found = (
        await source.describe_configs([ConfigResource.topic(topic) for topic in missing])
    ).check()
    settings = {
        resource.name: {
            each.name: each.value
            for each in entries.values()
            if each.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
            and each.value is not None
            and each.name not in _NOT_COPIED
        }
        for resource, entries in found.items()
    }
    made = await target.create_topics(
        [
            NewTopic(
                name,
                partitions[name],
                options.replication_factor,
                {**settings[topic], **dict(options.set)},
            )
            for topic, name in missing.items()
        ]
    )
    made.check()
