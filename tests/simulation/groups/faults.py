"""The faults of groups: those of all clients, error codes of the coordinator, a coordinator that
moves, and members whose processes freeze.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aioprod.error_codes import ErrorCode
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.message import Message
from aioprod.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from aioprod.testing import delay, drop_after, drop_before, fail
from tests.simulation.fault_injector import FaultInjector, FaultPlan
from tests.simulation.groups.history import GroupHistory
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
_ANY_API = {
    CLASSIC: [
        *_GROUP_APIS[CLASSIC],
        *_CODES[CLASSIC],
        ApiKey.LEAVE_GROUP,
        ApiKey.API_VERSIONS,
    ],
    CONSUMER: [*_GROUP_APIS[CONSUMER], *_CODES[CONSUMER], ApiKey.API_VERSIONS],
}


class GroupFaults(FaultInjector):
    """Injects the faults of a scenario and repairs them."""

    def __init__(self, context: RunContext, history: GroupHistory, scenario: GroupScenario) -> None:
        self._members = [plan.name for plan in scenario.members]
        plan = FaultPlan(
            scenario.faults,
            scenario.seconds,
            scenario.nodes,
            scenario.loses_responses,
            scenario.partitions,
            self._members,
        )
        super().__init__(context, plan)
        self._history = history
        self._scenario = scenario
        self._codes = _CODES[scenario.protocol]
        self._group_apis = _GROUP_APIS[scenario.protocol]

    def _kinds(self) -> list[Callable[[], Awaitable[None]]]:
        kinds: list[Callable[[], Awaitable[None]]] = [
            *[self._error_codes] * 3,
            self._drop,
            self._drop,
            self._throttle,
            *[self._flaky] * 3,
            *[self._move_coordinator] * 3,
            *[self._freeze_member] * 3,
            self._refuse_connections,
            self._rebalance,
        ]
        if self._scenario.protocol == CONSUMER:
            kinds += [*[self._expel_member] * 2, self._refuse_instance]
        if self._plan.loses_responses:
            kinds += [
                *[self._lose_responses] * 3,
                self._hold_responses,
                self._delay,
                self._stop_node,
                self._kill_node,
                self._freeze_node,
                self._cut,
                self._cut_while_sending,
                self._cut_while_sending,
                self._partition,
                self._black_hole,
                self._slow,
                self._latency,
                self._block_responses,
                self._block_responses,
                self._jump,
            ]
        if self._plan.nodes > 1:
            kinds += [self._move_leaders, self._move_leaders]
            if self._plan.loses_responses:
                kinds += [self._outage, self._pause_replication]
        return kinds

    def _any_api(self) -> ApiKey:
        return self._rng.choice(_ANY_API[self._scenario.protocol])

    async def _error_codes(self) -> None:
        api = self._rng.choice(list(self._codes))
        code = self._rng.choice(self._codes[api])
        self._add_rule(api, fail(code), code.name)

    async def _flaky(self) -> None:
        """For a while, lose, refuse or delay a share of the requests of one API."""
        api = self._rng.choice(self._group_apis)
        share = self._rng.choice([0.1, 0.3, 0.6])
        actions = [drop_before(), fail(self._rng.choice(self._codes[api]))]
        if self._plan.loses_responses:
            actions += [drop_after(), drop_after(), delay(0.05), delay(0.6)]
        action = self._rng.choice(actions)
        text = f"{share:.0%} of {api.name} requests get {type(action).__name__.strip('_')}"
        self._note(text)
        rule = self._cluster.on_every(api, action, where=lambda _: self._rng.random() < share)
        await asyncio.sleep(2 * self._duration())
        rule.cancel()
        self._note(f"ended: {text}")

    async def _move_coordinator(self) -> None:
        node = self._rng.choice(self._cluster.node_ids)
        self._note(f"node {node} coordinates the group")
        self._cluster.move_coordinator("group", GROUP, node)

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

    async def _freeze_member(self) -> None:
        """Stop the process of a member, perhaps until its session or poll interval has passed."""
        name = self._rng.choice(self._members)
        hosts = self._context.loop.hosts
        if name in hosts.frozen:
            return
        seconds = self._rng.choice(
            [
                self._duration(),
                self._scenario.session_s * self._rng.uniform(0.5, 2),
                self._scenario.max_poll_s * self._rng.uniform(0.8, 1.5),
            ]
        )
        self._note(f"{name} freezes for {seconds:.3f} s")
        begun = self._context.loop.time()
        hosts.freeze(name)
        await asyncio.sleep(seconds)
        hosts.unfreeze(name)
        self._history.freezes.setdefault(name, []).append((begun, self._context.loop.time()))
        self._note(f"{name} continues")


def _joins_as_static_member(request: Message) -> bool:
    return (
        isinstance(request, ConsumerGroupHeartbeatRequest)
        and request.instance_id is not None
        and request.member_epoch == 0
    )
