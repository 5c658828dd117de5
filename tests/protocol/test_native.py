"""The accelerator does what its Python sources do, byte for byte, for any records."""

from __future__ import annotations

import gc
import importlib.util
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioprod import native
from aioprod.consumer import records as records  # has cut_records
from aioprod.producer import arrow_partitions as arrow_partitions  # has key_partitions
from aioprod.producer import fast_path as fast_path  # has FastPath; imports the other types
from aioprod.producer import producer as producer  # has SendMethod
from aioprod.protocol import arrow_digest as arrow_digest  # has row_digest
from aioprod.protocol import arrow_reader as arrow_reader  # has record_starts
from aioprod.protocol import arrow_records as arrow_records  # has ColumnBatches
from aioprod.protocol import primitives as primitives  # has Reader and Writer
from aioprod.protocol import produce_decoder as produce_decoder  # has read_places
from aioprod.protocol import produce_encoder as produce_encoder  # has join_request
from aioprod.protocol import record_reader
from aioprod.protocol.record_batch import read_header
from aioprod.protocol.record_encoder import NO_HEADERS, encode_record
from aioprod.protocol.record_reader import read_columns
from aioprod.protocol.record_writer import RecordBatchWriter

BUILT = importlib.util.find_spec("aioprod._native") is not None
needs_native = pytest.mark.skipif(not BUILT, reason="the accelerator is not built here")


def accelerator() -> Any:
    from aioprod import _native

    return _native


def python(name: str) -> Callable[..., Any]:
    return native.python_sources[name]


