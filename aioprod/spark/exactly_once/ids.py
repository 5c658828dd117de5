"""Builds and parses a sink's transactional ids and the name of its group."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import NamedTuple

# Ids are reused after this many versions: a late request of an abandoned attempt must not hit a
# batch that is being written, and brokers keep each id for transactional.id.expiration.ms (7 days).
SLOTS = 8
#: In a stream's ids, Spark's numbers of task attempts are reduced modulo this number: a run has at
#: most this number of ids for each slot.
NUMBERS = 16_384


class AttemptId(NamedTuple):
    """The parsed transactional id of an attempt; ``slot`` is the batch's number modulo `SLOTS`."""

    run: str
    slot: int
    number: int


@dataclass(frozen=True, slots=True)
class Sink:
    """A query or application that writes, and the prefix of its names.

    Attributes:
        prefix: the option ``transactionalIdPrefix``.
        sink_id: the streaming query's id, ``txnAppId``, or a name for a single write.
    """

    prefix: str
    sink_id: str

    @property
    def driver_id(self) -> str:
        """The transactional id for decisions."""
        return f"{self.prefix}-{self.sink_id}"

    @property
    def group(self) -> str:
        """The consumer group whose committed offsets have the decisions."""
        return self.driver_id

    def transactional_id(self, run: str, version: int, number: int) -> str:
        """Return the id of one attempt of a task."""
        return f"{self.driver_id}-{run}-{version % SLOTS}-{number}"

    def clock_id(self, number: int) -> str:
        """Return an id for transactions that only read their coordinator's clock."""
        return f"{self.driver_id}-clock-{number}"

    def parse(self, transactional_id: str) -> AttemptId | None:
        """Parse an attempt's id; return None for other ids, including those of other sinks whose
        names begin with the same prefix.
        """
        found = re.fullmatch(
            re.escape(self.driver_id) + r"-([0-9a-f]{8})-(\d)-(\d+)", transactional_id
        )
        return AttemptId(found[1], int(found[2]), int(found[3])) if found else None


def short_run(run_id: str) -> str:
    """Return eight hexadecimal digits for a run of a query, which distinguish attempts of different
    runs.
    """
    return hashlib.sha256(run_id.encode()).hexdigest()[:8]
