"""Share consumers while the embedded cluster refuses requests, cuts connections, moves leaders and
loses nodes: each record whose acceptance was confirmed is never delivered again, and none is lost.
"""

from __future__ import annotations

import asyncio

import pytest

from aioprod import ErrorCode, KafkaError
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, fail
from tests.consumer.share.share_groups import ShareTopic, lag

COUNT = 300
REFUSED = [
    (ApiKey.SHARE_FETCH, ErrorCode.INVALID_SHARE_SESSION_EPOCH),
    (ApiKey.SHARE_FETCH, ErrorCode.SHARE_SESSION_NOT_FOUND),
    (ApiKey.SHARE_ACKNOWLEDGE, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (ApiKey.SHARE_ACKNOWLEDGE, ErrorCode.SHARE_SESSION_NOT_FOUND),
    (ApiKey.SHARE_GROUP_HEARTBEAT, ErrorCode.FENCED_MEMBER_EPOCH),
    (ApiKey.SHARE_GROUP_HEARTBEAT, ErrorCode.NOT_COORDINATOR),
]


async def disturb(
    cluster: EmbeddedCluster, topic: ShareTopic, refused: list[tuple[ApiKey, ErrorCode]] = REFUSED
) -> None:
    """Write, and inject the next fault, until all faults are done."""
    part = COUNT // len(refused)
    for number, (key, code) in enumerate(refused):
        # Before the records: the members may have read and acknowledged them when write returns.
        harm = cluster.on(key, fail(code))
        await topic.write(range(number * part, (number + 1) * part))
        await harm.wait()
        cluster.move_leader(topic.topic, 0, 1 + number % 3)
    node_id = cluster.leader(topic.topic, 0)
    await cluster.kill_node(node_id)
    await topic.write([COUNT])
    await cluster.start_node(node_id)


@pytest.mark.parametrize("members", [1, 3])
async def test_nothing_is_lost_and_nothing_accepted_comes_again(members: int) -> None:
    async with EmbeddedCluster(nodes=3) as cluster:
        topic = ShareTopic(cluster.bootstrap_servers)
        await topic.create(share_record_lock_duration_ms="1000", share_delivery_count_limit="10")
        seen: set[int] = set()
        sure: set[int] = set()

        async def work() -> None:
            settings = {"share_acquire_mode": "record_limit", "max_poll_records": 7}
            async with topic.consumer(**settings) as consumer:
                while not disturbing.done() or await lag(topic) != 0:
                    try:
                        offsets = {each.offset for each in await consumer.getmany(timeout_ms=100)}
                        assert not offsets & sure
                        seen.update(offsets)
                        if set((await consumer.commit()).values()) == {None}:
                            sure.update(offsets)
                    except KafkaError:
                        pass

        disturbing = asyncio.create_task(disturb(cluster, topic))
        async with asyncio.timeout(60):
            await asyncio.gather(disturbing, *(work() for _ in range(members)))
        assert seen == set(range(COUNT + 1))
        assert sure <= seen
        assert len(sure) > COUNT // 2
