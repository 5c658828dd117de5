"""Members of a classic group against the embedded broker: who has what, who learns what, and what
trouble does not change.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, CommitFailedError
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, GroupSettings, fail, hold_answer
from aioprod.types import OffsetAndMetadata, TopicPartition
from tests.consumer.group.group_driver import Driver, Listener, shared_out

EAGER: dict[str, Any] = {"partition_assignment_strategy": ("range",)}
COOPERATIVE: dict[str, Any] = {"partition_assignment_strategy": ("cooperative-sticky",)}
BOTH = pytest.mark.parametrize("protocol", [EAGER, COOPERATIVE], ids=["eager", "cooperative"])


def tps(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


@pytest.fixture
def cluster(broker: EmbeddedCluster) -> EmbeddedCluster:
    broker.create_topic("t", 4)
    return broker


@BOTH
async def test_one_member_has_all_partitions_and_is_reported(
    cluster: EmbeddedCluster, protocol: dict[str, Any]
) -> None:
    listener = Listener()
    async with Driver(cluster, listener=listener, **protocol) as driver:
        driver.subscribe("t")
        await shared_out([driver], 4)
        assert listener.calls == [("assigned", tps("t", 0, 1, 2, 3))]
        assert cluster.group("g").state == "Stable"
        metadata = driver.member.group_metadata()
        assert (metadata.group_id, metadata.generation_id, metadata.member_id != "") == (
            "g",
            1,
            True,
        )
    assert listener.calls[1:] == [("revoked", tps("t", 0, 1, 2, 3))]
    assert cluster.group("g").state == "Empty"


@BOTH
async def test_members_share_and_one_that_leaves_releases_its_partitions(
    cluster: EmbeddedCluster, protocol: dict[str, Any]
) -> None:
    listeners = [Listener(), Listener()]
    async with Driver(cluster, listener=listeners[0], **protocol) as first:
        await shared_out([first.subscribe("t")], 4)
        async with Driver(cluster, listener=listeners[1], **protocol) as second:
            await shared_out([first, second.subscribe("t")], 4)
            assert (len(first.assigned), len(second.assigned)) == (2, 2)
        assert cluster.group("g").members, "the other one has left"
        await shared_out([first], 4)
    names = [name for name, _ in listeners[0].calls]
    revoked = next(partitions for name, partitions in listeners[0].calls if name == "revoked")
    if protocol is EAGER:
        assert names == ["assigned", "revoked", "assigned", "revoked", "assigned", "revoked"]
        assert revoked == tps("t", 0, 1, 2, 3)
    else:
        assert len(revoked) == 2, "a cooperative member keeps what it need not give up"
        assert "lost" not in names


@BOTH
async def test_a_crashed_member_is_replaced_after_its_session(
    cluster: EmbeddedCluster, protocol: dict[str, Any]
) -> None:
    async with (
        Driver(cluster, **protocol) as first,
        Driver(cluster, session_timeout_ms=6_000, **protocol) as second,
    ):
        await shared_out([first.subscribe("t"), second.subscribe("t")], 4)
        member_id = second.member.group_metadata().member_id
        await second.crash()
        cluster.expire_member("g", member_id)
        await shared_out([first], 4)


@BOTH
async def test_a_member_whose_session_ended_loses_its_partitions_and_comes_back(
    cluster: EmbeddedCluster, protocol: dict[str, Any]
) -> None:
    listener = Listener()
    async with Driver(cluster, listener=listener, **protocol) as driver:
        await shared_out([driver.subscribe("t")], 4)
        cluster.expire_member("g", driver.member.group_metadata().member_id)
        await driver.poll_until(lambda: len(listener.calls) == 3)
        assert [name for name, _ in listener.calls] == ["assigned", "lost", "assigned"]
        await shared_out([driver], 4)


async def test_a_commit_after_the_member_was_put_out_fails_and_says_why(
    cluster: EmbeddedCluster,
) -> None:
    async with Driver(cluster, heartbeat_interval_ms=3_000) as driver:
        await shared_out([driver.subscribe("t")], 4)
        cluster.expire_member("g", driver.member.group_metadata().member_id)
        with pytest.raises(CommitFailedError, match="max_poll_interval_ms"):
            await driver.commit({tps("t", 0)[0]: OffsetAndMetadata(5)})
        await shared_out([driver], 4)
        await driver.commit({tps("t", 0)[0]: OffsetAndMetadata(5, "note", 3)})
        assert await driver.committed(*tps("t", 0, 1)) == {
            tps("t", 0)[0]: OffsetAndMetadata(5, "note", 3),
            tps("t", 1)[0]: None,
        }


async def test_new_partitions_and_topics_that_match_a_pattern_are_found(
    cluster: EmbeddedCluster,
) -> None:
    async with Driver(cluster) as driver:
        driver.subscription.subscribe_pattern(re.compile("t.*"), None)
        driver.member.subscription_changed()
        await shared_out([driver], 4)
        cluster.create_topic("t-2", 3)
        cluster.create_topic("other", 1)
        await driver.poll_until(lambda: len(driver.assigned) == 7)
        assert {tp.topic for tp in driver.assigned} == {"t", "t-2"}
        cluster.delete_topic("t-2")
        await shared_out([driver], 4)


async def test_a_change_of_the_subscription_joins_again(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("u", 2)
    listener = Listener()
    async with Driver(cluster, listener=listener, **COOPERATIVE) as driver:
        await shared_out([driver.subscribe("t")], 4)
        await driver.poll_until(
            lambda: driver.assigned == set(tps("u", 0, 1)) if driver.subscribe("u") else False
        )
        assert ("revoked", tps("t", 0, 1, 2, 3)) in listener.calls
        assert "lost" not in [name for name, _ in listener.calls]


async def test_static_members_come_back_without_a_rebalance(cluster: EmbeddedCluster) -> None:
    async with Driver(cluster, group_instance_id="one") as first:
        second = Driver(cluster, group_instance_id="two")
        async with second:
            await shared_out([first.subscribe("t"), second.subscribe("t")], 4)
            before = second.assigned
            generation = cluster.group("g").generation_id
        async with Driver(cluster, group_instance_id="two") as again:
            await shared_out([first, again.subscribe("t")], 4)
            assert again.assigned == before
            assert cluster.group("g").generation_id == generation


async def test_a_closing_cooperative_member_commits_in_the_new_generation(
    cluster: EmbeddedCluster,
) -> None:
    """It reads on during a rebalance. The coordinator may be a generation further than the member
    knows, and refuses commits of the previous one.
    """
    partition, answered = tps("t", 0)[0], asyncio.Event()
    listener = Listener(lambda _: first.commit({partition: OffsetAndMetadata(7)}))
    async with (
        Driver(cluster, listener=listener, **COOPERATIVE) as first,
        Driver(cluster, **COOPERATIVE) as second,
    ):
        await shared_out([first.subscribe("t")], 4)
        second.subscribe("t")
        await second.poll_until(lambda: cluster.group("g").state == "PreparingRebalance")
        rule = cluster.on(ApiKey.JOIN_GROUP, hold_answer(answered))
        await first.poll_until(lambda: rule.used == 1 and cluster.group("g").generation_id == 2)
        asyncio.get_running_loop().call_later(0.1, answered.set)
        await first.close()
        assert [name for name, _ in listener.calls] == ["assigned", "revoked"]
        assert await second.committed(partition) == {partition: OffsetAndMetadata(7)}
        await shared_out([second], 4)


async def test_of_two_with_the_same_instance_the_older_one_is_fenced_permanently(
    cluster: EmbeddedCluster,
) -> None:
    async with (
        Driver(cluster, group_instance_id="one") as first,
        Driver(cluster, group_instance_id="one") as second,
    ):
        await shared_out([first.subscribe("t")], 4)
        second.subscribe("t")
        with pytest.raises(BrokerError, match="FENCED_INSTANCE_ID"):
            await second.poll_until(lambda: False, first)
        loser = first if first.member.failure is not None else second
        assert loser is first
        with pytest.raises(BrokerError, match="FENCED_INSTANCE_ID"):
            await first.poll()
        await shared_out([second], 4)


@pytest.mark.virtual_time
async def test_who_does_not_poll_leaves_and_loses_its_partitions(cluster: EmbeddedCluster) -> None:
    listener = Listener()
    async with (
        Driver(cluster) as first,
        Driver(cluster, listener=listener, max_poll_interval_ms=300) as slow,
    ):
        await shared_out([first.subscribe("t"), slow.subscribe("t")], 4)
        await shared_out([first], 4)  # the slow one does not poll meanwhile
        with pytest.raises(CommitFailedError):
            await slow.commit({tps("t", 0)[0]: OffsetAndMetadata(1)})
        await shared_out([first, slow], 4)
        assert "lost" in [name for name, _ in listener.calls]


@BOTH
async def test_a_coordinator_that_moves_is_found_again(protocol: dict[str, Any]) -> None:
    async with EmbeddedCluster(nodes=3, replication_factor=3) as cluster:
        cluster.create_topic("t", 4)
        async with Driver(cluster, **protocol) as first, Driver(cluster, **protocol) as second:
            await shared_out([first.subscribe("t"), second.subscribe("t")], 4)
            for node in (2, 3, 1):
                cluster.move_coordinator("group", "g", node)
                await first.commit({tps("t", 0)[0]: OffsetAndMetadata(node)})
                await shared_out([first, second], 4)
            old = cluster.coordinator("group", "g")
            await cluster.kill_node(old)
            await first.commit({tps("t", 0)[0]: OffsetAndMetadata(9)})
            await shared_out([first, second], 4)
            assert (await second.committed(*tps("t", 0)))[tps("t", 0)[0]] == OffsetAndMetadata(9)


RETRIED = [
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
]


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("api", "codes"),
    [
        (
            ApiKey.FIND_COORDINATOR,
            [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS],
        ),
        (
            ApiKey.JOIN_GROUP,
            [
                *RETRIED,
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.REBALANCE_IN_PROGRESS,
                ErrorCode.ILLEGAL_GENERATION,
            ],
        ),
        (
            ApiKey.SYNC_GROUP,
            [
                *RETRIED,
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.REBALANCE_IN_PROGRESS,
                ErrorCode.ILLEGAL_GENERATION,
            ],
        ),
        (
            ApiKey.HEARTBEAT,
            [
                *RETRIED,
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.REBALANCE_IN_PROGRESS,
                ErrorCode.ILLEGAL_GENERATION,
            ],
        ),
        (
            ApiKey.OFFSET_COMMIT,
            [*RETRIED, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
        ),
        (ApiKey.OFFSET_FETCH, [*RETRIED, ErrorCode.UNSTABLE_OFFSET_COMMIT]),
    ],
    ids=lambda value: value.name if isinstance(value, ApiKey) else "",
)
async def test_answers_that_pass_are_survived(api: ApiKey, codes: list[ErrorCode]) -> None:
    # A member that learns that it is unknown, although it is not, leaves one behind whose session
    # has to end.
    async with EmbeddedCluster(groups=GroupSettings(min_session_timeout_ms=1)) as cluster:
        cluster.create_topic("t", 4)
        for code in codes:
            async with Driver(cluster, f"g{int(code)}", session_timeout_ms=500) as driver:
                rule = cluster.on(api, fail(code), nth=1, times=2)
                await shared_out([driver.subscribe("t")], 4)
                await driver.commit({tps("t", 0)[0]: OffsetAndMetadata(7)})
                assert (await driver.committed(*tps("t", 0)))[tps("t", 0)[0]] == OffsetAndMetadata(
                    7
                )
                await driver.poll_until(lambda rule=rule: rule.used == 2)  # type: ignore[misc]
                await shared_out([driver], 4)


@pytest.mark.parametrize(
    "api",
    [ApiKey.FIND_COORDINATOR, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT],
    ids=lambda api: api.name,
)
@pytest.mark.parametrize(
    "code",
    [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_SERVER_ERROR],
    ids=lambda code: code.name,
)
async def test_refusals_reach_the_application_once_and_the_next_call_tries_again(
    cluster: EmbeddedCluster, api: ApiKey, code: ErrorCode
) -> None:
    async with Driver(cluster) as driver:
        cluster.on(api, fail(code))
        driver.subscribe("t")
        with pytest.raises(BrokerError) as caught:
            await driver.poll_until(lambda: False)
        assert caught.value.code is code
        await shared_out([driver], 4)


async def test_commits_that_come_together_go_together(cluster: EmbeddedCluster) -> None:
    async with Driver(cluster, enable_auto_commit=False) as driver:
        await shared_out([driver.subscribe("t")], 4)
        before = cluster.request_count(ApiKey.OFFSET_COMMIT)
        await asyncio.gather(
            *(
                driver.commit({tp: OffsetAndMetadata(number)})
                for number in range(1, 26)
                for tp in tps("t", 0, 1, 2, 3)
            )
        )
        assert cluster.request_count(ApiKey.OFFSET_COMMIT) - before <= 2
        assert set((await driver.committed(*tps("t", 0, 1, 2, 3))).values()) == {
            OffsetAndMetadata(25)
        }


async def test_heartbeats_go_on_while_a_listener_takes_its_time(cluster: EmbeddedCluster) -> None:
    async def linger(partitions: list[TopicPartition]) -> None:
        await cluster.wait_for_request(
            ApiKey.HEARTBEAT, cluster.request_count(ApiKey.HEARTBEAT) + 6
        )

    listener = Listener(linger)
    async with Driver(cluster, listener=listener) as first, Driver(cluster) as second:
        await shared_out([first.subscribe("t")], 4)
        await shared_out([first, second.subscribe("t")], 4)
        assert [name for name, _ in listener.calls] == ["assigned", "revoked", "assigned"]
