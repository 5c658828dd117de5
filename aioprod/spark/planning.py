"""What the driver asks the brokers: which partitions, from where, to where. No Spark in it.

Each question to the brokers, with all its tries, ends within ``kafka.default.api.timeout.ms``
(:attr:`FetchSettings.retry_limit_ms`); the docstrings say how many questions a coroutine has.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Collection, Mapping

from aioprod.cluster.client import ClusterClient
from aioprod.consumer.partition_reader import list_offsets, partitions_of
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, ConfigError, RequestTimedOutError
from aioprod.net.bounds import TimeLimit
from aioprod.protocol.messages.metadata import MetadataRequest
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
from aioprod.spark.source_options import SourceOptions, fetch_settings
from aioprod.types import TopicPartition

log = logging.getLogger(__name__)


async def select_partitions(client: ClusterClient, options: SourceOptions) -> list[TopicPartition]:
    """The partitions that the options name; none where a pattern matches no topic yet. One
    question, within ``kafka.default.api.timeout.ms``.

    Raises:
        BrokerError: a topic that is named does not exist or may not be read.
    """
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


async def plan_batch(client: ClusterClient, options: SourceOptions) -> list[OffsetRange]:
    """The tasks of a batch read. At most five questions, each within
    ``kafka.default.api.timeout.ms``.

    Raises:
        ConfigError: offsets or timestamps that leave a partition out, or end before they begin.
        DataLossError: offsets outside of what the brokers hold, unless failOnDataLoss is false.
    """
    partitions = await select_partitions(client, options)
    if not partitions:
        raise ConfigError(f"option {options.selection.describe()} matches no topic")
    first = await _targets(client, partitions, options, options.starting)
    last = await _targets(client, partitions, options, options.ending)
    _check_order(first, last)
    # Last, so that no offset that was found by its time can be behind the end.
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
    return plan_ranges(start, end, options.min_partitions, options.max_records_per_partition)


async def initial_offsets(client: ClusterClient, options: SourceOptions) -> Offsets:
    """Where a new stream begins. At most four questions, each within
    ``kafka.default.api.timeout.ms``.

    Raises:
        ConfigError: offsets or timestamps that leave a partition out; a timestamp that no record
            has.
    """
    partitions = await select_partitions(client, options)
    targets = await _targets(client, partitions, options, options.starting)
    return _resolve(targets, *await _bounds(client, partitions, options))


async def latest_offsets(client: ClusterClient, options: SourceOptions) -> Offsets:
    """The present end of every partition. Two questions, each within
    ``kafka.default.api.timeout.ms``.
    """
    return await _ends(client, await select_partitions(client, options), options)


async def available_offsets(
    client: ClusterClient, options: SourceOptions, start: Offsets
) -> tuple[Offsets, Offsets]:
    """The position of every partition of a stream, the new ones at their first record, and its
    present end.

    Three questions, each within ``kafka.default.api.timeout.ms``; two more, behind a pause of
    ``fetchOffset.retryIntervalMs``, for each of ``fetchOffset.numRetries`` where ends went back.

    The end is before the position where the topic was made anew or lost records, and this loss is
    ignored: the stream goes on from there.

    Args:
        start: the end of the last micro-batch.

    Raises:
        DataLossError: partitions or offsets that are gone, unless failOnDataLoss is false.
    """
    for _ in range(options.fetch_offset_retries):
        latest = await latest_offsets(client, options)
        if not backwards(start, latest):
            break
        # A leader of a moment ago may not know yet how far its log may be read.
        await asyncio.sleep(options.fetch_offset_retry_interval_ms / 1000)
    report_losses(backwards(start, latest), fail=options.fail_on_data_loss)
    return await _with_new_partitions(client, start, latest, options), latest


async def plan_stream(
    client: ClusterClient, options: SourceOptions, start: Offsets, end: Offsets
) -> list[OffsetRange]:
    """The tasks of a micro-batch; a partition that is new since the last one begins at its first
    record.

    One question at most, within ``kafka.default.api.timeout.ms``.

    Raises:
        DataLossError: partitions or offsets that are gone, unless failOnDataLoss is false.
    """
    begin = await _with_new_partitions(client, start, end, options)
    report_losses(backwards(start, end) + missed(start, begin), fail=options.fail_on_data_loss)
    return plan_ranges(begin, end, options.min_partitions, options.max_records_per_partition)


def report_losses(losses: Collection[str], *, fail: bool) -> None:
    """Raise, or with failOnDataLoss=false warn, when something is lost."""
    if not losses:
        return
    text = "; ".join(losses)
    if fail:
        raise DataLossError(
            f"{text}. Set the option failOnDataLoss=false to go on with what is left"
        )
    log.warning("data loss ignored (failOnDataLoss=false): %s", text)


async def _partitions_by_pattern(
    client: ClusterClient, pattern: str, limit_s: float
) -> list[TopicPartition]:
    async with TimeLimit(
        limit_s * 1000,
        f"topics that match {pattern!r}",
        "kafka.default.api.timeout.ms",
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
            # A topic that was deleted since the brokers named it: others may still tell of it for a
            # while.
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
    """What the option says of each partition: an offset, -1 or -2."""
    if isinstance(spec, OffsetSpec):
        return spec.targets(partitions)
    return spec.targets(await _list(client, spec.timestamps(partitions), options))


def _check_order(first: Offsets, last: Offsets) -> None:
    for tp, start in first.items():
        if 0 <= last[tp] < start:
            raise ConfigError(
                f"{tp.topic}-{tp.partition} is to be read from offset {start} up to "
                f"{last[tp]}: the start is behind the end"
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
