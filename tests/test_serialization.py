"""Keys and values become the bytes that Java's serializers write, and an error says what was given,
what was expected, and where to change it.
"""

from __future__ import annotations

import json
import struct
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioprod.config.java_serializers import JAVA_CLASSES
from aioprod.errors import ConfigError, SerializationError
from aioprod.headers import check_headers
from aioprod.serialization import (
    BooleanSerializer,
    BytesSerializer,
    DoubleSerializer,
    FloatSerializer,
    IntegerSerializer,
    JsonSerializer,
    LongSerializer,
    ShortSerializer,
    StringSerializer,
    UUIDSerializer,
    VoidSerializer,
)
from aioprod.serializing import Serializer, WithHeaders, serialize
from aioprod.types import Headers


def value(serializer: Serializer | None, data: Any) -> bytes | None:
    stored = serialize(serializer, "value_serializer", "flights", (), data)
    assert not isinstance(stored, WithHeaders)
    return stored


# -- without a serializer --------------------------------------------------------------------------


def test_bytes_pass_as_they_are() -> None:
    data = b"abc"
    assert value(None, data) is data
    assert value(None, None) is None


def test_what_can_change_is_copied() -> None:
    buffer = bytearray(b"abc")
    stored = value(None, buffer)
    buffer[:] = b"xyz"
    assert stored == b"abc" and type(stored) is bytes


@pytest.mark.parametrize("setting", ["key_serializer", "value_serializer"])
def test_other_types_are_refused_with_the_setting_that_helps(setting: str) -> None:
    with pytest.raises(
        SerializationError,
        match=(
            rf"{setting.removesuffix('_serializer')} must be bytes, not str: "
            rf".*{setting}"
        ),
    ):
        serialize(None, setting, "flights", (), "text")


# -- with one --------------------------------------------------------------------------------------


def test_a_serializer_gets_topic_headers_and_data() -> None:
    seen: list[tuple[str, Headers, Any]] = []

    def serializer(topic: str, headers: Headers, data: Any) -> bytes:
        seen.append((topic, headers, data))
        return b"done"

    headers = (("trace", b"1"), ("trace", None))
    assert serialize(serializer, "key_serializer", "flights", headers, {"a": 1}) == b"done"
    assert seen == [("flights", headers, {"a": 1})]


def test_an_error_names_the_class_given_the_class_expected_and_the_setting() -> None:
    with pytest.raises(SerializationError) as caught:
        serialize(StringSerializer(), "key_serializer", "flights", (), 5)
    text = str(caught.value)
    assert all(
        part in text
        for part in ("key_serializer", "StringSerializer", "type int", "expected str", "flights")
    )
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value.__cause__, TypeError)


def test_the_error_of_a_function_names_the_function() -> None:
    def upper(topic: str, headers: Headers, data: Any) -> bytes:
        return bytes(data.upper())

    with pytest.raises(SerializationError, match=r"upper failed for a value of type int"):
        value(upper, 5)


def test_an_error_does_not_show_the_data() -> None:
    with pytest.raises(SerializationError) as caught:
        value(StringSerializer("ascii"), "sécret")
    assert "cret" not in str(caught.value)


@pytest.mark.parametrize("result", ["text", 5, [b"a"]])
def test_a_result_other_than_bytes_is_refused(result: Any) -> None:
    def wrong(topic: str, headers: Headers, data: Any) -> Any:
        return result

    with pytest.raises(
        SerializationError,
        match=(
            rf"value_serializer: .*wrong must return bytes or None, not {type(result).__name__}"
        ),
    ):
        value(wrong, "x")


def test_an_async_serializer_is_refused_and_leaves_nothing_unawaited() -> None:
    async def wrong(topic: str, headers: Headers, data: Any) -> bytes:
        return b""

    with pytest.raises(SerializationError, match="not coroutine"):
        value(wrong, "x")  # type: ignore[arg-type]


def test_a_serializer_may_store_a_null() -> None:
    assert value(lambda topic, headers, data: None, "x") is None


def test_cancelling_is_not_a_serialization_error() -> None:
    def stop(topic: str, headers: Headers, data: Any) -> bytes:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        value(stop, "x")


# -- those that come along -------------------------------------------------------------------------

NUMBERS = [
    (ShortSerializer(), -2, b"\xff\xfe"),
    (IntegerSerializer(), 258, b"\x00\x00\x01\x02"),
    (LongSerializer(), -1, b"\xff" * 8),
    (FloatSerializer(), 1.5, struct.pack(">f", 1.5)),
    (DoubleSerializer(), 1.5, struct.pack(">d", 1.5)),
    (DoubleSerializer(), 2, struct.pack(">d", 2.0)),
    (BooleanSerializer(), True, b"\x01"),
    (BooleanSerializer(), False, b"\x00"),
]


