"""The records that a share group processes, and their acknowledgements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import NamedTuple


class Acknowledge(IntEnum):
    """The acknowledge types of the protocol."""

    GAP = 0  # there is no record at this offset
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class RecordState(StrEnum):
    """The state of a record."""

    AVAILABLE = "available"
    ACQUIRED = "acquired"
    ACKNOWLEDGED = "acknowledged"
    ARCHIVED = "archived"


DONE = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


class LogBatch(NamedTuple):
    """A batch of the log that members may acquire.

    Attributes:
        is_aborted: True if it belongs to an aborted transaction and the group reads committed
            records only.
    """

    first: int
    last: int
    is_aborted: bool = False


class Acknowledgements(NamedTuple):
    """A member's acknowledgement of the records from ``first`` to ``last``: one type for all, or
    one for each.
    """

    first: int
    last: int
    types: Sequence[int]

    def type_of(self, offset: int) -> int:
        """Return the type for an offset."""
        return self.types[0] if len(self.types) == 1 else self.types[offset - self.first]


class Acquired(NamedTuple):
    """Records that a member has acquired, with their delivery count."""

    first: int
    last: int
    delivery_count: int


@dataclass(slots=True)
class InFlight:
    """A record between the start and the end offset.

    Attributes:
        member_id: the member that has acquired it, if any.
        locked_until: the end of its lock in seconds of the caller's clock, if it is acquired.
        saved_state: its state in the log of share groups, which a new leader starts with.
        saved_count: its delivery count in that log.
    """

    state: RecordState = RecordState.AVAILABLE
    delivery_count: int = 0
    member_id: str = ""
    locked_until: float = 0.0
    saved_state: RecordState = RecordState.AVAILABLE
    saved_count: int = 0

    def acquire(self, member_id: str, locked_until: float) -> None:
        """Assign it to a member."""
        self.state, self.member_id, self.locked_until = (
            RecordState.ACQUIRED,
            member_id,
            locked_until,
        )
        self.delivery_count += 1

    def move_to(self, state: RecordState) -> None:
        """Remove it from its member, and write its state to the log of share groups."""
        self.state, self.member_id = state, ""
        self.saved_state, self.saved_count = state, self.delivery_count


@dataclass(slots=True)
class Unit:
    """Records that were read from the log together. They are acquired together, until one of them
    has a different state.
    """

    first: int
    records: dict[int, InFlight] = field(default_factory=dict)
    is_split: bool = False

    @property
    def last(self) -> int:
        """The offset of the last record."""
        return self.first + len(self.records) - 1
