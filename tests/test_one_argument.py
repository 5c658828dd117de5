"""Serializers of one argument, as users of aiokafka and kafka-python have them."""

from __future__ import annotations

import functools
import json
import pickle
import zlib
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import confluent_kafka.serialization
import pydantic
import pytest

from aioprod import (
    ConfigError,
    Consumer,
    JsonSerializer,
    Producer,
    SerializationError,
    ShareConsumer,
)
from aioprod.config.consumer import ConsumerConfig
from aioprod.config.producer import ProducerConfig
from aioprod.processing import BatchProcessor, Processor, ShareProcessor
from aioprod.testing import EmbeddedCluster


class Order(pydantic.BaseModel):
    item: str


class OfOne:
    def __call__(self, value: str) -> bytes:
        return value.encode()


class OfThree:
    def __call__(self, topic: str, headers: object, data: Any) -> bytes:
        return f"{topic}:{data}".encode()


def three_with_defaults(topic: str, headers: object = None, data: object = None) -> bytes:
    return f"{topic}:{data}".encode()


def of_one_with_options(value: str, encoding: str = "utf-8", errors: str = "strict") -> bytes:
    return value.encode(encoding, errors)


ONE: list[tuple[Callable[..., Any], Any, Any]] = [
    (lambda v: json.dumps(v).encode(), {"a": 1}, b'{"a": 1}'),
    (lambda v=None: v.encode(), "a", b"a"),
    (OfOne(), "a", b"a"),
    (OfOne().__call__, "a", b"a"),
    (of_one_with_options, "a", b"a"),
    (str.encode, "a", b"a"),
    (bytes.decode, b"a", "a"),
    (json.loads, b"[1]", [1]),
    (functools.partial(json.loads, parse_int=str), b"[1]", ["1"]),
    (pickle.loads, pickle.dumps(5), 5),
    (zlib.decompress, zlib.compress(b"a"), b"a"),
    (Order.model_validate_json, b'{"item":"tea"}', Order(item="tea")),
]
THREE: list[Callable[..., Any]] = [
    lambda topic, headers, data: b"t:a",
    lambda topic, headers, data, more=None: b"t:a",
    lambda *arguments: f"{arguments[0]}:{arguments[2]}".encode(),
    lambda t, *others: f"{t}:{others[1]}".encode(),
    OfThree(),
    three_with_defaults,
    functools.partial(lambda n, topic, headers, data: b"t:a", 5),
    Mock(return_value=b"t:a"),
]
NEITHER: list[Any] = [
    lambda a, b: b"",
    lambda a, b, c, d: b"",
    lambda: b"",
    lambda *, data: b"",
    confluent_kafka.serialization.StringSerializer("utf_8"),
    json.dumps(1),
    5,
    b"",
    JsonSerializer,
    str,
]


@pytest.mark.parametrize(("function", "data", "result"), ONE)
def test_a_function_of_one_argument_gets_the_data(
    function: Callable[..., Any], data: Any, result: Any
) -> None:
    for kept in (
        ProducerConfig(value_serializer=function).value_serializer,
        ConsumerConfig(key_deserializer=function).key_deserializer,
    ):
        assert kept is not None
        assert kept("t", (), data) == result  # type: ignore[call-arg,arg-type]
        assert kept("t", (), None) is None  # type: ignore[call-arg,arg-type]
        # A configuration may be made of another one.
        assert ProducerConfig(value_serializer=kept).value_serializer is kept


@pytest.mark.parametrize("function", THREE)
def test_a_function_of_three_arguments_is_kept(function: Callable[..., Any]) -> None:
    kept = ProducerConfig(value_serializer=function).value_serializer
    assert kept is function
    assert kept("t", (), "a") == b"t:a"  # type: ignore[call-arg]


def coroutine_handler(record: Any) -> Any:
    raise AssertionError


MAKERS: dict[str, Callable[[str, Any], Any]] = {
    "Producer": lambda name, given: Producer(**{name.replace("deser", "ser"): given}),
    "Consumer": lambda name, given: Consumer("t", **{name: given}),
    "ShareConsumer": lambda name, given: ShareConsumer(group_id="g", **{name: given}),
    "Processor": lambda name, given: Processor(
        coroutine_handler, "t", group_id="g", **{name: given}
    ),
    "BatchProcessor": lambda name, given: BatchProcessor(
        coroutine_handler, "t", group_id="g", **{name: given}
    ),
    "ShareProcessor": lambda name, given: ShareProcessor(
        coroutine_handler, "t", group_id="g", **{name: given}
    ),
}


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("name", ["key_deserializer", "value_deserializer"])
@pytest.mark.parametrize("wrong", NEITHER)
def test_others_are_refused_in_the_constructor(maker: str, name: str, wrong: Any) -> None:
    with pytest.raises(ConfigError, match=rf"^{name[:3]}.*serializer.*: must "):
        MAKERS[maker](name, wrong)


async def test_records_of_lambdas(broker: EmbeddedCluster) -> None:
    async with Producer(
        broker.bootstrap_servers,
        key_serializer=lambda key: key.encode(),
        value_serializer=lambda value: json.dumps(value).encode(),
    ) as producer:
        await producer.send("t", {"a": 1})
        await producer.send("t", None, key="k")
        with pytest.raises(SerializationError, match=r"value_serializer: .*<lambda> failed"):
            await producer.send("t", object())
        assert await producer.send_many("t", [[1], None])
    async with Consumer(
        "t",
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        key_deserializer=lambda key: key.decode(),
        value_deserializer=json.loads,
    ) as consumer:
        records = [await consumer.getone() for _ in range(4)]
    assert [(record.key, record.value) for record in records] == [
        (None, {"a": 1}),
        ("k", None),
        (None, [1]),
        (None, None),
    ]
    assert [record.value for record in broker.records("t")] == [b'{"a": 1}', None, b"[1]", None]


async def test_an_object_of_one_argument_is_closed_once(broker: EmbeddedCluster) -> None:
    class Closed(OfOne):
        closed = 0

        def close(self) -> None:
            self.closed += 1

    both = Closed()
    async with Producer(
        broker.bootstrap_servers, key_serializer=both, value_serializer=both
    ) as producer:
        await producer.send_and_wait("t", "a", key="b")
    assert both.closed == 1
