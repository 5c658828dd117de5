from collections.abc import Mapping

from aioprod.types import ConsumerRecord, Header

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
