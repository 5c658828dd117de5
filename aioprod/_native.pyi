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
    body: bytes, count: int, base_timestamp: int, /
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