@pytest.mark.parametrize(("serializer", "data", "stored"), NUMBERS)
def test_numbers_have_javas_bytes(serializer: Serializer, data: Any, stored: bytes) -> None:
    assert value(serializer, data) == stored


@pytest.mark.parametrize(
    ("serializer", "data"),
    [
        (ShortSerializer(), 2**15),
        (IntegerSerializer(), 2**31),
        (LongSerializer(), -(2**63) - 1),
        (FloatSerializer(), 1e39),
        (DoubleSerializer(), 10**400),
    ],
)
def test_a_number_that_does_not_fit_is_refused(serializer: Serializer, data: Any) -> None:
    with pytest.raises(SerializationError, match="does not fit into"):
        value(serializer, data)


@pytest.mark.parametrize(
    "serializer",
    [
        ShortSerializer(),
        IntegerSerializer(),
        LongSerializer(),
        FloatSerializer(),
        DoubleSerializer(),
    ],
)
@pytest.mark.parametrize("data", [True, "1", b"1", [1]])
def test_other_types_than_numbers_are_refused(serializer: Serializer, data: Any) -> None:
    with pytest.raises(SerializationError, match=r"expected (int|float)"):
        value(serializer, data)


def test_a_number_is_not_a_boolean() -> None:
    with pytest.raises(SerializationError, match="expected bool"):
        value(BooleanSerializer(), 1)


def test_text() -> None:
    assert value(StringSerializer(), "Zürich") == "Zürich".encode()
    assert value(StringSerializer("utf-16-be"), "a") == b"\x00a"
    with pytest.raises(ConfigError, match="utf-9"):
        StringSerializer("utf-9")


def test_uuid_is_text() -> None:
    number = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
    assert value(UUIDSerializer(), number) == b"00112233-4455-6677-8899-aabbccddeeff"


def test_bytes_serializer() -> None:
    assert value(BytesSerializer(), memoryview(b"abc")) == b"abc"
    with pytest.raises(SerializationError, match="expected bytes or bytearray or memoryview"):
        value(BytesSerializer(), "abc")


def test_void_takes_none_only() -> None:
    assert value(VoidSerializer(), None) is None
    with pytest.raises(SerializationError, match="expected None"):
        value(VoidSerializer(), b"")


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(kind, id=name.rpartition(".")[2])
        for name, kind in JAVA_CLASSES.items()
        if name.endswith("Serializer")
    ],
)
def test_none_is_a_null_for_each(made: type) -> None:
    assert value(made(), None) is None


def test_json() -> None:
    assert value(JsonSerializer(), {"b": [1, None], "a": "ü"}) == '{"a":"ü","b":[1,null]}'.encode()
    assert value(JsonSerializer(sort_keys=False), {"b": 1, "a": 2}) == b'{"b":1,"a":2}'
    assert value(JsonSerializer(), None) is None
    assert (
        value(JsonSerializer(default=str), uuid.UUID(int=0))
        == b'"00000000-0000-0000-0000-000000000000"'
    )


@pytest.mark.parametrize("data", [float("nan"), float("inf"), b"bytes", object()])
def test_json_refuses_what_json_has_no_form_for(data: Any) -> None:
    with pytest.raises(SerializationError, match="JsonSerializer"):
        value(JsonSerializer(), data)


@given(
    st.recursive(
        st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    )
)
def test_json_reads_back(data: Any) -> None:
    stored = value(JsonSerializer(), data)
    assert stored is not None and json.loads(stored) == data


# -- headers ---------------------------------------------------------------------------------------


def test_headers_keep_order_and_duplicates_and_can_no_longer_change() -> None:
    changing = bytearray(b"2")
    given_headers: list[tuple[str, Any]] = [("b", b"1"), ("a", changing), ("b", None), ("b", b"1")]
    checked = check_headers(given_headers)
    changing[:] = b"9"
    given_headers.clear()
    assert checked == (("b", b"1"), ("a", b"2"), ("b", None), ("b", b"1"))


def test_headers_may_come_from_an_iterator() -> None:
    assert check_headers(iter([("a", b"1")])) == (("a", b"1"),)  # type: ignore[arg-type]
    assert check_headers({"ab": b"1", "c": None}) == (("ab", b"1"), ("c", None))
    assert check_headers(()) == ()


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ([("a", "text")], r"header 'a': its value must be bytes or None, not str"),
        ([(b"a", b"1")], r"name of a header must be str, not bytes"),
        ([("a",)], r"must be a \(name, value\) pair"),
        ([5], r"type int: must be a \(name, value\) pair"),
        ({"a": "text"}, r"header 'a': .* not str; encode the text: value.encode\(\)"),
        ({5: b"1"}, r"name of a header must be str, not int"),
        ("ab", r"headers of type str"),
        (5, r"headers of type int"),
    ],
)
def test_wrong_headers_are_refused(headers: Any, reason: str) -> None:
    with pytest.raises(SerializationError, match=reason):
        check_headers(headers)
