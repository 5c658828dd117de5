"""Names of a sink's transactional ids and of its group, and what can be read from them."""

from __future__ import annotations

import hashlib
import os
import re
import uuid
from dataclasses import dataclass
from typing import NamedTuple

# Ids are used again after so many versions: a late request of an attempt that Spark has given up must not hit a batch that is being written,
# and brokers keep each id for transactional.id.expiration.ms (7 days).
SLOTS = 8
# With the process id, for a process that was forked has its parent's.
_process = uuid.uuid4()


class AttemptId(NamedTuple):
    """What a transactional id says of its attempt; ``slot`` is the batch's number modulo `SLOTS`."""

    run: str
    slot: int
    partition: int
    attempt: int
    worker: str


@dataclass(frozen=True, slots=True)
class Sink:
    """A query or application that writes, and how its names begin.

    Attributes:
        prefix: option ``transactionalIdPrefix``.
        sink_id: the streaming query's id, ``txnAppId``, or a name of this one write.
    """

    prefix: str
    sink_id: str

    @property
    def driver_id(self) -> str:
        """The transactional id under which decisions are made."""
        return f"{self.prefix}-{self.sink_id}"

    @property
    def group(self) -> str:
        """The consumer group whose committed offsets hold the decisions."""
        return self.driver_id

    def transactional_id(self, run: str, version: int, partition: int, attempt: int, worker: str) -> str:
        """The id of one attempt of one task."""
        return f"{self.driver_id}-{run}-{version % SLOTS}-{partition}-{attempt}-{worker}"

    def parse(self, transactional_id: str) -> AttemptId | None:
        """What an attempt's id says; None of other ids, also of those of sinks whose names only begin alike."""
        found = re.fullmatch(re.escape(self.driver_id) + r"-([0-9a-f]{8})-(\d)-(\d+)-(\d+)-([0-9a-f]{8})", transactional_id)
        return AttemptId(found[1], int(found[2]), int(found[3]), int(found[4]), found[5]) if found else None


def this_worker() -> str:
    """Eight hexadecimal digits for this process.

    Spark counts attempts from 0 again where it runs a stage a second time, beside what is left of the first: only the process tells such two apart.
    The processes are used for many tasks, so that there are few.
    """
    return hashlib.sha256(f"{_process}-{os.getpid()}".encode()).hexdigest()[:8]


def short_run(run_id: str) -> str:
    """Eight hexadecimal digits for a run of a query: as part of an id they tell attempts of one run from those of another."""
    return hashlib.sha256(run_id.encode()).hexdigest()[:8]
