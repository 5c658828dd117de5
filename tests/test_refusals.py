"""A client that is not authorized learns which operation was refused, on what, and whom to grant
it.
"""

from __future__ import annotations

import inspect
import pickle
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509

from aioprod import (
    Admin,
    BrokerError,
    Consumer,
    ConsumerGroupMetadata,
    ErrorCode,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from aioprod.admin import (
    AclBinding,
    AclFilter,
    AclOperation,
    ClientQuotaEntity,
    ConfigResource,
    ConfigResourceType,
    ElectionType,
    NewTopic,
    OffsetSpec,
    ResourceType,
    Results,
    ScramPassword,
)
from aioprod.config.producer import ProducerConfig
from aioprod.errors import copy_of
from aioprod.net.refusals import OPERATIONS, UNNAMED, explain, principal_of
from aioprod.testing import ApiKey, Authorizer, BrokerSecurity, EmbeddedCluster, fail

ALICE = "User:alice"
T0 = TopicPartition("t", 0)
LOGIN: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_username": "alice",
    "sasl_password": "pencil",
}


@pytest.fixture
async def guarded() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(
        security=BrokerSecurity(users={"alice": "pencil"}), authorizer=Authorizer()
    ) as broker:
        broker.create_topic("t")
        yield broker


def refusal(operation: str, kind: str, grant: str = "") -> str:
    return f"not authorized for {operation} on the {kind}; grant {grant or operation} to User:alice"


