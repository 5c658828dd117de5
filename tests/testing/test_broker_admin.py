"""The effects of administrative requests on topics of the embedded broker: settings, adding
partitions, deleting, moving.
"""

from __future__ import annotations

import asyncio

import pytest

from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, ConfigError
from aioprod.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from aioprod.protocol.messages.api_versions import ApiVersionsRequest
from aioprod.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from aioprod.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from aioprod.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from aioprod.protocol.messages.delete_topics import DeleteTopicsRequest
from aioprod.protocol.messages.describe_cluster import DescribeClusterRequest
from aioprod.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from aioprod.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from aioprod.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from aioprod.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from aioprod.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from aioprod.testing import EmbeddedCluster
from tests.testing.raw_admin import BROKER, TOPIC
from tests.testing.raw_client import RawClient, fetch_request, make_batch
from tests.waiting import until

SET, DELETE = 0, 1
PREFERRED, UNCLEAN = 0, 1


def alter(kind: int, name: str, setting: str, value: str | None) -> IncrementalAlterConfigsRequest:
    operation = DELETE if value is None else SET
    return IncrementalAlterConfigsRequest(
        [AlterConfigsResource(kind, name, [AlterableConfig(setting, operation, value)])]
    )


async def earliest(client: RawClient, topic: str) -> int:
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(topic, [ListOffsetsPartition(0, -1, -2)])]
    )
    return (await client.call(request, 7)).topics[0].partitions[0].offset


class TestSettings:
    async def test_a_changed_topic_setting_acts_at_once(self, broker: EmbeddedCluster) -> None:
        broker.create_topic("t")
        async with RawClient(broker.bootstrap_servers) as client:
            assert (await client.produce("t", make_batch([b"x" * 500]))).error_code == 0
            assert (await client.call(alter(TOPIC, "t", "max.message.bytes", "100"), 1)).responses[
                0
            ].error_code == 0
            assert (
                await client.produce("t", make_batch([b"x" * 500]))
            ).error_code == ErrorCode.MESSAGE_TOO_LARGE
            await client.call(alter(TOPIC, "t", "max.message.bytes", None), 1)
            assert (await client.produce("t", make_batch([b"x" * 500]))).error_code == 0

    async def test_a_changed_broker_setting_counts_for_topics_without_one(
        self, broker: EmbeddedCluster
    ) -> None:
        broker.create_topic("own", configs={"max.message.bytes": "5000"})
        broker.create_topic("none")
        async with RawClient(broker.bootstrap_servers) as client:
            assert (await client.call(alter(BROKER, "", "message.max.bytes", "100"), 1)).responses[
                0
            ].error_code == 0
            codes = [
                (await client.produce(topic, make_batch([b"x" * 500]))).error_code
                for topic in ("own", "none")
            ]
        assert codes == [0, ErrorCode.MESSAGE_TOO_LARGE]
        assert broker.topic_configs("none")["max.message.bytes"] == "100"
        assert broker.broker_configs(1)["message.max.bytes"] == "100"

    async def test_min_insync_replicas_can_be_raised_while_a_replica_is_down(self) -> None:
        async with EmbeddedCluster(nodes=2) as cluster:
            cluster.create_topic("t", 1)
            await cluster.stop_node(2)
            async with RawClient(cluster.address(1)) as client:
                assert (await client.produce("t", make_batch([b"x"]))).error_code == 0
                await client.call(alter(TOPIC, "t", "min.insync.replicas", "2"), 1)
                assert (
                    await client.produce("t", make_batch([b"x"]))
                ).error_code == ErrorCode.NOT_ENOUGH_REPLICAS

    async def test_only_a_broker_itself_is_asked_about_its_settings(self) -> None:
        async with EmbeddedCluster(nodes=2) as cluster, RawClient(cluster.address(2)) as client:
            asked = [DescribeConfigsResource(BROKER, name, None) for name in ("1", "2", "")]
            results = (await client.call(DescribeConfigsRequest(asked), 4)).results
        assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST, 0, 0]
        described = {config.name: config.value for config in results[1].configs}
        assert (
            described["node.id"],
            described["num.partitions"],
            described["default.replication.factor"],
        ) == ("2", "1", "2")
        assert described["listeners"] == f"PLAINTEXT://{cluster.address(2)}"

    async def test_secrets_are_not_shown(self, broker: EmbeddedCluster) -> None:
        broker.alter_broker_configs({"sasl.jaas.config": "top secret"}, 1)
        async with RawClient(broker.bootstrap_servers) as client:
            asked = DescribeConfigsRequest(
                [DescribeConfigsResource(BROKER, "1", ["sasl.jaas.config"])], include_synonyms=True
            )
            answer = await client.call(asked, 4)
        assert [config.is_sensitive for config in answer.results[0].configs] == [True]
        assert "top secret" not in repr(answer) + repr(broker.broker_configs(1))

    async def test_python_reads_and_changes_them_too(self, broker: EmbeddedCluster) -> None:
        broker.create_topic("t", configs={"retention.ms": "5"})
        assert {
            name: broker.topic_configs("t")[name]
            for name in ("retention.ms", "cleanup.policy", "segment.bytes")
        } == {
            "retention.ms": "5",
            "cleanup.policy": "delete",
            "segment.bytes": "1073741824",
        }
        broker.alter_topic_configs("t", {"cleanup.policy": "compact", "retention.ms": None})
        assert broker.topics["t"].configs == {"cleanup.policy": "compact"}
        with pytest.raises(BrokerError, match=r"retention\.ms=-2"):
            broker.alter_topic_configs("t", {"retention.ms": "-2"})
        with pytest.raises(BrokerError, match=r"num\.partitions"):
            broker.alter_broker_configs({"num.partitions": "3"})
        with pytest.raises(BrokerError, match="no topic"):
            broker.topic_configs("nope")
        with pytest.raises(ConfigError, match="node_id=9"):
            broker.broker_configs(9)


