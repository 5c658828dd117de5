"""A processor checks at its start that the topics for failed records exist."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioprod import BrokerError, ConfigError, ErrorCode
from aioprod.processing import (
    BatchProcessor,
    Processor,
    RetryPolicy,
    RetryTopic,
    ShareBatchProcessor,
    ShareProcessor,
)
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, delay, fail

pytestmark = pytest.mark.virtual_time

LETTERS: dict[str, Any] = {"dead_letter_topic": "missing"}
RETRIES: dict[str, Any] = {
    "retry": RetryPolicy(
        keep_order=False, retry_topics=[RetryTopic("there", 1), RetryTopic("missing", 1)]
    )
}
KINDS = [
    (Processor, LETTERS, "dead_letter_topic"),
    (Processor, RETRIES, "retry_topics"),
    (Processor, {**LETTERS, "guarantee": "exactly_once"}, "dead_letter_topic"),
    (BatchProcessor, LETTERS, "dead_letter_topic"),
    (ShareProcessor, LETTERS, "dead_letter_topic"),
    (ShareBatchProcessor, LETTERS, "dead_letter_topic"),
]


def make(kind: Any, broker: EmbeddedCluster, **settings: Any) -> Any:
    async def handle(record: Any) -> None: ...

    return kind(
        handle,
        "orders",
        bootstrap_servers=broker.bootstrap_servers,
        group_id="g",
        **settings,
    )


@pytest.mark.parametrize(("kind", "settings", "name"), KINDS)
@pytest.mark.parametrize("limits", [{}, {"producer": {"max_block_ms": 300}}])
async def test_a_topic_that_does_not_exist_is_named_at_the_start(
    kind: Any, settings: Any, name: str, limits: Any
) -> None:
    async with EmbeddedCluster(auto_create_topics=False) as broker:
        for topic in ("orders", "there"):
            broker.create_topic(topic)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        with pytest.raises(ConfigError, match=rf"^{name}: topic 'missing' is not in the cluster"):
            await make(kind, broker, **settings, **limits).start()
        assert loop.time() - begun < (1 if limits else 11)
        assert "g" not in broker.group_ids  # it has not joined
        broker.create_topic("missing")
        async with make(kind, broker, **settings, **limits):
            pass


async def test_a_topic_that_appears_during_the_start() -> None:
    async with EmbeddedCluster(auto_create_topics=False) as broker:
        broker.create_topic("orders")
        starting = asyncio.create_task((processor := make(Processor, broker, **LETTERS)).start())
        await asyncio.sleep(5)
        broker.create_topic("missing")
        await starting
        await processor.stop()


@pytest.mark.parametrize("kind", [Processor, ShareProcessor])
async def test_a_cluster_that_creates_topics_automatically_creates_it(kind: Any) -> None:
    async with EmbeddedCluster() as broker:
        broker.create_topic("orders")
        async with make(kind, broker, **LETTERS):
            assert "missing" in broker.topics


async def test_a_topic_without_permission_does_not_count_as_missing(
    broker: EmbeddedCluster,
) -> None:
    broker.create_topic("orders")
    broker.on_every(ApiKey.METADATA, fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic="missing"))
    with pytest.raises(BrokerError, match="missing") as caught:
        await make(Processor, broker, **LETTERS).start()
    assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_a_start_that_is_cancelled_while_it_looks_for_a_topic(
    broker: EmbeddedCluster,
) -> None:
    broker.create_topic("orders")
    tasks = asyncio.all_tasks()
    starting = asyncio.create_task(make(Processor, broker, **LETTERS).start())
    broker.on_every(ApiKey.METADATA, delay(3))
    await asyncio.sleep(4)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not {task for task in asyncio.all_tasks() - tasks if "aioprod" in task.get_name()}


@pytest.mark.parametrize("name", [5, "", b"dead"])
def test_the_name_of_a_topic_is_checked(broker: EmbeddedCluster, name: Any) -> None:
    with pytest.raises(ConfigError, match=r"dead_letter_topic=.*: must be the name of a topic"):
        make(Processor, broker, dead_letter_topic=name)
