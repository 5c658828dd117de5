"""The anomalies that a history may have."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """An anomaly's name: that of Jepsen's workload for Kafka if it is known there."""

    LOST_WRITE = "lost-write"
    """An acknowledged or committed value is not in the log."""
    UNSTABLE_READ = "unstable-read"
    """A value that was read as committed is not in the log."""
    PHANTOM = "phantom"
    """A value that was not sent to this partition."""
    DUPLICATE = "duplicate"
    """The log has a value twice."""
    WRONG_OFFSET = "wrong-offset"
    """A send reported another offset than that of its value."""
    INCONSISTENT_OFFSET = "inconsistent-offset"
    """Different values were read at one offset."""
    ABORTED_READ = "G1a"
    """A value of a failed send or an aborted transaction was read or is committed."""
    INTERMEDIATE_READ = "G1b"
    """A transaction's value was read as committed before its commit was invoked."""
    WRITE_CYCLE = "G0"
    """Transactions wrote partitions in different orders. Kafka's protocol permits it."""
    READ_CYCLE = "G1c"
    """Transactions read each other's values."""
    MIXED_CYCLE = "G1c-writes"
    """A cycle of reads and of orders of writes. Kafka's protocol permits it."""
    TORN_TRANSACTION = "torn-transaction"
    """A part of a transaction's values is committed."""
    POLL_SKIP = "poll-skip"
    """A client went past a record without a change of its position."""
    NONMONOTONIC_POLL = "nonmonotonic-poll"
    """A client went back without a change of its position."""
    UNSEEN = "unseen"
    """A reader polled to the end and did not get a committed value."""
    CALLER_ORDER = "caller-order"
    """Two sends of one caller are in the other order in the log."""
    REAL_TIME_ORDER = "real-time-order"
    """A send that began after another one's acknowledgement is before it in the log."""
    TWO_OWNERS = "two-owners"
    """Two members own a partition in one generation of a group."""
    COMMIT_BEYOND_READ = "commit-beyond-read"
    """An offset was committed beyond a record that the group had not got."""
    HUNG = "hung"
    """An operation did not end within its limit."""
    UNAVAILABLE = "unavailable"
    """A client did not succeed again after the last fault."""


PERMITTED = frozenset({Kind.WRITE_CYCLE, Kind.MIXED_CYCLE})
"""Permitted by Kafka's protocol: partitions of concurrent transactions are not written in one
order.
"""


class Anomaly(NamedTuple):
    """An anomaly.

    Attributes:
        subject: the value or the operation's number that it concerns: two anomalies of one kind
            and subject are one.
        detail: a sentence with the evidence.
    """

    kind: Kind
    subject: str
    detail: str
