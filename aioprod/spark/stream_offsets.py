"""The offsets of one stream on the driver: its start, the ends of its micro-batches, and the
processed ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from aioprod.errors import KafkaError
from aioprod.logs import Logger, get_logger
from aioprod.spark.admission import Admission
from aioprod.spark.driver_client import DriverClient
from aioprod.spark.group_positions import GroupPositions
from aioprod.spark.offsets import OffsetRange
from aioprod.spark.planning import available_offsets, initial_offsets, latest_offsets, plan_stream
from aioprod.spark.positions import Position
from aioprod.spark.source_options import SourceOptions

log: Logger = get_logger(__name__)


class StreamOffsets:
    """Answers Spark's calls to a source between two micro-batches. Each method may raise the errors
    of planning.py's functions.

    Attributes:
        last_seen: the last known ends of the partitions; None before the first request.
    """

    def __init__(self, options: SourceOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._clock = clock
        self._brokers = DriverClient(options)
        self._admission = Admission(options.limits)
        self._target: Position | None = None
        self._group = None if options.group is None else GroupPositions(options.group)
        self.last_seen: Position | None = None

    def initial(self) -> Position:
        """Return the position at which a new query begins."""
        return self._brokers.run(lambda client: initial_offsets(client, self._options))

    def end_at_present(self) -> None:
        """Read only existing records, in any number of micro-batches, and no partitions that are
        created later.
        """
        self._target = self.latest()
        # The last micro-batch may be smaller than the minimum, and no more records follow.
        self._admission = Admission(replace(self._options.limits, min_offsets=None))

    def latest(self) -> Position:
        """Return the current end of each partition."""
        self.last_seen = self._brokers.run(lambda client: latest_offsets(client, self._options))
        return self.last_seen

    def next(self, start: Position, *, limited: bool) -> Position:
        """Return the end of the micro-batch that begins at ``start``.

        Args:
            start: the end of the previous micro-batch, which is processed.
            limited: True if the options' limits apply.
        """
        self.processed(start)
        begin, latest = self._brokers.run(
            lambda client: available_offsets(client, self._options, start)
        )
        self.last_seen = latest
        available = latest.offsets
        if self._target is not None:
            limits = self._target.offsets
            available = {
                tp: min(end, limits[tp]) for tp, end in latest.offsets.items() if tp in limits
            }
        ends = self._admission.end(begin, available, self._clock()) if limited else available
        # Without new records, return the same position, even if it comes from a checkpoint of
        # Spark's connector, which lacks ids: a different end would be another micro-batch.
        if ends is None or (ends == start.offsets and not start.recreated(latest)):
            return start
        return Position(ends, latest.topic_ids)

    def plan(self, start: Position, end: Position) -> list[OffsetRange]:
        """Return the ranges of a micro-batch. Everything before ``start`` is processed; PySpark 4.0
        and 4.1 pass the start only here.
        """
        self.processed(start)
        return self._brokers.run(lambda client: plan_stream(client, self._options, start, end))

    def processed(self, end: Position) -> None:
        """Commit ``end`` to the consumer group, if the options name one. Failures do not affect the
        query.
        """
        group = self._group
        if group is None:
            return
        try:
            self._brokers.run(lambda client: group.commit(client, end.offsets))
        except KafkaError as error:  # no connection: the query's next request fails, not this one
            log.warning("positions are not committed to a consumer group: %s", error)

    def close(self) -> None:
        self._brokers.close()
