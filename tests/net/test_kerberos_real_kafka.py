"""Kerberos: logins with tickets of a real Kerberos server (MIT) at a real broker."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from aioprod import Admin, Consumer, Producer, ShareConsumer, cli
from aioprod.compat.aiokafka import AIOKafkaProducer
from aioprod.config.client import ClientConfig
from aioprod.errors import AuthenticationError, BrokerConnectionError
from aioprod.net.connection import Connection
from aioprod.net.handshake import connect
from aioprod.net.reauthentication import Reauthentication
from aioprod.protocol.messages.metadata import MetadataRequest
from aioprod.testing.kafka_listener import Listener
from aioprod.testing.kafka_process import QUICK_START
from aioprod.testing.real_cluster import RealCluster
from tests.net import kdc
from tests.net.kdc import Kdc
from tests.testing import leaks
from tests.testing.doc_blocks import security_example

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(bool(kdc.missing()), reason=f"not installed: {kdc.missing()}"),
]
GSSAPI: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"}
BROKER = "kafka/127.0.0.1"
SESSION_MS = 6_000
# The number of Kerberos, 1.2.840.113554.1.2.2.
IN_EACH_TOKEN = repr(bytes.fromhex("2a864886f712010202"))[2:-1]


class Early(random.Random):
    """Renews sessions long before they end. Kafka refuses that in their first second."""

    def uniform(self, a: float, b: float) -> float:
        return 0.2


@dataclass
class Realm:
    """A Kerberos server, and a broker with a principal of it."""

    kdc: Kdc
    keytab: Path  # of alice
    servers: str


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    directory = tmp_path_factory.mktemp("kerberos")
    with Kdc(directory) as running:
        listener = Listener(
            "SASL_PLAINTEXT",
            mechanisms=["GSSAPI"],
            kerberos_principal=f"{BROKER}@{kdc.REALM}",
            kerberos_keytab=running.keytab(BROKER),
            settings={"connections.max.reauth.ms": str(SESSION_MS)},
        )
        cluster = RealCluster(
            1,
            listeners=lambda _: [listener],
            java_options=[*QUICK_START, f"-Djava.security.krb5.conf={running.config}"],
        )
        with cluster:
            servers = cluster.bootstrap_servers_of("SASL_PLAINTEXT")
            yield Realm(running, running.keytab("alice"), servers)


@pytest.fixture(autouse=True)
def environment(realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No ticket but those of the test."""
    monkeypatch.setenv("KRB5_CONFIG", str(realm.kdc.config))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/cache")
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", f"FILE:{tmp_path}/keytab")


def by_keytab(realm: Realm, **settings: Any) -> dict[str, Any]:
    login = {"sasl_kerberos_keytab": realm.keytab, "sasl_kerberos_principal": "alice"}
    return {**GSSAPI, **login, **settings}


async def log_in(realm: Realm, host: str = "127.0.0.1", **settings: Any) -> Connection:
    port = realm.servers.rpartition(":")[2]
    config = ClientConfig(**{"request_timeout_ms": 20_000, **GSSAPI, **settings})
    return await connect(host, int(port), config, Early())


async def test_a_keytab_is_enough_for_each_client(realm: Realm) -> None:
    login = by_keytab(realm)
    async with Producer(realm.servers, **login) as producer:
        await producer.send_and_wait("keytab", b"1")
    async with Consumer(
        "keytab", bootstrap_servers=realm.servers, auto_offset_reset="earliest", **login
    ) as consumer:
        assert (await consumer.getone(timeout_ms=20_000)).value == b"1"
    async with Admin(realm.servers, **login) as admin:
        assert "keytab" in await admin.list_topics()
    async with ShareConsumer(realm.servers, topics="keytab", group_id="shared", **login) as shared:
        await shared.getmany(timeout_ms=0)


async def test_the_example_of_the_page(realm: Realm) -> None:
    with_a_keytab = security_example(
        "with_a_keytab",
        realm.servers,
        {"/etc/orders.keytab": str(realm.keytab), "orders@EXAMPLE.ORG": "alice"},
    )
    await with_a_keytab()


