"""ACLs and SCRAM users: a real broker with an authorizer, and confluent-kafka."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from confluent_kafka import admin as foreign

from aioprod import Admin, BrokerError, ConfigError, ErrorCode, Producer
from aioprod.admin import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    NewTopic,
    PatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    ScramPassword,
    ScramRemoval,
)
from aioprod.config.client import ClientConfig
from aioprod.errors import AuthenticationError, UnsupportedVersionError
from aioprod.net.handshake import connect
from aioprod.protocol.message import Message, Request
from aioprod.protocol.messages.api_versions import ApiVersionsResponse
from aioprod.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from aioprod.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from aioprod.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from aioprod.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from aioprod.testing import ApiKey, BrokerSecurity, EmbeddedCluster, change_answer
from aioprod.testing.kafka_listener import Listener
from aioprod.testing.real_kafka import RealKafka
from tests.testing.both_brokers import comparable

WRITE = AclBinding(ResourceType.TOPIC, "orders", "User:alice", AclOperation.WRITE)
BILLS = AclBinding(
    ResourceType.GROUP,
    "bills-",
    "User:*",
    AclOperation.READ,
    AclPermission.DENY,
    PatternType.PREFIXED,
    "127.0.0.2",
)


@pytest.fixture(scope="module")
def guarded() -> Iterator[RealKafka]:
    """A broker that lets only its own listener's anonymous clients do everything."""
    with RealKafka(
        listeners=[Listener("SASL_PLAINTEXT", mechanisms=["SCRAM-SHA-256", "SCRAM-SHA-512"])],
        settings={
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        },
    ) as running:
        yield running


@pytest.fixture
async def admin(guarded: RealKafka) -> AsyncIterator[Admin]:
    async with Admin(guarded.bootstrap_servers) as running:
        yield running


@pytest.mark.kafka
async def test_a_user_with_a_password_may_do_what_an_acl_allows(
    guarded: RealKafka, admin: Admin
) -> None:
    await admin.create_topics(NewTopic("orders"))
    alice = Producer(
        guarded.bootstrap_servers_of("SASL_PLAINTEXT"),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username="alice",
        sasl_password="first",
        max_block_ms=5_000,
        enable_idempotence=False,
        enable_metrics_push=False,
    )
    (await admin.alter_user_scram_credentials([ScramPassword("alice", "first")])).check()
    await until_known(guarded, "alice", "first")
    async with alice:
        with pytest.raises(BrokerError, match="orders") as refused:
            await alice.send_and_wait("orders", b"1")
        assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        (await admin.create_acls([WRITE, BILLS])).check()
        (await admin.create_acls([WRITE])).check()  # again
        while True:  # until the broker has it
            try:
                await alice.send_and_wait("orders", b"2")
                break
            except BrokerError as error:
                assert error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED

    assert sorted(await admin.describe_acls(), key=str) == sorted([WRITE, BILLS], key=str)
    assert await admin.describe_acls(AclFilter(principal="User:alice")) == [WRITE]
    matching = AclFilter(
        ResourceType.GROUP, "bills-2026", pattern_type=PatternType.MATCH, host="127.0.0.2"
    )
    assert await admin.describe_acls(matching) == [BILLS]
    assert await admin.describe_acls(matching._replace(resource_name="other")) == []
    assert await seen_by_confluent(guarded) == {
        ("TOPIC", "orders", "LITERAL", "User:alice", "*", "WRITE", "ALLOW"),
        ("GROUP", "bills-", "PREFIXED", "User:*", "127.0.0.2", "READ", "DENY"),
    }
    alices, missing = AclFilter(principal="User:alice"), AclFilter(principal="User:carol")
    deleted = await admin.delete_acls([alices, missing])
    assert dict(deleted) == {alices: [WRITE], missing: []}


async def seen_by_confluent(guarded: RealKafka) -> set[tuple[str, ...]]:
    client = foreign.AdminClient({"bootstrap.servers": guarded.bootstrap_servers})
    anything: Any = foreign  # its types lack some names
    everything = anything.AclBindingFilter(
        anything.ResourceType.ANY,
        None,
        anything.ResourcePatternType.ANY,
        None,
        None,
        anything.AclOperation.ANY,
        anything.AclPermissionType.ANY,
    )
    found = await asyncio.to_thread(client.describe_acls(everything).result, 20)
    return {
        (
            acl.restype.name,
            acl.name,
            acl.resource_pattern_type.name,
            acl.principal,
            acl.host,
            acl.operation.name,
            acl.permission_type.name,
        )
        for acl in found
    }


async def until_known(guarded: RealKafka, user: str, password: str) -> None:
    """Wait until the broker has learned from the controller of a user's password."""
    client = Admin(
        guarded.bootstrap_servers_of("SASL_PLAINTEXT"),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username=user,
        sasl_password=password,
        enable_metrics_push=False,
    )
    async with asyncio.timeout(20):
        while True:
            try:
                async with client:
                    return
            except AuthenticationError:
                await asyncio.sleep(0.02)


async def until_bob_has(admin: Admin, count: int) -> None:
    """Wait until the brokers have learned from the controller of that many credentials."""
    async with asyncio.timeout(20):
        while len((await admin.describe_user_scram_credentials()).get("bob", ())) != count:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@pytest.mark.kafka
