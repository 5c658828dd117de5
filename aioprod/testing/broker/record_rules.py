"""The topic settings that apply to single records. Records are decoded only if the batch's header
is not sufficient.
"""

from __future__ import annotations

from collections.abc import Callable

from aioprod.error_codes import ErrorCode
from aioprod.protocol.record_batch import BatchHeader
from aioprod.protocol.record_reader import Record, read_records
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.settings.topic_settings import TopicConfig

_ANY_AGE = 2**63 - 1


class RecordsRefusedError(RequestError):
    """Some records of a batch are invalid for the topic (KIP-467).

    Attributes:
        indexes: the indexes of these records in the batch.
    """

    def __init__(self, code: ErrorCode, text: str, indexes: list[int]) -> None:
        super().__init__(code, text)
        self.indexes = indexes


def check_size(records: bytes, config: TopicConfig) -> None:
    """Raise RequestError (MESSAGE_TOO_LARGE) if a batch is too large for the topic."""
    if len(records) > config.max_message_bytes:
        raise RequestError(
            ErrorCode.MESSAGE_TOO_LARGE,
            (
                f"The record batch size is {len(records)} bytes which exceeds the maximum of "
                f"{config.max_message_bytes}."
            ),
        )


def check_records(records: bytes, header: BatchHeader, config: TopicConfig, now_ms: int) -> None:
    """Raise RecordsRefusedError if a record for a compacted topic has no key, or a timestamp is too
    far in the past or the future.
    """
    if config.is_compacted:
        _refuse(
            records,
            lambda record: record.key is None,
            ErrorCode.INVALID_RECORD,
            "records of a compacted topic must have a key",
        )
    if config.log_append_time:
        return
    latest = now_ms + config.timestamp_after_max_ms
    if header.max_timestamp > latest:
        text = f"a timestamp is after {latest} (message.timestamp.after.max.ms)"
        _refuse(
            records, lambda record: record.timestamp > latest, ErrorCode.INVALID_TIMESTAMP, text
        )
    earliest = now_ms - config.timestamp_before_max_ms
    if config.timestamp_before_max_ms != _ANY_AGE or header.base_timestamp < earliest:
        text = f"a timestamp is before {earliest} (message.timestamp.before.max.ms)"
        _refuse(
            records, lambda record: record.timestamp < earliest, ErrorCode.INVALID_TIMESTAMP, text
        )


def _refuse(records: bytes, is_wrong: Callable[[Record], bool], code: ErrorCode, text: str) -> None:
    indexes = [index for index, record in enumerate(read_records(records)) if is_wrong(record)]
    if indexes:
        raise RecordsRefusedError(code, text, indexes)
