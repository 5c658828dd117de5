"""Reads the directory in which Spark keeps the progress of a query, without Spark or brokers.

``offsets/N`` has the end of micro-batch N in each source, and is written before it runs.
``commits/N`` is written after it has ended. ``metadata`` has the query's id.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

_NO_OFFSET = "-"
_FORMATS = ("v1", "v2")


class CheckpointError(Exception):
    """A directory is not a readable checkpoint."""


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """A planned micro-batch.

    Attributes:
        number: the number of the batch.
        planned_ms: the time of planning, in milliseconds since 1970.
        watermark_ms: the watermark, in milliseconds since 1970; 0 if the query has none.
        ends: its end in each source, as JSON.
    """

    number: int
    planned_ms: int
    watermark_ms: int
    ends: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The progress of a query.

    Attributes:
        query_id: the query's id, which identifies its decisions.
        planned: the newest planned batch; None if the query never planned one.
        finished: the number of the newest batch that has ended; -1 if none has.
        finished_batch: the plan of that batch; None if none has ended.
    """

    query_id: str
    planned: PlannedBatch | None
    finished: int = -1
    finished_batch: PlannedBatch | None = field(default=None)


def local_directory(checkpoint: str) -> Path | None:
    """Return the directory of a ``checkpointLocation``; None if it isn't on this machine."""
    url = urlsplit(checkpoint)
    if url.scheme not in ("", "file"):
        return None
    return Path(unquote(url.path) if url.scheme else checkpoint)


def read_checkpoint(checkpoint: str) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        CheckpointError: if it isn't on this machine, or a file is missing or damaged.
    """
    directory = local_directory(checkpoint)
    if directory is None:
        raise CheckpointError(
            f"{checkpoint} isn't a directory of this machine: copy it here, for example with "
            "hdfs dfs -get or aws s3 cp --recursive"
        )
    query_id = _object(directory / "metadata", _text(directory / "metadata")).get("id")
    if not isinstance(query_id, str):
        raise CheckpointError(f"{directory / 'metadata'} has no query id")
    planned, finished = _newest(directory / "offsets"), _newest(directory / "commits")
    if finished > planned:
        raise CheckpointError(
            f"{directory} is incomplete: commits has batch {finished}, but offsets ends at "
            f"{planned}. Was it copied while the query ran? Copy offsets last"
        )
    return Checkpoint(
        query_id,
        _batch(directory, planned) if planned >= 0 else None,
        finished,
        _batch(directory, finished) if finished >= 0 else None,
    )


def ends_of_sources(text: str) -> tuple[str, ...]:
    """Return a batch's end in each source, from the content of its file in ``offsets``.

    Raises:
        ValueError: if the text has another format.
    """
    lines = text.splitlines()
    if len(lines) < 2 or lines[0] not in _FORMATS:
        raise ValueError(f"begins with {text[:20]!r}, not with {' or '.join(_FORMATS)}")
    ends = lines[2:]
    if lines[0] == "v2":  # with the name of each source
        ends = [line.partition(":")[2] for line in ends]
    return tuple(end for end in ends if end != _NO_OFFSET)


def _newest(directory: Path) -> int:
    try:
        names = [path.name for path in directory.iterdir()]
    except FileNotFoundError:
        return -1
    except OSError as error:
        raise CheckpointError(f"can't read {directory}: {error.strerror}") from error
    return max((int(name) for name in names if name.isascii() and name.isdecimal()), default=-1)


def _batch(directory: Path, number: int) -> PlannedBatch:
    path = directory / "offsets" / str(number)
    text = _text(path)
    try:
        ends = ends_of_sources(text)
    except ValueError as error:
        raise CheckpointError(f"{path} {error}") from None
    state = _object(path, text.splitlines()[1])
    times = [state.get(name, 0) for name in ("batchTimestampMs", "batchWatermarkMs")]
    if not all(isinstance(time, int) for time in times):
        raise CheckpointError(f"{path} has times that aren't numbers")
    return PlannedBatch(number, times[0], times[1], ends)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CheckpointError(f"{path} doesn't exist: is this a query's checkpoint?") from None
    except OSError as error:
        raise CheckpointError(f"can't read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} isn't text: {error}") from error


def _object(path: Path, text: str) -> Mapping[str, Any]:
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} isn't JSON: {error}") from None
    if not isinstance(given, dict):
        raise CheckpointError(f"{path} isn't a JSON object")
    return given
