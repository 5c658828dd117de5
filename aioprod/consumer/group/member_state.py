"""The state of a member of a classic group."""

from enum import Enum
from typing import NamedTuple


class JoinStage(Enum):
    """The stage of the member in a rebalance."""

    UNJOINED = "unjoined"
    JOINING = "joining"  # JoinGroup is in flight: the coordinator waits for the other members
    SYNCING = "syncing"  # SyncGroup is in flight: the leader assigns the partitions
    STABLE = "stable"


class Generation(NamedTuple):
    """The generation of the group (-1: none), the id of this member, and the assignor that the
    group has chosen, as the coordinator has sent them.
    """

    generation_id: int = -1
    member_id: str = ""
    assignor: str = ""


class MemberState:
    """The stage and the generation. Responses to requests of an earlier generation are ignored.

    Attributes:
        state: the current stage.
        generation: the current generation.
    """

    def __init__(self) -> None:
        self.stage: JoinStage = JoinStage.UNJOINED
        self.generation: Generation = Generation()

    @property
    def is_lost(self) -> bool:
        """True if other members may have the partitions of this member."""
        return self.generation.generation_id < 0

    @property
    def joining(self) -> bool:
        """True if the group rebalances, as far as this member knows."""
        return self.stage in (JoinStage.JOINING, JoinStage.SYNCING)

    def begin_joining(self) -> None:
        """Enter JOINING: JoinGroup is sent."""
        self.stage = JoinStage.JOINING

    def take_member_id(self, member_id: str) -> None:
        """Store the id that the coordinator gives to a new member (KIP-394)."""
        self.generation = Generation(member_id=member_id)

    def joined(self, generation: Generation) -> None:
        """Enter SYNCING: the coordinator has answered JoinGroup."""
        self.stage, self.generation = JoinStage.SYNCING, generation

    def synced(self) -> None:
        """Enter STABLE: the coordinator has answered SyncGroup."""
        self.stage = JoinStage.STABLE

    def give_up_joining(self) -> None:
        """Stop waiting for the response to JoinGroup. Until the coordinator sends it, the previous
        generation is still valid.
        """
        if self.stage is JoinStage.JOINING and not self.is_lost:
            self.stage = JoinStage.STABLE
        elif self.stage is not JoinStage.STABLE:
            self.stage = JoinStage.UNJOINED

    def lose(self, *, keep_member_id: bool) -> None:
        """Forget the generation: the coordinator has removed this member from the group."""
        self.stage = JoinStage.UNJOINED
        self.generation = Generation(member_id=self.generation.member_id if keep_member_id else "")
