"""Compares a checkpoint with the decision about its query's last exactly-once write, without
I/O.
"""

from __future__ import annotations

from dataclasses import dataclass

from aioprod.spark.checkpoint_files import Checkpoint
from aioprod.spark.exactly_once.decision import Decision


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a restart with a checkpoint.

    Attributes:
        is_usable: True if the query continues without loss and duplicates.
        text: the outcome as a sentence.
        ends: the end of the last written batch in each source, where a new checkpoint begins. Empty
            if this is unknown, or nothing was written.
    """

    is_usable: bool
    text: str
    ends: tuple[str, ...] = ()


def without_decision(checkpoint: Checkpoint) -> Verdict:
    """Return the verdict without brokers, or for a query without a recent exactly-once write."""
    done, planned = checkpoint.finished_batch, checkpoint.planned
    ends = done.ends if done is not None else ()
    if planned is None:
        return Verdict(True, "the query has planned no micro-batch")
    if planned.number == checkpoint.finished:
        return Verdict(
            True, f"batch {planned.number} has ended; the next run continues after it", ends
        )
    return Verdict(True, f"batch {planned.number} has not ended; the next run begins with it", ends)


def compare(checkpoint: Checkpoint, decision: Decision) -> Verdict:
    """Return the verdict for a restart, based on the query's newest decision."""
    written = decision.next_version - 1
    planned, done = checkpoint.planned, checkpoint.finished_batch
    last = -1 if planned is None else planned.number
    if written > last:
        return Verdict(
            False,
            f"batch {written} was written, but this checkpoint ends at batch {last}: it is an old "
            "copy, and the query would fail with a NewerDecisionError. Use the newest checkpoint, "
            "or begin a new one with --starting-offsets",
            decision.sources,
        )
    if planned is not None and last > checkpoint.finished:
        if written == last:
            return Verdict(
                True,
                f"batch {last} was written, and Spark has not noted its end: the next run reads it "
                "again and writes nothing",
                planned.ends,
            )
        return Verdict(
            True,
            f"batch {last} was not written: the next run writes it",
            done.ends if done is not None else (),
        )
    ends = done.ends if done is not None else ()
    if written == last:
        return Verdict(True, f"batch {last} was written; the next run continues after it", ends)
    return Verdict(
        True,
        f"batch {last} has ended; the last batch with rows was {written}. The next run continues "
        f"after batch {last}",
        ends,
    )
