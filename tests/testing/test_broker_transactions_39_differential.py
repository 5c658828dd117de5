"""Without transaction.version=2, the embedded broker answers transaction requests like Apache Kafka
3.9, which does not have that feature.
"""

from __future__ import annotations

import uuid

import pytest

from aioprod.testing import EmbeddedCluster
from tests.testing.raw_transactions import V1
from tests.testing.test_broker_transactions_differential import EXCHANGES, Exchange, responses_of
from tests.testing.transaction_exchanges import expiry, members

# Requests that 3.9 does not support, and groups without members, which its coordinator treats
# differently from that of 4.1.
_OTHERWISE_IN_3_9 = (expiry, members)


@pytest.mark.kafka
@pytest.mark.parametrize(
    "exchange",
    [each for each in EXCHANGES if each not in _OTHERWISE_IN_3_9],
    ids=lambda each: each.__name__,
)
async def test_kafka_3_9_and_the_embedded_broker_say_the_same(
    kafka_3_9: str, exchange: Exchange
) -> None:
    name = f"{exchange.__name__}-{uuid.uuid4().hex}"
    real = await responses_of(exchange, kafka_3_9, name, V1)
    async with EmbeddedCluster(transaction_version=0) as embedded:
        assert await responses_of(exchange, embedded.bootstrap_servers, name, V1) == real
