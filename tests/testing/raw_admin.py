"""Administrative requests for tests with the raw client, each with as many fields as its version
has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.message import Request
from aioprod.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from aioprod.protocol.messages.alter_configs import AlterableConfig as Replaced
from aioprod.protocol.messages.alter_configs import AlterConfigsRequest
from aioprod.protocol.messages.alter_configs import AlterConfigsResource as ReplacedResource
from aioprod.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from aioprod.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from aioprod.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from aioprod.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from aioprod.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from aioprod.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from aioprod.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from aioprod.protocol.messages.describe_acls import DescribeAclsRequest
from aioprod.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from aioprod.protocol.messages.describe_cluster import DescribeClusterRequest
from aioprod.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from aioprod.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from aioprod.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from aioprod.protocol.messages.describe_producers import DescribeProducersRequest
from aioprod.protocol.messages.describe_producers import TopicRequest as ProducersOfTopic
from aioprod.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from aioprod.protocol.messages.describe_transactions import DescribeTransactionsRequest
from aioprod.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from aioprod.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from aioprod.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from aioprod.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from aioprod.protocol.messages.list_config_resources import ListConfigResourcesRequest
from aioprod.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from aioprod.protocol.messages.list_transactions import ListTransactionsRequest
from aioprod.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from tests.testing.raw_client import RawClient
from tests.testing.raw_transactions import name

TOPIC, BROKER, GROUP = 2, 4, 32
_SET = 0
ANY, READ, LITERAL, ALLOW = 1, 3, 3, 3


def admin_requests() -> dict[ApiKey, Request[Any]]:
    """Return one request of each API that all versions can encode. It names topic "t" and unknown
    things, if the API has topics.
    """
    changed = [Replaced("retention.ms", "5"), Replaced("cleanup.policy", "compact")]
    return {
        ApiKey.DELETE_RECORDS: DeleteRecordsRequest(
            [DeleteRecordsTopic(name, [DeleteRecordsPartition(0, 0)]) for name in ("t", "no")]
        ),
        ApiKey.DESCRIBE_CONFIGS: DescribeConfigsRequest(
            [
                DescribeConfigsResource(TOPIC, "t", None),
                DescribeConfigsResource(BROKER, "1", []),
                DescribeConfigsResource(TOPIC, "no", None),
            ],
            include_synonyms=True,
        ),
        ApiKey.ALTER_CONFIGS: AlterConfigsRequest(
            [ReplacedResource(TOPIC, name, changed) for name in ("t", "no")]
        ),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: IncrementalAlterConfigsRequest(
            [
                AlterConfigsResource(TOPIC, name, [AlterableConfig("retention.ms", 0, "5")])
                for name in ("t", "no")
            ]
        ),
        ApiKey.CREATE_PARTITIONS: CreatePartitionsRequest(
            [CreatePartitionsTopic(name, 3, None) for name in ("t", "no")], 1000
        ),
        ApiKey.DESCRIBE_CLUSTER: DescribeClusterRequest(include_cluster_authorized_operations=True),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: DescribeTopicPartitionsRequest(
            [TopicRequest("t"), TopicRequest("no")]
        ),
        ApiKey.DESCRIBE_LOG_DIRS: DescribeLogDirsRequest(
            [DescribableLogDirTopic(name, [0]) for name in ("t", "no")]
        ),
        ApiKey.ELECT_LEADERS: ElectLeadersRequest(
            topic_partitions=[TopicPartitions(name, [0]) for name in ("t", "no")]
        ),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: AlterPartitionReassignmentsRequest(
            topics=[
                ReassignableTopic(name, [ReassignablePartition(0, [1])]) for name in ("t", "no")
            ]
        ),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: ListPartitionReassignmentsRequest(),
        ApiKey.LIST_CONFIG_RESOURCES: ListConfigResourcesRequest(),
        ApiKey.DESCRIBE_PRODUCERS: DescribeProducersRequest(
            [ProducersOfTopic(name, [0]) for name in ("t", "no")]
        ),
        ApiKey.DESCRIBE_TRANSACTIONS: DescribeTransactionsRequest(["no", ""]),
        ApiKey.LIST_TRANSACTIONS: ListTransactionsRequest(["Ongoing", "Strange"], [5]),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: DescribeClientQuotasRequest(
            [ComponentData("client-id", 0, "c")]
        ),
        ApiKey.CREATE_ACLS: CreateAclsRequest(
            [AclCreation(TOPIC, "t", LITERAL, "User:bob", "*", READ, ALLOW)]
        ),
        ApiKey.DESCRIBE_ACLS: DescribeAclsRequest(ANY, None, LITERAL, "User:bob", None, ANY, ANY),
        ApiKey.DELETE_ACLS: DeleteAclsRequest(
            [DeleteAclsFilter(ANY, None, LITERAL, "User:bob", None, ANY, ANY)]
        ),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: DescribeUserScramCredentialsRequest(
            [UserName("bob")]
        ),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: AlterUserScramCredentialsRequest(
            [ScramCredentialDeletion("bob", 1)],
            [ScramCredentialUpsertion("carol", 2, 4096, b"salt", b"x" * 64)],
        ),
        ApiKey.ALTER_CLIENT_QUOTAS: AlterClientQuotasRequest(
            [EntryData([EntityData("client-id", "c")], [OpData("producer_byte_rate", 5.0)])]
        ),
        ApiKey.CREATE_DELEGATION_TOKEN: CreateDelegationTokenRequest(
            renewers=[CreatableRenewers("User", "bob")]
        ),
        ApiKey.RENEW_DELEGATION_TOKEN: RenewDelegationTokenRequest(b"hmac"),
        ApiKey.EXPIRE_DELEGATION_TOKEN: ExpireDelegationTokenRequest(b"hmac"),
        ApiKey.DESCRIBE_DELEGATION_TOKEN: DescribeDelegationTokenRequest(),
    }


async def configure_group(client: RawClient, group_id: str, settings: Mapping[str, str]) -> str:
    """Set settings of a group; return the error."""
    changes = [AlterableConfig(key, _SET, text) for key, text in settings.items()]
    resource = AlterConfigsResource(GROUP, group_id, changes)
    answer = await client.call(IncrementalAlterConfigsRequest([resource]), 1)
    return name(answer.responses[0].error_code)
