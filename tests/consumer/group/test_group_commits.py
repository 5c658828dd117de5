"""A group's offsets are committed automatically, when partitions are revoked and at the end, with
transactions, and from outside.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest

from aioprod import Consumer, Producer, RebalanceListener
from aioprod.consumer.group.assignors import MemberSubscription, RebalanceProtocol
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, CommitFailedError, ConsumerStateError, KafkaTimeoutError
from aioprod.interceptors import ConsumerInterceptor
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, fail, hold
from aioprod.types import OffsetAndMetadata, TopicPartition
from tests.consumer.group.group_driver import Driver, shared_out

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
async def cluster(broker: EmbeddedCluster) -> EmbeddedCluster:
    broker.create_topic("t", 2)
    async with Producer(broker.bootstrap_servers) as producer:
        for number in range(10):
            await producer.send("t", b"", partition=number % 2)
    return broker


async def test_positions_are_committed_at_intervals_when_partitions_go_and_at_the_end(
    cluster: EmbeddedCluster,
) -> None:
    async with Driver(cluster, auto_commit_interval_ms=60_000) as first, Driver(cluster) as second:
        await shared_out([first.subscribe("t")], 2)
        await first.poll_until(
            lambda: (
                first.subscription.consumed()
                == {T0: OffsetAndMetadata(5), T1: OffsetAndMetadata(5)}
            )
        )
        assert cluster.committed_offsets("g") == {}
        await shared_out([first, second.subscribe("t")], 2)
        assert cluster.committed_offsets("g") == {T0: 5, T1: 5}, (
            "before the partitions went to others"
        )
    async with Driver(cluster, "h", auto_commit_interval_ms=1) as often:
        await often.subscribe("t").poll_until(
            lambda: cluster.committed_offsets("h") == {T0: 5, T1: 5}
        )
    async with Driver(cluster, "e", auto_commit_interval_ms=60_000) as late:
        await late.subscribe("t").poll_until(
            lambda: (
                len(late.subscription.consumed()) == 2
                and late.subscription.consumed()[T1].offset == 5
            )
        )
    assert cluster.committed_offsets("e") == {T0: 5, T1: 5}, "at the end"
    async with Driver(cluster, "n", enable_auto_commit=False) as never:
        await never.subscribe("t").poll_until(lambda: len(never.subscription.consumed()) == 2)
    assert cluster.committed_offsets("n") == {}


async def test_a_consumer_that_assigns_partitions_may_commit_to_a_group_without_members_only(
    cluster: EmbeddedCluster,
) -> None:
    async with Driver(cluster) as member, Driver(cluster, auto_commit_interval_ms=1) as outsider:
        outsider.subscription.assign([T0])
        await outsider.poll_until(lambda: cluster.committed_offsets("g") == {T0: 5})
        await shared_out([member.subscribe("t")], 2)
        with pytest.raises(CommitFailedError, match="assign"):
            await outsider.commit({T0: OffsetAndMetadata(1)})


async def test_offsets_of_an_open_transaction_are_waited_for(cluster: EmbeddedCluster) -> None:
    async with (
        Driver(cluster) as driver,
        Producer(cluster.bootstrap_servers, transactional_id="x") as producer,
    ):
        await shared_out([driver.subscribe("t")], 2)
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({T0: 3}, driver.member.group_metadata())
        reading = asyncio.create_task(driver.committed(T0))
        await cluster.wait_for_request(
            ApiKey.OFFSET_FETCH, cluster.request_count(ApiKey.OFFSET_FETCH) + 2
        )
        assert not reading.done()
        await producer.commit_transaction()
        assert await reading == {T0: OffsetAndMetadata(3)}


async def test_what_one_partition_has_against_it_does_not_stop_the_others(
    cluster: EmbeddedCluster,
) -> None:
    seen: list[Mapping[TopicPartition, OffsetAndMetadata]] = []

    class Watching(ConsumerInterceptor):
        def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
            seen.append(offsets)

    async with Driver(cluster, enable_auto_commit=False, interceptors=[Watching()]) as driver:
        await shared_out([driver.subscribe("t")], 2)
        cluster.on(
            ApiKey.OFFSET_COMMIT, fail(ErrorCode.OFFSET_METADATA_TOO_LARGE, topic="t", partition=0)
        )
        with pytest.raises(BrokerError, match="t-0"):
            await driver.commit({T0: OffsetAndMetadata(1, "x"), T1: OffsetAndMetadata(2)})
        assert cluster.committed_offsets("g") == {T1: 2}
        await driver.commit({T0: OffsetAndMetadata(4)})
        assert seen == [{T0: OffsetAndMetadata(4)}]


async def test_a_commit_that_gets_no_answer_ends_at_its_deadline_and_the_next_one_works(
    cluster: EmbeddedCluster,
) -> None:
    async with Driver(cluster, enable_auto_commit=False, session_timeout_ms=30_000) as driver:
        await shared_out([driver.subscribe("t")], 2)
        rule = cluster.on(ApiKey.OFFSET_COMMIT, hold())
        with pytest.raises(KafkaTimeoutError, match="not completed before the deadline"):
            await driver.commit({T0: OffsetAndMetadata(1)}, timeout_s=0.2)
        rule.release()
        await driver.commit({T0: OffsetAndMetadata(2)})
        assert cluster.committed_offsets("g") == {T0: 2}


class Everything:
    """An assignor of the application's own: all to the member with the largest id."""

    name = "everything"
    supported_protocols = (RebalanceProtocol.COOPERATIVE,)

    def __init__(self, *, patient: bool) -> None:
        self._patient = patient

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        return b"mine"

    def assign(
        self, partitions_per_topic: Mapping[str, int], members: Sequence[MemberSubscription]
    ) -> dict[str, list[TopicPartition]]:
        assert all(each.user_data == b"mine" for each in members)
        last = max(members, key=lambda each: each.group_instance_id or "")
        others = (
            {tp for each in members if each is not last for tp in each.owned}
            if self._patient
            else set()
        )
        return {
            last.member_id: [
                TopicPartition("t", n)
                for n in range(partitions_per_topic["t"])
                if TopicPartition("t", n) not in others
            ]
        }

    def on_assignment(self, partitions: Collection[TopicPartition], generation: int) -> None: ...


