"""The demo's bad records: sent among the flights, and found again among the dead letters."""

from __future__ import annotations

import pytest

from aioprod import Producer
from aioprod.cluster.client import ClusterClient
from aioprod.demo.planting import PLANTED, BadRecord, check_dead_letters, plant, read_dead_letters
from aioprod.testing import EmbeddedCluster


async def test_what_is_planted_is_sent_as_it_is(broker: EmbeddedCluster) -> None:
    async with Producer(broker.bootstrap_servers) as producer:
        await plant(producer, "flights")
    assert [(record.key, record.value) for record in broker.records("flights")] == [
        (record.key, record.value) for record in PLANTED
    ]


async def test_only_committed_dead_letters_are_read_with_their_reasons(
    broker: EmbeddedCluster,
) -> None:
    headers = [("trace", b"1"), ("dead-letter.reason", b"not JSON")]
    async with Producer(broker.bootstrap_servers, transactional_id="t") as producer:
        async with producer.transaction():
            await producer.send("letters", b"committed", b"k", headers=headers)
        with pytest.raises(LookupError):
            async with producer.transaction():
                await (await producer.send("letters", b"aborted", headers=headers))
                raise LookupError
    async with ClusterClient(broker.bootstrap_servers) as client:
        assert await read_dead_letters(client, "letters") == [
            BadRecord(b"k", b"committed", "not JSON")
        ]


@pytest.mark.parametrize(
    ("found", "complaints"),
    [
        (PLANTED, []),
        (PLANTED[::-1], []),
        (
            PLANTED[1:],
            ["planted, but not among the dead letters: b'a flight, but not JSON' (not JSON)"],
        ),
        # A dead letter is written twice.
        (
            (*PLANTED, PLANTED[0]),
            ["among the dead letters, but not planted: b'a flight, but not JSON' (not JSON)"],
        ),
    ],
)
def test_missing_and_repeated_dead_letters_are_named(
    found: tuple[BadRecord, ...], complaints: list[str]
) -> None:
    assert check_dead_letters(found) == complaints


def test_a_wrong_reason_is_noticed() -> None:
    found = [PLANTED[0]._replace(reason="carrier missing"), *PLANTED[1:]]
    assert len(check_dead_letters(found)) == 2
