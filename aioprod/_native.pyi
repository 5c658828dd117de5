from collections.abc import Generator, Mapping, Sequence
from typing import Any

from aioprod.types import ConsumerRecord, Header, RecordMetadata

class CutRecords:
    left: int
    def take(self, most: int, /) -> list[ConsumerRecord]: ...

def cut_records(
    template: ConsumerRecord,
    body: bytes | bytearray | memoryview,
    count: int,
    last_delta: int,
    start: int,
    same_timestamp: bool,
    blocks: Mapping[bytes, tuple[Header, ...]],
    /,
) -> CutRecords | None: ...
def murmur2(key: bytes, /) -> int: ...
def encode_records(
    first: int,
    keys: list[bytes],
    values: list[bytes],
    headers: list[bytes],
    starts: list[int],
    timestamp_deltas: list[int],
    /,
) -> bytes: ...
def parse_records(
    body: bytes | bytearray | memoryview, count: int, base_timestamp: int, /
) -> (
    tuple[
        list[int],
        list[bytes | None],
        list[bytes | None],
        list[bytes | tuple[()]],
        int,
        list[tuple[int, int]],
    ]
    | None
): ...
def key_partitions(keys: Any, partitions: int, /) -> bytes: ...

class ColumnBatches:
    def __init__(
        self,
        key: Any,
        value: Any,
        headers: tuple[Any, Any, Any] | None,
        timestamps: Any,
        order: Any,
        ends: list[int],
        limit: int,
        delta_size: int,
        /,
    ) -> None: ...
    @property
    def cuts(self) -> list[int]: ...
    def body(self, index: int, /) -> bytes: ...

class BatchOutcome:
    topic: str
    partition: int
    base_offset: int
    starts: Sequence[int]
    timestamps: Sequence[int]
    key_sizes: Sequence[int]
    value_sizes: Sequence[int]

class Delivery:
    _batch: BatchOutcome
    _index: int
    def __await__(self) -> Generator[object, None, RecordMetadata]: ...
