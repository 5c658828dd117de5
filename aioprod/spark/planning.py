"""Plans reads on the driver with requests to the brokers: the partitions, and their start and end
offsets. Independent of Spark.

Each lookup, with all its retries, takes at most ``kafka.default.api.timeout.ms``
(:attr:`FetchSettings.retry_limit_ms`). The docstrings give the number of lookups of each coroutine.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from aioprod.cluster.client import ClusterClient
from aioprod.consumer.partition_reader import list_offsets, partitions_of
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, ConfigError, RequestTimedOutError
from aioprod.logs import Logger, get_logger
from aioprod.net.bounds import TimeLimit
from aioprod.protocol.messages.metadata import MetadataRequest
from aioprod.spark.filters import EVERYTHING, Wanted
from aioprod.spark.offsets import (
    EARLIEST,
    LATEST,
    DataLossError,
    OffsetRange,
    Offsets,
    OffsetSpec,
    TimestampSpec,
    backwards,
    check_not_lost,
    missed,
    plan_ranges,
)
from aioprod.spark.positions import Position
from aioprod.spark.source_options import SourceOptions, fetch_settings
from aioprod.spark.waiting import named_wait
from aioprod.types import TopicPartition

log: Logger = get_logger(__name__)

_LIMIT = "kafka.default.api.timeout.ms"


async def select_partitions(client: ClusterClient, options: SourceOptions) -> list[TopicPartition]:
    """Return the partitions that the options select; empty if a pattern matches no topic yet. This
    takes one lookup, within ``kafka.default.api.timeout.ms``.

    Raises:
        BrokerError: if a named topic does not exist or is not authorized for reading.
    """
    with named_wait("looking up partitions", _LIMIT):
        return await _select(client, options)


async def _select(client: ClusterClient, options: SourceOptions) -> list[TopicPartition]:
    selection = options.selection
    limit_s = fetch_settings(options).retry_limit_ms / 1000
    if selection.pattern is not None:
        return await _partitions_by_pattern(client, selection.pattern, limit_s)
    if selection.topics:
        return await partitions_of(client, selection.topics, limit_s=limit_s)
    existing = await partitions_of(
        client, {tp.topic for tp in selection.partitions}, limit_s=limit_s
    )
    missing = sorted(set(selection.partitions) - set(existing))
    if missing:
        raise BrokerError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "option assign names " + ", ".join(f"{tp.topic}-{tp.partition}" for tp in missing),
        )
    return list(selection.partitions)


async def plan_batch(
    client: ClusterClient, options: SourceOptions, wanted: Wanted = EVERYTHING
) -> list[OffsetRange]:
    """Return the ranges of a batch read, without records that are not ``wanted``. This takes at
    most six lookups, each within ``kafka.default.api.timeout.ms``.

    Raises:
        ConfigError: if offsets or timestamps leave a partition out, or the end is before the start.
        DataLossError: if offsets do not exist on the brokers and failOnDataLoss is true.
    """
    partitions = await select_partitions(client, options)
    if not partitions:
        raise ConfigError(f"option {options.selection.describe()} matches no topic")
    ids = topic_ids(client, partitions)
    first = await _targets(client, partitions, options, options.starting)
    last = await _targets(client, partitions, options, options.ending)
    _check_order(first, last)
    # Last, so that no offset that was found by its timestamp can be after the end.
    earliest, latest = await _bounds(client, partitions, options)
    start, losses = check_not_lost(_resolve(first, earliest, latest), earliest, latest)
    end = _resolve(last, earliest, latest)
    for tp, offset in end.items():
        if offset > latest[tp]:
            losses.append(
                f"{tp.topic}-{tp.partition} ends at offset {latest[tp]}, endingOffsets asks "
                f"for {offset}"
            )
            end[tp] = latest[tp]
    report_losses(losses, fail=options.fail_on_data_loss)
    if wanted is not EVERYTHING:
        chosen = [tp for tp in start if wanted.since_ms is not None and wanted.includes(tp)]
        since = await _list(client, dict.fromkeys(chosen, wanted.since_ms or 0), options)
        start, end = wanted.narrow(start, end, since)
    ranges = plan_ranges(start, end, options.min_partitions, options.max_records_per_partition)
    return _of_topics(ranges, ids)


async def initial_offsets(client: ClusterClient, options: SourceOptions) -> Position:
    """Return the position at which a new stream begins. This takes at most four lookups, each
    within ``kafka.default.api.timeout.ms``.

    Raises:
        ConfigError: if offsets or timestamps leave a partition out, or no record has the timestamp
            or a later one.
    """
    partitions = await select_partitions(client, options)
    targets = await _targets(client, partitions, options, options.starting)
    ids = topic_ids(client, partitions)
    return Position(_resolve(targets, *await _bounds(client, partitions, options)), ids)


async def latest_offsets(client: ClusterClient, options: SourceOptions) -> Position:
    """Return the current end of each partition. This takes two lookups, each within
    ``kafka.default.api.timeout.ms``.
    """
    partitions = await select_partitions(client, options)
    # The ids from before: if a topic is recreated in between, its tasks detect it.
    ids = topic_ids(client, partitions)
    return Position(await _ends(client, partitions, options), ids)


def topic_ids(
    client: ClusterClient, partitions: Collection[TopicPartition]
) -> dict[str, uuid.UUID]:
    """Return the topics' ids; empty if the brokers do not support ids."""
    found = {name: client.snapshot.topic_id(name) for name in {tp.topic for tp in partitions}}
    return {name: topic_id for name, topic_id in found.items() if topic_id.int}


