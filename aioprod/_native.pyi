from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Mapping, Sequence
from typing import Any

from aioprod.types import ConsumerRecord, Header, RecordMetadata, TopicPartition

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
def cut_batches(
    tp: TopicPartition,
    data: bytes | bytearray | memoryview,
    place: int,
    most: int,
    start: int,
    crcs: int,
    every: bool,
    blocks: Mapping[bytes, tuple[Header, ...]],
    /,
) -> tuple[CutRecords, int, int, int] | None: ...
def batch_places(data: bytes | bytearray | memoryview, /) -> list[int]: ...
def murmur2(key: bytes, /) -> int: ...
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

class Reader:
    offset: int
    def __init__(self, data: bytes | bytearray | memoryview, offset: int = 0) -> None: ...
    @property
    def data(self) -> memoryview | bytes: ...
    @property
    def remaining(self) -> int: ...

class Writer:
    buffer: bytearray

class RecordBuffer:
    base_timestamp: int
    max_timestamp: int
    count: int
    size: int
    kind: int
    until_s: float
    compressed: bytes | None
    timestamps: Sequence[int] | None
    def __init__(self, base_timestamp: int) -> None: ...
    @property
    def key_sizes(self) -> Sequence[int]: ...
    @property
    def value_sizes(self) -> Sequence[int]: ...
    @property
    def timestamp_runs(self) -> tuple[Sequence[int], Sequence[int]]: ...
    def at(self, now_s: float, /) -> None: ...
    def add(
        self, timestamp: int, key: bytes | None, value: bytes | None, headers: bytes = ..., /
    ) -> None: ...
    def add_values(self, values: list[bytes], start: int, room: int, now_s: float, /) -> int: ...
    def encode_pending(self) -> None: ...
    def take(self, encoded: bytes, /) -> None: ...
    def pieces(self) -> list[bytes]: ...
    def release(self) -> None: ...

class BatchFields:
    writer: RecordBuffer
    open_until: int
    topic: str
    partition: int
    base_offset: int
    starts: Sequence[int]
    timestamps: Sequence[int]
    key_sizes: Sequence[int]
    value_sizes: Sequence[int]

class PartitionFields:
    open: BatchFields | None

class StickyFields:
    current: int

class TopicFields:
    count: int
    queues: list[PartitionFields]
    sticky: StickyFields

class ProducerFields:
    _fast_path: FastPath

class Delivery:
    _batch: BatchFields
    _index: int
    def __await__(self) -> Generator[object, None, RecordMetadata]: ...

class FastPath:
    def __init__(
        self,
        topics: dict[str, Any],
        clock: Callable[[], float],
        check: Callable[[], None],
        status: Any,
        encode_headers: Callable[[Any], bytes],
        take_first: Callable[..., Delivery | None],
    ) -> None: ...
    def append(self, topic: Any, value: Any, key: Any, headers: Any, /) -> Delivery | None: ...
    def close(self) -> None: ...

class SendMethod:
    def __init__(self, function: Callable[..., Coroutine[Any, Any, Delivery]], /) -> None: ...
    @property
    def __wrapped__(self) -> Callable[..., Coroutine[Any, Any, Delivery]]: ...
    def __call__(self, *args: Any, **named: Any) -> Coroutine[Any, Any, Delivery]: ...

class RecordStream:
    def __init__(self, consumer: AsyncIterator[Any], records: deque[Any], /) -> None: ...
    def __aiter__(self) -> AsyncIterator[Any]: ...
    def __anext__(self) -> Coroutine[Any, Any, Any]: ...
