"""The faults of share groups: those of all members, error codes of share sessions, and a share
coordinator that is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from aioprod.error_codes import ErrorCode
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import Action, fail
from tests.simulation.fault_injector import FaultPlan
from tests.simulation.group_faults import MemberFaults
from tests.simulation.run_context import RunContext
from tests.simulation.shares.scenario import GROUP, TOPICS, ShareScenario

# Of a partition, or of a whole request.
_PARTITION_CODES = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
]
_SESSION_CODES = [
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    *_PARTITION_CODES,
]
_CODES: Mapping[ApiKey, list[ErrorCode]] = {
    ApiKey.SHARE_FETCH: _SESSION_CODES,
    ApiKey.SHARE_ACKNOWLEDGE: [*_SESSION_CODES, ErrorCode.INVALID_RECORD_STATE],
    ApiKey.SHARE_GROUP_HEARTBEAT: [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ],
    ApiKey.FIND_COORDINATOR: [ErrorCode.COORDINATOR_NOT_AVAILABLE],
    ApiKey.METADATA: [ErrorCode.LEADER_NOT_AVAILABLE],
}
_SHARE_APIS = [ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE, ApiKey.SHARE_GROUP_HEARTBEAT]


class ShareFaults(MemberFaults):
    """Injects the faults of a scenario and repairs them."""

    def __init__(self, context: RunContext, scenario: ShareScenario) -> None:
        plan = FaultPlan(
            scenario.faults,
            scenario.seconds,
            scenario.nodes,
            True,
            scenario.partitions,
            [plan.name for plan in scenario.members],
        )
        super().__init__(context, plan, GROUP, _CODES, _SHARE_APIS, [ApiKey.API_VERSIONS])
        self._scenario = scenario

    def _kinds(self) -> list[Callable[[], Awaitable[None]]]:
        own = [*[self._error_codes, self._flaky] * 2, *[self._lose_share_coordinator] * 4]
        kinds = [*super()._kinds(), *own, *self._losing_kinds()]
        if self._plan.nodes > 1:
            kinds += [*[self._move_leaders] * 4, self._outage]
        return kinds

    def _long_freezes(self) -> list[float]:
        return [self._scenario.lock_s * self._rng.uniform(0.5, 2)]

    def _refuse(self, code: ErrorCode) -> Action:
        """Refuse a whole request, or one topic of it."""
        topics: list[str | None] = [None]
        if code is ErrorCode.INVALID_RECORD_STATE:  # of records only
            topics = [*TOPICS]
        elif code in _PARTITION_CODES:
            topics = [None, *TOPICS, *TOPICS]
        return fail(code, topic=self._rng.choice(topics))

    async def _lose_share_coordinator(self) -> None:
        """For a while, let brokers not store the states of records of a topic."""
        topic = self._rng.choice(TOPICS)
        self._note(f"the states of records of {topic} can't be stored")
        refusal = fail(ErrorCode.COORDINATOR_NOT_AVAILABLE, topic=topic)
        apis = ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE
        rules = [self._cluster.on_every(api, refusal) for api in apis]
        await asyncio.sleep(self._duration())
        for rule in rules:
            rule.cancel()
        self._note(f"the states of records of {topic} are stored again")