def assert_no_leak(call: Callable[[], object], times: int = 500) -> None:
    """Call it repeatedly, and check that no memory blocks are left."""
    for _ in range(times // 10):
        call()
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(times):
        call()
    gc.collect()
    assert sys.getallocatedblocks() - before < times // 5


def test_it_is_used_unless_it_is_turned_off() -> None:
    """CI runs on machines with a compiler: there the accelerator must be there."""
    if os.environ.get("AIOPROD_PURE"):
        assert not native.in_use and native.reason_not_in_use == "AIOPROD_PURE is set"
    else:
        assert native.in_use == BUILT
        assert native.in_use or "not installed" in native.reason_not_in_use
        assert native.in_use or os.environ.get("AIOPROD_NATIVE") != "required"


_IMPORTED_FROM = str(Path(native.__file__).parents[1])


def printed_by(program: str, pure: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", program],
        # A new interpreter imports from PYTHONPATH what the first one finds in this directory.
        env={**os.environ, "AIOPROD_PURE": pure, "PYTHONPATH": _IMPORTED_FROM},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_environment_turns_it_off() -> None:
    program = "from aioprod import native; print(native.in_use, native.reason_not_in_use)"
    assert printed_by(program, pure="1") == "False AIOPROD_PURE is set\n"


_IN_ANOTHER_INTERPRETER = """
import _xxsubinterpreters as interpreters
from aioprod import native
assert native.in_use
interpreters.run_string(interpreters.create(), '''
from aioprod import native
assert not native.in_use, "it is used"
assert "another interpreter" in native.reason_not_in_use, native.reason_not_in_use
import aioprod.producer, aioprod.consumer
print("pure", flush=True)
''')
"""


@needs_native
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="3.12 and later refuse it themselves")
def test_another_interpreter_gets_python() -> None:
    assert printed_by(_IN_ANOTHER_INTERPRETER, pure="") == "pure\n"


@needs_native
def test_executed_again_it_has_the_same_types() -> None:
    """A deletion from sys.modules leads to this. Objects made before stay valid."""
    first = accelerator()
    made_before = first.Delivery()
    batch = first.BatchFields()
    spec = importlib.util.find_spec("aioprod._native")
    assert spec is not None and spec.loader is not None
    second = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(second)
    types = {name: value for name, value in vars(first).items() if isinstance(value, type)}
    assert types and second is not first
    assert types == {name: vars(second)[name] for name in types}
    made_before._batch = batch
    assert second.murmur2(b"key") == first.murmur2(b"key")


@needs_native
def test_each_function_has_a_source_in_python() -> None:
    functions = {name for name in vars(accelerator()) if not name.startswith("_")}
    assert functions == native.python_sources.keys()


@needs_native
@given(st.binary(max_size=40))
def test_keys_are_hashed_alike(key: bytes) -> None:
    assert accelerator().murmur2(key) == python("murmur2")(key)


def written(rng: random.Random) -> bytes:
    writer = RecordBatchWriter(rng.choice([0, 1_700_000_000_000]))
    with_keys, with_headers = rng.random() < 0.6, rng.random() < 0.3
    for _ in range(rng.randint(1, 40)):
        writer.append(
            writer.base_timestamp + rng.choice([0, 0, 1, -3, 100_000]),
            rng.randbytes(rng.randint(0, 80)) if with_keys and rng.random() < 0.9 else None,
            rng.randbytes(rng.choice([0, 3, 63, 64, 300])) if rng.random() < 0.9 else None,
            [("name", rng.randbytes(3)), ("other", None)]
            if with_headers and rng.random() < 0.8
            else (),
        )
    return writer.build()


def columns_or_error(data: bytes) -> object:
    try:
        return read_columns(data, 0, read_header(data, 0))
    except Exception as error:
        return type(error), str(error)


@needs_native
@settings(max_examples=300)
@given(st.integers(0, 1 << 32), st.integers(0, 4))
def test_records_are_parsed_alike(seed: int, changes: int) -> None:
    """Even if bytes are changed: columns and errors, and their texts, are the same."""
    rng = random.Random(seed)
    data = bytearray(written(rng))
    for _ in range(changes):
        at = rng.randrange(61, len(data))
        data[at] = rng.choice([0, 1, 2, 3, 127, 128, 129, 255, rng.randrange(256)])
    parse = record_reader.parse_records
    try:
        record_reader.parse_records = accelerator().parse_records
        fast = columns_or_error(bytes(data))
        record_reader.parse_records = python("parse_records")
        slow = columns_or_error(bytes(data))
    finally:
        record_reader.parse_records = parse
    assert fast == slow


@needs_native
@given(st.binary(max_size=200), st.integers(-2, 30), st.integers(-(1 << 62), 1 << 62))
def test_any_bytes_are_survived(body: bytes, count: int, base: int) -> None:
    parsed = accelerator().parse_records(body, count, base)
    assert parsed is None or len(parsed[0]) == count


@needs_native
@settings(max_examples=300)
@given(st.integers(0, 1 << 32), st.integers(0, 4), st.integers(-1, 1))
def test_records_start_at_the_same_places(seed: int, changes: int, more: int) -> None:
    """Bytes may be changed or missing, and the number of records may be wrong."""
    rng = random.Random(seed)
    data = bytearray(written(rng))
    count = read_header(data, 0).record_count + more
    for _ in range(changes):
        at = rng.randrange(61, len(data))
        data[at] = rng.choice([0, 1, 127, 128, 129, 255, rng.randrange(256)])
    end = len(data) if rng.random() < 0.8 else rng.randrange(61, len(data))
    arguments = bytes(data), 61, end, count
    assert accelerator().record_starts(*arguments) == python("record_starts")(*arguments)


@needs_native
@given(st.lists(st.sampled_from([0, 1, 2, 9, 127, 128, 255])), st.integers(0, 30))
def test_any_bytes_start_at_the_same_places(body: list[int], count: int) -> None:
    """Among them numbers of up to ten bytes, and longer ones."""
    for arguments in ((bytes(body), 0, len(body), count), (bytes(body), 1, len(body) - 1, count)):
        if arguments[2] >= arguments[1]:
            assert accelerator().record_starts(*arguments) == python("record_starts")(*arguments)


@needs_native
@pytest.mark.parametrize(
    ("start", "end", "count"), [(-1, 2, 1), (0, 4, 1), (2, 1, 0), (0, 3, 1 << 60)]
)
def test_records_do_not_start_outside_of_the_bytes(start: int, end: int, count: int) -> None:
    assert accelerator().record_starts(bytes(3), start, end, count) is None


@needs_native
def test_an_offset_delta_at_the_limit_of_a_number_is_left_to_python() -> None:
    largest = encode_record((1 << 63) - 1, 0, None, b"", NO_HEADERS)[2:12]
    record = b"\0\0" + largest + b"\1\1\0"
    body = bytes([2 * len(record)]) + record + encode_record(0, 0, None, None, NO_HEADERS)
    assert accelerator().parse_records(body, 2, 0) is None


@needs_native
def test_valid_records_need_no_help() -> None:
    """The source in Python would hide an accelerator that gives up too soon."""
    for seed in range(300):
        data = written(random.Random(seed))
        header = read_header(data, 0)
        body = data[61:]
        parsed = accelerator().parse_records(body, header.record_count, header.base_timestamp)
        assert parsed is not None


@needs_native
@pytest.mark.parametrize("name", ["parse", "parse wrong", "starts", "starts wrong"])
def test_nothing_leaks(name: str) -> None:
    data = written(random.Random(3))
    count, base = read_header(data, 0).record_count, 1_700_000_000_000
    calls: dict[str, Callable[[], object]] = {
        "parse": lambda: accelerator().parse_records(data[61:], count, base),
        "parse wrong": lambda: accelerator().parse_records(data[61:-1], count, base),
        "starts": lambda: accelerator().record_starts(data, 61, len(data), count),
        "starts wrong": lambda: accelerator().record_starts(data, 61, len(data) - 1, count),
    }
    assert_no_leak(calls[name])
