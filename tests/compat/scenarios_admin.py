"""Programs that use aiokafka's admin client. Each function returns what it has seen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

from tests.compat.outcomes import outcome
from tests.compat.scenarios_consumer import _consumer, _fill


def _names(client: ModuleType) -> Any:
    import_module(f"{client.__name__}.admin.config_resource")
    return import_module(f"{client.__name__}.admin")


@asynccontextmanager
async def _admin(client: ModuleType, servers: str) -> AsyncIterator[Any]:
    admin = _names(client).AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


def _codes(response: Any) -> object:
    """The names and codes of a response, without texts."""
    [(name, rows)] = [each for each in response.to_object().items() if isinstance(each[1], list)]
    plain = [[value for value in row.values() if not isinstance(value, list)] for row in rows]
    assert [list(row[: len(plain[0])]) for row in getattr(response, name)] == plain
    return name, [{key: row[key] for key in row if key != "error_message"} for row in rows]


async def topics_are_made_and_deleted(client: ModuleType, servers: str) -> object:
    names = _names(client)
    async with _admin(client, servers) as admin:
        wanted = [
            names.NewTopic("new", 2, 1, topic_configs={"retention.ms": "1000"}),
            names.NewTopic("orders", 1, 1),
            names.NewTopic("placed", -1, -1, replica_assignments={0: [0]}),
        ]
        made = await admin.create_topics(wanted[:2])
        seen = [_codes(made), [text for _, code, text in made.topic_errors if not code]]
        seen.append(sorted(await admin.list_topics()))
        more = names.NewPartitions(4)
        made = await admin.create_partitions({"new": more})
        seen.append((_codes(made), made.topic_errors))
        seen.append(await outcome(admin.create_partitions({"new": more, "nowhere": more})))
        seen.append(await admin.describe_topics(["new", "nowhere"]))
        seen.append(_codes(await admin.delete_topics(["new", "nowhere"])))
        return [*seen, sorted(await admin.list_topics())]


async def settings_are_described(client: ModuleType, servers: str) -> object:
    resource = import_module(f"{client.__name__}.admin.config_resource")
    topic, broker = resource.ConfigResourceType.TOPIC, resource.ConfigResourceType.BROKER
    wanted = [
        resource.ConfigResource(topic, "orders"),
        resource.ConfigResource("topic", "orders", {"retention.ms": None, "cleanup.policy": ""}),
        resource.ConfigResource(topic, "nowhere"),
        resource.ConfigResource(broker, "1", {"log.retention.ms": None}),
    ]
    async with _admin(client, servers) as admin:
        seen = []
        for group in (wanted[:1], wanted[1:2], wanted[2:3], wanted[3:], [wanted[1], wanted[3]], []):
            for synonyms in (False, True):
                found = await admin.describe_configs(group, include_synonyms=synonyms)
                seen.append([_codes(each) for each in found])
        return seen


async def settings_are_replaced(client: ModuleType, servers: str) -> object:
    resource = import_module(f"{client.__name__}.admin.config_resource")

    async def alter(admin: Any, name: str, **configs: str) -> object:
        given = {key.replace("_", "."): value for key, value in configs.items()}
        wanted = resource.ConfigResource("topic", name, given)
        return [_codes(each) for each in await admin.alter_configs([wanted])]

    async def changed(admin: Any) -> object:
        wanted = resource.ConfigResource("topic", "orders")
        [found] = (await admin.describe_configs([wanted]))[0].resources
        dynamic_topic_config = 1
        return sorted(each[:2] for each in found[4] if each[3] == dynamic_topic_config)

    async with _admin(client, servers) as admin:
        seen = [await alter(admin, "orders", retention_ms="1000", segment_ms="2000")]
        seen += [await changed(admin), await alter(admin, "orders", retention_ms="5")]
        seen += [await changed(admin), await alter(admin, "orders", retention_ms="text")]
        seen += [await changed(admin), await alter(admin, "orders"), await changed(admin)]
        return [*seen, await alter(admin, "nowhere", retention_ms="1")]


async def groups_are_described(client: ModuleType, servers: str) -> object:
    await _fill(client, servers, 2)
    async with (
        _admin(client, servers) as admin,
        _consumer(client, servers, "orders", group_id="g", client_id="reader") as consumer,
    ):
        await consumer.getone()
        [response] = await admin.describe_consumer_groups(["g"])
        [group] = response.to_object()["groups"]
        [member] = group.pop("members")
        member.pop("member_id")
        metadata, assignment = member.pop("member_metadata"), member.pop("member_assignment")
        seen = [
            group,
            member,
            b"orders" in metadata,
            b"orders" in assignment,
            response.groups[0][:2],
        ]
        [other] = await admin.describe_consumer_groups(["nowhere"], group_coordinator_id=1)
        seen += [other.groups, await admin.describe_consumer_groups([])]
        seen += [await admin.find_coordinator("g"), await admin.find_coordinator("t", 1)]
        seen += [await admin.list_consumer_groups(), await admin.list_consumer_groups([1])]
        return [*seen, await admin.list_consumer_groups([])]


async def offsets_and_records(client: ModuleType, servers: str) -> object:
    names = _names(client)
    await _fill(client, servers, 3, 1)
    tp, other = (client.TopicPartition("orders", number) for number in (0, 1))
    async with (
        _admin(client, servers) as admin,
        _consumer(client, servers, "orders", group_id="g", enable_auto_commit=False) as consumer,
    ):
        await asyncio.wait_for(consumer.getone(), 10)
        await consumer.commit({tp: (1, "text")})
        return [
            await admin.list_consumer_group_offsets("g"),
            await admin.list_consumer_group_offsets("g", 1, [tp, other]),
            await admin.delete_records({tp: names.RecordsToDelete(2)}),
            await outcome(admin.delete_records({tp: names.RecordsToDelete(99)})),
            await consumer.beginning_offsets([tp]),
        ]


async def the_cluster(client: ModuleType, servers: str) -> object:
    async with _admin(client, servers) as admin:
        found = await admin.describe_cluster()
        return sorted(found), [sorted(each) for each in found["brokers"]], found["controller_id"]
