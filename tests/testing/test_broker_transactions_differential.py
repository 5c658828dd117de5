"""The embedded broker answers transaction requests like a real Apache Kafka broker: the same
requests get the same errors, epochs and offsets.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from aioprod.protocol.messages.create_topics import CreatableTopic
from aioprod.testing import EmbeddedCluster
from tests.testing.epoch_exchanges import (
    an_outdated_epoch_asks,
    epoch_after_an_abort_by_init,
    epochs_asked_for,
    fencing,
    last_epoch_is_fenced,
    last_epochs,
    last_epochs_by_init,
    opened_behind_its_end,
)
from tests.testing.new_topics import create_topics_with_leaders
from tests.testing.raw_client import RawClient
from tests.testing.raw_transactions import GROUP, TRANSACTION, V1, V2, TransactionalClient
from tests.testing.transaction_exchanges import (
    PARTITIONS,
    commits_and_aborts,
    empty_transactions,
    expiry,
    interleaved,
    late_records,
    members,
    offsets_in_transactions,
    open_transactions_and_timestamps,
    plain_commits_meet_transactions,
    retried_ends,
    sequences,
    timeouts,
    unknown_partitions,
    verification,
    what_is_unknown,
)

Exchange = Callable[[TransactionalClient], Coroutine[Any, Any, list[object]]]


EXCHANGES: list[Exchange] = [
    commits_and_aborts,
    interleaved,
    open_transactions_and_timestamps,
    empty_transactions,
    retried_ends,
    what_is_unknown,
    unknown_partitions,
    verification,
    fencing,
    epochs_asked_for,
    epoch_after_an_abort_by_init,
    an_outdated_epoch_asks,
    opened_behind_its_end,
    expiry,
    timeouts,
    offsets_in_transactions,
    plain_commits_meet_transactions,
    members,
    sequences,
    late_records,
]


# Using up a producer id takes ten seconds, so each of these runs for one protocol only, and on
# demand.
LONG_EXCHANGES = [(last_epochs, V2), (last_epochs_by_init, V1), (last_epoch_is_fenced, V2)]


PARAMETERS = [
    (exchange, protocol) for exchange in EXCHANGES for protocol in (V1, V2)
] + LONG_EXCHANGES


@pytest.fixture
async def addresses(kafka: str) -> AsyncIterator[tuple[str, str]]:
    async with EmbeddedCluster() as embedded:
        yield kafka, embedded.bootstrap_servers


@pytest.mark.parametrize(
    ("exchange", "protocol"),
    [
        pytest.param(
            exchange,
            protocol,
            id=f"{exchange.__name__}-v{1 if protocol is V1 else 2}",
            marks=[pytest.mark.interop] if (exchange, protocol) in LONG_EXCHANGES else [],
        )
        for exchange, protocol in PARAMETERS
    ],
)
async def test_both_brokers_say_the_same(
    addresses: tuple[str, str], exchange: Exchange, protocol: dict[str, int]
) -> None:
    name = f"{exchange.__name__}-{uuid.uuid4().hex}"
    real, embedded = [
        await responses_of(exchange, address, name, protocol) for address in addresses
    ]
    assert embedded == real


async def responses_of(
    exchange: Exchange, address: str, name: str, protocol: dict[str, int]
) -> list[object]:
    """Return the responses of one broker, with a topic and a transactional id of that name."""
    await create_topics_with_leaders(address, CreatableTopic(name, PARTITIONS, 1))
    async with RawClient(address) as client:
        it = TransactionalClient(client, name, name, protocol)
        await it.find(TRANSACTION, name)
        await it.find(GROUP, name)
        return await exchange(it)