async def test_credentials_are_set_described_and_removed(guarded: RealKafka, admin: Admin) -> None:
    short = ScramMechanism.SCRAM_SHA_256
    changes = [ScramPassword("bob", "one"), ScramPassword("bob", "two", short, 4_096)]
    with pytest.raises(ConfigError, match="several changes of user 'bob'"):
        await admin.alter_user_scram_credentials(changes)
    for change in changes:
        (await admin.alter_user_scram_credentials([change])).check()
    both = (ScramCredentialInfo(short, 4_096), ScramCredentialInfo(ScramMechanism(2), 8_192))
    await until_bob_has(admin, 2)
    found = await admin.describe_user_scram_credentials(["bob", "carol"])
    assert sorted(found["bob"]) == sorted(both)
    with pytest.raises(BrokerError, match="user carol") as raised:
        found.check()
    assert raised.value.code is ErrorCode.RESOURCE_NOT_FOUND
    assert sorted((await admin.describe_user_scram_credentials())["bob"]) == sorted(both)

    changed = await admin.alter_user_scram_credentials(
        [ScramRemoval("bob"), ScramRemoval("carol", short)]
    )
    assert list(changed.successes) == ["bob"]
    with pytest.raises(BrokerError, match="RESOURCE_NOT_FOUND"):
        changed.check()
    await until_bob_has(admin, 1)
    assert (await admin.describe_user_scram_credentials(["bob"]))["bob"] == both[:1]
    for password, right in (("two", True), ("one", False)):
        bob = Admin(
            guarded.bootstrap_servers_of("SASL_PLAINTEXT"),
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-256",
            sasl_username="bob",
            sasl_password=password,
            enable_metrics_push=False,
        )
        if right:
            async with bob:
                with pytest.raises(BrokerError) as denied:
                    await bob.describe_acls()
                assert denied.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        else:
            with pytest.raises(AuthenticationError):
                await bob.start()


@pytest.mark.kafka
async def test_tokens_are_refused_by_the_embedded_broker_as_by_a_real_one(
    guarded: RealKafka, admin: Admin
) -> None:
    (await admin.alter_user_scram_credentials([ScramPassword("dora", "pencil")])).check()
    await until_known(guarded, "dora", "pencil")
    requests: list[Request[Any]] = [
        CreateDelegationTokenRequest(renewers=[CreatableRenewers("User", "bob")]),
        CreateDelegationTokenRequest("User", "dora"),
        RenewDelegationTokenRequest(b"hmac", 5),
        ExpireDelegationTokenRequest(b"hmac", -1),
        DescribeDelegationTokenRequest(),
        DescribeDelegationTokenRequest(owners=None),
    ]
    plain = ClientConfig()
    dora = ClientConfig(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username="dora",
        sasl_password="pencil",
    )
    real = {plain: guarded.bootstrap_servers, dora: guarded.bootstrap_servers_of("SASL_PLAINTEXT")}
    for config in (plain, dora):
        security = BrokerSecurity(users={"dora": "pencil"}) if config.uses_sasl else None
        async with EmbeddedCluster(security=security) as embedded:
            ours = await answers(embedded.bootstrap_servers, config, requests)
        assert ours == await answers(real[config], config, requests)
        assert len(ours) == 14
        assert {reply["error_code"] for reply in ours.values()} == {
            int(
                ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
                if config.uses_sasl
                else ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
            )
        }


async def answers(
    servers: str, config: ClientConfig, requests: list[Request[Any]]
) -> dict[str, dict[str, Any]]:
    """The answers to requests in all versions, without what may differ."""
    host, _, port = servers.rpartition(":")
    connection = await connect(host, int(port), config)
    found = {}
    for request in requests:
        own = isinstance(request, CreateDelegationTokenRequest) and request.owner_principal_name
        for version in range(3 if own else request.MIN_VERSION, request.MAX_VERSION + 1):
            reply = await connection.request(request, version=version)
            found[f"{request} v{version}"] = comparable(reply)
    await connection.close()
    return found


@pytest.mark.kafka
async def test_a_cluster_without_an_authorizer_says_so(kafka: str) -> None:
    async with Admin(kafka) as admin:
        with pytest.raises(BrokerError, match="describe_acls") as raised:
            await admin.describe_acls()
        assert raised.value.code is ErrorCode.SECURITY_DISABLED
        created = await admin.create_acls([WRITE])
        assert str(WRITE) in str(created.errors[WRITE])


async def test_a_broker_without_these_requests_is_named(broker: EmbeddedCluster) -> None:
    def forget(answer: Message) -> None:
        assert isinstance(answer, ApiVersionsResponse)
        answer.api_keys = [
            api
            for api in answer.api_keys
            if api.api_key not in (ApiKey.DESCRIBE_ACLS, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
        ]

    broker.on_every(ApiKey.API_VERSIONS, change_answer(forget))
    async with Admin(broker.bootstrap_servers) as admin:
        with pytest.raises(UnsupportedVersionError, match="DescribeAclsRequest"):
            await admin.describe_acls()
        with pytest.raises(UnsupportedVersionError, match="DescribeUserScramCredentialsRequest"):
            await admin.describe_user_scram_credentials()


async def test_what_is_only_for_filters_is_refused(broker: EmbeddedCluster) -> None:
    async with Admin(broker.bootstrap_servers) as admin:
        for wrong in (
            WRITE._replace(operation=AclOperation.ANY),
            WRITE._replace(pattern_type=PatternType.MATCH),
            WRITE._replace(resource_type=ResourceType.UNKNOWN),
        ):
            with pytest.raises(ConfigError, match="only valid in filters"):
                await admin.create_acls([wrong])


def test_passwords_are_checked_and_hidden() -> None:
    assert "hush" not in repr(ScramPassword("alice", "hush"))
    for wrong in (
        {"password": ""},
        {"iterations": 4_095},
        {"iterations": 16_385},
        {"mechanism": ScramMechanism.UNKNOWN},
    ):
        with pytest.raises(ConfigError):
            ScramPassword(**{"user": "alice", "password": "hush", **wrong})  # type: ignore[arg-type]
