"""Checks that a batch follows the last decided one. No I/O."""

from __future__ import annotations

from aioprod.spark.errors import CopiedCheckpointError, NewerDecisionError
from aioprod.spark.exactly_once.decision import Decision
from aioprod.spark.exactly_once.source_offsets import as_starting_offsets
from aioprod.spark.sink_options import SinkOptions


def check_not_newer(
    options: SinkOptions, decision: Decision | None, version: int, group: str
) -> None:
    """Check that the batch is newer than the last decided one, or is the same batch with the same
    topic.

    Raises:
        CopiedCheckpointError: if it is not newer, and the last one was written to another topic.
        NewerDecisionError: if a later batch was written before.
    """
    if decision is None or decision.next_version <= version:
        return
    if options.topic is not None and options.topic != decision.topic:
        raise CopiedCheckpointError(
            f"batch {version} can't be written to topic {options.topic!r}: "
            f"{_who_else(options, decision)} (decision of consumer group {group!r})"
        )
    if decision.version > version:
        raise NewerDecisionError(
            f"batch {version} can't be written: the checkpoint was restored or copied, or another "
            f"query uses it or its txnAppId, since batch {decision.version} was written already. "
            f"{_how_to_continue(decision)} (decision of consumer group {group!r})"
        )


def _who_else(options: SinkOptions, decision: Decision) -> str:
    """Return the reason why a batch was written to another topic, and what to do."""
    if options.txn_app_id is not None:
        return (
            f"with txnAppId {options.txn_app_id!r} version {decision.version} was written to topic "
            f"{decision.topic!r}. Nothing is written. Each output needs its own txnAppId"
        )
    return (
        f"the checkpoint was copied from a query that wrote batch {decision.version} to topic "
        f"{decision.topic!r}, or the option topic was changed. Nothing is written. Set another "
        "transactionalIdPrefix for a copy, and keep it: it then continues after the last batch of "
        "its checkpoint. After a change of topic, set the former one until this batch is finished"
    )


def _how_to_continue(decision: Decision) -> str:
    """Describe how a query continues without the checkpoint of its last batch."""
    if not decision.sources:
        return (
            "To continue after the last batch, restore the newest checkpoint, or begin a new one "
            "where that batch ended in the source: sources.endOffset of its progress, or the file "
            f"offsets/{decision.version} of the newest checkpoint"
        )
    ends = " and ".join(as_starting_offsets(each) for each in decision.sources)
    return (
        f"Batch {decision.version} ended at {ends}: to continue after it, begin a new checkpoint "
        "with these as startingOffsets. Another transactionalIdPrefix would write all batches "
        "since the old checkpoint again"
    )
