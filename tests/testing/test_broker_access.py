"""The embedded broker's authorizer: what ACLs allow, and the rights that each API needs."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509

from aioprod import Admin, BrokerError, ConfigError, ErrorCode, Producer
from aioprod.admin import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
    ScramMechanism,
    ScramPassword,
    ScramRemoval,
)
from aioprod.errors import AuthenticationError
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.messages.join_group import JoinGroupRequest
from aioprod.protocol.messages.list_groups import ListGroupsRequest
from aioprod.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from aioprod.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from aioprod.protocol.messages.sasl_handshake import SaslHandshakeRequest
from aioprod.testing import Authorizer, BrokerSecurity, EmbeddedCluster
from aioprod.testing.broker.access.rules import RULES
from aioprod.testing.broker.handlers import HANDLERS
from tests.testing.both_brokers import error_codes
from tests.testing.raw_client import RawClient
from tests.testing.raw_group import group_requests
from tests.testing.test_broker_apis import EVERY_VERSION, typical_request

READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
TOPIC = ResourceType.TOPIC
ALICE, ANYBODY = "User:alice", "User:*"
REFUSALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
# Need no right, or leave out what the client may not see.
OPEN = {
    ApiKey.API_VERSIONS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.LIST_GROUPS,
    ApiKey.LIST_TRANSACTIONS,
}


def acl(
    name: str = "orders",
    operation: AclOperation = WRITE,
    principal: str = ALICE,
    *,
    deny: bool = False,
    prefixed: bool = False,
    host: str = "*",
) -> AclBinding:
    return AclBinding(
        TOPIC,
        name,
        principal,
        operation,
        AclPermission.DENY if deny else AclPermission.ALLOW,
        PatternType.PREFIXED if prefixed else PatternType.LITERAL,
        host,
    )


@pytest.mark.parametrize(
    ("acls", "operation", "name", "allowed"),
    [
        ([acl()], WRITE, "orders", True),
        ([acl()], WRITE, "order", False),
        ([acl()], WRITE, "orders2", False),
        ([acl()], READ, "orders", False),
        ([acl()], DESCRIBE, "orders", True),
        ([acl(operation=AclOperation.CREATE)], DESCRIBE, "orders", False),
        (
            [acl(operation=AclOperation.ALTER_CONFIGS)],
            AclOperation.DESCRIBE_CONFIGS,
            "orders",
            True,
        ),
        ([acl(operation=AclOperation.ALL)], READ, "orders", True),
        ([acl("ord", prefixed=True)], WRITE, "orders", True),
        ([acl("ord", prefixed=True)], WRITE, "or", False),
        ([acl("*")], WRITE, "orders", True),
        ([acl(principal=ANYBODY)], WRITE, "orders", True),
        ([acl(principal="User:bob")], WRITE, "orders", False),
        ([acl(host="127.0.0.1")], WRITE, "orders", True),
        ([acl(host="127.0.0.2")], WRITE, "orders", False),
        ([acl(), acl("*", principal=ANYBODY, deny=True)], WRITE, "orders", False),
        ([acl(), acl("or", operation=AclOperation.ALL, prefixed=True, deny=True)], WRITE, "o", 0),
        ([acl(), acl(operation=DESCRIBE, deny=True)], DESCRIBE, "orders", False),
        ([acl(), acl(operation=DESCRIBE, deny=True)], WRITE, "orders", True),
        ([acl(), acl(operation=READ, deny=True)], DESCRIBE, "orders", True),
        ([acl(), acl(principal="User:bob", deny=True)], WRITE, "orders", True),
    ],
)
def test_what_acls_allow(
    acls: list[AclBinding], operation: AclOperation, name: str, allowed: bool
) -> None:
    authorizer = Authorizer(acls=acls)
    assert authorizer.allows(ALICE, "127.0.0.1", operation, TOPIC, name) == allowed
    assert Authorizer([ALICE], acls).allows(ALICE, "127.0.0.1", operation, TOPIC, name)


@pytest.mark.parametrize(
    ("acls", "allowed"),
    [
        ([acl()], True),
        ([acl(operation=READ)], False),
        ([acl(), acl(deny=True)], False),
        ([acl(), acl("ord", prefixed=True, deny=True)], False),
        ([acl("o", prefixed=True), acl("ord", prefixed=True, deny=True)], True),
        ([acl("o", prefixed=True), acl("o", deny=True)], True),
        ([acl("o", prefixed=True), acl("*", deny=True)], False),
        ([acl("*"), acl("o", prefixed=True, deny=True)], True),
    ],
)
def test_a_right_to_at_least_one_topic(acls: list[AclBinding], allowed: bool) -> None:
    """Idempotent producers need such an ACL (KIP-679)."""
    assert Authorizer(acls=acls).allows_any(ALICE, "h", WRITE, TOPIC) == allowed


def test_a_resource_without_acls_can_be_open() -> None:
    authorizer = Authorizer(acls=[acl(principal="User:bob")], allow_without_acls=True)
    assert authorizer.allows(ALICE, "h", WRITE, TOPIC, "other")
    assert not authorizer.allows(ALICE, "h", WRITE, TOPIC, "orders")


def test_a_principal_needs_a_type() -> None:
    for make in (
        lambda: Authorizer(["alice"]),
        lambda: Authorizer(acls=[acl(principal="alice")]),
        lambda: EmbeddedCluster(authorizer=Authorizer()).allow("alice", READ, topic="t"),
    ):
        with pytest.raises(ConfigError, match="principal='alice': must be TYPE:NAME"):
            make()
    with pytest.raises(ConfigError, match="authorizer=None"):
        EmbeddedCluster().allow(ALICE, READ, topic="t")
    with pytest.raises(ConfigError, match="at most one"):
        EmbeddedCluster(authorizer=Authorizer()).deny(ALICE, READ, topic="t", group="g")


@pytest.fixture
async def broker() -> AsyncIterator[EmbeddedCluster]:
    """A broker that has all APIs, and clients without rights but root."""
    async with EmbeddedCluster(
        client_metrics=True,
        authorizer=Authorizer(["User:root"]),
        security=BrokerSecurity(users={"alice": "pencil", "root": "secret"}),
    ) as running:
        yield running


async def log_in(client: RawClient, user: str, password: str) -> None:
    await client.call(SaslHandshakeRequest("PLAIN"), 1)
    login = SaslAuthenticateRequest(f"\0{user}\0{password}".encode())
    assert (await client.call(login, 2)).error_code == 0


def test_every_api_has_a_rule() -> None:
    assert set(HANDLERS) <= set(RULES)
    assert set(RULES) - OPEN - set(HANDLERS) <= {
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    }


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION)
async def test_every_version_is_refused_without_rights(
    broker: EmbeddedCluster, key: int, version: int
) -> None:
    topic = broker.create_topic("t")
    if ApiKey(key) in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
        return
    async with RawClient(broker.bootstrap_servers) as client:
        await log_in(client, "alice", "pencil")
        answer = await client.call(typical_request(key, version, topic.topic_id), version)
        refused = REFUSALS & error_codes(answer)
        is_silent = key == ApiKey.DESCRIBE_LOG_DIRS and version < 3  # so is Kafka
        assert bool(refused) == (key not in OPEN and not is_silent), answer
        assert not error_codes(answer) - REFUSALS - MORE_CODES.get(ApiKey(key), {ErrorCode.NONE})
    async with RawClient(broker.bootstrap_servers) as client:
        await log_in(client, "root", "secret")
        answer = await client.call(typical_request(key, version, topic.topic_id), version)
        assert not REFUSALS & error_codes(answer)


# Whole requests have the code NONE, in addition to those of their parts.
MORE_CODES = {
    ApiKey.PUSH_TELEMETRY: {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
        ErrorCode.INVALID_REQUEST,
    },
    ApiKey.LIST_TRANSACTIONS: {ErrorCode.NONE},
    ApiKey.CREATE_DELEGATION_TOKEN: {ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED},
    ApiKey.RENEW_DELEGATION_TOKEN: {ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED},
    ApiKey.EXPIRE_DELEGATION_TOKEN: {ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED},
    ApiKey.DESCRIBE_DELEGATION_TOKEN: {ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED},
}


class TestWhatIsHidden:
    async def test_topics(self, broker: EmbeddedCluster) -> None:
        for name in ("a", "b", "c"):
            broker.create_topic(name)
        broker.allow(ALICE, WRITE, topic="b")
        broker.allow(ALICE, DESCRIBE, topic="new")
        async with RawClient(broker.bootstrap_servers) as client:
            await log_in(client, "alice", "pencil")
            shown = await client.call(MetadataRequest(topics=None), 9)
            assert [topic.name for topic in shown.topics] == ["b"]
            named = await client.call(
                MetadataRequest(
                    topics=[MetadataRequestTopic(name=name) for name in ("a", "b", "new", "x")],
                    allow_auto_topic_creation=True,
                ),
                9,
            )
            refusal = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert [topic.error_code for topic in named.topics] == [refusal, 0, refusal, refusal]
            assert sorted(broker.topics) == ["a", "b", "c"]
            broker.allow(ALICE, AclOperation.CREATE, topic="new")
            asked = MetadataRequest([MetadataRequestTopic(name="new")], True)
            created = await client.call(asked, 9)
            assert created.topics[0].error_code == 0

    async def test_groups(self, broker: EmbeddedCluster) -> None:
        async with RawClient(broker.bootstrap_servers) as client:
            await log_in(client, "root", "secret")
            for group in ("a", "b"):
                joining = group_requests(3)[ApiKey.JOIN_GROUP]
                assert isinstance(joining, JoinGroupRequest)
                joining.group_id = group
                assert (await client.call(joining, 3)).error_code == 0
        broker.allow(ALICE, DESCRIBE, group="b")
        async with RawClient(broker.bootstrap_servers) as client:
            await log_in(client, "alice", "pencil")
            listed = (await client.call(ListGroupsRequest(), 3)).groups
            assert [group.group_id for group in listed] == ["b"]
            broker.allow(ALICE, DESCRIBE)
            listed = (await client.call(ListGroupsRequest(), 3)).groups
            assert [group.group_id for group in listed] == ["a", "b"]


class TestAdmin:
    @pytest.fixture
    async def admin(self, broker: EmbeddedCluster) -> AsyncIterator[Admin]:
        async with Admin(
            broker.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_username="root",
            sasl_password="secret",
        ) as running:
            yield running

    async def test_acls_are_created_described_and_deleted(
        self, broker: EmbeddedCluster, admin: Admin
    ) -> None:
        wanted = [
            acl(),
            AclBinding(
                ResourceType.GROUP,
                "bills-",
                ANYBODY,
                READ,
                AclPermission.DENY,
                PatternType.PREFIXED,
                "127.0.0.2",
            ),
        ]
        (await admin.create_acls(wanted)).check()
        (await admin.create_acls(wanted[:1])).check()
        assert broker.acls == wanted
        assert await admin.describe_acls() == wanted
        assert await admin.describe_acls(AclFilter(principal=ALICE)) == wanted[:1]
        matching = AclFilter(ResourceType.GROUP, "bills-2026", pattern_type=PatternType.MATCH)
        assert await admin.describe_acls(matching) == wanted[1:]
        assert await admin.describe_acls(matching._replace(resource_name="other")) == []
        alices, missing = AclFilter(principal=ALICE), AclFilter(principal="User:carol")
        deleted = await admin.delete_acls([alices, missing])
        assert dict(deleted) == {alices: wanted[:1], missing: []}
        assert broker.acls == wanted[1:]

    async def test_what_no_acl_can_say_is_refused(self, admin: Admin) -> None:
        for wrong in (
            acl(""),
            acl(principal="alice"),
            AclBinding(ResourceType.CLUSTER, "other", ALICE, READ),
        ):
            refused = (await admin.create_acls([wrong])).errors[wrong]
            assert isinstance(refused, BrokerError)
            assert refused.code is ErrorCode.INVALID_REQUEST

    async def test_a_user_made_by_admin_logs_in(
        self, broker: EmbeddedCluster, admin: Admin
    ) -> None:
        short = ScramMechanism.SCRAM_SHA_256
        for change in (ScramPassword("bob", "one"), ScramPassword("bob", "two", short, 4_096)):
            (await admin.alter_user_scram_credentials([change])).check()
        found = await admin.describe_user_scram_credentials(["bob"])
        assert [tuple(info) for info in found["bob"]] == [(1, 4_096), (2, 8_192)]
        assert list(await admin.describe_user_scram_credentials()) == ["bob"]
        logins: list[tuple[Any, str, bool]] = [
            ("SCRAM-SHA-512", "one", True),
            ("SCRAM-SHA-256", "two", True),
            ("SCRAM-SHA-256", "one", False),
        ]
        for mechanism, password, right in logins:
            bob = Admin(
                broker.bootstrap_servers,
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism=mechanism,
                sasl_username="bob",
                sasl_password=password,
            )
            if right:
                async with bob:
                    assert not await bob.list_topics()
            else:
                with pytest.raises(AuthenticationError):
                    await bob.start()
        (await admin.alter_user_scram_credentials([ScramRemoval("bob")])).check()
        again = await admin.alter_user_scram_credentials([ScramRemoval("bob")])
        assert "RESOURCE_NOT_FOUND" in str(again.errors["bob"])


async def test_without_an_authorizer_acls_are_refused() -> None:
    async with EmbeddedCluster() as broker, Admin(broker.bootstrap_servers) as admin:
        with pytest.raises(BrokerError) as raised:
            await admin.describe_acls()
        assert raised.value.code is ErrorCode.SECURITY_DISABLED
        refused = (await admin.create_acls([acl()])).errors[acl()]
        assert isinstance(refused, BrokerError) and refused.code is ErrorCode.SECURITY_DISABLED


async def test_clients_without_a_login_are_anonymous() -> None:
    authorizer = Authorizer(acls=[acl("t", principal="User:ANONYMOUS")])
    async with EmbeddedCluster(authorizer=authorizer) as broker:
        broker.create_topic("t")
        async with Producer(broker.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"1")
        assert len(broker.records("t")) == 1


async def test_the_subject_of_a_certificate_is_the_principal(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    own = authority.issue_cert(
        "client@example.com", common_name="alice", organization_name="Tea, Ltd"
    )
    certificate = x509.load_pem_x509_certificate(own.cert_chain_pems[0].bytes())
    subject = certificate.subject.rfc4514_string()
    assert subject.startswith("CN=alice,OU=") and subject.endswith(r",O=Tea\, Ltd")
    identity, trusted = tmp_path / "identity.pem", tmp_path / "ca.pem"
    own.private_key_and_cert_chain_pem.write_to_path(str(identity))
    authority.cert_pem.write_to_path(str(trusted))
    async with EmbeddedCluster(
        security=BrokerSecurity(ssl_context=context), authorizer=Authorizer()
    ) as broker:
        broker.create_topic("t")
        settings = {
            "security_protocol": "SSL",
            "ssl_truststore_location": str(trusted),
            "ssl_keystore_location": str(identity),
        }
        async with Producer(broker.bootstrap_servers, **settings) as stranger:  # type: ignore[call-overload]
            with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
                await stranger.send_and_wait("t", b"1")
        broker.allow(f"User:{subject}", WRITE, topic="t")
        async with Producer(broker.bootstrap_servers, **settings) as producer:  # type: ignore[call-overload]
            await producer.send_and_wait("t", b"2")
