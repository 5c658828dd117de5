"""A member that works on its records for long sends nothing meanwhile. Its connection stays open:
the broker releases the locks of a connection that is closed.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioprod import TopicPartition
from aioprod.testing import BrokerSecurity, EmbeddedCluster
from aioprod.testing.simulation import run
from tests.consumer.share.share_groups import ShareTopic

LOGIN = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "alice",
    "sasl_password": "pencil",
}
LIMIT_MS, LOCK_S = 5_000, 30


@pytest.mark.parametrize(
    ("security", "settings"),
    [
        (BrokerSecurity(users={"alice": "pencil"}, session_lifetime_ms=LIMIT_MS), LOGIN),
        (None, {"connections_max_idle_ms": LIMIT_MS}),
    ],
    ids=["session", "idle"],
)
def test_a_connection_whose_records_are_locked_stays_open(
    security: BrokerSecurity | None, settings: dict[str, Any]
) -> None:
    async def main() -> None:
        async with EmbeddedCluster(security=security) as broker:
            topic = ShareTopic(broker.bootstrap_servers, **settings)
            await topic.create()
            await topic.write(range(3))
            one = {"max_poll_records": 1, "share_acquire_mode": "record_limit"}
            async with topic.consumer(**one) as consumer:
                for _ in range(3):
                    (record,) = await consumer.getmany()
                    assert record.delivery_count == 1
                    await asyncio.sleep(LOCK_S - 1)
                    outcome = await consumer.commit()
                    assert outcome == {TopicPartition(topic.topic, 0): None}
                # When the locks have ended, an idle connection is closed as any other.
                before = broker.connection_count(1)
                await asyncio.sleep(LOCK_S + 2 * LIMIT_MS / 1000)
                assert broker.connection_count(1) < before

    run(main(), seed=1)
