"""The offsets at which a stream's batch ended in its sources, read from the query's checkpoint.

A decision stores them in case the checkpoint is replaced by an older copy: then they are the only
record of where to continue. They are only a hint, so unreadable ones are omitted.
"""

from __future__ import annotations

import json

from aioprod.spark.checkpoint_files import ends_of_sources, local_directory
from aioprod.spark.positions import position_from_json, position_to_json


def read_source_offsets(checkpoint: str | None, version: int) -> tuple[str, ...]:
    """Return the end of a batch in each source; empty if the checkpoint is not in a local
    directory.
    """
    if checkpoint is None:
        return ()
    directory = local_directory(checkpoint)
    if directory is None:
        return ()
    try:
        return ends_of_sources((directory / "offsets" / str(version)).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ()


def as_starting_offsets(offsets: str) -> str:
    """Return the offsets of a Kafka source in the format of the option ``startingOffsets``; those
    of other sources unchanged.
    """
    try:
        position = position_from_json(json.loads(offsets))
    except (AttributeError, TypeError, ValueError):
        return offsets
    return json.dumps(position_to_json(position._replace(topic_ids={})), separators=(",", ":"))
