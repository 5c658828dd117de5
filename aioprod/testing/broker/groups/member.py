"""One member of a group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

from aioprod.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from aioprod.protocol.messages.sync_group import SyncGroupResponse

JoinReply = Callable[[JoinGroupResponse], None]
SyncReply = Callable[[SyncGroupResponse], None]


class Caller(NamedTuple):
    """The sender of a request: client id, host and API version."""

    client_id: str
    client_host: str
    api_version: int


@dataclass(slots=True)
class Member:
    """One member of a group.

    Attributes:
        instance_id: group.instance.id of a static member (KIP-345), else None.
        protocols: metadata by name, the preferred protocol first.
        assignment: the bytes that the leader assigned.
        is_new: True if it has not been in a generation yet, so that it may not know its id.
        joins: the JoinGroup requests that wait for other members; a client that timed out has
            several.
        syncs: the SyncGroup requests that wait for the leader's assignment.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    protocols: dict[str, bytes]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    assignment: bytes = b""
    is_new: bool = True
    joins: list[JoinReply] = field(default_factory=list)
    syncs: list[SyncReply] = field(default_factory=list)

    @classmethod
    def of(cls, member_id: str, request: JoinGroupRequest, caller: Caller) -> Self:
        """Create a member from a JoinGroup request."""
        return cls(
            member_id,
            request.group_instance_id,
            caller.client_id,
            caller.client_host,
            protocols_of(request),
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
        )

    @property
    def may_be_silent(self) -> bool:
        """True if the member waits for a response and can't send heartbeats until then. New members
        expire in any case.
        """
        return not self.is_new and bool(self.joins or self.syncs)

    def update(self, request: JoinGroupRequest) -> None:
        """Update the member from a JoinGroup request."""
        self.protocols = protocols_of(request)
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = request.rebalance_timeout_ms

    def answer_join(self, response: JoinGroupResponse) -> None:
        """Respond to all pending JoinGroup requests."""
        waiting, self.joins = self.joins, []
        for reply in waiting:
            reply(response)

    def answer_sync(self, response: SyncGroupResponse) -> None:
        """Respond to all pending SyncGroup requests."""
        waiting, self.syncs = self.syncs, []
        for reply in waiting:
            reply(response)

    def as_stored(self) -> Self:
        """Return a copy as it would be in the log, without pending requests."""
        return replace(self, is_new=False, joins=[], syncs=[])


def protocols_of(request: JoinGroupRequest) -> dict[str, bytes]:
    """Return the metadata of a JoinGroup request by protocol name, the preferred one first."""
    return {each.name: each.metadata for each in request.protocols}
