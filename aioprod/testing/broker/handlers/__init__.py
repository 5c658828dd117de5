"""One file per API, each with a coroutine ``handle(request, exchange)`` for all versions of it;
this is the list of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from aioprod.protocol.message import Message
from aioprod.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from aioprod.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from aioprod.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from aioprod.protocol.messages.alter_configs import AlterConfigsRequest
from aioprod.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
)
from aioprod.protocol.messages.api_versions import ApiVersionsRequest
from aioprod.protocol.messages.create_partitions import CreatePartitionsRequest
from aioprod.protocol.messages.create_topics import CreateTopicsRequest
from aioprod.protocol.messages.delete_groups import DeleteGroupsRequest
from aioprod.protocol.messages.delete_records import DeleteRecordsRequest
from aioprod.protocol.messages.delete_topics import DeleteTopicsRequest
from aioprod.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from aioprod.protocol.messages.describe_cluster import DescribeClusterRequest
from aioprod.protocol.messages.describe_configs import DescribeConfigsRequest
from aioprod.protocol.messages.describe_groups import DescribeGroupsRequest
from aioprod.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from aioprod.protocol.messages.describe_producers import DescribeProducersRequest
from aioprod.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from aioprod.protocol.messages.describe_transactions import DescribeTransactionsRequest
from aioprod.protocol.messages.elect_leaders import ElectLeadersRequest
from aioprod.protocol.messages.end_txn import EndTxnRequest
from aioprod.protocol.messages.fetch import FetchRequest
from aioprod.protocol.messages.find_coordinator import FindCoordinatorRequest
from aioprod.protocol.messages.heartbeat import HeartbeatRequest
from aioprod.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from aioprod.protocol.messages.init_producer_id import InitProducerIdRequest
from aioprod.protocol.messages.join_group import JoinGroupRequest
from aioprod.protocol.messages.leave_group import LeaveGroupRequest
from aioprod.protocol.messages.list_config_resources import ListConfigResourcesRequest
from aioprod.protocol.messages.list_groups import ListGroupsRequest
from aioprod.protocol.messages.list_offsets import ListOffsetsRequest
from aioprod.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from aioprod.protocol.messages.list_transactions import ListTransactionsRequest
from aioprod.protocol.messages.metadata import MetadataRequest
from aioprod.protocol.messages.offset_commit import OffsetCommitRequest
from aioprod.protocol.messages.offset_delete import OffsetDeleteRequest
from aioprod.protocol.messages.offset_fetch import OffsetFetchRequest
from aioprod.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from aioprod.protocol.messages.produce import ProduceRequest
from aioprod.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from aioprod.protocol.messages.sasl_handshake import SaslHandshakeRequest
from aioprod.protocol.messages.sync_group import SyncGroupRequest
from aioprod.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from aioprod.testing.broker.exchange import Exchange
from aioprod.testing.broker.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    api_versions,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
    txn_offset_commit,
)


class Handler(NamedTuple):
    """What decodes the requests of an API and what answers them (None: no answer)."""

    request_type: type[Message]
    handle: Callable[[Any, Exchange], Awaitable[Message | None]]


_ALL = (
    Handler(ApiVersionsRequest, api_versions.handle),
    Handler(CreateTopicsRequest, create_topics.handle),
    Handler(DeleteTopicsRequest, delete_topics.handle),
    Handler(FetchRequest, fetch.handle),
    Handler(FindCoordinatorRequest, find_coordinator.handle),
    Handler(InitProducerIdRequest, init_producer_id.handle),
    Handler(ListOffsetsRequest, list_offsets.handle),
    Handler(OffsetForLeaderEpochRequest, offset_for_leader_epoch.handle),
    Handler(MetadataRequest, metadata.handle),
    Handler(ProduceRequest, produce.handle),
    Handler(SaslAuthenticateRequest, sasl_authenticate.handle),
    Handler(SaslHandshakeRequest, sasl_handshake.handle),
    Handler(AddOffsetsToTxnRequest, add_offsets_to_txn.handle),
    Handler(AddPartitionsToTxnRequest, add_partitions_to_txn.handle),
    Handler(EndTxnRequest, end_txn.handle),
    Handler(HeartbeatRequest, heartbeat.handle),
    Handler(JoinGroupRequest, join_group.handle),
    Handler(LeaveGroupRequest, leave_group.handle),
    Handler(SyncGroupRequest, sync_group.handle),
    Handler(DeleteGroupsRequest, delete_groups.handle),
    Handler(DescribeGroupsRequest, describe_groups.handle),
    Handler(ListGroupsRequest, list_groups.handle),
    Handler(OffsetDeleteRequest, offset_delete.handle),
    Handler(OffsetCommitRequest, offset_commit.handle),
    Handler(OffsetFetchRequest, offset_fetch.handle),
    Handler(TxnOffsetCommitRequest, txn_offset_commit.handle),
    Handler(DescribeClusterRequest, describe_cluster.handle),
    Handler(DescribeConfigsRequest, describe_configs.handle),
    Handler(AlterConfigsRequest, alter_configs.handle),
    Handler(IncrementalAlterConfigsRequest, incremental_alter_configs.handle),
    Handler(CreatePartitionsRequest, create_partitions.handle),
    Handler(DescribeTopicPartitionsRequest, describe_topic_partitions.handle),
    Handler(DescribeLogDirsRequest, describe_log_dirs.handle),
    Handler(DescribeTransactionsRequest, describe_transactions.handle),
    Handler(ListTransactionsRequest, list_transactions.handle),
    Handler(ListPartitionReassignmentsRequest, list_partition_reassignments.handle),
    Handler(ListConfigResourcesRequest, list_config_resources.handle),
    Handler(DeleteRecordsRequest, delete_records.handle),
    Handler(ElectLeadersRequest, elect_leaders.handle),
    Handler(DescribeProducersRequest, describe_producers.handle),
    Handler(AlterPartitionReassignmentsRequest, alter_partition_reassignments.handle),
    Handler(DescribeClientQuotasRequest, describe_client_quotas.handle),
    Handler(AlterClientQuotasRequest, alter_client_quotas.handle),
)
HANDLERS = {handler.request_type.API_KEY: handler for handler in _ALL}
SUPPORTED = {
    key: (handler.request_type.MIN_VERSION, handler.request_type.MAX_VERSION)
    for key, handler in HANDLERS.items()
}
SUPPORTED[SaslHandshakeRequest.API_KEY] = (
    1,
    1,
)  # after version 0 the login would go on in bare bytes
