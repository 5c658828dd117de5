"""The rights that each API needs: the embedded and a real broker refuse the same requests."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from aioprod.admin import (
    AclBinding,
    AclOperation,
    Admin,
    ResourceType,
)
from aioprod.protocol.acls import CLUSTER_NAME
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.messages.create_topics import CreatableTopic
from aioprod.protocol.messages.produce import ProduceRequest
from aioprod.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from aioprod.protocol.messages.sasl_handshake import SaslHandshakeRequest
from aioprod.testing import Authorizer, BrokerSecurity, EmbeddedCluster
from aioprod.testing.broker.handlers import HANDLERS
from aioprod.testing.kafka_listener import Listener
from aioprod.testing.real_kafka import RealKafka
from tests.testing.both_brokers import comparable, error_codes
from tests.testing.new_topics import create_topics_with_leaders
from tests.testing.raw_client import RawClient, make_batch
from tests.testing.test_broker_access import REFUSALS
from tests.testing.test_broker_apis import EVERY_VERSION, typical_request

READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
ALTER, DELETE, CREATE = AclOperation.ALTER, AclOperation.DELETE, AclOperation.CREATE
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS


def on_topics(operation: AclOperation) -> list[AclBinding]:
    return [AclBinding(ResourceType.TOPIC, "*", "", operation)]


def on_group(operation: AclOperation, group: str = "g") -> list[AclBinding]:
    return [AclBinding(ResourceType.GROUP, group, "", operation)]


def on_cluster(operation: AclOperation) -> list[AclBinding]:
    return [AclBinding(ResourceType.CLUSTER, CLUSTER_NAME, "", operation)]


def on_transactions(operation: AclOperation) -> list[AclBinding]:
    return [AclBinding(ResourceType.TRANSACTIONAL_ID, "*", "", operation)]


# The least rights for the typical request of each API.
RIGHTS = {
    ApiKey.PRODUCE: on_topics(WRITE),
    ApiKey.FETCH: on_topics(READ),
    ApiKey.LIST_OFFSETS: on_topics(DESCRIBE),
    ApiKey.METADATA: on_topics(DESCRIBE) + on_topics(CREATE),
    ApiKey.OFFSET_COMMIT: on_group(READ) + on_topics(READ),
    ApiKey.OFFSET_FETCH: on_group(DESCRIBE) + on_topics(DESCRIBE),
    ApiKey.FIND_COORDINATOR: on_group(DESCRIBE),
    ApiKey.JOIN_GROUP: on_group(READ),
    ApiKey.HEARTBEAT: on_group(READ),
    ApiKey.LEAVE_GROUP: on_group(READ),
    ApiKey.SYNC_GROUP: on_group(READ),
    ApiKey.DESCRIBE_GROUPS: on_group(DESCRIBE),
    ApiKey.LIST_GROUPS: on_group(DESCRIBE),
    ApiKey.CREATE_TOPICS: on_topics(CREATE),
    ApiKey.DELETE_TOPICS: on_topics(DELETE),
    ApiKey.DELETE_RECORDS: on_topics(DELETE),
    ApiKey.INIT_PRODUCER_ID: on_topics(WRITE),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: on_topics(DESCRIBE),
    ApiKey.ADD_PARTITIONS_TO_TXN: on_transactions(WRITE) + on_topics(WRITE),
    ApiKey.ADD_OFFSETS_TO_TXN: on_transactions(WRITE) + on_group(READ),
    ApiKey.END_TXN: on_transactions(WRITE),
    ApiKey.TXN_OFFSET_COMMIT: on_transactions(WRITE) + on_group(READ) + on_topics(READ),
    ApiKey.DESCRIBE_ACLS: on_cluster(DESCRIBE),
    ApiKey.CREATE_ACLS: on_cluster(ALTER),
    ApiKey.DELETE_ACLS: on_cluster(ALTER),
    ApiKey.DESCRIBE_CONFIGS: on_topics(DESCRIBE_CONFIGS) + on_cluster(DESCRIBE_CONFIGS),
    ApiKey.ALTER_CONFIGS: on_topics(ALTER_CONFIGS),
    ApiKey.DESCRIBE_LOG_DIRS: on_cluster(DESCRIBE),
    ApiKey.CREATE_PARTITIONS: on_topics(ALTER),
    ApiKey.CREATE_DELEGATION_TOKEN: [],
    ApiKey.RENEW_DELEGATION_TOKEN: [],
    ApiKey.EXPIRE_DELEGATION_TOKEN: [],
    ApiKey.DESCRIBE_DELEGATION_TOKEN: [],
    ApiKey.DELETE_GROUPS: on_group(DELETE),
    ApiKey.ELECT_LEADERS: on_cluster(ALTER),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: on_topics(ALTER_CONFIGS),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: on_cluster(ALTER),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: on_cluster(DESCRIBE),
    ApiKey.OFFSET_DELETE: on_group(DELETE) + on_topics(READ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: on_cluster(DESCRIBE_CONFIGS),
    ApiKey.ALTER_CLIENT_QUOTAS: on_cluster(ALTER_CONFIGS),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: on_cluster(DESCRIBE),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: on_cluster(ALTER),
    ApiKey.DESCRIBE_CLUSTER: on_cluster(DESCRIBE),
    ApiKey.DESCRIBE_PRODUCERS: on_topics(READ),
    ApiKey.DESCRIBE_TRANSACTIONS: on_transactions(DESCRIBE),
    ApiKey.LIST_TRANSACTIONS: on_transactions(DESCRIBE),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: on_group(READ) + on_topics(DESCRIBE),
    ApiKey.CONSUMER_GROUP_DESCRIBE: on_group(DESCRIBE) + on_topics(DESCRIBE),
    ApiKey.SHARE_GROUP_HEARTBEAT: on_group(READ, "s") + on_topics(DESCRIBE),
    ApiKey.SHARE_GROUP_DESCRIBE: on_group(DESCRIBE, "unknown"),
    ApiKey.SHARE_FETCH: on_group(READ, "s") + on_topics(READ),
    ApiKey.SHARE_ACKNOWLEDGE: on_group(READ, "s"),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: on_group(DESCRIBE, "s") + on_topics(DESCRIBE),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: on_group(READ, "s2") + on_topics(READ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: on_group(DELETE, "s2") + on_topics(READ),
    ApiKey.LIST_CONFIG_RESOURCES: on_cluster(DESCRIBE_CONFIGS),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: on_topics(DESCRIBE),
}
# Come last, since they change what the others see.
LAST = [ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS]
ORDER = [*(key for key in RIGHTS if key not in LAST), *LAST]
OPEN = {
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.API_VERSIONS,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
}
# The newest for clients, or whose requests name topics.
USUAL_VERSIONS = {
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 9,
    ApiKey.TXN_OFFSET_COMMIT: 5,
}
USERS = {
    "stranger": [],
    **{key.name: RIGHTS[key] for key in ORDER},
    **{
        f"{key.name}-{missing}": RIGHTS[key][:missing] + RIGHTS[key][missing + 1 :]
        for key in ORDER
        for missing in range(len(RIGHTS[key]))
        if len(RIGHTS[key]) > 1
    },
}
PASSWORD = "pencil"
PASSWORDS = dict.fromkeys(USERS, PASSWORD)


@pytest.fixture(scope="module")
def guarded() -> Iterator[RealKafka]:
    """A broker that lets only its own listener's anonymous clients do everything."""
    with RealKafka(
        listeners=[Listener("SASL_PLAINTEXT", mechanisms=["PLAIN"], plain_users=PASSWORDS)],
        settings={
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        },
    ) as running:
        yield running


