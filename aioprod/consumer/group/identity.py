"""Who a member of a classic group is at this moment."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class State(Enum):
    """Where the member is in the group's rebalance."""

    UNJOINED = "unjoined"
    JOINING = "joining"  # JoinGroup is out: the coordinator waits for the other members
    SYNCING = "syncing"  # SyncGroup is out: the leader shares out the partitions
    STABLE = "stable"


class Generation(NamedTuple):
    """What the coordinator has told this member: the group's generation (-1: none), its id in it,
    and which assignor the group uses.
    """

    generation_id: int = -1
    member_id: str = ""
    assignor: str = ""


class Identity:
    """State and generation. What belongs to a generation that was lost is nobody's business any
    more.

    Attributes:
        state: see :class:`State`.
        generation: see :class:`Generation`.
    """

    def __init__(self) -> None:
        self.state = State.UNJOINED
        self.generation = Generation()

    @property
    def is_lost(self) -> bool:
        """Whether the partitions of this member, if it has any, are others' by now."""
        return self.generation.generation_id < 0

    @property
    def joining(self) -> bool:
        """Whether the group is being put together, as far as this member knows."""
        return self.state in (State.JOINING, State.SYNCING)

    def begin_joining(self) -> None:
        """JoinGroup goes out."""
        self.state = State.JOINING

    def take_member_id(self, member_id: str) -> None:
        """The coordinator has given a new member its id (KIP-394)."""
        self.generation = Generation(member_id=member_id)

    def joined(self, generation: Generation) -> None:
        """The coordinator has put the group together."""
        self.state, self.generation = State.SYNCING, generation

    def synced(self) -> None:
        """The assignment is there."""
        self.state = State.STABLE

    def give_up_joining(self) -> None:
        """Nobody waits for the answer to JoinGroup any more: until the coordinator sends it, the
        generation before is still the present one.
        """
        if self.state is State.JOINING and not self.is_lost:
            self.state = State.STABLE
        elif self.state is not State.STABLE:
            self.state = State.UNJOINED

    def lose(self, *, keep_member_id: bool) -> None:
        """The coordinator does not count this member in any more."""
        self.state = State.UNJOINED
        self.generation = Generation(member_id=self.generation.member_id if keep_member_id else "")