ACL = AclBinding(ResourceType.TOPIC, "t", ALICE, AclOperation.READ)
TOPIC = ConfigResource(ConfigResourceType.TOPIC, "t")
BROKER = ConfigResource(ConfigResourceType.BROKER, "1")
QUOTA = ClientQuotaEntity(client_id="c")
FIND_GROUP = ("DESCRIBE", "group", "READ, which includes it,")
FIND_ID = ("DESCRIBE", "transactional id", "WRITE, which includes it,")
KNOW_TOPIC = ("DESCRIBE", "topic", "READ or WRITE, which include it,")
Call = Callable[[Admin], Awaitable[Any]]
# The calls of Admin, what their errors name, and the operations that are refused one after the
# other, each after the previous one was granted.
ADMIN: dict[str, tuple[Call, str, list[tuple[str, ...]]]] = {
    "create_acls": (
        lambda a: a.create_acls([ACL]),
        "User:alice READ TOPIC t",
        [("ALTER", "cluster")],
    ),
    "describe_acls": (lambda a: a.describe_acls(), "describe_acls", [("DESCRIBE", "cluster")]),
    "delete_acls": (
        lambda a: a.delete_acls([AclFilter()]),
        "delete_acls: ANY",
        [("ALTER", "cluster")],
    ),
    "describe_log_dirs": (
        lambda a: a.describe_log_dirs([1]),
        "log directories of broker 1",
        [("DESCRIBE", "cluster")],
    ),
    "find_coordinator": (lambda a: a.find_coordinator("g"), "group 'g'", [FIND_GROUP]),
    "describe_configs": (
        lambda a: a.describe_configs([TOPIC]),
        "topic t",
        [("DESCRIBE_CONFIGS", "topic")],
    ),
    "describe_configs of a broker": (
        lambda a: a.describe_configs([BROKER]),
        "broker 1",
        [("DESCRIBE_CONFIGS", "cluster")],
    ),
    "incremental_alter_configs": (
        lambda a: a.incremental_alter_configs({TOPIC: {"retention.ms": "5"}}),
        "topic t",
        [("ALTER_CONFIGS", "topic")],
    ),
    "describe_consumer_groups": (lambda a: a.describe_consumer_groups(["g"]), "'g'", [FIND_GROUP]),
    "delete_consumer_groups": (
        lambda a: a.delete_consumer_groups(["g"]),
        "group '?g'?",
        [FIND_GROUP, ("DELETE", "group")],
    ),
    "describe_share_groups": (lambda a: a.describe_share_groups(["g"]), "'g'", [FIND_GROUP]),
    "list_share_group_offsets": (
        lambda a: a.list_share_group_offsets("g"),
        "'g'",
        [FIND_GROUP],
    ),
    "alter_share_group_offsets": (
        lambda a: a.alter_share_group_offsets("g", {T0: 0}),
        "group '?g'?",
        [FIND_GROUP, ("READ", "group"), ("READ", "topic")],
    ),
    "delete_share_group_offsets": (
        lambda a: a.delete_share_group_offsets("g", ["t"]),
        "group '?g'?",
        [FIND_GROUP, ("DELETE", "group")],
    ),
    "remove_members_from_consumer_group": (
        lambda a: a.remove_members_from_consumer_group("g", ["i"]),
        "group '?g'?",
        [FIND_GROUP, ("READ", "group")],
    ),
    "list_consumer_group_offsets": (
        lambda a: a.list_consumer_group_offsets("g", [T0]),
        "group '?g'?",
        [FIND_GROUP, ("DESCRIBE", "topic")],
    ),
    "alter_consumer_group_offsets": (
        lambda a: a.alter_consumer_group_offsets("g", {T0: 0}),
        "group '?g'?|t-0",
        [FIND_GROUP, ("READ", "group"), ("READ", "topic")],
    ),
    "delete_consumer_group_offsets": (
        lambda a: a.delete_consumer_group_offsets("g", [T0]),
        "group '?g'?",
        [FIND_GROUP, ("DELETE", "group")],
    ),
    "list_offsets": (lambda a: a.list_offsets({T0: OffsetSpec.LATEST}), "topic 't'", [KNOW_TOPIC]),
    "delete_records": (
        lambda a: a.delete_records({T0: 0}),
        "topic 't'|t-0",
        [KNOW_TOPIC, ("DELETE", "topic")],
    ),
    "describe_producers": (
        lambda a: a.describe_producers([T0]),
        "topic 't'|t-0",
        [KNOW_TOPIC, ("READ", "topic")],
    ),
    "describe_client_quotas": (
        lambda a: a.describe_client_quotas(),
        "describe_client_quotas",
        [("DESCRIBE_CONFIGS", "cluster")],
    ),
    "alter_client_quotas": (
        lambda a: a.alter_client_quotas({QUOTA: {"producer_byte_rate": 5.0}}),
        "c",
        [("ALTER_CONFIGS", "cluster")],
    ),
    "elect_leaders": (
        lambda a: a.elect_leaders(ElectionType.PREFERRED, [T0]),
        "elect_leaders",
        [("ALTER", "cluster")],
    ),
    "alter_partition_reassignments": (
        lambda a: a.alter_partition_reassignments({T0: [1]}),
        "alter_partition_reassignments",
        [("ALTER", "cluster")],
    ),
    "list_partition_reassignments": (
        lambda a: a.list_partition_reassignments(),
        "list_partition_reassignments",
        [("DESCRIBE", "cluster")],
    ),
    "create_topics": (lambda a: a.create_topics([NewTopic("n")]), "topic n", [("CREATE", "topic")]),
    "delete_topics": (lambda a: a.delete_topics(["t"]), "topic t", [("DELETE", "topic")]),
    "create_partitions": (
        lambda a: a.create_partitions({"t": 2}),
        "topic t",
        [("ALTER", "topic")],
    ),
    "describe_topics": (lambda a: a.describe_topics(["t"]), "topic t", [("DESCRIBE", "topic")]),
    "describe_transactions": (lambda a: a.describe_transactions(["x"]), "'x'", [FIND_ID]),
    "fence_producers": (
        lambda a: a.fence_producers(["x"]),
        "transaction(al id)? 'x'",
        [FIND_ID, ("WRITE", "transactional id")],
    ),
    "describe_user_scram_credentials": (
        lambda a: a.describe_user_scram_credentials(),
        "describe_user_scram_credentials",
        [("DESCRIBE", "cluster")],
    ),
    "alter_user_scram_credentials": (
        lambda a: a.alter_user_scram_credentials([ScramPassword("bob", "one")]),
        "bob",
        [("ALTER", "cluster")],
    ),
}
# They leave out what the client may not see.
NEVER_REFUSED = {"describe_cluster", "list_groups", "list_topics", "list_transactions"}
# The embedded broker gives out no tokens.
TOKENS = {
    "create_delegation_token",
    "describe_delegation_tokens",
    "expire_delegation_token",
    "renew_delegation_token",
}


