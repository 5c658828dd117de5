"""One member of a group, and what it waits for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

from aioprod.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from aioprod.protocol.messages.sync_group import SyncGroupResponse

JoinReply = Callable[[JoinGroupResponse], None]
SyncReply = Callable[[SyncGroupResponse], None]


class Caller(NamedTuple):
    """Who sends a request: the client's name and host, and the version that it speaks."""

    client_id: str
    client_host: str
    api_version: int


@dataclass(slots=True)
class Member:
    """One member of a group.

    Attributes:
        instance_id: of a static member (group.instance.id, KIP-345), else None.
        protocols: names and metadata, the preferred one first.
        assignment: what the leader gave it.
        is_new: it has not been in a generation yet, so that it may not know its id.
        joins: requests to join that wait for the other members; a client that lost patience has
            several.
        syncs: requests that wait for the leader's assignment.
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
        """Make a new member from its request to join."""
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
        """Whether it waits for an answer, and can't send heartbeats meanwhile. New members are
        given no such grace.
        """
        return not self.is_new and bool(self.joins or self.syncs)

    def update(self, request: JoinGroupRequest) -> None:
        """Take over what it says now."""
        self.protocols = protocols_of(request)
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = request.rebalance_timeout_ms

    def answer_join(self, response: JoinGroupResponse) -> None:
        """Answer all requests to join."""
        waiting, self.joins = self.joins, []
        for reply in waiting:
            reply(response)

    def answer_sync(self, response: SyncGroupResponse) -> None:
        """Answer all requests for an assignment."""
        waiting, self.syncs = self.syncs, []
        for reply in waiting:
            reply(response)

    def as_stored(self) -> Self:
        """A copy as it would be in the log: nobody waits for anything."""
        return replace(self, is_new=False, joins=[], syncs=[])


def protocols_of(request: JoinGroupRequest) -> dict[str, bytes]:
    """The protocols of a request by name, the preferred one first."""
    return {each.name: each.metadata for each in request.protocols}
