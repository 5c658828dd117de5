"""Retention and compaction of one partition, like Kafka's log cleaner. Synchronous decisions,
without sockets, clock or event loop.

Each batch counts as a separate segment, so a test needs no segment settings. Nothing at or above
the high watermark (retention) or the last stable offset (compaction) is removed.
"""

from __future__ import annotations

from aioprod.protocol.compression import compress
from aioprod.protocol.record_batch import DELETE_HORIZON, LOG_APPEND_TIME, BatchHeader, build_batch
from aioprod.protocol.record_encoder import encode_headers, encode_record
from aioprod.protocol.record_reader import Record, read_batch_records
from aioprod.testing.broker.partition import Partition


def find_retention_end(partition: Partition, now_ms: int) -> int:
    """Return the offset before which retention.ms and retention.bytes delete: oldest batches first,
    while the newest record of a batch is too old, or while the log without it has at least
    retention.bytes.
    """
    config, end, size = partition.config, partition.log.start_offset, partition.log.size
    for header, batch in partition.log.batches():
        is_old = 0 <= config.retention_ms < now_ms - header.max_timestamp
        is_surplus = 0 <= config.retention_bytes <= size - len(batch)
        if not (is_old or is_surplus) or header.last_offset >= partition.high_watermark:
            break
        end, size = header.last_offset + 1, size - len(batch)
    return end


def compact(partition: Partition, now_ms: int) -> int:
    """Keep the last record of each key, and return how many records were removed.

    Records without a key and records of aborted transactions are removed; transaction markers stay.
    A tombstone (a record without a value) stays until a compaction that runs delete.retention.ms
    after the first one that found it, and as long as it is the partition's last record. Offsets do
    not change.
    """
    end = partition.last_stable_offset
    newest = _newest_offsets(partition, end)
    before = partition.log.record_count

    def rewrite(header: BatchHeader, batch: bytes) -> bytes | None:
        if header.base_offset >= end or header.is_control:
            return batch
        records = read_batch_records(batch, 0, header)
        horizon = _horizon(header, records, now_ms + partition.config.delete_retention_ms)
        kept = [
            record
            for record in records
            if record.key is not None
            and newest.get(record.key) == record.offset
            and (
                record.value is not None
                or horizon is None
                or now_ms < horizon
                or record.offset == partition.log.end_offset - 1
            )
        ]
        if not kept:
            return None
        is_same = len(kept) == len(records) and horizon == _old_horizon(header)
        return batch if is_same else _rebuild(header, kept, horizon)

    partition.log.rewrite(rewrite)
    return before - partition.log.record_count


def _newest_offsets(partition: Partition, end: int) -> dict[bytes, int]:
    """Return the last offset of each key among the records that consumers can read."""
    return {
        record.key: record.offset
        for header, batch in partition.log.batches()
        if header.base_offset < end and not header.is_control
        if not header.is_transactional
        or partition.transactions.is_committed(header.producer_id, header.base_offset)
        for record in read_batch_records(batch, 0, header)
        if record.key is not None
    }


def _old_horizon(header: BatchHeader) -> int | None:
    return header.base_timestamp if header.attributes & DELETE_HORIZON else None


def _horizon(header: BatchHeader, records: list[Record], new: int) -> int | None:
    """Return when the tombstones of a batch may be removed (KIP-758), or None if it has none."""
    old = _old_horizon(header)
    if old is None and any(record.value is None for record in records):
        return new
    return old


def _rebuild(header: BatchHeader, kept: list[Record], horizon: int | None) -> bytes:
    """Return the batch with fewer records, or with a horizon. As in Kafka, its first and last
    offset, its sequence and its codec stay.
    """
    base_timestamp = kept[0].timestamp if horizon is None else horizon
    body = b"".join(
        encode_record(
            record.timestamp - base_timestamp,
            record.offset - header.base_offset,
            record.key,
            record.value,
            encode_headers(record.headers),
        )
        for record in kept
    )
    is_append_time = header.attributes & LOG_APPEND_TIME
    return build_batch(
        compress(header.codec, body),
        attributes=header.attributes | (0 if horizon is None else DELETE_HORIZON),
        last_offset_delta=header.last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=header.max_timestamp
        if is_append_time
        else max(record.timestamp for record in kept),
        record_count=len(kept),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        base_offset=header.base_offset,
        leader_epoch=header.partition_leader_epoch,
    )