class TestPartitions:
    async def test_a_topic_grows_and_keeps_what_it_has(self) -> None:
        async with EmbeddedCluster(nodes=3) as cluster, RawClient(cluster.address(1)) as client:
            cluster.create_topic("t", 1)
            await client.produce("t", make_batch([b"kept"]))
            request = CreatePartitionsRequest([CreatePartitionsTopic("t", 3, None)], 1000)
            assert (await client.call(request, 3)).results[0].error_code == 0
            assert [cluster.leader("t", index) for index in range(3)] == [1, 2, 3]
            placed = [CreatePartitionsAssignment([3, 1, 2])]
            assert (
                await client.call(
                    CreatePartitionsRequest([CreatePartitionsTopic("t", 4, placed)], 1000), 3
                )
            ).results[0].error_code == 0
            assert cluster.leader("t", 3) == 3
            assert [record.value for record in cluster.records("t")] == [b"kept"]
            cluster.add_partitions("t", 5)
            with pytest.raises(BrokerError, match="has 5 partitions"):
                cluster.add_partitions("t", 5)

    async def test_nothing_is_done_for_who_gives_it_no_time(self, broker: EmbeddedCluster) -> None:
        broker.create_topic("t")
        async with RawClient(broker.bootstrap_servers) as client:
            created = await client.call(
                CreateTopicsRequest(topics=[CreatableTopic("new", 1, 1)], timeout_ms=0), 7
            )
            grown = await client.call(
                CreatePartitionsRequest([CreatePartitionsTopic("t", 3, None)], 0), 3
            )
            deleted = await client.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=0), 5)
        codes = {
            created.topics[0].error_code,
            grown.results[0].error_code,
            deleted.responses[0].error_code,
        }
        assert codes == {ErrorCode.REQUEST_TIMED_OUT}
        assert {name: len(topic.partitions) for name, topic in broker.topics.items()} == {"t": 1}


class TestDeletedRecords:
    async def test_the_log_begins_later_and_its_memory_is_free(
        self, broker: EmbeddedCluster
    ) -> None:
        topic = broker.create_topic("t")
        async with RawClient(broker.bootstrap_servers) as client:
            for start in range(0, 9, 3):
                await client.produce(
                    "t", make_batch([b"%d" % number for number in range(start, start + 3)])
                )
            size = topic.partitions[0].log.size
            request = DeleteRecordsRequest(
                [DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 4)])], 1000
            )
            assert (await client.call(request, 2)).topics[0].partitions[0].low_watermark == 4
            assert await earliest(client, "t") == 4
            assert topic.partitions[0].log.size == size * 2 // 3
            too_early = (await client.call(fetch_request("t", 3), 12)).responses[0].partitions[0]
            assert too_early.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert [record.value for record in broker.records("t")] == [b"4", b"5", b"6", b"7", b"8"]
        broker.delete_records("t", 0, 100)
        assert (broker.records("t"), topic.partitions[0].log.size) == ([], 0)

    async def test_a_reader_at_the_old_start_that_waits_is_reported(
        self, broker: EmbeddedCluster
    ) -> None:
        broker.create_topic("t")
        async with (
            RawClient(broker.bootstrap_servers) as client,
            RawClient(broker.bootstrap_servers) as reader,
        ):
            await client.produce("t", make_batch([b"x"]))
            waiting = asyncio.create_task(
                reader.call(fetch_request("t", 0, max_wait_ms=30_000, min_bytes=1 << 20), 12)
            )
            await until(lambda: sum(request.api_key == 1 for request in broker.requests) == 1)
            broker.delete_records("t", 0, 1)
            assert (await waiting).responses[0].partitions[
                0
            ].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


