"""Gets the assignment of a classic member: sends JoinGroup, assigns all partitions if it is the
leader, and sends SyncGroup. Repeats that until it has an assignment.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from aioprod.cluster.metadata import Metadata
from aioprod.cluster.retry import retry
from aioprod.config.consumer import ConsumerConfig
from aioprod.consumer.group.assignors import Assignor
from aioprod.consumer.group.assignors.calls import ask_assignor
from aioprod.consumer.group.connections import GroupConnections
from aioprod.consumer.group.error_actions import ErrorAction, GroupApi, action_for
from aioprod.consumer.group.leading import Leadership, lead, read_members
from aioprod.consumer.group.member_state import Generation, MemberState
from aioprod.consumer.subscription import SubscriptionState
from aioprod.error_codes import ErrorCode
from aioprod.errors import (
    AuthenticationError,
    BrokerError,
    ConsumerStateError,
    KafkaError,
    UnsupportedVersionError,
)
from aioprod.logs import Logger, get_logger
from aioprod.net.connection import Connection
from aioprod.net.refusals import explain
from aioprod.protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    Subscription,
    decode_assignment,
    encode_subscription,
)
from aioprod.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from aioprod.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from aioprod.types import TopicPartition

log: Logger = get_logger(__name__)

_STATIC_MEMBERS_FROM = 5
# The coordinator answers after the rebalance timeout at the latest. Java waits for this long on
# top.
_JOIN_GRACE_MS = 5_000
_ENDS_ATTEMPT = (
    ErrorAction.LOST_GENERATION,
    ErrorAction.LOST_MEMBER,
    ErrorAction.TAKE_MEMBER_ID,
    ErrorAction.REJOIN,
)


class Joined(NamedTuple):
    """An assignment that is not adopted yet.

    Attributes:
        generation: the generation of the assignment.
        topics: the subscription that JoinGroup sent.
        partitions: the partitions of this member.
        assignor: the assignor that the group uses.
        leadership: the topics to watch, if this member is the leader.
    """

    generation: Generation
    topics: frozenset[str]
    partitions: frozenset[TopicPartition]
    assignor: Assignor
    leadership: Leadership | None


class Joining:
    """Joins one member to its group.

    Args:
        on_synced: called when the member is in the group.
        on_problem: called with the error that delays joining, and with None when it is solved.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        connections: GroupConnections,
        state: MemberState,
        assignors: Sequence[Assignor],
        metadata: Metadata,
        subscription: SubscriptionState,
        on_synced: Callable[[], None],
        on_problem: Callable[[KafkaError | None], None],
    ) -> None:
        self._config = config
        self._connections = connections
        self._state = state
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._metadata = metadata
        self._subscription = subscription
        self._on_synced = on_synced
        self._on_problem = on_problem
        self._reason = ""
        self._problem: BrokerError | None = None  # the last retriable error
        self._hurried = 0  # consecutive attempts that ended without an assignment
        self._sync_failed = False  # the last attempt, after its JoinGroup had succeeded

    async def run(self, reason: str) -> Joined | None:
        """Return the assignment; None if the coordinator has removed the member, which then has to
        drop its partitions before it joins again.

        Raises:
            BrokerError: if the coordinator refuses this member.
            ConsumerStateError: if the assignor or another member breaks the rules.
            AuthenticationError, UnsupportedVersionError: if a retry does not help.
            Exception: if the assignor raises it.
        """
        self._reason = reason
        self._sync_failed = False
        while True:
            # The first of these attempts has no pause, as in Java. Later ones have, so that a
            # coordinator that repeats its answer is not flooded.
            await asyncio.sleep(self._connections.backoff.seconds(self._hurried - 1))
            action, joined = await retry(
                self._attempt,
                self._connections.backoff.seconds,
                is_retriable=self._is_retriable,
                on_failure=self._note,
            )
            self._hurried = 0 if joined is not None else self._hurried + 1
            if action not in (ErrorAction.TAKE_MEMBER_ID, ErrorAction.REJOIN):
                self._on_problem(None)
                return joined

    async def _attempt(self) -> tuple[ErrorAction, Joined | None]:
        """Join once; return None if the response ends this attempt, or requires another one."""
        api = GroupApi.JOIN
        try:
            action, code, joined = await self._join()
        except BrokerError as error:
            # Only FindCoordinator raises these.
            action, code, joined = (
                action_for(GroupApi.FIND_COORDINATOR, error.code),
                error.code,
                None,
            )
            problem, api = error, GroupApi.FIND_COORDINATOR
        else:
            problem = BrokerError(code, f"joining group {self._connections.group_id!r}")
        if joined is not None or action in _ENDS_ATTEMPT:
            return action, joined
        if action in (ErrorAction.FENCED, ErrorAction.REFUSED):
            refusal = BrokerError(
                code,
                f"group {self._connections.group_id!r}: this consumer can't join"
                + _ADVICE.get(code, ""),
            )
            raise explain(refusal, api.value, self._connections.principal)
        if action is ErrorAction.NEW_COORDINATOR:
            self._connections.forget_coordinator()
        self._problem = problem
        raise problem

    def _is_retriable(self, error: KafkaError) -> bool:
        if isinstance(error, BrokerError):
            return error is self._problem
        final = AuthenticationError | UnsupportedVersionError | ConsumerStateError
        return not isinstance(error, final)

    def _note(self, error: KafkaError, failures: int) -> None:
        self._on_problem(error)
        if failures == 1:
            who, group = self._config.client_id, self._connections.group_id
            log.info("%s: joining group %r failed, retrying: %s", who, group, error)

    async def _join(self) -> tuple[ErrorAction, ErrorCode, Joined | None]:
        self._state.begin_joining()
        topics = self._subscription.topics
        limit_ms = max(
            self._config.request_timeout_ms, self._config.max_poll_interval_ms + _JOIN_GRACE_MS
        )
        reply = await self._connections.ask(
            lambda connection: self._join_request(connection, topics), limit_ms
        )
        code = ErrorCode.of(reply.error_code)
        action = action_for(GroupApi.JOIN, code)
        if action is ErrorAction.TAKE_MEMBER_ID:
            self._state.take_member_id(reply.member_id)
        if action is not ErrorAction.DONE:
            self._lose(action)
            return action, code, None
        name = reply.protocol_name or ""
        if name not in self._assignors:
            raise ConsumerStateError(
                f"group {self._connections.group_id!r} has chosen assignor {name!r}, which "
                "this member does not have"
            )
        generation = Generation(reply.generation_id, reply.member_id, name)
        self._state.joined(generation)
        if not self._sync_failed:
            self._on_problem(None)  # SyncGroup waits for other members
        leadership, shares = (
            await self._lead(reply) if reply.leader == reply.member_id else (None, [])
        )
        return await self._sync(generation, topics, leadership, shares)

    async def _lead(
        self, reply: JoinGroupResponse
    ) -> tuple[Leadership, list[SyncGroupRequestAssignment]]:
        shares, leadership = await lead(
            self._assignors[reply.protocol_name or ""], read_members(reply.members), self._metadata
        )
        # A static leader that was only restarted does not change the assignment (KIP-814).
        return leadership, [] if reply.skip_assignment else shares

    async def _sync(
        self,
        generation: Generation,
        topics: frozenset[str],
        leadership: Leadership | None,
        shares: list[SyncGroupRequestAssignment],
    ) -> tuple[ErrorAction, ErrorCode, Joined | None]:
        self._sync_failed = True
        reply = await self._connections.ask(
            lambda connection: self._sync_request(connection, generation, shares)
        )
        code = ErrorCode.of(reply.error_code)
        action = action_for(GroupApi.SYNC, code)
        self._sync_failed = action not in (ErrorAction.DONE, *_ENDS_ATTEMPT)
        if action is not ErrorAction.DONE:
            self._lose(action)
            return action, code, None
        self._state.synced()
        self._on_synced()
        partitions = frozenset(decode_assignment(reply.assignment).partitions)
        return (
            action,
            code,
            Joined(
                generation, topics, partitions, self._assignors[generation.assignor], leadership
            ),
        )

    def _lose(self, action: ErrorAction) -> None:
        if action in (ErrorAction.LOST_GENERATION, ErrorAction.LOST_MEMBER):
            self._state.lose(keep_member_id=action is ErrorAction.LOST_GENERATION)

    def _join_request(
        self, connection: Connection, topics: frozenset[str]
    ) -> tuple[JoinGroupRequest, int]:
        version = connection.pick_version(JoinGroupRequest)
        if self._config.group_instance_id is not None and version < _STATIC_MEMBERS_FROM:
            raise UnsupportedVersionError(
                f"{connection.address} does not support group_instance_id: Kafka 2.3 is needed"
            )
        generation = self._state.generation
        owned = tuple(self._subscription.partitions)
        protocols = [
            JoinGroupRequestProtocol(
                name,
                encode_subscription(
                    Subscription(
                        tuple(topics),
                        ask_assignor(assignor, assignor.subscription_user_data, topics),
                        owned,
                        generation.generation_id,
                        self._config.client_rack or None,
                    )
                ),
            )
            for name, assignor in self._assignors.items()
        ]
        request = JoinGroupRequest(
            self._connections.group_id,
            self._config.session_timeout_ms,
            self._config.max_poll_interval_ms,
            generation.member_id,
            self._config.group_instance_id,
            PROTOCOL_TYPE,
            protocols,
            self._reason,
        )
        return request, version

    def _sync_request(
        self,
        connection: Connection,
        generation: Generation,
        shares: list[SyncGroupRequestAssignment],
    ) -> tuple[SyncGroupRequest, int]:
        request = SyncGroupRequest(
            self._connections.group_id,
            generation.generation_id,
            generation.member_id,
            self._config.group_instance_id,
            PROTOCOL_TYPE,
            generation.assignor,
            shares,
        )
        return request, connection.pick_version(SyncGroupRequest)


_ADVICE = {
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "; the members have no assignor in common: check partition_assignment_strategy"
    ),
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "; session_timeout_ms is outside the broker's group.min.session.timeout.ms and "
        "group.max.session.timeout.ms"
    ),
    ErrorCode.FENCED_INSTANCE_ID: "; another consumer has the same group_instance_id",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "; the group is full: raise the broker's group.max.size",
}