async def available_offsets(
    client: ClusterClient, options: SourceOptions, start: Position
) -> tuple[Offsets, Position]:
    """Return the position of each partition of a stream, and its current end. New partitions begin
    at their first record. If a topic was recreated and this loss is ignored, all its partitions are
    new.

    This takes three lookups, each within ``kafka.default.api.timeout.ms``. If ends have decreased,
    two more follow after a pause of ``fetchOffset.retryIntervalMs``, up to
    ``fetchOffset.numRetries`` times.

    The end is before the position if the topic lost records, or was recreated on brokers without
    topic ids, and this loss is ignored. The stream then continues from the end.

    Args:
        start: the end of the last micro-batch.

    Raises:
        DataLossError: if partitions or offsets do not exist any more and failOnDataLoss is true.
    """
    for _ in range(options.fetch_offset_retries):
        latest = await latest_offsets(client, options)
        if not start.recreated(latest) and not backwards(start.offsets, latest.offsets):
            break
        # A new leader may not know the high watermark yet, and a broker may not know yet that the
        # topic was recreated.
        await asyncio.sleep(options.fetch_offset_retry_interval_ms / 1000)
    valid = start.valid_in(latest)
    losses = start.losses(latest) + backwards(valid, latest.offsets)
    report_losses(losses, fail=options.fail_on_data_loss)
    return await _with_new_partitions(client, valid, latest.offsets, options), latest


async def plan_stream(
    client: ClusterClient, options: SourceOptions, start: Position, end: Position
) -> list[OffsetRange]:
    """Return the ranges of a micro-batch. A partition that is new since the last one begins at its
    first record, and so does each partition of a recreated topic.

    This takes at most one lookup, within ``kafka.default.api.timeout.ms``.

    Raises:
        DataLossError: if partitions or offsets do not exist any more and failOnDataLoss is true.
    """
    valid = start.valid_in(end)
    begin = await _with_new_partitions(client, valid, end.offsets, options)
    losses = start.losses(end) + backwards(valid, end.offsets) + missed(valid, begin)
    report_losses(losses, fail=options.fail_on_data_loss)
    ranges = plan_ranges(
        begin, end.offsets, options.min_partitions, options.max_records_per_partition
    )
    return _of_topics(ranges, end.topic_ids)


