"""Delegation tokens: a real broker creates, renews, expires and describes them, and takes logins
by them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from aioprod import Admin, BrokerError, ConfigError, Consumer, ErrorCode, Producer, ProtocolError
from aioprod.admin import AclBinding, AclOperation, DelegationToken, ResourceType
from aioprod.errors import AuthenticationError, BrokerConnectionError, KafkaTimeoutError
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import BrokerSecurity, EmbeddedCluster, change_answer, delay
from aioprod.testing.kafka_listener import Listener
from aioprod.testing.real_kafka import RealKafka
from tests.testing import leaks
from tests.testing.doc_blocks import security_example

PASSWORDS = {"alice": "a-password", "bob": "b-password", "root": "r-password"}
SCRAM: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "SCRAM-SHA-512",
    "enable_metrics_push": False,
}
LIFETIME_MS, EXPIRY_MS = 3_600_000, 600_000
WRITE = [
    AclBinding(ResourceType.TOPIC, "orders", "User:alice", operation)
    for operation in (AclOperation.WRITE, AclOperation.READ, AclOperation.CREATE)
]


@pytest.fixture(scope="module")
def issuing() -> Iterator[RealKafka]:
    """A broker that has a secret for tokens, and in which root may do everything."""
    with RealKafka(
        listeners=[Listener("SASL_PLAINTEXT", mechanisms=["SCRAM-SHA-256", "SCRAM-SHA-512"])],
        scram_users=PASSWORDS,
        settings={
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:root",
            "delegation.token.secret.key": "the brokers' secret",
            "delegation.token.max.lifetime.ms": str(LIFETIME_MS),
            "delegation.token.expiry.time.ms": str(EXPIRY_MS),
            "delegation.token.expiry.check.interval.ms": "200",
        },
    ) as running:
        yield running


def admin_of(issuing: RealKafka, user: str) -> Admin:
    servers = issuing.bootstrap_servers_of("SASL_PLAINTEXT")
    return Admin(servers, sasl_username=user, sasl_password=PASSWORDS[user], **SCRAM)


@pytest.fixture
async def alice(issuing: RealKafka) -> AsyncIterator[Admin]:
    async with Admin(issuing.bootstrap_servers) as admin:
        (await admin.create_acls(WRITE)).check()
    async with admin_of(issuing, "alice") as running:
        yield running


def login(token: DelegationToken) -> dict[str, Any]:
    return {
        **SCRAM,
        "sasl_username": token.token_id,
        "sasl_password": token.hmac_base64,
        "sasl_delegation_token": True,
    }


async def until_known(issuing: RealKafka, token: DelegationToken) -> None:
    """Wait until the broker, which reads tokens from the controller's log, accepts a login."""
    async with asyncio.timeout(20):
        while True:
            client = Admin(issuing.bootstrap_servers_of("SASL_PLAINTEXT"), **login(token))
            try:
                async with client:
                    return
            except AuthenticationError:
                continue


async def refused(issuing: RealKafka, token: DelegationToken) -> None:
    """Wait until the broker accepts no login any more."""
    async with asyncio.timeout(20):
        with pytest.raises(AuthenticationError, match="SCRAM-SHA-512: Authentication failed"):
            while True:
                servers = issuing.bootstrap_servers_of("SASL_PLAINTEXT")
                try:
                    async with Admin(servers, **login(token)):
                        pass
                except BrokerConnectionError:
                    pass  # the session has ended with the token


