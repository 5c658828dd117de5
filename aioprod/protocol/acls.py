"""Access control lists as the protocol describes them (KIP-11, KIP-140, KIP-290): resources,
operations, ACLs and filters.
"""

from enum import IntEnum
from typing import NamedTuple

CLUSTER_NAME = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""


class AclOperation(IntEnum):
    """Kafka's ACL operations, with their numbers."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """The types of resources that ACLs apply to, with Kafka's numbers."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4  #: its name is ``kafka-cluster``
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """The way in which the name of a resource is matched, with Kafka's numbers (KIP-290)."""

    UNKNOWN = 0
    ANY = 1  #: only in filters: any kind of pattern
    MATCH = 2  #: only in filters: all patterns that match the name
    LITERAL = 3  #: the exact name; ``*`` matches all names
    PREFIXED = 4  #: all names that begin with this prefix


class AclPermission(IntEnum):
    """The permission type of an ACL: allow or deny, with Kafka's numbers."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class AclBinding(NamedTuple):
    """One ACL.

    Attributes:
        resource_type: the type of the resource.
        resource_name: the name of the resource, or the prefix of its name.
        principal: the user, such as ``User:alice``; ``User:*`` for all users.
        operation: the operation that is allowed or denied.
        permission: ALLOW or DENY.
        pattern_type: LITERAL or PREFIXED.
        host: the client's address; ``*`` for any.
    """

    resource_type: ResourceType
    resource_name: str
    principal: str
    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW
    pattern_type: PatternType = PatternType.LITERAL
    host: str = "*"

    def __str__(self) -> str:
        star = "*" if self.pattern_type is PatternType.PREFIXED else ""
        return (
            f"{self.permission.name} {self.principal} {self.operation.name} "
            f"{self.resource_type.name} {self.resource_name}{star} from {self.host}"
        )


class AclFilter(NamedTuple):
    """Selects ACLs. The default of each attribute matches all.

    Attributes:
        resource_type, operation, permission, pattern_type: ANY matches all.
        resource_name, principal, host: None matches all.
    """

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY
    pattern_type: PatternType = PatternType.ANY
    host: str | None = None

    def __str__(self) -> str:
        return (
            f"{self.permission.name} {self.principal or 'ANY'} {self.operation.name} "
            f"{self.resource_type.name} {self.resource_name or 'ANY'} "
            f"({self.pattern_type.name}) from {self.host or 'ANY'}"
        )
