"""Topics on any kind of broker, and a session with the data source."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from aioprod.cluster.client import ClusterClient
from aioprod.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from aioprod.spark import register

CreateTopic = Callable[[str, str, int], None]


@pytest.fixture
def create_topic() -> CreateTopic:
    """Create a topic: bootstrap servers, name, partitions."""

    async def create(servers: str, name: str, partitions: int) -> None:
        async with ClusterClient(servers) as client:
            topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
            reply = await client.request(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
            assert reply.topics[0].error_code == 0, reply

    return lambda servers, name, partitions: asyncio.run(create(servers, name, partitions))


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark
