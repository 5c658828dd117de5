"""Each API of the embedded broker, over a socket and in all versions."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from aioprod.error_codes import ErrorCode
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.message import Request
from aioprod.protocol.messages import share_fetch
from aioprod.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from aioprod.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from aioprod.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aioprod.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from aioprod.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from aioprod.protocol.messages.end_txn import EndTxnRequest
from aioprod.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from aioprod.protocol.messages.find_coordinator import FindCoordinatorRequest
from aioprod.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
)
from aioprod.protocol.messages.init_producer_id import InitProducerIdRequest
from aioprod.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from aioprod.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from aioprod.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from aioprod.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from aioprod.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from aioprod.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from aioprod.protocol.messages.push_telemetry import PushTelemetryRequest
from aioprod.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from aioprod.protocol.messages.sasl_handshake import SaslHandshakeRequest
from aioprod.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from aioprod.protocol.messages.share_fetch import ShareFetchRequest
from aioprod.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from aioprod.testing import EmbeddedCluster, fail
from aioprod.testing.broker import handlers
from aioprod.testing.broker.handlers import HANDLERS
from tests.testing.raw_admin import admin_requests
from tests.testing.raw_client import RawClient, make_batch
from tests.testing.raw_group import group_requests

EVERY_VERSION = [
    (key, version)
    for key, handler in sorted(HANDLERS.items())
    for version in range(handler.versions[0], handler.versions[1] + 1)
]


def typical_request(key: int, version: int, topic_id: uuid.UUID) -> Request[ApiVersionsResponse]:
    """Return a request that names topic "t" and unknown things, if the API has topics."""
    by_id = {"topic_id": topic_id}
    requests = {
        ApiKey.PRODUCE: ProduceRequest(
            acks=1,
            topic_data=[
                TopicProduceData(
                    name="t",
                    partition_data=[PartitionProduceData()],
                    **(by_id if version >= 13 else {}),
                )
            ],
        ),
        ApiKey.FETCH: FetchRequest(
            topics=[
                FetchTopic(
                    topic="t", partitions=[FetchPartition()], **(by_id if version >= 13 else {})
                )
            ]
        ),
        ApiKey.SHARE_FETCH: ShareFetchRequest(
            "s", "m", 0, topics=[share_fetch.FetchTopic(topic_id, [share_fetch.FetchPartition(0)])]
        ),
        ApiKey.SHARE_ACKNOWLEDGE: ShareAcknowledgeRequest("s", "m", -1),
        ApiKey.LIST_OFFSETS: ListOffsetsRequest(
            topics=[
                ListOffsetsTopic("t", [ListOffsetsPartition(timestamp=-1), ListOffsetsPartition(9)])
            ]
        ),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderTopic(
                    "t", [OffsetForLeaderPartition(0, -1, 0), OffsetForLeaderPartition(9, -1, 0)]
                )
            ]
        ),
        ApiKey.METADATA: MetadataRequest(
            topics=[
                MetadataRequestTopic(name="t"),
                MetadataRequestTopic(name="new"),
                MetadataRequestTopic(name="/"),
            ],
            allow_auto_topic_creation=True,
        ),
        ApiKey.CREATE_TOPICS: CreateTopicsRequest(
            topics=[CreatableTopic("t", 1, 1), CreatableTopic("new", 2, 1)]
        ),
        ApiKey.DELETE_TOPICS: DeleteTopicsRequest([DeleteTopicState("t")], [], 1000)
        if version >= 6
        else DeleteTopicsRequest([], ["t", "no"], 1000),
        ApiKey.FIND_COORDINATOR: FindCoordinatorRequest(coordinator_keys=["g"])
        if version >= 4
        else FindCoordinatorRequest(key="g"),
        ApiKey.INIT_PRODUCER_ID: InitProducerIdRequest(transactional_id=None),
        ApiKey.API_VERSIONS: ApiVersionsRequest(
            client_software_name="raw", client_software_version="1.0"
        ),
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: GetTelemetrySubscriptionsRequest(),
        ApiKey.PUSH_TELEMETRY: PushTelemetryRequest(uuid.UUID(int=7)),
        ApiKey.SASL_HANDSHAKE: SaslHandshakeRequest("PLAIN"),
        ApiKey.SASL_AUTHENTICATE: SaslAuthenticateRequest(b"\0user\0password"),
        **transaction_requests(version),
        **admin_requests(),
        **group_requests(version),
    }
    return requests[ApiKey(key)]


def transaction_requests(version: int) -> dict[ApiKey, Request[Any]]:
    """Return the requests for transactions and offsets, for an unknown transactional id."""
    topics = [AddPartitionsToTxnTopic("t", [0]), AddPartitionsToTxnTopic("no", [0])]
    new = [AddPartitionsToTxnTransaction("x", 1, 0, verify, topics) for verify in (False, True)]
    one_group = OffsetFetchRequest(
        "g", [OffsetFetchRequestTopic("t", [0, 9]), OffsetFetchRequestTopic("no", [0])]
    )
    several_groups = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                "g", topics=[OffsetFetchRequestTopics("t", partition_indexes=[0, 9])]
            )
        ]
    )
    return {
        ApiKey.ADD_PARTITIONS_TO_TXN: AddPartitionsToTxnRequest(new)
        if version >= 4
        else AddPartitionsToTxnRequest([], "x", 1, 0, topics),
        ApiKey.ADD_OFFSETS_TO_TXN: AddOffsetsToTxnRequest("x", 1, 0, "g"),
        ApiKey.END_TXN: EndTxnRequest("x", 1, 0, True),
        ApiKey.TXN_OFFSET_COMMIT: TxnOffsetCommitRequest(
            "x",
            "g",
            1,
            0,
            topics=[
                TxnOffsetCommitRequestTopic(
                    "t",
                    partitions=[
                        TxnOffsetCommitRequestPartition(0, 5),
                        TxnOffsetCommitRequestPartition(9),
                    ],
                )
            ],
        ),
        ApiKey.OFFSET_COMMIT: OffsetCommitRequest(
            "g",
            topics=[
                OffsetCommitRequestTopic(
                    "t",
                    partitions=[
                        OffsetCommitRequestPartition(0, 5),
                        OffsetCommitRequestPartition(9),
                    ],
                )
            ],
        ),
        ApiKey.OFFSET_FETCH: several_groups if version >= 8 else one_group,
    }


@pytest.fixture
async def broker() -> AsyncIterator[EmbeddedCluster]:
    """A broker that has all APIs."""
    async with EmbeddedCluster(client_metrics=True) as running:
        yield running


@pytest.mark.parametrize("failing", [False, True])
@pytest.mark.parametrize(("key", "version"), EVERY_VERSION)
async def test_every_version_is_answered(
    broker: EmbeddedCluster, key: int, version: int, failing: bool
) -> None:
    topic = broker.create_topic("t")
    if failing:
        broker.on(key, fail(ErrorCode.KAFKA_STORAGE_ERROR))
    async with RawClient(broker.bootstrap_servers) as client:
        response = await client.call(typical_request(key, version, topic.topic_id), version)
        assert (
            "error_code=<ErrorCode.KAFKA" in repr(response)
            or f"error_code={int(ErrorCode.KAFKA_STORAGE_ERROR)}" in repr(response)
        ) == failing
        await client.call(ApiVersionsRequest(), 0)  # the connection still works


async def test_api_versions_shows_exactly_what_is_handled(broker: EmbeddedCluster) -> None:
    async with RawClient(broker.bootstrap_servers) as client:
        response = await client.call(ApiVersionsRequest(), 0)
    assert {(api.api_key, api.min_version, api.max_version) for api in response.api_keys} == {
        (key, *handler.versions) for key, handler in HANDLERS.items()
    }


@pytest.mark.parametrize("key", [ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY])
async def test_metrics_of_clients_are_taken_only_by_a_broker_with_a_receiver(key: ApiKey) -> None:
    async with EmbeddedCluster() as broker, RawClient(broker.bootstrap_servers) as client:
        response = await client.call(ApiVersionsRequest(), 0)
        assert key not in {api.api_key for api in response.api_keys}
        with pytest.raises(asyncio.IncompleteReadError):
            await client.call(typical_request(key, 0, uuid.uuid4()), 0)


def test_every_handler_is_registered() -> None:
    files = Path(handlers.__file__).parent.glob("*.py")
    written = {path.stem for path in files if "\nasync def handle(" in path.read_text()}
    registered = {handler.handle.__module__.rpartition(".")[2] for handler in HANDLERS.values()}
    assert registered == written


async def test_an_unknown_api_versions_version_is_answered_in_version_0(
    broker: EmbeddedCluster,
) -> None:
    async with RawClient(broker.bootstrap_servers) as client:
        client.writer.write(bytes.fromhex("0000000e 0012 0063 00000007 0003") + b"raw\0")
        frame = await client.receive_frame()
        assert int.from_bytes(frame[:4], "big") == 7
        response = ApiVersionsResponse.decode(frame[4:], 0)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [(api.api_key, api.min_version, api.max_version) for api in response.api_keys] == [
            (18, *HANDLERS[18].versions)
        ]


async def test_api_versions_refuses_a_nameless_client(broker: EmbeddedCluster) -> None:
    async with RawClient(broker.bootstrap_servers) as client:
        assert (
            await client.call(
                ApiVersionsRequest(client_software_name="", client_software_version="1"), 3
            )
        ).error_code == ErrorCode.INVALID_REQUEST


class TestMetadata:
    async def test_topics_are_created_where_the_client_and_the_broker_want_it(
        self, broker: EmbeddedCluster
    ) -> None:
        async with RawClient(broker.bootstrap_servers) as client:
            asked = MetadataRequest(
                topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False
            )
            assert (await client.call(asked, 9)).topics[
                0
            ].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert not broker.topics
            asked.allow_auto_topic_creation = True
            answer = (await client.call(asked, 9)).topics[0]
            assert (answer.error_code, len(answer.partitions)) == (0, 1)
            assert list(broker.topics) == ["t"]

    async def test_no_topic_is_created_where_the_broker_does_not_want_it(self) -> None:
        async with (
            EmbeddedCluster(auto_create_topics=False) as broker,
            RawClient(broker.bootstrap_servers) as client,
        ):
            answer = await client.call(
                MetadataRequest(
                    topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=True
                ),
                9,
            )
            assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    @pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "a/b", "x" * 250])
    async def test_illegal_names(self, broker: EmbeddedCluster, name: str) -> None:
        async with RawClient(broker.bootstrap_servers) as client:
            answer = await client.call(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 9)
            assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION

    async def test_all_topics_or_none(self, broker: EmbeddedCluster) -> None:
        broker.create_topic("a", 2)
        broker.create_topic("b")
        async with RawClient(broker.bootstrap_servers) as client:
            assert [
                topic.name for topic in (await client.call(MetadataRequest(topics=[]), 0)).topics
            ] == ["a", "b"]
            assert [
                topic.name for topic in (await client.call(MetadataRequest(topics=None), 1)).topics
            ] == ["a", "b"]
            assert (await client.call(MetadataRequest(topics=[]), 1)).topics == []

    async def test_by_id(self, broker: EmbeddedCluster) -> None:
        topic = broker.create_topic("a", 2)
        async with RawClient(broker.bootstrap_servers) as client:
            asked = [
                MetadataRequestTopic(topic.topic_id, None),
                MetadataRequestTopic(uuid.uuid4(), None),
            ]
            known, unknown = (await client.call(MetadataRequest(topics=asked), 12)).topics
            assert (known.name, known.topic_id, len(known.partitions)) == ("a", topic.topic_id, 2)
            assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID

    async def test_the_one_node_leads_everything(self, broker: EmbeddedCluster) -> None:
        broker.create_topic("a", 2)
        async with RawClient(broker.bootstrap_servers) as client:
            answer = await client.call(MetadataRequest(topics=None), 9)
        node = answer.brokers[0]
        assert f"{node.host}:{node.port}" == broker.bootstrap_servers
        assert answer.controller_id == node.node_id and answer.cluster_id
        for partition in answer.topics[0].partitions:
            assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (
                node.node_id,
                [node.node_id],
                [node.node_id],
            )


class TestCreateAndDeleteTopics:
    async def test_a_topic_is_made_as_asked(self, broker: EmbeddedCluster) -> None:
        async with RawClient(broker.bootstrap_servers) as client:
            asked = CreatableTopic(
                "t",
                3,
                1,
                configs=[
                    CreatableTopicConfig("max.message.bytes", "1000"),
                    CreatableTopicConfig("retention.ms", "5"),
                ],
            )
            result = (await client.call(CreateTopicsRequest(topics=[asked]), 7)).topics[0]
        assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 3, 1)
        topic = broker.topics["t"]
        assert (topic.topic_id, len(topic.partitions), topic.config.max_message_bytes) == (
            result.topic_id,
            3,
            1000,
        )
        assert dict(topic.configs) == {"max.message.bytes": "1000", "retention.ms": "5"}

    @pytest.mark.parametrize(
        ("topic", "code"),
        [
            (CreatableTopic("there", 1, 1), ErrorCode.TOPIC_ALREADY_EXISTS),
            (CreatableTopic("a/b", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
            (CreatableTopic("t", 0, 1), ErrorCode.INVALID_PARTITIONS),
            (CreatableTopic("t", -2, 1), ErrorCode.INVALID_PARTITIONS),
            (CreatableTopic("t", 1, 3), ErrorCode.INVALID_REPLICATION_FACTOR),
            (
                CreatableTopic(
                    "t", 1, 1, configs=[CreatableTopicConfig("max.message.bytes", "many")]
                ),
                ErrorCode.INVALID_CONFIG,
            ),
            (
                CreatableTopic(
                    "t", 1, 1, configs=[CreatableTopicConfig("message.timestamp.type", "Now")]
                ),
                ErrorCode.INVALID_CONFIG,
            ),
            (
                CreatableTopic("t", -1, -1, [CreatableReplicaAssignment(1, [1])]),
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            ),
            (
                CreatableTopic("t", 2, -1, [CreatableReplicaAssignment(0, [1])]),
                ErrorCode.INVALID_REQUEST,
            ),
        ],
    )
    async def test_what_is_refused(
        self, broker: EmbeddedCluster, topic: CreatableTopic, code: ErrorCode
    ) -> None:
        broker.create_topic("there")
        async with RawClient(broker.bootstrap_servers) as client:
            result = (await client.call(CreateTopicsRequest(topics=[topic]), 7)).topics[0]
        assert result.error_code == code and result.error_message
        assert list(broker.topics) == ["there"]

    async def test_defaults_assignments_duplicates_and_validation(self) -> None:
        async with (
            EmbeddedCluster(num_partitions=4) as broker,
            RawClient(broker.bootstrap_servers) as client,
        ):
            await client.call(CreateTopicsRequest(topics=[CreatableTopic("d", -1, -1)]), 7)
            assert len(broker.topics["d"].partitions) == 4
            manual = CreatableTopic(
                "m",
                -1,
                -1,
                [CreatableReplicaAssignment(1, [1]), CreatableReplicaAssignment(0, [1])],
            )
            await client.call(CreateTopicsRequest(topics=[manual]), 7)
            assert len(broker.topics["m"].partitions) == 2
            twice = await client.call(
                CreateTopicsRequest(topics=[CreatableTopic("x", 1, 1), CreatableTopic("x", 1, 1)]),
                7,
            )
            assert [result.error_code for result in twice.topics] == [ErrorCode.INVALID_REQUEST]
            checked = await client.call(
                CreateTopicsRequest(topics=[CreatableTopic("v", 1, 1)], validate_only=True), 7
            )
            assert checked.topics[0].error_code == 0
            assert list(broker.topics) == ["d", "m"]

    async def test_deletion_by_name_and_by_id(self, broker: EmbeddedCluster) -> None:
        broker.create_topic("a")
        second = broker.create_topic("b")
        async with RawClient(broker.bootstrap_servers) as client:
            by_name = await client.call(
                DeleteTopicsRequest(topic_names=["a", "no"], timeout_ms=1000), 5
            )
            assert [result.error_code for result in by_name.responses] == [
                0,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ]
            states = [DeleteTopicState(None, second.topic_id), DeleteTopicState(None, uuid.uuid4())]
            by_id = await client.call(DeleteTopicsRequest(topics=states, timeout_ms=1000), 6)
            assert [result.error_code for result in by_id.responses] == [
                0,
                ErrorCode.UNKNOWN_TOPIC_ID,
            ]
        assert not broker.topics


class TestInitProducerId:
    async def test_every_idempotent_producer_gets_an_id_of_its_own(
        self, broker: EmbeddedCluster
    ) -> None:
        async with RawClient(broker.bootstrap_servers) as client:
            answers = [
                await client.call(InitProducerIdRequest(transactional_id=None), 4) for _ in range(3)
            ]
        assert len({answer.producer_id for answer in answers}) == 3
        assert {(answer.error_code, answer.producer_epoch) for answer in answers} == {(0, 0)}

    async def test_a_transactional_id_keeps_its_producer_and_bumps_its_epoch(
        self, broker: EmbeddedCluster
    ) -> None:
        asked = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1000)
        async with RawClient(broker.bootstrap_servers) as client:
            first, second = await client.call(asked, 4), await client.call(asked, 4)
            assert (first.producer_id, first.producer_epoch, second.producer_epoch) == (
                second.producer_id,
                0,
                1,
            )
            asked.producer_id, asked.producer_epoch = first.producer_id, 0
            assert (await client.call(asked, 4)).error_code == ErrorCode.PRODUCER_FENCED
            assert (await client.call(asked, 3)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
            asked.producer_epoch = 1
            assert (await client.call(asked, 4)).producer_epoch == 2

    @pytest.mark.parametrize(
        ("name", "timeout_ms", "code"),
        [
            ("", 1000, ErrorCode.INVALID_REQUEST),
            ("t", 0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
            ("t", 900_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ],
    )
    async def test_what_is_refused(
        self, broker: EmbeddedCluster, name: str, timeout_ms: int, code: ErrorCode
    ) -> None:
        async with RawClient(broker.bootstrap_servers) as client:
            answer = await client.call(
                InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms), 4
            )
        assert (answer.error_code, answer.producer_id) == (code, -1)


async def test_find_coordinator_names_this_broker(broker: EmbeddedCluster) -> None:
    async with RawClient(broker.bootstrap_servers) as client:
        single = await client.call(FindCoordinatorRequest(key="g"), 2)
        assert f"{single.host}:{single.port}" == broker.bootstrap_servers
        several = await client.call(FindCoordinatorRequest(coordinator_keys=["g", "h"]), 4)
        assert [(found.key, f"{found.host}:{found.port}") for found in several.coordinators] == [
            ("g", broker.bootstrap_servers),
            ("h", broker.bootstrap_servers),
        ]
        assert (
            await client.call(FindCoordinatorRequest(key="g", key_type=9), 2)
        ).error_code == ErrorCode.INVALID_REQUEST


async def test_the_broker_s_clock_can_be_given() -> None:
    async with (
        EmbeddedCluster(wall_clock=lambda: 1234.5) as broker,
        RawClient(broker.bootstrap_servers) as client,
    ):
        broker.create_topic("t", configs={"message.timestamp.type": "LogAppendTime"})
        before = int(time.time() * 1000)
        answer = await client.produce("t", make_batch([b"x"], timestamps=[before]))
        assert answer.log_append_time_ms == 1_234_500
        assert [(record.timestamp, record.timestamp_type) for record in broker.records("t")] == [
            (1_234_500, 1)
        ]
