"""The admin client, with the types of its arguments and results."""

from aioprod.admin.admin import Admin
from aioprod.admin.cluster import ClusterDescription, LogDirDescription, Node, ReplicaLog
from aioprod.admin.configs import (
    Append,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    Subtract,
)
from aioprod.admin.groups import GroupDescription, GroupListing, MemberDescription
from aioprod.admin.offsets import OffsetResult, OffsetSpec
from aioprod.admin.quotas import ClientQuotaEntity, QuotaMatch
from aioprod.admin.records import TO_THE_END, ProducerState
from aioprod.admin.replicas import ElectionType, PartitionReassignment
from aioprod.admin.results import Results
from aioprod.admin.share_groups import (
    ShareGroupDescription,
    ShareGroupOffset,
    ShareMemberDescription,
)
from aioprod.admin.tokens import DelegationToken
from aioprod.admin.topics import (
    CreatedTopic,
    NewPartitions,
    NewTopic,
    PartitionDescription,
    TopicDescription,
    TopicListing,
)
from aioprod.admin.transactions import FencedProducer, TransactionDescription, TransactionListing
from aioprod.admin.users import (
    ScramCredentialInfo,
    ScramMechanism,
    ScramPassword,
    ScramRemoval,
)
from aioprod.config.admin import AdminConfig
from aioprod.protocol.acls import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from aioprod.public_module import set_module as _set_module

__all__ = [
    "TO_THE_END",
    "AclBinding",
    "AclFilter",
    "AclOperation",
    "AclPermission",
    "Admin",
    "AdminConfig",
    "Append",
    "ClientQuotaEntity",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "CreatedTopic",
    "DelegationToken",
    "ElectionType",
    "FencedProducer",
    "GroupDescription",
    "GroupListing",
    "LogDirDescription",
    "MemberDescription",
    "NewPartitions",
    "NewTopic",
    "Node",
    "OffsetResult",
    "OffsetSpec",
    "PartitionDescription",
    "PartitionReassignment",
    "PatternType",
    "ProducerState",
    "QuotaMatch",
    "ReplicaLog",
    "ResourceType",
    "Results",
    "ScramCredentialInfo",
    "ScramMechanism",
    "ScramPassword",
    "ScramRemoval",
    "ShareGroupDescription",
    "ShareGroupOffset",
    "ShareMemberDescription",
    "Subtract",
    "TopicDescription",
    "TopicListing",
    "TransactionDescription",
    "TransactionListing",
]

for _name in __all__:
    if isinstance(globals()[_name], type) and _name != "AdminConfig":
        _set_module(__name__)(globals()[_name])