def allow(broker: EmbeddedCluster, operation: str, kind: str) -> None:
    names = {"topic": "topic", "group": "group", "transactional id": "transactional_id"}
    named: dict[str, Any] = {names[kind]: "*"} if kind in names else {}
    broker.allow(ALICE, AclOperation[operation], **named)


async def error_of(call: Awaitable[Any]) -> BrokerError:
    with pytest.raises(BrokerError) as raised:
        result = await call
        if isinstance(result, Results):
            result.check()
    return raised.value


def test_every_call_of_admin_is_in_the_table() -> None:
    calls = {
        name
        for name, _ in inspect.getmembers(Admin, inspect.iscoroutinefunction)
        if not name.startswith("_")
    } - {"start", "stop", "close", "client_instance_id"}
    tested = set(ADMIN) - {"describe_configs of a broker"}
    assert calls == tested | NEVER_REFUSED | TOKENS
    assert calls - NEVER_REFUSED - TOKENS <= set(OPERATIONS)


@pytest.mark.parametrize("name", ADMIN)
async def test_calls_of_admin(guarded: EmbeddedCluster, name: str) -> None:
    call, named, refused = ADMIN[name]
    async with Admin(guarded.bootstrap_servers, **LOGIN) as admin:
        for operation, kind, *grant in refused:
            text = str(await error_of(call(admin)))
            assert refusal(operation, kind, *grant) in text
            assert re.search(named, text.partition("AUTHORIZATION_FAILED")[0])
            allow(guarded, operation, kind)
        result = await call(admin)
        if isinstance(result, Results):
            refusals = [error for error in result.errors.values() if "AUTHORIZATION" in str(error)]
            assert not refusals or name == "list_consumer_group_offsets"


async def test_a_producer(guarded: EmbeddedCluster) -> None:
    async with Producer(guarded.bootstrap_servers, enable_idempotence=False, **LOGIN) as producer:
        text = str(await error_of(producer.send_and_wait("t", b"1")))
        assert text.startswith("topic 't': ") and refusal(*KNOW_TOPIC) in text
    allow(guarded, "DESCRIBE", "topic")
    async with Producer(guarded.bootstrap_servers, enable_idempotence=False, **LOGIN) as producer:
        text = str(await error_of(producer.send_and_wait("t", b"1")))
        assert text.startswith("1 record to t-0: ") and refusal("WRITE", "topic") in text
    async with Producer(guarded.bootstrap_servers, **LOGIN) as producer:
        text = str(await error_of(producer.send_and_wait("t", b"1")))
        assert refusal("IDEMPOTENT_WRITE", "cluster") in text


async def test_a_transaction(guarded: EmbeddedCluster) -> None:
    async def start() -> None:
        async with Producer(guarded.bootstrap_servers, transactional_id="x", **LOGIN):
            pass

    text = str(await error_of(start()))
    assert "transactional_id='x'" in text and refusal(*FIND_ID) in text
    allow(guarded, "DESCRIBE", "transactional id")
    text = str(await error_of(start()))
    assert "transactional_id='x'" in text and refusal("WRITE", "transactional id") in text
    allow(guarded, "WRITE", "transactional id")
    async with Producer(guarded.bootstrap_servers, transactional_id="x", **LOGIN) as producer:
        group = ConsumerGroupMetadata("g")

        async def send_offsets() -> None:
            async with producer.transaction():
                await producer.send_offsets_to_transaction({T0: OffsetAndMetadata(1)}, group)

        text = str(await error_of(send_offsets()))
        assert "group 'g'" in text and refusal(*FIND_GROUP) in text
        allow(guarded, "DESCRIBE", "group")
        text = str(await error_of(send_offsets()))
        assert "group 'g'" in text and refusal("READ", "group") in text
        allow(guarded, "READ", "group")
        text = str(await error_of(send_offsets()))
        assert "topic 't'" in text and refusal("READ", "topic") in text


