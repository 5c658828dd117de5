"""The offsets at which a stream's batch ended in its sources, as the query's checkpoint has them.

A decision keeps them, for the case that the checkpoint is replaced by an older copy: then nothing
else knows from where to continue. They are only a hint, so whatever can't be read is left out.
"""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote, urlsplit

from aioprod.spark.positions import position_from_json, position_to_json

# A version, the batch's settings, and then a line for each source.
_BEFORE_SOURCES = 2


def read_source_offsets(checkpoint: str | None, version: int) -> tuple[str, ...]:
    """Return the end of a batch in each source; nothing if the checkpoint is not in a directory of
    this machine.
    """
    if checkpoint is None:
        return ()
    url = urlsplit(checkpoint)
    if url.scheme not in ("", "file"):
        return ()
    directory = Path(unquote(url.path) if url.scheme else checkpoint)
    try:
        lines = (directory / "offsets" / str(version)).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return ()
    return tuple(lines[_BEFORE_SOURCES:])


def as_starting_offsets(offsets: str) -> str:
    """Return the offsets of a Kafka source as the option ``startingOffsets`` takes them; those of
    other sources as they are.
    """
    try:
        position = position_from_json(json.loads(offsets))
    except (AttributeError, TypeError, ValueError):
        return offsets
    return json.dumps(position_to_json(position._replace(topic_ids={})), separators=(",", ":"))