@pytest.mark.kafka
async def test_a_tokens_life(issuing: RealKafka, alice: Admin) -> None:
    before_ms = time.time() * 1000 - 2_000
    token = await alice.create_delegation_token(renewers=["User:bob"])
    assert (token.owner, token.requester, token.renewers) == (
        "User:alice",
        "User:alice",
        ("User:bob",),
    )
    assert before_ms < token.issue_timestamp_ms < before_ms + 60_000
    assert token.expiry_timestamp_ms == token.issue_timestamp_ms + EXPIRY_MS
    assert token.max_timestamp_ms == token.issue_timestamp_ms + LIFETIME_MS
    assert token.hmac_base64 not in repr(token) and repr(token.hmac) not in repr(token)
    await until_known(issuing, token)
    servers = issuing.bootstrap_servers_of("SASL_PLAINTEXT")
    async with Producer(servers, **login(token)) as producer:
        await producer.send_and_wait("orders", b"1")
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    java = {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": f'{module} required username="{token.token_id}" '
        f'password="{token.hmac_base64}" tokenauth="true";',
        "auto.offset.reset": "earliest",
    }
    async with Consumer.from_config(java, "orders") as consumer:
        assert (await consumer.getone(timeout_ms=20_000)).value == b"1"

    assert token in await alice.describe_delegation_tokens()
    assert await alice.describe_delegation_tokens(["User:alice"]) == [token]
    assert await alice.describe_delegation_tokens(["User:bob"]) == [token]  # who may renew it
    assert await alice.describe_delegation_tokens(["User:root"]) == []
    async with admin_of(issuing, "bob") as bob:
        assert await bob.describe_delegation_tokens() == [token]
        longer = await bob.renew_delegation_token(token.hmac_base64)
        assert token.expiry_timestamp_ms < longer < token.max_timestamp_ms
        shorter = await bob.renew_delegation_token(token, renew_period_ms=EXPIRY_MS // 4 * 3)
        assert shorter < longer
    soon = await alice.expire_delegation_token(token.hmac, expiry_period_ms=EXPIRY_MS // 2)
    assert soon < shorter

    await alice.expire_delegation_token(token)
    await refused(issuing, token)
    with pytest.raises(BrokerError, match="renew_delegation_token") as gone:
        await alice.renew_delegation_token(token)
    assert gone.value.code is ErrorCode.DELEGATION_TOKEN_NOT_FOUND


@pytest.mark.kafka
async def test_the_example_of_the_page(issuing: RealKafka, alice: Admin) -> None:
    servers = issuing.bootstrap_servers_of("SASL_PLAINTEXT")
    new_token, by_a_token, keep = (
        security_example(name, servers) for name in ("new_token", "by_a_token", "keep")
    )
    token = await new_token(alice)
    await until_known(issuing, token)
    await by_a_token(token)
    await keep(alice, token)
    await alice.expire_delegation_token(token)


@pytest.mark.kafka
async def test_a_token_that_is_not_renewed_expires(issuing: RealKafka, alice: Admin) -> None:
    token = await alice.create_delegation_token()
    await until_known(issuing, token)
    await alice.expire_delegation_token(token, expiry_period_ms=500)
    await refused(issuing, token)
    short = await alice.create_delegation_token(max_lifetime_ms=1)
    assert short.max_timestamp_ms == short.issue_timestamp_ms + 1 == short.expiry_timestamp_ms


@pytest.mark.kafka
async def test_a_token_for_another_owner(issuing: RealKafka, alice: Admin) -> None:
    with pytest.raises(BrokerError, match="create_delegation_token for User:bob") as denied:
        await alice.create_delegation_token(owner="User:bob")
    assert denied.value.code is ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert "CREATE_TOKENS on the user; grant CREATE_TOKENS to User:alice" in str(denied.value)
    async with admin_of(issuing, "root") as root:
        token = await root.create_delegation_token(owner="User:alice")
        assert (token.owner, token.requester) == ("User:alice", "User:root")
    await until_known(issuing, token)
    servers = issuing.bootstrap_servers_of("SASL_PLAINTEXT")
    async with Producer(servers, **login(token)) as producer:
        await producer.send_and_wait("orders", b"2")  # as alice may
    async with Admin(servers, **login(token)) as by_token:
        with pytest.raises(BrokerError) as nested:
            await by_token.create_delegation_token()
        assert nested.value.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    async with admin_of(issuing, "bob") as bob:
        with pytest.raises(BrokerError) as other:
            await bob.renew_delegation_token(token)
        assert other.value.code is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    await alice.expire_delegation_token(token)


@pytest.mark.kafka
async def test_a_password_is_not_a_token(issuing: RealKafka, alice: Admin) -> None:
    token = await alice.create_delegation_token()
    await until_known(issuing, token)
    servers = issuing.bootstrap_servers_of("SASL_PLAINTEXT")
    password: dict[str, Any] = {"sasl_username": "alice", "sasl_password": PASSWORDS["alice"]}
    with pytest.raises(AuthenticationError):
        await Admin(servers, **{**login(token), "sasl_delegation_token": False}).start()
    async with EmbeddedCluster(security=BrokerSecurity(users=PASSWORDS)) as embedded:
        for each in (servers, embedded.bootstrap_servers):
            with pytest.raises(AuthenticationError, match="due to invalid credentials with SASL"):
                await Admin(each, **SCRAM, **password, sasl_delegation_token=True).start()
    await alice.expire_delegation_token(token)


@pytest.mark.kafka
async def test_without_a_login_no_token_is_given(issuing: RealKafka) -> None:
    async with Admin(issuing.bootstrap_servers) as admin:
        with pytest.raises(BrokerError) as denied:
            await admin.create_delegation_token()
        assert denied.value.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


# -- without a real broker -------------------------------------------------------------------------


async def test_arguments_are_checked_before_a_request(broker: EmbeddedCluster) -> None:
    async with Admin(broker.bootstrap_servers) as admin:
        for call, text in (
            (admin.create_delegation_token(renewers=["bob"]), "renewers: 'bob' must be TYPE:NAME"),
            (
                admin.create_delegation_token(renewers="User:bob"),
                "renewers='User:bob': must be a list",
            ),
            (admin.create_delegation_token(owner=":bob"), "owner: ':bob' must be TYPE:NAME"),
            (admin.create_delegation_token(max_lifetime_ms=0), "max_lifetime_ms=0: must be"),
            (admin.renew_delegation_token(b"x", renew_period_ms=1 << 63), "renew_period_ms=9"),
            (admin.expire_delegation_token(b""), "token: must be a DelegationToken, or its HMAC"),
            (admin.expire_delegation_token("hush"[:3]), "expire_delegation_token: token: must"),
            (admin.describe_delegation_tokens(["alice"]), "owners: 'alice' must be TYPE:NAME"),
        ):
            with pytest.raises(ConfigError, match=text):
                await call


async def test_a_broker_that_knows_no_other_owners() -> None:
    def forget(answer: Any) -> None:
        for api in answer.api_keys:
            if api.api_key == ApiKey.CREATE_DELEGATION_TOKEN:
                api.max_version = 2

    settings = {**SCRAM, "sasl_username": "alice", "sasl_password": "pencil"}
    async with EmbeddedCluster(security=BrokerSecurity(users={"alice": "pencil"})) as broker:
        broker.on_every(ApiKey.API_VERSIONS, change_answer(forget))
        async with Admin(broker.bootstrap_servers, **settings) as admin:
            with pytest.raises(BrokerError, match="DELEGATION_TOKEN_AUTH_DISABLED"):
                await admin.create_delegation_token(renewers=["User:bob"])
            with pytest.raises(ProtocolError, match="owner_principal_type is set, but version 2"):
                await admin.create_delegation_token(owner="User:bob")


@pytest.mark.parametrize("way", ["refused", "no answer", "wrong argument"])
async def test_no_error_shows_an_hmac(way: str) -> None:
    secret = b"hunter2-hunter2"
    security = BrokerSecurity(users={"alice": "pencil"})
    async with EmbeddedCluster(security=security) as broker:
        if way == "no answer":
            broker.on(ApiKey.RENEW_DELEGATION_TOKEN, delay(30))
        settings = {**SCRAM, "sasl_username": "alice", "sasl_password": "pencil"}
        admin = Admin(broker.bootstrap_servers, request_timeout_ms=300, **settings)
        async with admin:
            with pytest.raises((BrokerError, ConfigError, KafkaTimeoutError)) as raised:
                await admin.renew_delegation_token(
                    secret,
                    renew_period_ms=-5 if way == "wrong argument" else 5,
                    timeout_ms=400,
                )
    text = leaks.whole_text(raised.value, [__file__])
    assert "renew_delegation_token" in text and "hunter2" not in text
    if way == "refused":
        assert isinstance(raised.value, BrokerError)
        assert raised.value.code is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
