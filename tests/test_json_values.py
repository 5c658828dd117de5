"""JsonSerializer converts what pydantic's ``to_jsonable_python`` and FastAPI's
``jsonable_encoder`` convert.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import enum
import ipaddress
import json
import pathlib
import re
import types
import uuid
from decimal import Decimal
from fractions import Fraction
from typing import Any

import attrs
import numpy as np
import pydantic
import pydantic.v1
import pytest
from fastapi.encoders import ENCODERS_BY_TYPE
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_jsonable_python

from aioprod import JsonSerializer, SerializationError
from aioprod.serializing import serialize
from tests.testing.doc_blocks import DOCS, table_rows

UTC = datetime.UTC


class Color(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    LARGE = 3


class Order(pydantic.BaseModel):
    item: str
    at: datetime.datetime = pydantic.Field(serialization_alias="placedAt")
    price: Decimal = Decimal("1.10")


class Ids(pydantic.RootModel[list[uuid.UUID]]):
    pass


@dataclasses.dataclass
class Point:
    x: Any
    y: Any = None


@attrs.define
class Box:
    side: Any


class Struct:
    """An object that names its fields, like a msgspec.Struct."""

    __struct_fields__ = ("side",)

    def __init__(self, side: object) -> None:
        self.side = side


class Pair(collections.namedtuple("Pair", ["left", "right"])):
    pass


# One object for each type of FastAPI's table.
OF_FASTAPI: dict[str, Any] = {
    "Color": None,  # needs pydantic-extra-types
    "PyExtraColor": None,
    "NameEmail": None,  # needs email-validator
    "generator": None,  # it can be read only once, and a record may be serialized twice
    "SecretBytes": pydantic.SecretBytes(b"hunter2"),
    "SecretStr": pydantic.SecretStr("hunter2"),
    "Url": pydantic.AnyUrl("http://a/b"),
    "AnyUrl": pydantic.AnyUrl("http://a/b"),
    "Enum": Color.RED,
    "Path": pathlib.Path("/a"),
    "Pattern": re.compile("a+"),
}
VALUES: list[Any] = [
    datetime.datetime(2026, 1, 2, 3, 4, 5, 678),
    datetime.datetime(2026, 1, 2, tzinfo=UTC),
    datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone(datetime.timedelta(hours=-2))),
    datetime.date(2026, 1, 2),
    datetime.time(1, 2, 3),
    Decimal("1.10"),
    Fraction(1, 3),
    uuid.UUID(int=5),
    Color.RED,
    Size.LARGE,
    Order(item="tea", at=datetime.datetime(2026, 1, 2, tzinfo=UTC)),
    Ids([uuid.UUID(int=5)]),
    Point(Color.RED, [Point(1)]),
    {1, 2},
    frozenset({"a"}),
    collections.deque([uuid.UUID(int=1)]),
    Pair(1, uuid.UUID(int=1)),
    b"text",
    bytearray(b"text"),
    pathlib.Path("/a"),
    ipaddress.ip_address("::1"),
    ipaddress.ip_network("10.0.0.0/8"),
    ipaddress.ip_interface("10.0.0.1/8"),
    re.compile("a+"),
    {uuid.UUID(int=1): 1, Color.RED: 2, datetime.date(2026, 1, 1): 3, 4: {Decimal("1.5"): 5}},
    collections.OrderedDict(a=Color.RED),
]


def encoded(value: Any) -> Any:
    return json.loads(JsonSerializer()("t", (), [value]) or b"null")[0]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_as_pydantic(value: Any) -> None:
    expected = to_jsonable_python(value)
    assert encoded(value) == expected
    assert encoded({"a": [value, Point(value)]}) == {"a": [expected, {"x": expected, "y": None}]}


@pytest.mark.parametrize("kind", ENCODERS_BY_TYPE, ids=lambda kind: kind.__name__)
def test_what_fastapi_takes(kind: type) -> None:
    found = [each for each in VALUES if type(each) is kind]
    value = OF_FASTAPI.get(kind.__name__, found[0] if found else kind)
    if value is kind:
        assert kind.__module__.startswith(("ipaddress", "pydantic", "datetime")), kind
        return
    if value is not None:
        assert encoded(value) == to_jsonable_python(value)


@given(st.timedeltas(datetime.timedelta(days=-364), datetime.timedelta(days=364)))
def test_durations_as_pydantic(duration: datetime.timedelta) -> None:
    assert encoded(duration) == to_jsonable_python(duration)


LEAVES = (
    st.none() | st.booleans() | st.integers() | st.text() | st.dates() | st.uuids() | st.datetimes()
)
KEYS = st.text() | st.uuids() | st.dates()


@given(
    st.recursive(
        LEAVES,
        lambda inner: (
            st.lists(inner) | st.dictionaries(KEYS, inner) | st.builds(Point, inner, inner)
        ),
        max_leaves=20,
    )
)
def test_nested_as_pydantic(value: Any) -> None:
    assert encoded(value) == to_jsonable_python(value)


def test_other_libraries() -> None:
    day = datetime.date(2026, 1, 2)
    old = pydantic.v1.create_model("Old", day=(datetime.date, ...), kind=(Color, Color.RED))
    assert encoded(old(day=day)) == {"day": "2026-01-02", "kind": "red"}
    assert encoded(Box(day)) == encoded(Struct(day)) == {"side": "2026-01-02"}
    assert encoded(types.MappingProxyType({"a": pathlib.PurePosixPath("/a")})) == {"a": "/a"}
    assert encoded([np.int64(5), np.float32(0.5), np.arange(3)]) == [5, 0.5, [0, 1, 2]]


def test_equal_sets_have_equal_bytes() -> None:
    colors = [uuid.UUID(int=n) for n in range(20)] + [f"{n}" for n in range(20)]
    first, second = set(colors), set[Any]()
    second.update(reversed(colors))
    assert JsonSerializer()("t", (), first) == JsonSerializer()("t", (), second)


def test_a_default_is_asked_in_place_of_the_conversions() -> None:
    assert json.loads(JsonSerializer(default=repr)("t", (), Color.RED) or b"") == repr(Color.RED)
    with pytest.raises(TypeError, match="keys must be"):
        JsonSerializer(default=repr)("t", (), {Color.RED: 1})


@pytest.mark.parametrize(
    "value",
    [
        object(),
        Color,
        iter([1]),
        range(3),
        1j,
        b"hunter2",
        [b"\xffhunter2"],
        float("nan"),
        {"a": float("inf")},
        {(1, "hunter2"): 1},
        {1: 1, "1": 2},
    ],
)
def test_what_json_can_not_represent(value: Any) -> None:
    with pytest.raises(SerializationError) as caught:
        serialize(JsonSerializer(), "value_serializer", "t", (), value)
    assert "hunter2" not in str(caught.value)


def test_circles() -> None:
    point = Point(1)
    point.y = {Color.RED: point}
    for circle in (point, [point]):
        with pytest.raises(SerializationError):
            serialize(JsonSerializer(), "value_serializer", "t", (), circle)


def test_the_table_of_the_recipe() -> None:
    rows = table_rows((DOCS / "recipes" / "json.md").read_text())
    names = {**globals(), **vars(datetime), **vars(uuid), **vars(ipaddress), "Path": pathlib.Path}
    shown = [(row[1].strip("`"), row[2].strip("`")) for row in rows if row[1].startswith("`")]
    assert len(shown) > 10
    for code, text in shown:
        assert JsonSerializer()("t", (), eval(code, names)) == text.encode(), code
