"""Fetches the assigned partitions from their leaders."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection

from aioprod.config.share_consumer import ShareConsumerConfig
from aioprod.consumer.notifier import Notifier
from aioprod.consumer.share.acknowledgements import PartitionKey, SharePartition
from aioprod.consumer.share.assignment import ShareAssignment
from aioprod.consumer.share.broker import ShareBroker
from aioprod.consumer.share.buffer import ShareBuffer
from aioprod.consumer.share.outcomes import Outcomes
from aioprod.consumer.share.reporting import ShareReporter
from aioprod.consumer.share.requests import ShareRequests
from aioprod.consumer.share.unacknowledged import UnacknowledgedRecords
from aioprod.errors import KafkaError
from aioprod.protocol.messages.share_fetch import PartitionData


class ShareFetcher:
    """The sessions with all brokers. Implements
    :class:`aioprod.consumer.share.broker.Recipient`, which documents the calls.

    Args:
        config: the settings.
        requests: sends to brokers.
        assignment: has the partitions to fetch and their leaders.
        buffer: keeps the records until they are returned.
        unacknowledged: has the records that were returned.
        outcomes: gets the outcomes of acknowledgements.
        reporter: counts requests.
        notifier: wakes the waiting call when a request has ended.

    Attributes:
        wanted_at: loop time at which a call last waited for records.
        wants_records: True while the application waits for records. Set it with :meth:`want`.
    """

    def __init__(
        self,
        config: ShareConsumerConfig,
        requests: ShareRequests,
        assignment: ShareAssignment,
        buffer: ShareBuffer,
        unacknowledged: UnacknowledgedRecords,
        outcomes: Outcomes,
        reporter: ShareReporter,
        notifier: Notifier,
    ) -> None:
        self.wants_records: bool = False
        self.wanted_at: float = -math.inf
        self._limit_s = config.default_api_timeout_ms / 1000
        self._requests = requests
        self._assignment = assignment
        self._buffer = buffer
        self._unacknowledged = unacknowledged
        self._outcomes = outcomes
        self._reporter = reporter
        self._notifier = notifier
        self._brokers: dict[int, ShareBroker] = {}

    @property
    def acknowledging(self) -> bool:
        """True if an acknowledgement has no outcome."""
        return any(broker.acknowledging for broker in self._brokers.values())

    @property
    def lock_timeout_ms(self) -> int | None:
        """The time for which brokers lock records for this member, None if unknown."""
        known = (broker.session.lock_timeout_ms for broker in self._brokers.values())
        return next((timeout_ms for timeout_ms in known if timeout_ms is not None), None)

    def has_locks(self, node_id: int) -> bool:
        """Return True if a broker may have locked records for this member: the locks end with its
        connection.
        """
        broker = self._brokers.get(node_id)
        now = asyncio.get_running_loop().time()
        return broker is not None and broker.session.has_locks(now)

    # -- what to fetch -----------------------------------------------------------------------------

    def topics_changed(self) -> None:
        """Fetch only partitions of the subscribed topics, and release records of others."""
        self._buffer.release_others()
        if self._assignment:
            self.metadata_changed()

    def assign(self, assigned: Collection[PartitionKey]) -> None:
        """Fetch these partitions."""
        self._assignment.assign(assigned)
        self.metadata_changed()

    def metadata_changed(self) -> None:
        """Fetch each partition from its current leader."""
        self._buffer.metadata_changed()
        by_leader = self._assignment.find_leaders()
        for node_id in by_leader.keys() - self._brokers.keys():
            self._brokers[node_id] = ShareBroker(
                node_id,
                self._requests,
                self,
                self._assignment,
                self._outcomes,
                self._reporter,
                self._notifier,
                self._limit_s,
            )
        for node_id, broker in self._brokers.items():
            broker.wanted = by_leader.get(node_id, frozenset())
        self._look()

    def want(self, wants: bool) -> None:
        """Fetch while the application waits for records."""
        self.wants_records = wants
        if wants:
            self.wanted_at = asyncio.get_running_loop().time()
            self._look()

    def flush(self) -> None:
        """Send all acknowledgements now."""
        for broker in self._brokers.values():
            broker.flush()

    def _look(self) -> None:
        for broker in list(self._brokers.values()):
            broker.look()

    # -- what brokers send -------------------------------------------------------------------------

    def fetched(
        self,
        broker: ShareBroker,
        partition: SharePartition,
        data: PartitionData,
        locked_until: float,
    ) -> int:
        """See :class:`aioprod.consumer.share.broker.Recipient`."""
        records = self._buffer.add(broker, partition, data, locked_until)
        if self._buffer:
            self.wants_records = False  # until these are returned: others may have further ones
        return records

    def renewed(self, partition: SharePartition, offset: int, locked_until: float) -> None:
        """See :class:`aioprod.consumer.share.broker.Recipient`."""
        self._unacknowledged.renewed(partition.tp, offset, locked_until)

    # -- end ---------------------------------------------------------------------------------------

    async def close(self) -> None:
        """End all sessions; the caller sets the limit."""
        self.wants_records = False
        self._buffer.clear()
        self._unacknowledged.close()
        await asyncio.gather(*(broker.close() for broker in self._brokers.values()))

    def end(self, error: KafkaError) -> None:
        """Fail all acknowledgements without an outcome; nothing is sent any more. Nothing is
        scheduled: the event loop may be closed.
        """
        self._buffer.clear()
        self._unacknowledged.close()
        for broker in self._brokers.values():
            broker.end(error)
