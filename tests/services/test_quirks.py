"""Each client on each quirk of services that speak Kafka's protocol: it works, or fails at once
with an error that says what the service lacks. In virtual time.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import aioprod
from aioprod import Consumer, Producer
from aioprod.errors import KafkaError
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.primitives import ZERO_UUID, Reader
from aioprod.protocol.request_headers import decode_request_header
from aioprod.testing import BrokerSecurity, EmbeddedCluster
from aioprod.testing.broker.handlers import HANDLERS
from aioprod.testing.broker.quirks import QUIRKS, SERVICES
from tests.selection import by_default_each
from tests.services.clients import CLIENTS, PARTITIONS, SPARK, TOPIC, Place

pytestmark = pytest.mark.virtual_time
# By quirk, how long a client pauses between the two parts of its work.
PAUSES_S = {"drops-idle-connections": 300, "recycles-connections": 30, "login-ends": 45}
TRANSACTIONS = ("transactional producer", "exactly-once Spark sink")
NEW_GROUPS = ("consumer in a group of KIP-848", "share consumer")
IDEMPOTENT = ("producer", "producer with lz4", *TRANSACTIONS)
#: What a client can't do, by quirk: the error that it raises.
REFUSALS: dict[str, dict[str, str]] = {
    "old-metadata": dict.fromkeys(NEW_GROUPS, "no topic ids"),
    "event-hubs-versions": dict.fromkeys(NEW_GROUPS, "no topic ids"),
    "zero-topic-ids": dict.fromkeys(NEW_GROUPS, "Kafka 4"),
    "rolling-upgrade": dict.fromkeys(NEW_GROUPS, "Kafka 4|ShareFetch"),
    "wrong-leader-epochs": dict.fromkeys(NEW_GROUPS, "no topic ids"),
    "no-idempotence": {
        **dict.fromkeys(IDEMPOTENT, "enable_idempotence=False"),
        **dict.fromkeys(TRANSACTIONS, "does not support InitProducerId"),
    },
    "no-transactions": dict.fromkeys(TRANSACTIONS, "does not support AddPartitionsToTxn"),
    "classic-groups-only": dict.fromkeys(NEW_GROUPS, "Kafka 4"),
    "no-compression": {"producer with lz4": "UNSUPPORTED_COMPRESSION_TYPE"},
}
LOGIN = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_username": "alice",
    "sasl_password": "secret",
}


def by_id_from() -> dict[int, int]:
    """The first version of each API whose requests have topic ids, from the definitions."""
    found: dict[int, int] = {}
    folder = Path(aioprod.__file__).parent / "_tools" / "definitions"
    for path in sorted(folder.glob("*.api")):
        text = path.read_text(encoding="utf-8")
        request = re.split(r"^response", text, maxsplit=1, flags=re.MULTILINE)[0]
        ids = re.search(r"topic_id: uuid(?: (\d+)\+)?", request)
        key = getattr(ApiKey, path.stem.upper(), None)
        if ids and key is not None:
            found[key] = int(ids[1] or 0)
    return found


BY_ID_FROM = by_id_from()
# These name topics, or have ids where the caller gives them.
EITHER_NAME_OR_ID = {ApiKey.METADATA, ApiKey.DELETE_TOPICS}


def zero_ids(message: Any) -> Iterator[Any]:
    """Find the parts of a request with a topic id that is zero."""
    for part in message if isinstance(message, list) else [message]:
        if hasattr(part, "__slots__") or hasattr(part, "__dict__"):
            if getattr(part, "topic_id", None) == ZERO_UUID:
                yield part
            for name in getattr(type(part), "__slots__", ()):
                if isinstance(value := getattr(part, name), list):
                    yield from zero_ids(value)


def watch_topic_ids(cluster: EmbeddedCluster) -> list[str]:
    """Return the list of requests that need a topic id, and have none."""
    faults: list[str] = []
    dispatcher: Any = cluster._dispatcher
    well = dispatcher.answer

    async def answer(frame: bytes, *more: Any) -> Any:
        header = decode_request_header(frame)
        first = BY_ID_FROM.get(header.api_key)
        if (
            first is not None
            and header.api_version >= first
            and header.api_key not in (EITHER_NAME_OR_ID)
        ):
            request = HANDLERS[header.api_key].request_type.read(
                Reader(frame, header.body_offset), header.api_version
            )
            faults.extend(f"{part} v{header.api_version}" for part in zero_ids(request))
        return await well(frame, *more)

    dispatcher.answer = answer
    return faults


def with_marks(clients: Iterable[str]) -> list[Any]:
    """Return the clients as parameters: Spark's need PySpark."""
    return [
        pytest.param(client, marks=pytest.mark.all_packages if client in SPARK else ())
        for client in clients
    ]