async def test_javas_settings_are_enough(realm: Realm) -> None:
    module = "com.sun.security.auth.module.Krb5LoginModule"
    given = {
        "bootstrap.servers": realm.servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": f'{module} required useKeyTab=true storeKey=true principal="alice" '
        f'keyTab="{realm.keytab}";',
    }
    async with Producer.from_config(given) as producer:
        await producer.send_and_wait("java", b"1")
    ticket = realm.kdc.ticket("alice", realm.keytab)
    given["sasl.jaas.config"] = f'{module} required useTicketCache=true ticketCache="{ticket}";'
    async with Producer.from_config(given) as producer:
        await producer.send_and_wait("java", b"2")


@pytest.mark.parametrize("variable", ["KRB5CCNAME", "KRB5_CLIENT_KTNAME"])
async def test_the_environment_is_enough(
    realm: Realm, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticket = realm.kdc.ticket("alice", realm.keytab)
    path = {"KRB5CCNAME": ticket, "KRB5_CLIENT_KTNAME": realm.keytab}[variable]
    monkeypatch.setenv(variable, f"FILE:{path}")
    await (await log_in(realm)).close()


async def test_aiokafkas_settings(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{realm.kdc.ticket('alice', realm.keytab)}")
    producer = AIOKafkaProducer(
        bootstrap_servers=realm.servers.replace("127.0.0.1", "localhost"),
        sasl_kerberos_domain_name="127.0.0.1",
        **GSSAPI,
    )
    await producer.start()
    await producer.send_and_wait("aiokafka", b"1")
    await producer.stop()


def test_the_command_line(realm: Realm, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        f"bootstrap.servers={realm.servers}\nsecurity.protocol=SASL_PLAINTEXT\n"
        f"sasl.mechanism=GSSAPI\nsasl.kerberos.keytab={realm.keytab}\n"
    )
    assert cli.main(["topics", "list", "--config-file", str(file)]) == 0
    assert "Traceback" not in capfd.readouterr().err


async def test_tickets_of_a_keytab_are_kept_and_the_loop_goes_on(realm: Realm) -> None:
    keytab = realm.kdc.keytab("many")
    login: dict[str, Any] = {"sasl_kerberos_keytab": keytab, "sasl_kerberos_principal": "many"}
    connections = await asyncio.gather(*(log_in(realm, **login) for _ in range(20)))
    for connection in connections:
        await connection.close()
    assert realm.kdc.initial_tickets("many") == 1
    realm.kdc.stop()
    try:
        await (await log_in(realm, **login)).close()
    finally:
        realm.kdc.start()


async def test_sessions_are_renewed(realm: Realm) -> None:
    connection = await log_in(realm, **by_keytab(realm))
    renewals: set[asyncio.Task[None]] = set()
    async with asyncio.timeout(30):
        while len(renewals) < 2 or not all(task.done() for task in renewals):
            await connection.request(MetadataRequest(topics=[]))
            assert isinstance(connection.reauthentication, Reauthentication)
            if connection.reauthentication.task is not None:
                renewals.add(connection.reauthentication.task)
    assert connection.error is None and all(task.exception() is None for task in renewals)
    await connection.close()


async def test_a_renewal_waits_for_the_kerberos_server(
    realm: Realm, caplog: pytest.LogCaptureFixture
) -> None:
    ticket = realm.kdc.ticket("alice", realm.keytab)
    settings: dict[str, Any] = {
        "sasl_kerberos_ticket_cache": ticket,
        "reconnect_backoff_max_ms": 100,
    }
    connection = await log_in(realm, **settings)
    renewal = connection.reauthentication
    assert isinstance(renewal, Reauthentication)
    realm.kdc.ticket("alice", realm.keytab)  # a cache without the ticket for the broker
    realm.kdc.stop()
    try:
        async with asyncio.timeout(20):
            while "Cannot contact any KDC" not in caplog.text:
                await connection.request(MetadataRequest(topics=[]))
    finally:
        realm.kdc.start()
    assert renewal.task is not None
    async with asyncio.timeout(20):
        await renewal.task
    await connection.request(MetadataRequest(topics=[]))
    assert connection.error is None
    await connection.close()


async def test_other_names_than_those_of_brokers(realm: Realm) -> None:
    with pytest.raises(AuthenticationError, match=r"kafka/localhost@.* not found .*advertised"):
        await log_in(realm, "localhost", **by_keytab(realm))
    settings = by_keytab(realm, sasl_kerberos_domain_name="127.0.0.1")
    await (await log_in(realm, "localhost", **settings)).close()


class TestErrorsSayWhatToDo:
    async def refused(self, realm: Realm, text: str, **settings: Any) -> None:
        with pytest.raises(AuthenticationError, match=text) as raised:
            await log_in(realm, **settings)
        shown = leaks.whole_text(raised.value, [__file__])
        assert "connection = <" in shown and IN_EACH_TOKEN not in shown

    async def test_no_ticket(self, realm: Realm) -> None:
        await self.refused(realm, "No Kerberos credentials available .*; request .* with kinit, or")

    async def test_an_expired_ticket(self, realm: Realm) -> None:
        ticket = realm.kdc.ticket("alice", realm.keytab, "-l", "1s")
        with pytest.raises(AuthenticationError, match="xpired; request a ticket with kinit"):
            async with asyncio.timeout(20):
                while True:
                    connection = await log_in(realm, sasl_kerberos_ticket_cache=ticket)
                    await connection.close()
        realm.kdc.ticket("alice", realm.keytab)
        await (await log_in(realm, sasl_kerberos_ticket_cache=ticket)).close()

    async def test_a_ticket_of_another_user(self, realm: Realm) -> None:
        settings = {"sasl_kerberos_ticket_cache": realm.kdc.ticket("alice", realm.keytab)}
        text = "does not match desired name"
        await self.refused(realm, text, sasl_kerberos_principal="bob", **settings)

    async def test_a_keytab_without_the_principal(self, realm: Realm) -> None:
        settings = by_keytab(realm, sasl_kerberos_principal="bob")
        await self.refused(
            realm, f"with the keys of {realm.keytab}; check .*_principal", **settings
        )

    @pytest.mark.parametrize(
        ("name", "then", "text"),
        [
            ("stale", "cpw -randkey stale", "the keys in the keytab are not those of"),
            ("gone", "delprinc -force gone", "Client 'gone@.*' not found .*; check .*_keytab"),
        ],
    )
    async def test_keys_that_are_not_valid_any_more(
        self, realm: Realm, name: str, then: str, text: str
    ) -> None:
        keytab = realm.kdc.keytab(name)
        realm.kdc.admin(then)
        await self.refused(realm, text, sasl_kerberos_keytab=keytab)

    async def test_a_wrong_service_name(self, realm: Realm) -> None:
        settings = by_keytab(realm, sasl_kerberos_service_name="kafak")
        await self.refused(realm, "kafak/127.0.0.1@.* not found .*check .*service_name", **settings)

    async def test_a_service_that_is_not_the_broker(self, realm: Realm) -> None:
        realm.kdc.keytab("other/127.0.0.1")
        settings = by_keytab(realm, sasl_kerberos_service_name="other")
        await self.refused(realm, "GSSAPI: Authentication failed", **settings)

    async def test_no_kerberos_server(self, realm: Realm, tmp_path: Path) -> None:
        keytab = realm.kdc.keytab("patient")
        realm.kdc.stop()
        try:
            with pytest.raises(BrokerConnectionError, match="Kerberos: Cannot contact any KDC"):
                await log_in(realm, sasl_kerberos_keytab=keytab)
        finally:
            realm.kdc.start()
        await (await log_in(realm, sasl_kerberos_keytab=keytab)).close()

    async def test_no_configuration_of_kerberos(
        self, realm: Realm, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("KRB5_CONFIG", "/nonexistent/krb5.conf")
        await self.refused(realm, "check the realm in krb5.conf", **by_keytab(realm))
