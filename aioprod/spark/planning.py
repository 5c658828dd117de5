"""What the driver asks the brokers: which partitions, from where, to where. Coroutines without Spark."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping

from aioprod.cluster.client import ClusterClient
from aioprod.consumer.partition_reader import FetchSettings, list_offsets, partitions_of
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, ConfigError
from aioprod.protocol.messages.metadata import MetadataRequest
from aioprod.spark.offsets import EARLIEST, LATEST, DataLossError, OffsetRange, Offsets, check_not_lost, limit_offsets, plan_ranges
from aioprod.spark.source_options import SourceOptions, client_config, fetch_settings
from aioprod.types import TopicPartition

log = logging.getLogger(__name__)


def open_client(options: SourceOptions) -> ClusterClient:
    """A client, not started yet, with the options' settings."""
    return ClusterClient(options.bootstrap_servers, **client_config(options.client))


async def select_partitions(client: ClusterClient, options: SourceOptions) -> list[TopicPartition]:
    """The partitions that the options name.

    Raises:
        BrokerError: a topic that is named does not exist or may not be read.
    """
    selection = options.selection
    limit_s = fetch_settings(options.client).retry_limit_ms / 1000
    if selection.pattern is not None:
        return await partitions_of(client, await _matching_topics(client, selection.pattern), limit_s=limit_s)
    if selection.topics:
        return await partitions_of(client, selection.topics, limit_s=limit_s)
    existing = await partitions_of(client, {tp.topic for tp in selection.partitions}, limit_s=limit_s)
    missing = sorted(set(selection.partitions) - set(existing))
    if missing:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "option assign names " + ", ".join(f"{tp.topic}-{tp.partition}" for tp in missing))
    return list(selection.partitions)


async def plan_batch(options: SourceOptions) -> list[OffsetRange]:
    """The tasks of a batch read.

    Raises:
        ConfigError: offsets that leave a partition out.
        DataLossError: offsets outside of what the brokers hold, unless failOnDataLoss is false.
    """
    async with open_client(options) as client:
        partitions = await select_partitions(client, options)
        earliest, latest = await _bounds(client, partitions, fetch_settings(options.client))
    start = _resolve(options.starting.targets("startingOffsets", partitions), earliest, latest)
    end = _resolve(options.ending.targets("endingOffsets", partitions), earliest, latest)
    start, losses = check_not_lost(start, earliest, latest)
    for tp, offset in end.items():
        if offset > latest[tp]:
            losses.append(f"{tp.topic}-{tp.partition} ends at offset {latest[tp]}, endingOffsets asks for {offset}")
            end[tp] = latest[tp]
    report_losses(losses, fail=options.fail_on_data_loss)
    return plan_ranges(start, end, options.min_partitions)


async def initial_offsets(options: SourceOptions) -> Offsets:
    """Where a new stream begins.

    Raises:
        ConfigError: offsets that leave a partition out.
    """
    async with open_client(options) as client:
        partitions = await select_partitions(client, options)
        earliest, latest = await _bounds(client, partitions, fetch_settings(options.client))
    return _resolve(options.starting.targets("startingOffsets", partitions), earliest, latest)


async def latest_offsets(options: SourceOptions) -> Offsets:
    """The present end of every partition."""
    async with open_client(options) as client:
        return await _ends(client, await select_partitions(client, options), fetch_settings(options.client))


async def next_offsets(options: SourceOptions, start: Offsets, target: Mapping[TopicPartition, int] | None, max_offsets: int | None) -> Offsets:
    """The end of the next micro-batch.

    Args:
        options: the options of the stream.
        start: the end of the last one.
        target: no offset beyond this and no other partition (trigger availableNow); None for the present end.
        max_offsets: most offsets in the micro-batch.

    Raises:
        DataLossError: partitions or offsets that are gone, unless failOnDataLoss is false.
    """
    async with open_client(options) as client:
        latest = await _ends(client, await select_partitions(client, options), fetch_settings(options.client))
        losses = [f"{tp.topic}-{tp.partition} is gone (the query stands at offset {offset})" for tp, offset in start.items() if tp not in latest]
        losses += [
            f"{tp.topic}-{tp.partition} ends at offset {latest[tp]} now, the query stands at {offset}"
            for tp, offset in start.items()
            if offset > latest.get(tp, offset)
        ]
        report_losses(losses, fail=options.fail_on_data_loss)
        if target is not None:
            latest = {tp: min(offset, target[tp]) for tp, offset in latest.items() if tp in target}
        begin = await _with_new_partitions(client, start, latest)
    # Never backwards: Spark would read the difference again.
    reachable = {tp: max(offset, begin[tp]) for tp, offset in latest.items()}
    return limit_offsets(begin, reachable, max_offsets)


async def plan_stream(options: SourceOptions, start: Offsets, end: Offsets) -> list[OffsetRange]:
    """The tasks of a micro-batch; a partition that is new since the last one begins at its first record.

    Raises:
        DataLossError: partitions that are gone, unless failOnDataLoss is false.
    """
    gone = [f"{tp.topic}-{tp.partition} is gone (the query stands at offset {offset})" for tp, offset in start.items() if tp not in end]
    report_losses(gone, fail=options.fail_on_data_loss)
    begin = start
    if not end.keys() <= start.keys():
        async with open_client(options) as client:
            begin = await _with_new_partitions(client, start, end)
    return plan_ranges(begin, end, options.min_partitions)


def report_losses(losses: Collection[str], *, fail: bool) -> None:
    """Raise, or with failOnDataLoss=false warn, when something is lost."""
    if not losses:
        return
    text = "; ".join(losses)
    if fail:
        raise DataLossError(f"{text}. Set the option failOnDataLoss=false to go on with what is left")
    log.warning("data loss ignored (failOnDataLoss=false): %s", text)


async def _matching_topics(client: ClusterClient, pattern: str) -> list[str]:
    reply = await client.request(MetadataRequest(topics=None, allow_auto_topic_creation=False))
    names = sorted(topic.name for topic in reply.topics if not topic.is_internal and topic.name and re.fullmatch(pattern, topic.name))
    if not names:
        raise ConfigError(f"option subscribePattern={pattern!r} matches none of the {len(reply.topics)} topics")
    return names


async def _bounds(client: ClusterClient, partitions: Collection[TopicPartition], fetch: FetchSettings) -> tuple[Offsets, Offsets]:
    earliest = await list_offsets(client, dict.fromkeys(partitions, EARLIEST), retry_limit_ms=fetch.retry_limit_ms)
    return earliest, await _ends(client, partitions, fetch)


async def _ends(client: ClusterClient, partitions: Collection[TopicPartition], fetch: FetchSettings) -> Offsets:
    return await list_offsets(
        client, dict.fromkeys(partitions, LATEST), isolation_level=fetch.isolation_level, retry_limit_ms=fetch.retry_limit_ms
    )


async def _with_new_partitions(client: ClusterClient, start: Offsets, end: Mapping[TopicPartition, int]) -> Offsets:
    new = [tp for tp in end if tp not in start]
    return start | await list_offsets(client, dict.fromkeys(new, EARLIEST)) if new else start


def _resolve(targets: Offsets, earliest: Offsets, latest: Offsets) -> Offsets:
    named = {EARLIEST: earliest, LATEST: latest}
    return {tp: named[offset][tp] if offset in named else offset for tp, offset in targets.items()}