async def works_on(imitate: str | tuple[str, ...], client: str, pause_s: float = 0) -> None:
    """Let a client work on an imitated service, and check its topic ids, time and connections."""
    secure = "login-ends" in imitate
    security = BrokerSecurity(users={"alice": "secret"}) if secure else None
    async with EmbeddedCluster(nodes=2, imitate=imitate, security=security) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        faults = watch_topic_ids(cluster)
        place = Place(cluster, dict(LOGIN) if secure else {}, pause_s)
        async with asyncio.timeout(60 + 4 * pause_s):
            await CLIENTS[client](place)
        assert faults == []
        # No busy loop, such as one of fetches or of metadata.
        assert len(cluster.requests) < 500 + 40 * pause_s


def clients_on_quirks() -> Iterator[Any]:
    """Yield parameters: by default, clients that are refused and each third one of the others."""
    for row, quirk in enumerate(QUIRKS):
        for column, client in enumerate(CLIENTS):
            refused = client in REFUSALS.get(quirk, {})
            yield pytest.param(
                quirk,
                client,
                id=f"{quirk}-{client}",
                marks=[
                    *([pytest.mark.all_packages] if client in SPARK else []),
                    *([] if refused else by_default_each(3, row + column)),
                ],
            )


@pytest.mark.parametrize(("quirk", "client"), list(clients_on_quirks()))
async def test_a_client_on_a_quirk(quirk: str, client: str) -> None:
    refusal = REFUSALS.get(quirk, {}).get(client)
    if refusal is None:
        await works_on(quirk, client, PAUSES_S.get(quirk, 0))
        return
    begun = asyncio.get_running_loop().time()
    with pytest.raises(KafkaError, match=refusal):
        await works_on(quirk, client)
    assert asyncio.get_running_loop().time() - begun < 20


@pytest.mark.parametrize(
    "client", with_marks(["producer", "consumer in a classic group", "Spark source"])
)
@pytest.mark.parametrize("service", SERVICES)
async def test_a_client_on_all_quirks_of_a_service(service: str, client: str) -> None:
    refusals = [REFUSALS.get(quirk, {}).get(client) for quirk in SERVICES[service]]
    refusal = next(filter(None, refusals), None)
    if refusal is None:
        await works_on(service, client, pause_s=1)
        return
    with pytest.raises(KafkaError, match=refusal):
        await works_on(service, client)


async def test_all_clients_at_once_where_connections_are_few() -> None:
    """A connection that is closed at once is tried again, and no client keeps out another."""
    async with EmbeddedCluster(nodes=2, imitate="few-connections") as cluster:
        for number in range(6):
            cluster.create_topic(f"topic-{number}", PARTITIONS)
        consumers = [
            Consumer(
                f"topic-{number}",
                bootstrap_servers=cluster.bootstrap_servers,
                auto_offset_reset="earliest",
            )
            for number in range(3)
        ]

        async def work(number: int) -> None:
            async with Producer(cluster.bootstrap_servers) as producer:
                for value in range(10):
                    await producer.send_and_wait(f"topic-{number}", b"%d" % value)

        await asyncio.gather(*map(work, range(6)))
        for number, consumer in enumerate(consumers):
            async with consumer, asyncio.timeout(30):
                assert len([await consumer.getone() for _ in range(10)]) == 10, number
        assert cluster.request_count(ApiKey.PRODUCE) == 60
