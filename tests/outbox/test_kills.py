"""Each row that was committed is in Kafka once, and has its effect once, although all parts are
killed (SIGKILL) or paused.

The long test runs with ``-m faults``, with 500 kills or the number in ``AIOPROD_KILLS``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from aioprod import Admin
from aioprod.admin import NewTopic
from aioprod.testing import ThreadedCluster
from aioprod.testing.real_cluster import RealCluster
from tests.outbox.kill_rounds import EmbeddedBrokers, RealBrokers, disturb, number_of_kills
from tests.outbox.members import PARTITIONS, TOPIC
from tests.outbox.postgres_server import PostgresServer

_SESSION = {"group.initial.rebalance.delay.ms": "0"}


@pytest.mark.slow
async def test_writers_relays_and_processors_are_killed(
    postgresql: object, postgres_server: PostgresServer, threaded_broker: ThreadedCluster
) -> None:
    threaded_broker.create_topic(TOPIC, PARTITIONS)
    kinds = ("writer", "relay", "relay", "processor", "pause", "pause")
    print(await disturb(kinds, 6, 1, postgres_server, EmbeddedBrokers(threaded_broker)))


@pytest.mark.slow
async def test_the_database_is_killed(
    postgresql: object, postgres_server: PostgresServer, threaded_broker: ThreadedCluster
) -> None:
    threaded_broker.create_topic(TOPIC, PARTITIONS)
    print(await disturb(("database",), 3, 2, postgres_server, EmbeddedBrokers(threaded_broker)))


@pytest.fixture
def cluster() -> Iterator[RealCluster]:
    with RealCluster(settings=_SESSION) as running:
        yield running


@pytest.mark.faults
@pytest.mark.kafka
@pytest.mark.timeout(5_400)
async def test_five_hundred_kills(
    postgresql: object,
    postgres_server: PostgresServer,
    cluster: RealCluster,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with Admin(cluster.bootstrap_servers) as admin:
        (await admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])).check()
    killed = ("writer", "writer", "relay", "relay", "relay", "processor", "processor")
    kinds = (*killed, "database", "broker", "pause", "pause", "pause")
    brokers = RealBrokers(cluster)
    done = await disturb(
        kinds, number_of_kills(), time.time_ns(), postgres_server, brokers, pause_s=0.01
    )
    with capsys.disabled():
        print(f"\n{done}")
