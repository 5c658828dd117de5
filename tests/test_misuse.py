"""Wrong calls: the error names the argument or the cure, and no value that may be a secret."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import AsyncIterator, Callable
from importlib import import_module
from typing import Any

import aiokafka
import aiokafka.admin
import confluent_kafka
import confluent_kafka.admin
import pytest

from aioprod import (
    Admin,
    BrokerError,
    ConfigError,
    Consumer,
    ConsumerStateError,
    Delivery,
    KafkaError,
    KafkaTimeoutError,
    Producer,
    SerializationError,
    ShareConsumer,
    TopicPartition,
    TransactionStateError,
)
from aioprod.consumer.records import Records
from aioprod.testing import EmbeddedCluster
from tests.test_client_arguments import ARGUMENTS
from tests.user_code.discovery import public_classes

kafka = pytest.importorskip("kafka")
TP = TopicPartition("t", 0)
SECRET = "hunter2"

# -- names of other clients ------------------------------------------------------------------------

OTHERS: dict[type[Any], list[Any]] = {
    Producer: [aiokafka.AIOKafkaProducer, confluent_kafka.Producer, kafka.KafkaProducer],
    Consumer: [aiokafka.AIOKafkaConsumer, confluent_kafka.Consumer, kafka.KafkaConsumer],
    ShareConsumer: [aiokafka.AIOKafkaConsumer, kafka.KafkaConsumer],
    Admin: [
        aiokafka.admin.AIOKafkaAdminClient,
        confluent_kafka.admin.AdminClient,
        kafka.KafkaAdminClient,
    ],
    Delivery: [import_module("kafka.future").Future],
    Records: [dict],
}
# Names of plain dicts that a sequence of records has no use for.
OF_DICT = {"clear", "copy", "fromkeys", "get", "pop", "popitem", "setdefault", "update"}


def foreign_names(ours: type[Any]) -> set[str]:
    found = {
        name
        for other in OTHERS[ours]
        for name, member in inspect.getmembers(other)
        if not name.startswith("_") and callable(member) and not isinstance(member, type)
    }
    return found - (OF_DICT if ours is Records else set())


@pytest.mark.parametrize("ours", OTHERS, ids=lambda kind: kind.__name__)
def test_each_method_of_other_clients_is_there_or_names_the_cure(ours: type[Any]) -> None:
    here = {name for name in foreign_names(ours) if hasattr(ours, name)}
    for name in foreign_names(ours) - here:
        with pytest.raises(AttributeError, match=rf"^{ours.__name__} has no '{name}': use .{{5}}"):
            getattr(ours, name)


def test_a_cure_is_not_seen_by_hasattr() -> None:
    producer = Producer()
    assert not hasattr(producer, "produce")
    assert getattr(producer, "poll", None) is None


# -- with and for ----------------------------------------------------------------------------------


def async_only(special: str, synchronous: str) -> list[type[Any]]:
    return [
        kind
        for kind in sorted(public_classes(), key=lambda kind: kind.__name__)
        if hasattr(kind, special) and kind.__name__ != "ThreadedCluster"
    ]


@pytest.mark.parametrize(
    "kind", async_only("__aenter__", "__enter__"), ids=lambda kind: kind.__name__
)
def test_with_names_async_with(kind: type[Any]) -> None:
    with pytest.raises(TypeError, match=f"^{kind.__name__}: use 'async with'"):
        with object.__new__(kind):
            pass


@pytest.mark.parametrize(
    "kind", async_only("__aiter__", "__iter__"), ids=lambda kind: kind.__name__
)
def test_for_names_async_for(kind: type[Any]) -> None:
    with pytest.raises(TypeError, match=f"^{kind.__name__}: use 'async for'"):
        for _ in object.__new__(kind):
            pass


# -- wrong names of arguments ----------------------------------------------------------------------

CLIENTS: list[type[Any]] = [Producer, Consumer, ShareConsumer, Admin]
# Python alone checks these: a record must not wait for a better text.
UNCHECKED = {(Producer, "send"), (Producer, "send_and_wait"), (ShareConsumer, "acknowledge")}


def methods(kind: type[Any]) -> list[tuple[type[Any], str]]:
    return [
        (kind, name)
        for name, _ in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    ]


ALL_METHODS = [each for kind in CLIENTS for each in methods(kind)]


@pytest.mark.parametrize(
    ("kind", "name"),
    [each for each in ALL_METHODS if each not in UNCHECKED],
    ids=lambda each: each if isinstance(each, str) else each.__name__,
)
async def test_an_argument_that_is_not_there(kind: type[Any], name: str) -> None:
    client = object.__new__(kind)
    known = inspect.signature(getattr(kind, name)).parameters
    for wrong in ("timeout", "nonsense"):
        if wrong == "nonsense" and name == "getone":
            continue
        with pytest.raises(TypeError, match=rf"\.{name}\(\) has no argument '{wrong}': ") as caught:
            result = getattr(client, name)(**{wrong: 1})
            if inspect.isawaitable(result):
                await result
        if wrong == "timeout":
            cure = "timeout_ms, in milliseconds" if "timeout_ms" in known else "asyncio.timeout"
            assert cure in str(caught.value)


@pytest.mark.parametrize(
    ("call", "cure"),
    [
        (lambda c: c.subscribe(["t"], on_assign=print), "listener=RebalanceListener"),
        (lambda c: c.commit(asynchronous=True), "commit_async"),
        (lambda c: c.commit(message=b"hunter2"), r"offsets=\{TopicPartition"),
        (lambda c: c.getmany(max_record=5), "max_records"),
        (lambda c: c.getmany(num_messages=5), "max_records"),
        (lambda c: c.close(autocommit=False), "enable_auto_commit"),
    ],
)
async def test_arguments_of_other_clients_name_the_cure(
    call: Callable[[Any], Any], cure: str
) -> None:
    with pytest.raises(TypeError, match=f"has no argument '.*': use .*{cure}"):
        result = call(object.__new__(Consumer))
        if inspect.isawaitable(result):
            await result


# -- wrong kinds of arguments ----------------------------------------------------------------------


class Secret:
    def __repr__(self) -> str:
        return SECRET


WRONG: list[Any] = [
    None,
    5,
    -1,
    True,
    1.5,
    math.nan,
    10**400,
    "",
    "a:b",
    "x\n" * 3,
    SECRET.encode(),
    Secret(),
    [Secret()],
    {Secret(): Secret()},
    [None],
    [b"hunter2"],
    ("t",),
    ("t", -1),
    ("t", 0, 0),
    {("t", 0): None},
    {"t": Secret()},
    {("t", 0): Secret()},
    print,
    int,
]
# What a method is given for its other arguments.
VALID: dict[Any, Any] = {
    **ARGUMENTS,
    "partitions": (TP,),
    "partition": TP,
    "topic": "t",
    "topics": ["t"],
    "offset": 0,
    "offsets": {TP: 0},
    "timestamps": {TP: 0},
    "value": b"v",
    "records": [b"v"],
    "data": None,
    "record": None,
    ("create_partitions", "partitions"): {"t": 2},
    ("subscribe", "topics"): ["t"],
}
MAY_RAISE = (KafkaError, TypeError, ValueError, TimeoutError)
# They wait for records or the application's time, or end the client.
LEFT_OUT = {"getone", "acknowledge", "close", "stop", "start", "send_arrow", "getarrow"}
TESTED = [(kind, name) for kind, name in ALL_METHODS if name not in LEFT_OUT]
# What they say is about the client's state, a record or the broker's answer.
NAMED_ELSEWHERE = (
    BrokerError,
    ConsumerStateError,
    KafkaTimeoutError,
    SerializationError,
    TransactionStateError,
)
# What the errors call them.
CALLED = {"reassignments": "replicas", "pattern": "topic"}


@pytest.fixture
async def broker_of_t() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster() as broker:
        broker.create_topic("t")
        yield broker


async def outcome(
    client: Any, name: str, wrong: str, arguments: list[Any], named: dict[str, Any]
) -> None:
    try:
        async with asyncio.timeout(10):
            result = getattr(client, name)(*arguments, **named)
            while inspect.isawaitable(result):
                result = await result
    except MAY_RAISE as error:
        text = str(error)
        assert SECRET not in text, (name, arguments, text)
        if not isinstance(error, NAMED_ELSEWHERE):
            names = {wrong.removesuffix("s"), CALLED.get(wrong, wrong)}
            assert any(each in text for each in names), (name, arguments, named, text)
    except Exception as error:
        raise AssertionError(f"{name}({arguments}, {named})") from error


@pytest.mark.parametrize(
    ("kind", "name"), TESTED, ids=lambda each: each if isinstance(each, str) else each.__name__
)
async def test_wrong_kinds_of_arguments(
    broker_of_t: EmbeddedCluster, kind: type[Any], name: str
) -> None:
    settings: dict[str, Any] = {"bootstrap_servers": broker_of_t.bootstrap_servers}
    if kind is Admin:
        settings |= {"default_api_timeout_ms": 1_000, "request_timeout_ms": 1_000}
    elif kind is not Producer:
        settings |= {"group_id": "g", "default_api_timeout_ms": 1_000}
    else:
        settings |= {"max_block_ms": 500}
    parameters = list(inspect.signature(getattr(kind, name)).parameters.values())[1:]
    async with kind(**settings) as client:
        for parameter in parameters:
            if parameter.name == "timeout_ms":
                continue  # tests/test_client_arguments.py has these
            for wrong in WRONG:
                if kind is Consumer:
                    await client.unsubscribe()
                    if name != "subscribe":
                        client.assign([TP])
                given: list[Any] = []
                named: dict[str, Any] = (
                    {"timeout_ms": 50} if "timeout_ms" in [each.name for each in parameters] else {}
                )
                for each in parameters:
                    valid = VALID.get((name, each.name), VALID.get(each.name))
                    value = wrong if each is parameter else valid
                    if each.kind is each.VAR_POSITIONAL:
                        given += [wrong] if each is parameter else value or ()
                    elif each is parameter and each.default is not each.empty:
                        named[each.name] = wrong
                    elif each.default is each.empty or (name, each.name) in VALID:
                        given.append(value)
                await outcome(client, name, parameter.name, given, named)


async def test_partitions_are_arguments_or_one_list(broker_of_t: EmbeddedCluster) -> None:
    async with Consumer(bootstrap_servers=broker_of_t.bootstrap_servers) as consumer:
        both = [TP, TopicPartition("u", 0)]
        consumer.assign(both)
        given: list[tuple[Any, ...]] = [tuple(both), (both,), (tuple(both),), (set(both),)]
        for partitions in given:
            consumer.pause(*partitions)
            assert consumer.paused() == set(both)
            consumer.resume(*partitions)
            assert not consumer.paused()
        consumer.pause(("t", 0))  # type: ignore[arg-type]
        assert consumer.paused() == {TP}
        for one in (TP, ("t", 0)):
            consumer.assign(one)  # type: ignore[arg-type]
            assert consumer.assignment() == {TP}
            assert await consumer.end_offsets(one) == {TP: 0}  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [None, 5, "text", b"bytes", {"a": b"v"}])
async def test_one_value_is_not_many_records(broker_of_t: EmbeddedCluster, wrong: Any) -> None:
    async with Producer(broker_of_t.bootstrap_servers) as producer:
        with pytest.raises(ConfigError, match=f"^records of type {type(wrong).__name__}: must be"):
            await producer.send_many("t", wrong)
