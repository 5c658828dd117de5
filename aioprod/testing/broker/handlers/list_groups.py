"""ListGroups: the groups that this node coordinates, filtered by state and type (KIP-518,
KIP-848, KIP-932).
"""

from __future__ import annotations

from aioprod.protocol.acls import AclOperation, ResourceType
from aioprod.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from aioprod.testing.broker.cluster import GROUP
from aioprod.testing.broker.epoch_groups.group import EpochGroup
from aioprod.testing.broker.groups.group import Group
from aioprod.testing.broker.groups.registry import AnyGroup
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext

_CLASSIC, _CONSUMER, _SHARE = "classic", "consumer", "share"


@handles(ListGroupsRequest)
async def handle(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    """List the groups that match the filters."""
    if code := context.failure():
        return ListGroupsResponse(error_code=code)
    states = {state.lower() for state in request.states_filter}
    types = {each.lower() for each in request.types_filter}
    listed = [
        ListedGroup(group.group_id, group.protocol_type or "", group.state, _type_of(group))
        for group in context.store.groups.groups.values()
        if context.store.coordinator_node(GROUP, group.group_id) == context.node.node_id
        and _is_shown(group.group_id, context)
        and (not states or group.state.lower() in states)
        and (not types or _type_of(group) in types)
    ]
    return ListGroupsResponse(groups=listed)


def _is_shown(group_id: str, context: RequestContext) -> bool:
    return context.allows(AclOperation.DESCRIBE, ResourceType.CLUSTER) or context.allows(
        AclOperation.DESCRIBE, ResourceType.GROUP, group_id
    )


def _type_of(group: AnyGroup) -> str:
    if isinstance(group, Group):
        return _CLASSIC
    return _CONSUMER if isinstance(group, EpochGroup) else _SHARE
