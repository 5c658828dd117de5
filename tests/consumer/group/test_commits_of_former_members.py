"""A commit is stored for the member that requested it, during its session, or refused; and the last
commit has all revoked partitions.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioprod import Producer
from aioprod.error_codes import ErrorCode
from aioprod.errors import CommitFailedError, RebalanceInProgressError
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, fail, hold
from aioprod.types import OffsetAndMetadata, TopicPartition
from tests.consumer.group.group_driver import Driver, shared_out

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
EACH_PROTOCOL = pytest.mark.parametrize(
    "settings",
    [
        {"partition_assignment_strategy": ("cooperative-sticky",)},
        {"group_protocol": "consumer"},
    ],
    ids=["classic", "consumer"],
)


@pytest.fixture
async def cluster(broker: EmbeddedCluster) -> EmbeddedCluster:
    broker.create_topic("t", 2)
    async with Producer(broker.bootstrap_servers) as producer:
        for number in range(10):
            await producer.send("t", b"", partition=number % 2)
    return broker


@EACH_PROTOCOL
async def test_a_commit_is_not_retried_as_a_client_outside_the_group(
    cluster: EmbeddedCluster, settings: dict[str, Any]
) -> None:
    async with Driver(cluster, enable_auto_commit=False, **settings) as driver:
        await shared_out([driver.subscribe("t")], 2)
        away = cluster.on(
            ApiKey.OFFSET_COMMIT, fail(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), times=None
        )
        committing = asyncio.create_task(driver.commit({T0: OffsetAndMetadata(3)}, timeout_s=20))
        await away.wait()
        await driver.member.unsubscribe(asyncio.get_running_loop().time() + 5)
        driver.subscription.unsubscribe()
        away.cancel()
        with pytest.raises(CommitFailedError):
            await committing
        assert cluster.committed_offsets("g") == {}
        await driver.commit({T0: OffsetAndMetadata(1)})  # asked for outside the group
        assert cluster.committed_offsets("g") == {T0: 1}


@EACH_PROTOCOL
async def test_a_commit_is_not_retried_in_the_next_session(
    cluster: EmbeddedCluster, settings: dict[str, Any]
) -> None:
    async with Driver(cluster, enable_auto_commit=False, **settings) as driver:
        await shared_out([driver.subscribe("t")], 2)
        before = driver.member.group_metadata()
        away = cluster.on(
            ApiKey.OFFSET_COMMIT, fail(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), times=None
        )
        committing = asyncio.create_task(driver.commit({T0: OffsetAndMetadata(3)}, timeout_s=20))
        await away.wait()
        cluster.expire_member("g", before.member_id)
        await driver.poll_until(
            lambda: (
                driver.member.group_metadata().generation_id > before.generation_id
                and driver.assigned == {T0, T1}
            )
        )
        away.cancel()
        with pytest.raises((CommitFailedError, RebalanceInProgressError)):
            await committing
        assert cluster.committed_offsets("g") == {}


@EACH_PROTOCOL
async def test_a_close_during_a_revocation_commits_the_other_partitions_too(
    cluster: EmbeddedCluster, settings: dict[str, Any]
) -> None:
    async with (
        Driver(cluster, auto_commit_interval_ms=60_000, **settings) as first,
        Driver(cluster, enable_auto_commit=False, **settings) as second,
    ):
        end = OffsetAndMetadata(5)
        await first.subscribe("t").poll_until(
            lambda: first.subscription.consumed() == {T0: end, T1: end}
        )
        kept_back = cluster.on(ApiKey.OFFSET_COMMIT, hold())
        await first.poll_until(lambda: kept_back.used == 1, second.subscribe("t"))
        kept_back.release()
        await first.close()
        assert cluster.committed_offsets("g") == {T0: 5, T1: 5}
