"""No error shows a key, value or header: each call of each client, with a record in place of each
argument.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import re
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import pydantic
import pytest

from aioprod import (
    Admin,
    ConfigError,
    Consumer,
    ConsumerRecord,
    DeserializationError,
    InvalidTopicError,
    Producer,
    ProducerRecord,
    SerializationError,
    ShareConsumer,
    TopicPartition,
)
from aioprod.compat.aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aioprod.foreign_text import shown
from aioprod.processing import Processor, ShareProcessor
from aioprod.serializing import serialize
from aioprod.testing import EmbeddedCluster

SECRET = "hunter2"
PAYLOAD = SECRET.encode()
RECORD = ProducerRecord("t", PAYLOAD, PAYLOAD, headers=[(SECRET, PAYLOAD)])
GIVEN: dict[str, Any] = {
    "a record": RECORD,
    "records": [RECORD],
    "a tuple of records": (RECORD, RECORD),
    "records by name": {"t": RECORD},
    "records by partition": {TopicPartition("t", 0): RECORD},
    "names by record": {ProducerRecord("t", PAYLOAD): 0},
    "a record as a dictionary": {"topic": "t", "value": SECRET},
    "settings": {"bootstrap.servers": "a:9092", "sasl.password": SECRET},
    "bytes": PAYLOAD,
    "a list of bytes": [PAYLOAD],
    "a buffer": bytearray(PAYLOAD),
    "an object": {"t": {"card": [SECRET.encode()]}},
    "a consumed record": ConsumerRecord("t", 0, 0, 0, 0, PAYLOAD, PAYLOAD, ((SECRET, PAYLOAD),), 0),
}
CLIENTS = [Producer, Consumer, ShareConsumer, Admin, AIOKafkaProducer, AIOKafkaConsumer]
OF_GROUPS = (Consumer, ShareConsumer, AIOKafkaConsumer)


def calls_of(client: Any) -> Iterator[tuple[str, Callable[[Any], Any], int]]:
    for name, call in inspect.getmembers(client):
        if not name.startswith("_") and callable(call) and name not in ("close", "stop", "start"):
            parameters = list(inspect.signature(call).parameters.values())
            for at, parameter in enumerate(parameters):
                yield name, call, at if parameter.kind is not parameter.VAR_KEYWORD else -1


def chain(error: BaseException | None) -> Iterator[str]:
    while error is not None:
        yield f"{error} {error!r} {getattr(error, '__notes__', '')}"
        error = error.__cause__ or error.__context__


async def outcome(call: Any, at: int, given: Any) -> str:
    """Call with ``given`` in this place and in those that are required; return all texts."""
    positional, named = [], {}
    for place, parameter in enumerate(inspect.signature(call).parameters.values()):
        if place != at and parameter.default is not parameter.empty:
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional.append(given)
        elif parameter.kind is not parameter.VAR_KEYWORD:
            named[parameter.name] = given
    try:
        async with asyncio.timeout(0.05):
            result = call(*positional, **named)
            if inspect.isawaitable(result):
                result = await result
            if hasattr(result, "__aenter__"):
                return ""
            if inspect.isawaitable(result):  # a delivery
                await result
    except TimeoutError:
        return ""
    except Exception as error:
        return " ".join(chain(error))
    return repr(result) if hasattr(result, "errors") else ""


async def processed(record: object) -> None: ...


@pytest.mark.parametrize(
    "make",
    [
        *CLIENTS[:-1],  # an AIOKafkaConsumer checks its topics when it starts, as aiokafka's does
        lambda *given, **named: Processor(processed, *given, group_id="g", **named),
        lambda *given, **named: ShareProcessor(
            processed, *given, group_id="g", reject_failed=True, **named
        ),
    ],
)
async def test_no_constructor_shows_a_dictionary_of_settings(make: Any) -> None:
    settings = {"bootstrap.servers": "a:9092", "sasl.password": SECRET, "password": SECRET}
    named = {"client_id": settings}
    for given in ((settings,), ([settings],), ("t", settings)):
        with pytest.raises((ConfigError, TypeError, ValueError)) as caught:
            make(*given)
        assert SECRET not in " ".join(chain(caught.value))
    with pytest.raises((ConfigError, TypeError, ValueError)) as caught:
        make(**named)
    assert SECRET not in " ".join(chain(caught.value))


async def test_no_delivery_shows_what_was_given_as_the_topic(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with EmbeddedCluster() as broker, Producer(broker.bootstrap_servers) as producer:
        wrong: list[Any] = [{"topic": "t", "value": SECRET}, ("t", SECRET), ["t", SECRET], {SECRET}]
        for topic in (*wrong, ("t", PAYLOAD), RECORD):
            delivery = await producer.send(ProducerRecord(topic, b"x"))
            several = await producer.send_many(topic, [b"x"])
            with pytest.raises(InvalidTopicError, match="must be a name of type str") as caught:
                await delivery
            text = " ".join((*chain(caught.value), repr(delivery), repr(several)))
            assert SECRET not in text, text
    assert SECRET not in caplog.text


@pytest.mark.parametrize("kind", CLIENTS)
async def test_no_error_shows_a_payload(kind: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    refused, found = 0, []
    async with EmbeddedCluster() as broker:
        client = kind(
            bootstrap_servers=broker.bootstrap_servers,
            **({"group_id": "g"} if kind in OF_GROUPS else {}),
        )
        async with client:
            for name, call, at in calls_of(client):
                for what, given in GIVEN.items():
                    text = await outcome(call, at, given)
                    if SECRET in text:
                        found.append(f"{name}, argument {at}, {what}: {text}")
                    refused += bool(text)
    assert found == []
    assert SECRET not in caplog.text
    assert refused > 30


async def test_send_takes_a_record() -> None:
    async with EmbeddedCluster() as broker, Producer(broker.bootstrap_servers) as producer:
        sent = ProducerRecord("t", b"v", b"k", 0, 5, [("h", b"x")])
        await producer.send_and_wait(sent)
        await (await producer.send(ProducerRecord("t", b"w")))
        first, second = broker.records("t")
        assert (first.value, first.key, first.timestamp) == (b"v", b"k", 5)
        assert list(first.headers) == [("h", b"x")]
        assert second.value == b"w"
        wrong: list[dict[str, Any]] = [
            {"value": b"x"},
            {"key": b"x"},
            {"partition": 0},
            {"headers": [("h", None)]},
        ]
        for others in wrong:
            with pytest.raises(ConfigError, match="give no other arguments"):
                await producer.send(sent, **others)
        delivery = await producer.send(ProducerRecord(sent, b"x"))  # type: ignore[arg-type]
        with pytest.raises(InvalidTopicError, match="topic=<ProducerRecord>: must be"):
            await delivery
        assert await producer.send_many("t", [sent])


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("a" * 300, repr("a" * 250 + "... (300 characters)")),
        (5, "5"),
        (1 << 5_000, "a number of 5001 bits"),
        (None, "None"),
        (int, "class int"),
        (b"secret", "<bytes>"),
        (RECORD, "<ProducerRecord>"),
        (TopicPartition("t", 0), "TopicPartition(topic='t', partition=0)"),
        ([1, "a", b"b"], "[1, 'a', <bytes>]"),
        ({"a": {"b": 1}}, "{'a': {'b': 1}}"),
        ({"a": "secret"}, "{'a': <str>}"),
        ({"a": {"b": [1]}}, "{'a': {'b': <list>}}"),
        ((), "()"),
        (list(range(20)), "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ... (20 items)]"),
        (object(), "<object>"),
    ],
)
def test_what_an_error_shows_of_an_argument(given: Any, text: str) -> None:
    assert shown(given) == text


@pytest.mark.parametrize("address", ["localhost:9092", "PLAINTEXT://a:9092", "[::1]:9092", "a:"])
def test_the_address_of_a_broker_is_not_a_topic(address: str) -> None:
    with pytest.raises(ConfigError, match=r"did you mean bootstrap_servers='.*'\?"):
        Consumer(address)
    Consumer("persistent://tenant/namespace/topic")  # a name for Kafka on Pulsar
    with pytest.raises(ConfigError, match="give several topics as several arguments"):
        Consumer("a,b")


@pytest.mark.parametrize("pattern", ["^orders-.*", re.compile("orders-.*")])
async def test_a_pattern_in_place_of_a_topic_names_the_argument(pattern: Any) -> None:
    for make in (Consumer, lambda given: Consumer().subscribe(given)):
        with pytest.raises(ConfigError, match=r"only Consumer\.subscribe\(pattern=\.\.\.\)"):
            make(pattern)


class Strict(pydantic.BaseModel):
    card: Annotated[str, pydantic.StringConstraints(max_length=3)]
    when: int


@pytest.mark.parametrize(
    "read",
    [
        lambda data: Strict.model_validate_json(data),
        lambda data: data.decode("ascii"),
        lambda data: json.loads(data + b"]"),
    ],
)
async def test_a_deserializer_that_fails_does_not_show_the_value(read: Any) -> None:
    value = json.dumps({"card": SECRET + "é", "when": SECRET}, ensure_ascii=False).encode()
    async with EmbeddedCluster() as broker, Producer(broker.bootstrap_servers) as producer:
        await producer.send_and_wait("t", value)
        async with Consumer(
            "t",
            bootstrap_servers=broker.bootstrap_servers,
            auto_offset_reset="earliest",
            value_deserializer=lambda topic, headers, data: read(data),
        ) as consumer:
            with pytest.raises(DeserializationError) as caught:
                await consumer.getone()
        with pytest.raises(SerializationError) as refused:
            serialize(lambda topic, headers, data: read(data), "value_serializer", "t", (), value)
    for error in (caught.value, refused.value):
        assert SECRET not in str(error) and "\n" not in str(error)
