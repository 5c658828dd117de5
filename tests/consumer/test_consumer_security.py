"""Reading where a login is needed: the consumer's connections, those for records and those of the
group, log in, and log in again.
"""

from __future__ import annotations

from typing import Any

import pytest

from aioprod import AuthenticationError
from aioprod.testing import BrokerSecurity, EmbeddedCluster
from tests.consumer.number_topics import TOPIC, consumer_of, fill, numbers, take

LOGIN: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_username": "anna",
    "sasl_password": "secret",
}
SESSION_MS = 200


@pytest.mark.virtual_time
async def test_sessions_that_end_lose_no_record_and_no_member() -> None:
    """KIP-368: requests that wait for records last longer than a session."""
    security = BrokerSecurity(
        users={"anna": "secret"}, mechanisms=("SCRAM-SHA-256",), session_lifetime_ms=SESSION_MS
    )
    async with EmbeddedCluster(security=security) as cluster:
        cluster.create_topic(TOPIC)
        settings = {
            **LOGIN,
            "group_id": "g",
            "heartbeat_interval_ms": 20,
            "fetch_max_wait_ms": SESSION_MS * 2,
        }
        async with consumer_of(cluster, TOPIC, **settings) as consumer:
            found: list[int] = []
            for turn in range(10):
                await fill(cluster, 10, first=10 * turn, **LOGIN)
                found += numbers(await take(consumer, 10))
                await consumer.getmany(timeout_ms=SESSION_MS / 2)
            await consumer.commit()
            assert cluster.group("g").generation_id == 1
        assert found == list(range(100))
        assert sum(cluster.committed_offsets("g").values()) == 100


async def test_a_wrong_password_is_reported_at_the_start() -> None:
    async with EmbeddedCluster(
        security=BrokerSecurity(users={"anna": "secret"}, mechanisms=("SCRAM-SHA-256",))
    ) as cluster:
        consumer = consumer_of(cluster, TOPIC, **{**LOGIN, "sasl_password": "wrong"})
        with pytest.raises(AuthenticationError, match="SCRAM-SHA-256"):
            await consumer.start()
        await consumer.close()
