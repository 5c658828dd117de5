"""Partitioners of kafka-python 3, which taskiq-aio-kafka gives to aiokafka's producer."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

import pytest

from aioprod import partition_for_key
from aioprod.compat.aiokafka import AIOKafkaProducer
from aioprod.testing import EmbeddedCluster

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    partitioners: Any = import_module("kafka.partitioner")


class Recorder:
    """A partitioner of an application."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def partition(self, *arguments: Any) -> int:
        *shown, cluster = arguments
        topic = shown[0]
        self.seen.append(tuple(shown))
        assert cluster.topics() == {topic}
        assert cluster.partitions_for_topic(topic) == {0, 1, 2, 3}
        assert cluster.available_partitions_for_topic(topic) == {0, 1, 2, 3}
        assert cluster.partitions_for_topic("other") is None
        return 2


async def partitions(partitioner: Any, keys: list[str | None], **settings: Any) -> list[int]:
    async with EmbeddedCluster(num_partitions=4) as broker:
        broker.create_topic("t")
        async with AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap_servers,
            partitioner=partitioner,
            key_serializer=lambda key: None if key is None else key.encode(),
            value_serializer=str.encode,
            **settings,
        ) as producer:
            sent = [await producer.send_and_wait("t", "value", key=key) for key in keys]
    return [each.partition for each in sent if each is not None]


@pytest.mark.parametrize("name", ["DefaultPartitioner", "StickyPartitioner"])
async def test_keys_go_where_all_clients_put_them(name: str) -> None:
    keys: list[str | None] = [f"{n}" for n in range(20)]
    found = await partitions(getattr(partitioners, name)(), keys)
    assert found == [partition_for_key(f"{n}".encode(), 4) for n in range(20)]


async def test_records_without_a_key_are_spread() -> None:
    nulls: list[str | None] = [None] * 60
    assert set(await partitions(partitioners.DefaultPartitioner(), nulls)) == {0, 1, 2, 3}
    sticky = await partitions(partitioners.StickyPartitioner(), nulls, max_batch_size=50)
    assert len(set(sticky)) > 1
    # Ten values of five bytes are a batch.
    assert [len(set(sticky[at : at + 10])) for at in range(0, 60, 10)] == [1] * 6


async def test_a_partitioner_of_an_application_gets_all_arguments() -> None:
    recorder = Recorder()
    assert await partitions(recorder, ["k", None]) == [2, 2]
    assert recorder.seen == [
        ("t", "k", b"k", "value", b"value"),
        ("t", None, None, "value", b"value"),
    ]


@pytest.mark.parametrize("wrong", [5, "murmur2", object()])
def test_other_objects_are_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"^partitioner=\w+: must be a function of \(key, "):
        AIOKafkaProducer(partitioner=wrong)