class TestLeaders:
    async def test_the_preferred_leader_leads_again(self) -> None:
        async with EmbeddedCluster(nodes=2) as cluster, RawClient(cluster.address(2)) as client:
            cluster.create_topic("t", 2)
            await cluster.stop_node(1)
            asked = ElectLeadersRequest(PREFERRED, [TopicPartitions("t", [0, 1])])
            codes = [
                each.error_code
                for each in (await client.call(asked, 2))
                .replica_election_results[0]
                .partition_result
            ]
            assert codes == [
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                ErrorCode.ELECTION_NOT_NEEDED,
            ]
            await cluster.start_node(1)
            everything = await client.call(ElectLeadersRequest(PREFERRED, None), 2)
            assert [
                (each.partition_id, each.error_code)
                for each in everything.replica_election_results[0].partition_result
            ] == [(0, 0)]
            assert cluster.leader("t", 0) == 1

    async def test_an_unclean_election_gives_a_leader_to_who_has_none(self) -> None:
        async with EmbeddedCluster(nodes=2) as cluster:
            cluster.create_topic("t", 1)
            await cluster.stop_node(2)
            await cluster.kill_node(1)
            await cluster.start_node(2)
            assert cluster.leader("t", 0) == -1
            async with RawClient(cluster.address(2)) as client:
                asked = ElectLeadersRequest(UNCLEAN, [TopicPartitions("t", [0])])
                assert (await client.call(asked, 2)).replica_election_results[0].partition_result[
                    0
                ].error_code == 0
            assert cluster.leader("t", 0) == 2

    async def test_a_partition_moves_to_other_nodes(self) -> None:
        async with EmbeddedCluster(nodes=3, replication_factor=1) as cluster:
            cluster.create_topic("t", 1)
            async with RawClient(cluster.address(1)) as client:
                await client.produce("t", make_batch([b"moved"]))
                asked = AlterPartitionReassignmentsRequest(
                    1000, topics=[ReassignableTopic("t", [ReassignablePartition(0, [3, 2])])]
                )
                assert (await client.call(asked, 1)).responses[0].partitions[0].error_code == 0
                fixed = AlterPartitionReassignmentsRequest(
                    1000, False, [ReassignableTopic("t", [ReassignablePartition(0, [1])])]
                )
                assert (await client.call(fixed, 1)).responses[0].partitions[
                    0
                ].error_code == ErrorCode.INVALID_REPLICATION_FACTOR
            assert (
                cluster.leader("t", 0),
                cluster.topics["t"].partitions[0].leadership.replicas,
            ) == (3, (3, 2))
            async with RawClient(cluster.address(3)) as client:
                assert (
                    (await client.call(fetch_request("t", 0), 12))
                    .responses[0]
                    .partitions[0]
                    .records
                )

    async def test_producers_are_described_by_the_leader(self) -> None:
        async with EmbeddedCluster(nodes=2) as cluster:
            cluster.create_topic("t", 1)
            asked = DescribeProducersRequest([TopicRequest("t", [0])])
            async with (
                RawClient(cluster.address(1)) as leader,
                RawClient(cluster.address(2)) as follower,
            ):
                await leader.produce("t", make_batch([b"a", b"b"], producer=(77, 3, 0)))
                found = (await leader.call(asked, 0)).topics[0].partitions[0].active_producers
                refused = (await follower.call(asked, 0)).topics[0].partitions[0]
        assert [(each.producer_id, each.producer_epoch, each.last_sequence) for each in found] == [
            (77, 3, 1)
        ]
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_cluster_is_described_as_it_runs() -> None:
    async with EmbeddedCluster(nodes=3) as cluster, RawClient(cluster.address(2)) as client:
        await cluster.stop_node(1)
        answer = await client.call(DescribeClusterRequest(), 2)
        assert [f"{node.host}:{node.port}" for node in answer.brokers] == [
            cluster.address(2),
            cluster.address(3),
        ]
        assert answer.controller_id == 2


@pytest.mark.parametrize(
    "header",
    ["7fff0000", "00030063", "0020ffff"],
    ids=["unknown API", "version too new", "negative version"],
)
async def test_what_is_not_announced_ends_the_connection(
    broker: EmbeddedCluster, header: str
) -> None:
    async with RawClient(broker.bootstrap_servers) as client:
        client.writer.write(bytes.fromhex("0000000d" + header + "00000007" + "0003") + b"raw")
        assert await client.is_closed()
    async with RawClient(broker.bootstrap_servers) as client:
        await client.call(ApiVersionsRequest(), 0)


def test_all_that_works_from_other_threads() -> None:
    with EmbeddedCluster.in_thread() as cluster:
        cluster.create_topic("t")
        cluster.add_partitions("t", 2)
        cluster.alter_topic_configs("t", {"retention.ms": "7"})
        cluster.alter_broker_configs({"log.retention.ms": "8"})
        cluster.set_quota({"producer_byte_rate": 1e6}, client_id="c")
        cluster.delete_records("t", 0, 0)
        assert (
            cluster.topic_configs("t")["retention.ms"],
            cluster.broker_configs(1)["log.retention.ms"],
        ) == ("7", "8")
        assert len(cluster.topics["t"].partitions) == 2
