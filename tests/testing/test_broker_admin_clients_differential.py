"""Quotas, producers, transactions and random administrative requests get the same responses from
the embedded and a real broker.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from aioprod.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from aioprod.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from aioprod.protocol.messages.alter_configs import AlterableConfig as Replaced
from aioprod.protocol.messages.alter_configs import AlterConfigsRequest
from aioprod.protocol.messages.alter_configs import AlterConfigsResource as ReplacedResource
from aioprod.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from aioprod.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from aioprod.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from aioprod.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from aioprod.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from aioprod.protocol.messages.describe_producers import DescribeProducersRequest
from aioprod.protocol.messages.describe_producers import TopicRequest as ProducersOfTopic
from aioprod.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from aioprod.protocol.messages.describe_transactions import DescribeTransactionsRequest
from aioprod.protocol.messages.end_txn import EndTxnRequest
from aioprod.protocol.messages.find_coordinator import FindCoordinatorRequest
from aioprod.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from aioprod.protocol.messages.init_producer_id import InitProducerIdRequest
from aioprod.protocol.messages.list_transactions import ListTransactionsRequest
from aioprod.protocol.messages.produce import ProduceRequest
from aioprod.testing.broker.settings.topic_settings import topic_settings
from tests.testing.both_admins import APPEND, DELETE, SET, SUBTRACT, VALUES, Admin, open_admin
from tests.testing.both_brokers import comparable
from tests.testing.raw_admin import TOPIC
from tests.testing.raw_client import RawClient, make_batch, produce_request


@pytest.fixture
async def admin(kafka: str) -> AsyncIterator[Admin]:
    async with open_admin(kafka) as connected:
        yield connected


async def test_quotas(admin: Admin) -> None:
    client, user = ("client-id", admin.topic), ("user", admin.topic)
    entities: list[list[tuple[str, str | None]]] = [
        [],
        [client],
        [user],
        [client, user],
        [("client-id", None)],
        [("ip", "10.1.2.3")],
        [("ip", None)],
        [("ip", "x")],
        [("ip", "10.1.2.3"), user],
        [("x", "y")],
        [("", "y")],
        [("client-id", "")],
        [client, client],
    ]
    values: list[tuple[str, float | None]] = [
        ("producer_byte_rate", value) for value in (5, 0, -1, 1.5, None)
    ]
    others = (
        "request_percentage",
        "controller_mutation_rate",
        "connection_creation_rate",
        "unknown",
    )
    values += [(key, value) for key in others for value in (0.5, 0, 1e12)]
    values += [("unknown", None), ("consumer_byte_rate", 1e12)]
    for entity in entities:
        for key, value in values:
            await admin.quota(entity, {key: value}, validate_only=True)
    await admin.both.ask(
        AlterClientQuotasRequest(
            [EntryData([EntityData(*client)], [OpData("producer_byte_rate", 5.0)])] * 2, True
        )
    )
    await admin.quota([client], {"producer_byte_rate": 1e9, "consumer_byte_rate": 2e9})
    await admin.quota([user], {"producer_byte_rate": 3e9})
    await admin.quota([user, client], {"request_percentage": 1000.5})
    await admin.quota([("client-id", None), user], {"producer_byte_rate": 4e9})
    filters: list[list[tuple[str, int, str | None]]] = [
        [("client-id", 0, admin.topic)],
        [("user", 0, admin.topic)],
        [("client-id", 0, admin.topic), ("user", 0, admin.topic)],
        [("client-id", 1, None), ("user", 0, admin.topic)],
        [("client-id", 2, None), ("user", 0, admin.topic)],
        [("client-id", 0, None)],
        [("client-id", 1, "x")],
        [("client-id", 2, "x")],
        [("client-id", 3, None)],
        [("x", 0, "y")],
        [("", 0, "y")],
        [("user", 0, "a"), ("user", 0, "b")],
        [("ip", 2, None), ("user", 2, None)],
        [("x", 5, "y")],
    ]
    for conditions in filters:
        for strict in (False, True):
            request = DescribeClientQuotasRequest(
                [ComponentData(*each) for each in conditions], strict
            )
            await admin.both.ask_all_versions(request, finishes=True)
    await admin.quota([client], {"producer_byte_rate": None})
    await admin.quota([user], {"producer_byte_rate": None})
    await admin.quota([user, client], {"request_percentage": None})
    await admin.quota([("client-id", None), user], {"producer_byte_rate": None})
    for name in ("client-id", "user"):
        await admin.both.ask(
            DescribeClientQuotasRequest([ComponentData(name, 0, admin.topic)]), finishes=True
        )
    await admin.quota([client], {"consumer_byte_rate": None})


async def test_transactions_and_producers(admin: Admin) -> None:
    topic, both, name = admin.topic, admin.both, admin.topic
    await admin.create(topic, 3)
    own = both.adapt
    both.adapt = lambda answer: own(only_states_of(name, answer))
    producers = [(client, *await begin(client, name)) for client in (both.real, both.embedded)]
    for step in range(3):
        if step == 1:
            await both_at_once(
                producers, lambda client, *producer: write(client, name, topic, *producer)
            )
        if step == 2:
            await both_at_once(
                producers,
                lambda client, producer_id, epoch: client.call(
                    EndTxnRequest(name, producer_id, epoch, True), 4
                ),
            )
        await both.ask(DescribeTransactionsRequest([name, admin.unknown, ""]), finishes=True)
        await both.ask(
            DescribeProducersRequest(
                [ProducersOfTopic(topic, [0, 1, 9]), ProducersOfTopic(admin.unknown, [0])]
            ),
            finishes=True,
        )
        for states in (
            "",
            "Ongoing",
            "Empty CompleteCommit",
            "Ongoing Strange",
            "Strange",
            "ongoing",
            "Dead",
            "PrepareEpochFence",
        ):
            await both.ask_all_versions(ListTransactionsRequest(states.split()), finishes=True)
        for duration in (0, 1_000_000):
            await both.ask(ListTransactionsRequest(duration_filter=duration), 1, finishes=True)
        for pattern in (name[:-1] + ".", name[:-1], "", "(", f"x|{name}"):
            await both.ask(
                ListTransactionsRequest(transactional_id_pattern=pattern), 2, finishes=True
            )


def only_states_of(name: str, answer: Any) -> Any:
    """Leave out what other tests made in the real broker."""
    if isinstance(answer, dict) and "unknown_state_filters" in answer:
        return {
            **answer,
            "transaction_states": [
                each for each in answer["transaction_states"] if each["transactional_id"] == name
            ],
        }
    return answer


async def begin(client: RawClient, name: str) -> tuple[int, int]:
    """Get the producer id of a transactional id; a real broker may have to be asked again."""
    for _ in range(500):
        await client.call(FindCoordinatorRequest(key_type=1, coordinator_keys=[name]), 4)
        answer = await client.call(InitProducerIdRequest(name, 60_000), 4)
        if not answer.error_code:
            return answer.producer_id, answer.producer_epoch
        await asyncio.sleep(0.02)
    raise AssertionError(f"no producer id: {answer}")


async def both_at_once(
    producers: list[tuple[RawClient, int, int]], do: Callable[..., Awaitable[Any]]
) -> None:
    real, embedded = [comparable(await do(*producer)) for producer in producers]
    assert embedded == real


async def write(client: RawClient, name: str, topic: str, producer_id: int, epoch: int) -> Any:
    added = await client.call(
        AddPartitionsToTxnRequest(
            [], name, producer_id, epoch, [AddPartitionsToTxnTopic(topic, [0, 2])]
        ),
        3,
    )
    batch = make_batch([b"a", b"b"], producer=(producer_id, epoch, 0), transactional=True)
    request = ProduceRequest(name, -1, 1000, produce_request(topic, batch).topic_data)
    return [added, (await client.call(request, 9)).responses[0].partition_responses[0].error_code]


@pytest.mark.parametrize("seed", range(4))
async def test_random_administration(admin: Admin, seed: int) -> None:
    """Random requests, valid or not, for topics that are created and deleted."""
    rng = random.Random(seed)
    names = [admin.topic, admin.other]
    for _ in range(30):
        await random_step(admin, rng, rng.choice(names))
    for name in names:
        await admin.describe(TOPIC, name)


async def random_step(admin: Admin, rng: random.Random, name: str) -> None:
    both = admin.both
    setting, value = rng.choice(list(topic_settings())), rng.choice(VALUES)
    kind = rng.randrange(8)
    if kind == 0:
        configs = [CreatableTopicConfig(setting, value)] if rng.random() < 0.3 else []
        request: Any = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name, rng.randint(-1, 4), rng.choice([1, 1, 1, -1, 2]), configs=configs
                )
            ]
        )
    elif kind == 1:
        request = (
            DeleteTopicsRequest(topics=[DeleteTopicState(name)], timeout_ms=5000)
            if rng.random() < 0.3
            else None
        )
    elif kind == 2:
        request = CreatePartitionsRequest(
            [CreatePartitionsTopic(name, rng.randint(1, 6), None)], 5000, rng.random() < 0.3
        )
    elif kind == 3:
        settings = [Replaced(setting, value), Replaced("retention.ms", str(rng.randint(-2, 9)))]
        request = AlterConfigsRequest(
            [ReplacedResource(TOPIC, name, rng.sample(settings, rng.randint(0, 2)))],
            rng.random() < 0.3,
        )
    elif kind == 4:
        await both.ask(
            produce_request(
                name, make_batch([b"x"] * rng.randint(1, 5)), partition=rng.randint(0, 2)
            ),
            rng.randint(3, 12),
            finishes=True,
        )
        return
    elif kind == 5:
        places = [DeleteRecordsPartition(rng.randint(0, 3), rng.randint(-1, 9))]
        await both.ask(
            DeleteRecordsRequest([DeleteRecordsTopic(name, places)], 5000),
            rng.randint(0, 2),
            finishes=True,
        )
        return
    else:
        change = AlterableConfig(setting, rng.choice([SET, SET, DELETE, APPEND, SUBTRACT]), value)
        request = IncrementalAlterConfigsRequest(
            [AlterConfigsResource(TOPIC, name, [change])], rng.random() < 0.3
        )
    if request is not None:
        await both.ask(
            request,
            rng.randint(max(request.MIN_VERSION, 6 if kind == 1 else 0), request.MAX_VERSION),
        )
    await both.ask(DescribeTopicPartitionsRequest([TopicRequest(name)]), finishes=True)
