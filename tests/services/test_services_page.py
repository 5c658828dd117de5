"""The settings of docs/services.md: clients accept each, and those of imitated services connect."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
import trustme

import aioprod
from aioprod import Admin, Consumer, Producer, ShareConsumer
from aioprod.testing import BrokerSecurity, EmbeddedCluster
from aioprod.testing.broker.quirks import QUIRKS, SERVICES
from tests.net.certificates import Certificates
from tests.testing.doc_blocks import python_blocks, run_block, table_rows

TEXT = (Path(aioprod.__file__).parents[1] / "docs" / "services.md").read_text(encoding="utf-8")
SECRET = "of the tests"
SECRETS = ("CONFLUENT_KEY", "CONFLUENT_SECRET", "KAFKA_PASSWORD", "EVENT_HUBS_CONNECTION_STRING")
SECTIONS = {
    part.split("\n", 1)[0]: part for part in re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]
}
BLOCKS = [
    pytest.param(name, block, id=f"{name} {number}")
    for name, part in SECTIONS.items()
    for number, block in enumerate(python_blocks(part))
]


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    """A truststore and a client's certificate."""
    return Certificates(trustme.CA(), tmp_path)


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, SECRET)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")


def run(block: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {}
    exec(compile(block, "services.md", "exec"), namespace)
    return namespace


@pytest.mark.parametrize(("name", "block"), BLOCKS)
async def test_all_clients_accept_the_settings(
    certificates: Certificates, name: str, block: str
) -> None:
    for file in ("ca.pem", "/etc/strimzi/ca.crt"):
        block = block.replace(file, certificates.truststore)
    block = block.replace("service.pem", certificates.keystore())
    given = run(block)
    settings = given["settings"]
    more = given.get("producer_settings", {})
    of_consumer = given.get("consumer_settings", {})
    for client in (
        Producer(**settings, **more),
        Consumer("orders", group_id="shop", **settings, **of_consumer),
        ShareConsumer(topics=["orders"], group_id="shop", **settings),
        Admin(**settings),
    ):
        await client.close()


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("section", "number", "imitate"),
    [
        ("Apache Kafka", 0, ()),
        ("Confluent Cloud", 0, ("throttles",)),
        ("Amazon MSK", 1, "msk-serverless"),
        ("Azure Event Hubs", 0, "event-hubs"),
        ("Redpanda", 0, "redpanda-21"),
        ("WarpStream", 0, "warpstream"),
        ("AutoMQ", 0, "slow-acknowledgments"),
        ("Bufstream", 0, ("slow-acknowledgments", "classic-groups-only")),
        ("Strimzi", 0, "hidden-nodes"),
    ],
)
async def test_the_settings_connect_to_the_imitated_service(
    capsys: pytest.CaptureFixture[str], section: str, number: int, imitate: str | tuple[str, ...]
) -> None:
    given = run(python_blocks(SECTIONS[section])[number])
    settings = given["settings"]
    user = settings.get("sasl_username")
    security = BrokerSecurity(users={user: SECRET}) if user else None
    async with EmbeddedCluster(nodes=2, imitate=imitate, security=security) as cluster:
        cluster.create_topic("orders", 2)
        settings["bootstrap_servers"] = cluster.bootstrap_servers
        settings.pop("ssl_truststore_location", None)
        if user:
            settings["security_protocol"] = "SASL_PLAINTEXT"
        program = run_block("services.md", TEXT, "async def main(settings)")["main"]
        await program(settings)
        assert capsys.readouterr().out == "b'tea'\n"
        async with Producer(**settings, **given.get("producer_settings", {})) as producer:
            for number in range(50):
                await producer.send("orders", b"x" * 50_000, partition=number % 2)
            await producer.flush()
        async with asyncio.timeout(60):
            assert len(await cluster.wait_for_records("orders", 51)) == 51


def test_each_service_has_a_row_and_a_section() -> None:
    rows = [cells[0] for cells in table_rows(TEXT) if cells[0].startswith("[")]
    names = [re.sub(r"\[(.*?)\].*", r"\1", cell) for cell in rows]
    assert names == list(SECTIONS)
    assert all("Tested with" in part for name, part in SECTIONS.items())


def test_the_quirks_that_the_page_names_exist() -> None:
    named = set(re.findall(r"`([a-z0-9]+(?:-[a-z0-9]+)+)`", TEXT))
    known = {*QUIRKS, *SERVICES}
    others = {"orders-cluster-ca-cert", "scram-sha-512"}
    assert named - others <= known
    assert len(named & known) >= 6