@pytest.fixture
async def embedded() -> AsyncIterator[EmbeddedCluster]:
    security = BrokerSecurity(users=PASSWORDS, mechanisms=("PLAIN",))
    async with EmbeddedCluster(security=security, authorizer=Authorizer()) as running:
        running.create_topic("t")
        yield running


@asynccontextmanager
async def logged_in(user: str, *addresses: str) -> AsyncIterator[list[RawClient]]:
    """Connections as a user."""
    async with AsyncExitStack() as stack:
        clients = []
        for address in addresses:
            client = await stack.enter_async_context(RawClient(address))
            await client.call(SaslHandshakeRequest("PLAIN"), 1)
            login = SaslAuthenticateRequest(f"\0{user}\0{PASSWORD}".encode())
            assert (await client.call(login, 2)).error_code == 0
            clients.append(client)
        yield clients


def test_every_api_is_compared() -> None:
    assert set(HANDLERS) - OPEN == set(RIGHTS)


@pytest.mark.kafka
async def test_both_brokers_refuse_the_same(guarded: RealKafka, embedded: EmbeddedCluster) -> None:
    real = guarded.bootstrap_servers_of("SASL_PLAINTEXT")
    created = await create_topics_with_leaders(guarded.bootstrap_servers, CreatableTopic("t", 1, 1))
    async with Admin(guarded.bootstrap_servers) as admin:
        ids = created["t"], embedded.topics["t"].topic_id
        await grant(admin, embedded)
        await admin.list_consumer_group_offsets("g")  # wait for the coordinator
        asked: list[tuple[str, int, int, str]] = [
            ("stranger", key, version, "none") for key, version in EVERY_VERSION if key not in OPEN
        ]
        for key in ORDER:
            version = USUAL_VERSIONS.get(key, HANDLERS[key].versions[1])
            users = [user for user in USERS if user.startswith(f"{key.name}-")]
            asked += [(user, key, version, "some") for user in users]
            asked += [(key.name, key, version, "all")]
        differences = []
        for user, api, version, rights in asked:
            async with logged_in(user, real, embedded.bootstrap_servers) as clients:
                found = await compare(clients, api, version, ids, rights)
                if found:
                    differences.append(f"{user}: {found}")
        assert not differences, "\n".join(differences)