@pytest.mark.parametrize("patient", [True, False])
async def test_an_assignor_of_ones_own_has_to_keep_the_rules(
    cluster: EmbeddedCluster, patient: bool
) -> None:
    settings: dict[str, Any] = {"partition_assignment_strategy": [Everything(patient=patient)]}
    async with (
        Driver(cluster, group_instance_id="a", **settings) as first,
        Driver(cluster, group_instance_id="b", **settings) as second,
    ):
        await shared_out([first.subscribe("t")], 2)
        second.subscribe("t")
        if patient:
            await first.poll_until(
                lambda: second.assigned == {T0, T1} and not first.assigned, second
            )
        else:
            with pytest.raises(
                ConsumerStateError, match="before their present member has revoked them"
            ):
                await first.poll_until(lambda: False, second)


async def test_a_cooperative_listener_commits_what_it_gives_up_in_a_transaction(
    cluster: EmbeddedCluster,
) -> None:
    """The listener runs in the generation that revokes the partitions, as in Java."""
    settings: Any = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "group_id": "c",
        "partition_assignment_strategy": ("cooperative-sticky",),
        "heartbeat_interval_ms": 20,
        "session_timeout_ms": 6_000,
        "enable_auto_commit": False,
    }
    given_up: list[TopicPartition] = []
    async with (
        Producer(cluster.bootstrap_servers, transactional_id="c-1") as producer,
        Consumer(**settings) as first,
        Consumer("t", **settings) as second,
    ):

        class GivingUp(RebalanceListener):
            async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
                async with producer.transaction():
                    await producer.send_offsets_to_transaction(
                        dict.fromkeys(partitions, 3), first.group_metadata()
                    )
                given_up.extend(partitions)

        first.subscribe(["t"], listener=GivingUp())
        async with asyncio.timeout(20):
            while len(first.assignment()) < 2:
                await first.getmany(timeout_ms=50)
            while not given_up or not second.assignment():
                await first.getmany(timeout_ms=20)
                await second.getmany(timeout_ms=20)
    assert len(given_up) >= 1
    assert cluster.committed_offsets("c")[given_up[0]] == 3
