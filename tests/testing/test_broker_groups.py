"""Consumer groups of the embedded broker: over the wire, over time, and while nodes stop and
start.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, KafkaTimeoutError
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.messages.find_coordinator import FindCoordinatorRequest
from aioprod.protocol.messages.list_groups import ListGroupsRequest
from aioprod.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from aioprod.testing import EmbeddedCluster, GroupSettings, fail
from aioprod.types import TopicPartition
from tests.testing.raw_client import RawClient
from tests.testing.raw_group import RawMember, Scene, assignment, open_scene, subscription
from tests.waiting import until

QUICK = GroupSettings(min_session_timeout_ms=50)


def due_times(broker: EmbeddedCluster) -> list[float]:
    """Return when the timers of groups are due."""
    return [timer.due for timer in broker._store.groups._timers.values()]


@pytest.fixture
async def broker() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(groups=QUICK) as broker:
        broker.create_topic("t", 2)
        yield broker


@pytest.fixture
async def scene(broker: EmbeddedCluster) -> AsyncIterator[Scene]:
    async with open_scene(broker.bootstrap_servers, "g", "t") as scene:
        yield scene


class TestView:
    async def test_a_group_shows_who_reads_what(
        self, broker: EmbeddedCluster, scene: Scene
    ) -> None:
        it = await scene.member(instance_id="i")
        await it.join()
        await it.sync({it.member_id: assignment("t", 1)})
        await it.commit(5)
        group = broker.group("g")
        assert (group.state, group.generation_id, group.protocol_type, group.protocol_name) == (
            "Stable",
            1,
            "consumer",
            "range",
        )
        assert (group.leader_id, list(group.members), group.offsets) == (
            it.member_id,
            [it.member_id],
            {TopicPartition("t", 0): 5},
        )
        member = group.members[it.member_id]
        assert (member.instance_id, member.client_id, member.topics) == ("i", "raw", ("t",))
        assert member.partitions == (TopicPartition("t", 1),) == tuple(group.partitions)
        assert (member.metadata, member.assignment) == (subscription("t"), assignment("t", 1))
        await it.leave()
        assert (group.state, broker.group("g").state, broker.group("g").members) == (
            "Stable",
            "Empty",
            {},
        )
        assert broker.group_ids == ["g"]

    async def test_members_that_are_no_consumers_have_bytes_only(
        self, broker: EmbeddedCluster, scene: Scene
    ) -> None:
        it = await scene.member(protocol_type="connect", protocols=[("default", b"anything")])
        await scene.stable(it)
        member = broker.group("g").members[it.member_id]
        assert (member.topics, member.partitions, member.metadata, member.assignment) == (
            None,
            None,
            b"anything",
            b"assignment 0",
        )

    async def test_there_is_no_group_before_its_first_use(self, broker: EmbeddedCluster) -> None:
        with pytest.raises(BrokerError, match="no group 'other'") as caught:
            broker.group("other")
        assert (caught.value.code, broker.group_ids) == (ErrorCode.GROUP_ID_NOT_FOUND, [])

    async def test_waiting_for_a_state(self, broker: EmbeddedCluster, scene: Scene) -> None:
        waiting = asyncio.create_task(broker.wait_for_group("g", member_count=2))
        first, second = await scene.member(), await scene.member()
        await first.join_twice()
        await first.sync()
        joining = asyncio.create_task(second.join_twice())
        await first.until_rebalance()
        await first.join()
        await joining
        assert not waiting.done()
        await scene.synced(first, second)
        assert list((await waiting).members) == [first.member_id, second.member_id]
        with pytest.raises(
            KafkaTimeoutError,
            match=r"group 'g' is not Empty after 0.01 s: it is Stable with 2 members",
        ):
            await broker.wait_for_group("g", "Empty", timeout_seconds=0.01)
        with pytest.raises(KafkaTimeoutError, match="no such group"):
            await broker.wait_for_group("other", timeout_seconds=0)

    def test_from_another_thread(self) -> None:
        async def use(address: str) -> str:
            async with open_scene(address, "g", "t") as scene:
                it = await scene.member()
                await scene.stable(it)
                await it.commit(3)
                return it.member_id

        with EmbeddedCluster.in_thread(groups=QUICK) as broker:
            broker.create_topic("t")
            member_id = asyncio.run(use(broker.bootstrap_servers))
            assert broker.wait_for_group("g", member_count=1).members.keys() == {member_id}
            assert (broker.group_ids, broker.group("g").offsets) == (
                ["g"],
                {TopicPartition("t", 0): 3},
            )
            broker.rebalance_group("g")
            assert broker.group("g").state == "PreparingRebalance"
            broker.expire_member("g", member_id)
            assert broker.wait_for_group("g", "Empty").members == {}
            broker.set_group_members("g", 3, {"m": None})
            assert broker.group("g").generation_id == 3


class TestOrder:
    """Responses that one request completes are sent together, before later requests are handled."""

    async def test_the_leader_is_answered_first_then_the_others_as_they_joined(
        self, broker: EmbeddedCluster, scene: Scene
    ) -> None:
        members = [await scene.member(instance_id=f"i{number}") for number in range(4)]
        await members[0].join()
        for count in range(2, 5):
            joining = asyncio.create_task(members[count - 1].join())
            await scene.until("PreparingRebalance", count)
            await asyncio.gather(joining, *(each.join() for each in members[: count - 1]))
        leader, *others = [each for each in members if each.is_leader] + [
            each for each in members if not each.is_leader
        ]
        order: list[str] = []

        async def sync_and_commit(member: RawMember) -> None:
            await member.sync(scene.shares if member.is_leader else {})
            order.append(f"sync {member.instance_id}")
            await member.commit(1)
            order.append("commit")

        waiting = [asyncio.create_task(sync_and_commit(each)) for each in reversed(others)]
        for _ in range(2):  # they have arrived then: the broker answers in the order of arrival
            await scene.describe()
        await asyncio.gather(sync_and_commit(leader), *waiting)
        joined = [
            str(each.instance_id)
            for each in broker.group("g").members.values()
            if each.member_id != leader.member_id
        ]
        assert order == [f"sync {each}" for each in (leader.instance_id, *joined)] + ["commit"] * 4

    async def test_the_request_that_ends_a_rebalance_is_answered_first(self, scene: Scene) -> None:
        first, second = await scene.member(instance_id="one"), await scene.member(instance_id="two")
        await scene.stable(first)
        order: list[str] = []

        async def join(member: RawMember) -> None:
            await member.join()
            order.append(str(member.instance_id))

        joining = asyncio.create_task(join(second))
        await scene.until("PreparingRebalance", 2)
        await join(first)
        await joining
        assert order == ["one", "two"]


class TestInternalTopics:
    async def test_they_are_listed_once_a_coordinator_was_looked_for(self) -> None:
        async with (
            EmbeddedCluster(nodes=2) as broker,
            RawClient(broker.bootstrap_servers.split(",")[0]) as client,
        ):
            found: list[list[tuple[str | None, bool, int, int]]] = []
            for ask in (
                None,
                FindCoordinatorRequest(key="g"),
                FindCoordinatorRequest(key="t", key_type=1),
                FindCoordinatorRequest(key="h"),
            ):
                if ask is not None:
                    await client.call(ask, 2)
                topics = (await client.call(MetadataRequest(topics=None), 12)).topics
                found.append(
                    [
                        (
                            each.name,
                            each.is_internal,
                            len(each.partitions),
                            len(each.partitions[0].replica_nodes),
                        )
                        for each in topics
                    ]
                )
            offsets, state = (
                ("__consumer_offsets", True, 50, 2),
                ("__transaction_state", True, 50, 2),
            )
            assert found == [[], [offsets], [offsets, state], [offsets, state]]
            assert broker.topics == {}

    async def test_they_are_created_by_use_like_others(
        self, broker: EmbeddedCluster, scene: Scene
    ) -> None:
        asked = MetadataRequest(
            [MetadataRequestTopic(name="__transaction_state"), MetadataRequestTopic(name="other")]
        )
        answered = (await scene.client.call(asked, 12)).topics
        assert [(each.error_code, each.is_internal, len(each.partitions)) for each in answered] == [
            (0, True, 50),
            (0, False, 1),
        ]
        assert sorted(broker.topics) == ["other", "t"]


class TestControl:
    async def test_a_session_can_be_ended(self, broker: EmbeddedCluster, scene: Scene) -> None:
        it = await scene.member()
        await scene.stable(it)
        broker.expire_member("g", it.member_id)
        assert [await it.heartbeat(), broker.group("g").state] == ["UNKNOWN_MEMBER_ID", "Empty"]
        for group_id, member_id in (("g", it.member_id), ("other", "m")):
            with pytest.raises(BrokerError) as caught:
                broker.expire_member(group_id, member_id)
            assert caught.value.code is ErrorCode.UNKNOWN_MEMBER_ID

    async def test_a_rebalance_can_be_asked_for(
        self, broker: EmbeddedCluster, scene: Scene
    ) -> None:
        it = await scene.member()
        await scene.stable(it)
        broker.rebalance_group("g")
        assert await it.heartbeat() == "REBALANCE_IN_PROGRESS"
        assert (await it.join())[:2] == ("NONE", 2)
        await it.leave()
        with pytest.raises(BrokerError, match="no members"):
            broker.rebalance_group("g")

    @pytest.mark.parametrize(
        "api_key",
        [
            ApiKey.JOIN_GROUP,
            ApiKey.SYNC_GROUP,
            ApiKey.HEARTBEAT,
            ApiKey.LEAVE_GROUP,
            ApiKey.OFFSET_COMMIT,
        ],
    )
    async def test_any_request_can_fail_and_changes_nothing_then(
        self, broker: EmbeddedCluster, scene: Scene, api_key: ApiKey
    ) -> None:
        it = await scene.member()
        await scene.stable(it)
        broker.on(api_key, fail(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        before = broker.group("g")
        calls: dict[int, Callable[[], Awaitable[object]]] = {
            ApiKey.JOIN_GROUP: it.join,
            ApiKey.SYNC_GROUP: it.sync,
            ApiKey.HEARTBEAT: it.heartbeat,
            ApiKey.LEAVE_GROUP: it.leave,
            ApiKey.OFFSET_COMMIT: lambda: it.commit(1),
        }
        assert "COORDINATOR_NOT_AVAILABLE" in str(await calls[api_key]())
        assert broker.group("g") == before

    async def test_requests_from_outside_can_fail(
        self, broker: EmbeddedCluster, scene: Scene
    ) -> None:
        for api_key in (
            ApiKey.DESCRIBE_GROUPS,
            ApiKey.DELETE_GROUPS,
            ApiKey.OFFSET_DELETE,
            ApiKey.LIST_GROUPS,
        ):
            broker.on(api_key, fail(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        assert (await scene.describe())[0][0] == "COORDINATOR_NOT_AVAILABLE"
        assert await scene.delete() == ["COORDINATOR_NOT_AVAILABLE"]
        assert await scene.delete_offsets() == ["COORDINATOR_NOT_AVAILABLE"]
        assert (
            await scene.client.call(ListGroupsRequest(), 4)
        ).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


class TestTime:
    async def test_a_silent_member_is_gone_after_its_session(
        self, broker: EmbeddedCluster, scene: Scene
    ) -> None:
        quiet = await scene.member()
        await scene.stable(quiet)
        quiet.session_timeout_ms = 50
        await quiet.join()
        await broker.wait_for_group("g", "Empty")
        assert await quiet.heartbeat() == "UNKNOWN_MEMBER_ID"

    async def test_sessions_do_not_expire_while_the_broker_is_stopped(
        self, broker: EmbeddedCluster, scene: Scene
    ) -> None:
        it = await scene.member(session_timeout_ms=100_000)
        await scene.stable(it)
        await broker.stop_all()
        assert due_times(broker) == []
        await broker.start()
        (due,) = due_times(broker)
        assert due == pytest.approx(asyncio.get_running_loop().time() + 100, abs=5)
        assert (broker.group("g").state, list(broker.group("g").members)) == (
            "Stable",
            [it.member_id],
        )

    async def test_many_heartbeats_set_no_timer(
        self, broker: EmbeddedCluster, scene: Scene
    ) -> None:
        it = await scene.member()
        await scene.stable(it)
        before = due_times(broker)
        for _ in range(100):
            await it.heartbeat()
        assert due_times(broker) == before and len(before) == 1


class TestConnections:
    async def test_a_member_that_hangs_up_while_it_waits_has_joined(
        self, broker: EmbeddedCluster, scene: Scene
    ) -> None:
        first, second = await scene.member(), await scene.member()
        await scene.stable(first)
        await second.join()
        joining = asyncio.create_task(second.join())
        await broker.wait_for_group("g", "PreparingRebalance", member_count=2)
        joining.cancel()
        second.client.writer.close()
        await until(lambda: broker.connection_count(1) == 2)
        answer = await first.join()
        assert str(answer[-1]).count("'raw#") == len(broker.group("g").members) == 2

    async def test_a_broker_stops_while_members_wait(self) -> None:
        async with EmbeddedCluster() as broker, RawClient(broker.bootstrap_servers) as client:
            broker.set_group_members("g", 1, {"m": None})
            async with open_scene(broker.bootstrap_servers, "g", "t") as scene:
                it = RawMember(scene, client)
                await it.join()
                joining = asyncio.create_task(it.join())
                await broker.wait_for_group("g", "PreparingRebalance", member_count=2)
                await broker.stop()
                with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                    await joining


class TestNodes:
    @pytest.fixture
    async def three(self) -> AsyncIterator[EmbeddedCluster]:
        async with EmbeddedCluster(nodes=3) as three:
            three.create_topic("t", 2)
            three.move_coordinator("group", "g", 2)
            yield three

    async def test_only_the_coordinator_answers(self, three: EmbeddedCluster) -> None:
        async with open_scene(three.address(2), "g", "t") as scene:
            it = await scene.member()
            await scene.stable(it)
            assert len(await scene.listed()) == 1
        async with RawClient(three.address(1)) as client:
            scene.client = it.client = client
            refused = "NOT_COORDINATOR"
            assert [
                (await it.join())[0],
                (await it.sync())[0],
                await it.heartbeat(),
                (await it.leave())[0],
                await it.commit(1),
            ] == [refused] * 5
            assert [
                (await scene.describe())[0][0],
                await scene.delete(),
                await scene.delete_offsets(),
            ] == [refused, [refused], [refused]]
            assert await scene.listed() == []

    async def test_members_go_on_at_another_coordinator(self, three: EmbeddedCluster) -> None:
        async with open_scene(three.address(2), "g", "t") as scene:
            first, second = await scene.member(), await scene.member()
            await scene.stable(first)
            joining = asyncio.create_task(second.join_twice())
            await first.until_rebalance()
            three.move_coordinator("group", "g", 3)
            assert (await joining)[0] == "NOT_COORDINATOR"
        async with open_scene(three.address(3), "g", "t") as there:
            moved, newcomer = await there.member(), await there.member()
            moved.member_id, moved.generation_id = first.member_id, first.generation_id
            newcomer.member_id = second.member_id
            assert [await moved.heartbeat(), (await moved.sync())[3]] == ["NONE", b"assignment 0"]
            assert (await newcomer.join())[0] == "UNKNOWN_MEMBER_ID"  # its id was not in the log

    async def test_a_stopped_node_hands_its_groups_over_and_takes_them_back(
        self, three: EmbeddedCluster
    ) -> None:
        async with open_scene(three.address(2), "g", "t") as scene:
            it = await scene.member()
            await scene.stable(it)
        for stopped, address in ((True, three.address(3)), (False, three.address(2))):
            await (three.stop_node(2) if stopped else three.start_node(2))
            async with RawClient(address) as client:
                it.client = client
                assert [await it.heartbeat(), (await it.sync())[3], await it.commit(1)] == [
                    "NONE",
                    b"assignment 0",
                    "NONE",
                ]
        assert three.group("g").generation_id == 1


async def test_a_deleted_topic_takes_its_offsets_along(
    broker: EmbeddedCluster, scene: Scene
) -> None:
    it = await scene.member()
    await scene.stable(it)
    await it.commit(1)
    broker.delete_topic("t")
    assert (broker.group("g").offsets, broker.group("g").state) == ({}, "Stable")