async def grant(admin: Admin, embedded: EmbeddedCluster) -> None:
    """Give all users their rights on both brokers."""
    acls = [
        acl._replace(principal=f"User:{user}") for user, rights in USERS.items() for acl in rights
    ]
    (await admin.create_acls(acls)).check()
    async with asyncio.timeout(20):
        while set(await admin.describe_acls()) != set(acls):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    for acl in acls:
        resources = {
            ResourceType.TOPIC: "topic",
            ResourceType.GROUP: "group",
            ResourceType.TRANSACTIONAL_ID: "transactional_id",
        }
        named = resources.get(acl.resource_type)
        embedded.allow(
            acl.principal,
            acl.operation,
            **({} if named is None else {named: acl.resource_name}),  # type: ignore[arg-type]
        )
    assert set(embedded.acls) == set(acls)


async def compare(
    clients: list[RawClient],
    key: int,
    version: int,
    ids: tuple[uuid.UUID, uuid.UUID],
    rights: str,
) -> str:
    """Send a request to both brokers; return how the answers differ, or an empty text. With all
    rights neither may refuse it, and with some both refuse something.
    """
    answers = []
    for client, topic_id in zip(clients, ids, strict=True):
        request = typical_request(key, version, topic_id)
        if isinstance(request, ProduceRequest):  # else Kafka never answers
            request.topic_data[0].partition_data[0].records = make_batch([b"tea"])
        answers.append(await client.call(request, version))
    theirs, ours = answers
    refused = [REFUSALS & error_codes(answer) for answer in answers]
    agree = {
        "none": comparable(theirs) == comparable(ours),
        # OffsetDelete looks at topics only if the group exists.
        "some": refused[0] == refused[1] and (any(refused) or key == ApiKey.OFFSET_DELETE),
        "all": not any(refused),
    }[rights]
    return "" if agree else f"{ApiKey(key).name} {version}:\n  {theirs}\n  {ours}"
