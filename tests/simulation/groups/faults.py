"""The faults of groups: those of all members, rebalances, and members that the coordinator removes
or refuses.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aioprod.error_codes import ErrorCode
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.message import Message
from aioprod.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from aioprod.testing import fail
from tests.simulation.fault_injector import FaultPlan
from tests.simulation.group_faults import MemberFaults
from tests.simulation.groups.scenario import CLASSIC, CONSUMER, GROUP, GroupScenario
from tests.simulation.run_context import RunContext

_COORDINATOR_CODES = [
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
]
_COMMON_CODES: dict[ApiKey, list[ErrorCode]] = {
    ApiKey.OFFSET_COMMIT: [*_COORDINATOR_CODES, ErrorCode.REQUEST_TIMED_OUT],
    ApiKey.OFFSET_FETCH: [*_COORDINATOR_CODES, ErrorCode.UNSTABLE_OFFSET_COMMIT],
    ApiKey.FIND_COORDINATOR: [ErrorCode.COORDINATOR_NOT_AVAILABLE],
    ApiKey.FETCH: [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
    ApiKey.LIST_OFFSETS: [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE],
    ApiKey.METADATA: [ErrorCode.LEADER_NOT_AVAILABLE],
}
_CODES: dict[str, dict[ApiKey, list[ErrorCode]]] = {
    CLASSIC: {
        ApiKey.JOIN_GROUP: _COORDINATOR_CODES,
        ApiKey.SYNC_GROUP: [*_COORDINATOR_CODES, ErrorCode.REBALANCE_IN_PROGRESS],
        ApiKey.HEARTBEAT: [*_COORDINATOR_CODES, ErrorCode.REBALANCE_IN_PROGRESS],
        **_COMMON_CODES,
    },
    CONSUMER: {
        ApiKey.CONSUMER_GROUP_HEARTBEAT: [
            *_COORDINATOR_CODES,
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.UNKNOWN_MEMBER_ID,
        ],
        **_COMMON_CODES,
        ApiKey.OFFSET_COMMIT: [
            *_COMMON_CODES[ApiKey.OFFSET_COMMIT],
            ErrorCode.STALE_MEMBER_EPOCH,
            ErrorCode.UNKNOWN_MEMBER_ID,
        ],
    },
}
_GROUP_APIS = {
    CLASSIC: [
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
    ],
    CONSUMER: [
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
    ],
}
_OTHER_APIS = {
    CLASSIC: [ApiKey.LEAVE_GROUP, ApiKey.API_VERSIONS],
    CONSUMER: [ApiKey.API_VERSIONS],
}


class GroupFaults(MemberFaults):
    """Injects the faults of a scenario and repairs them."""

    def __init__(self, context: RunContext, scenario: GroupScenario) -> None:
        plan = FaultPlan(
            scenario.faults,
            scenario.seconds,
            scenario.nodes,
            scenario.loses_responses,
            scenario.partitions,
            [plan.name for plan in scenario.members],
        )
        protocol = scenario.protocol
        super().__init__(
            context, plan, GROUP, _CODES[protocol], _GROUP_APIS[protocol], _OTHER_APIS[protocol]
        )
        self._scenario = scenario

    def _kinds(self) -> list[Callable[[], Awaitable[None]]]:
        kinds = [*super()._kinds(), self._rebalance]
        if self._scenario.protocol == CONSUMER:
            kinds += [*[self._expel_member] * 2, self._refuse_instance]
        if self._plan.loses_responses:
            kinds += self._losing_kinds()
        if self._plan.nodes > 1:
            kinds += [self._move_leaders, self._move_leaders]
            if self._plan.loses_responses:
                kinds += [self._outage, self._pause_replication]
        return kinds

    def _long_freezes(self) -> list[float]:
        return [
            self._scenario.session_s * self._rng.uniform(0.5, 2),
            self._scenario.max_poll_s * self._rng.uniform(0.8, 1.5),
        ]

    async def _rebalance(self) -> None:
        if GROUP in self._cluster.group_ids and self._cluster.group(GROUP).members:
            self._note("the coordinator makes all members join again")
            self._cluster.rebalance_group(GROUP)

    async def _expel_member(self) -> None:
        members = self._cluster.group(GROUP).members if GROUP in self._cluster.group_ids else {}
        if members:
            member_id = self._rng.choice(sorted(members))
            self._note(f"the coordinator ends the session of member {member_id}")
            self._cluster.expire_member(GROUP, member_id)

    async def _refuse_instance(self) -> None:
        """Let the coordinator believe that a static member has not left, when it joins again."""
        times = self._rng.choice([1, 2, 5])
        self._note(f"static members are refused {times} times")
        refusal = fail(ErrorCode.UNRELEASED_INSTANCE_ID)
        self._cluster.on(
            ApiKey.CONSUMER_GROUP_HEARTBEAT, refusal, times=times, where=_joins_as_static_member
        )


def _joins_as_static_member(request: Message) -> bool:
    return (
        isinstance(request, ConsumerGroupHeartbeatRequest)
        and request.instance_id is not None
        and request.member_epoch == 0
    )