async def test_the_first_transaction_protocol_names_the_topic() -> None:
    async with EmbeddedCluster(
        security=BrokerSecurity(users={"alice": "pencil"}),
        authorizer=Authorizer(),
        transaction_version=1,
    ) as broker:
        broker.create_topic("t")
        allow(broker, "WRITE", "transactional id")
        allow(broker, "DESCRIBE", "topic")

        async def send() -> None:
            async with (
                Producer(broker.bootstrap_servers, transactional_id="x", **LOGIN) as producer,
                producer.transaction(),
            ):
                await producer.send_and_wait("t", b"1")

        text = str(await error_of(send()))
        assert "topic 't'" in text and refusal("WRITE", "topic") in text


async def test_a_consumer(guarded: EmbeddedCluster) -> None:
    settings: dict[str, Any] = {"bootstrap_servers": guarded.bootstrap_servers, **LOGIN}

    async def read(*topics: str, **more: Any) -> None:
        async with Consumer(*topics, **settings, **more) as consumer:
            if not topics:
                consumer.assign([T0])
                consumer.seek(T0, 0)
            await consumer.getone()

    text = str(await error_of(read()))
    assert "topic 't'" in text and refusal(*KNOW_TOPIC) in text
    allow(guarded, "DESCRIBE", "topic")
    text = str(await error_of(read()))
    assert "fetch from t-0" in text and refusal("READ", "topic") in text
    text = str(await error_of(read("t", group_id="g")))
    assert "group 'g'" in text and refusal(*FIND_GROUP) in text
    allow(guarded, "DESCRIBE", "group")
    text = str(await error_of(read("t", group_id="g")))
    assert "group 'g'" in text and refusal("READ", "group") in text
    allow(guarded, "READ", "group")

    async with Consumer(group_id="g", **settings) as consumer:
        consumer.assign([T0])
        text = str(await error_of(consumer.commit({T0: OffsetAndMetadata(1)})))
        assert "t-0 in group 'g'" in text and refusal("READ", "topic") in text


# The subjects of requests whose refusals no test above meets.
@pytest.mark.parametrize(
    ("key", "code", "operation"),
    [
        (ApiKey.LIST_OFFSETS, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "DESCRIBE"),
        (ApiKey.OFFSET_FETCH, ErrorCode.GROUP_AUTHORIZATION_FAILED, "DESCRIBE"),
        (ApiKey.SYNC_GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED, "READ"),
        (ApiKey.HEARTBEAT, ErrorCode.GROUP_AUTHORIZATION_FAILED, "READ"),
    ],
)
async def test_rights_that_are_taken_away(
    broker: EmbeddedCluster, key: ApiKey, code: ErrorCode, operation: str
) -> None:
    """Without a user name, the principal is not known."""
    broker.create_topic("t")
    broker.on_every(key, fail(code))

    async def read() -> None:
        async with Consumer(
            "t",
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            heartbeat_interval_ms=100,
            enable_auto_commit=False,
        ) as consumer:
            await consumer.getone()

    text = str(await error_of(read()))
    assert f"not authorized for {operation} on the " in text
    assert text.endswith("to the client's principal")


def test_the_principal_of_a_certificate(tmp_path: Path) -> None:
    own = trustme.CA().issue_cert("client@example.com", common_name="alice")
    path = tmp_path / "identity.pem"
    own.private_key_and_cert_chain_pem.write_to_path(str(path))
    config = ProducerConfig(security_protocol="SSL", ssl_keystore_location=str(path))
    subject = x509.load_pem_x509_certificate(own.cert_chain_pems[0].bytes()).subject
    assert principal_of(config) == f"User:{subject.rfc4514_string()}"
    path.write_text("no certificate")
    assert principal_of(config) == UNNAMED
    assert principal_of(ProducerConfig()) == UNNAMED


def test_an_explained_error_can_be_copied() -> None:
    error = BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic 't'")
    explained = explain(error, "Fetch", ALICE)
    assert explained is error and error.is_explained
    copies = (copy_of(error), pickle.loads(pickle.dumps(error)))
    assert all(str(each) == str(error) and each.code is error.code for each in copies)
    assert str(explain(error, "Produce", "other")) == str(copies[0])
    other = BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic 't'")
    assert "grant" not in str(explain(other, "Fetch", ALICE))