def _of_topics(
    ranges: Iterable[OffsetRange], topic_ids: Mapping[str, uuid.UUID]
) -> list[OffsetRange]:
    return [replace(each, topic_id=topic_ids.get(each.topic)) for each in ranges]


def report_losses(losses: Collection[str], *, fail: bool) -> None:
    """Raise DataLossError if data is lost, or only log a warning with failOnDataLoss=false."""
    if not losses:
        return
    text = "; ".join(losses)
    if fail:
        raise DataLossError(
            f"{text}. Set the option failOnDataLoss=false to continue with the remaining data"
        )
    log.warning("data loss ignored (failOnDataLoss=false): %s", text)


async def _partitions_by_pattern(
    client: ClusterClient, pattern: str, limit_s: float
) -> list[TopicPartition]:
    async with TimeLimit(
        limit_s * 1000,
        f"topics that match {pattern!r}",
        _LIMIT,
        error_type=RequestTimedOutError,
    ):
        return await _matching_partitions(client, pattern, limit_s)


async def _matching_partitions(
    client: ClusterClient, pattern: str, limit_s: float
) -> list[TopicPartition]:
    gone: set[str] = set()
    while True:
        reply = await client.request(MetadataRequest(topics=None, allow_auto_topic_creation=False))
        names = {
            topic.name
            for topic in reply.topics
            if not topic.is_internal and topic.name and re.fullmatch(pattern, topic.name)
        } - gone
        try:
            return await partitions_of(client, names, limit_s=limit_s) if names else []
        except BrokerError as error:
            # The topic was deleted after the brokers listed it; other brokers may still report it
            # for a while.
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            unknown = {
                name
                for name in names
                if client.snapshot.topics[name].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            }
            if not unknown:
                raise
            gone |= unknown


async def _targets(
    client: ClusterClient,
    partitions: Collection[TopicPartition],
    options: SourceOptions,
    spec: OffsetSpec | TimestampSpec,
) -> Offsets:
    """Return the option's offset of each partition; -1 and -2 mean latest and earliest."""
    if isinstance(spec, OffsetSpec):
        return spec.targets(partitions)
    return spec.targets(await _list(client, spec.timestamps(partitions), options))


def _check_order(first: Offsets, last: Offsets) -> None:
    for tp, start in first.items():
        if 0 <= last[tp] < start:
            raise ConfigError(
                f"{tp.topic}-{tp.partition} is to be read from offset {start} up to "
                f"{last[tp]}: the start is after the end"
            )


async def _bounds(
    client: ClusterClient, partitions: Collection[TopicPartition], options: SourceOptions
) -> tuple[Offsets, Offsets]:
    return await _list(client, dict.fromkeys(partitions, EARLIEST), options), await _ends(
        client, partitions, options
    )


async def _ends(
    client: ClusterClient, partitions: Collection[TopicPartition], options: SourceOptions
) -> Offsets:
    return await _list(client, dict.fromkeys(partitions, LATEST), options)


async def _list(
    client: ClusterClient, timestamps: Mapping[TopicPartition, int], options: SourceOptions
) -> Offsets:
    fetch = fetch_settings(options)
    topics = ", ".join(sorted({tp.topic for tp in timestamps}))
    with named_wait(f"looking up offsets of {len(timestamps)} partitions of {topics}", _LIMIT):
        return await list_offsets(
            client,
            timestamps,
            isolation_level=fetch.isolation_level,
            retry_limit_ms=fetch.retry_limit_ms,
        )


async def _with_new_partitions(
    client: ClusterClient, start: Offsets, end: Mapping[TopicPartition, int], options: SourceOptions
) -> Offsets:
    new = [tp for tp in end if tp not in start]
    return start | await _list(client, dict.fromkeys(new, EARLIEST), options) if new else start


def _resolve(targets: Offsets, earliest: Offsets, latest: Offsets) -> Offsets:
    named = {EARLIEST: earliest, LATEST: latest}
    return {tp: named[offset][tp] if offset in named else offset for tp, offset in targets.items()}
