"""One partition: its log, the end of each replica, its leader, and the state of producers and
transactions.

Synchronous decisions, without sockets, clock or event loop. A change wakes the tasks that wait for
the log.
"""

from __future__ import annotations

from collections.abc import Collection

from aioprod.error_codes import ErrorCode
from aioprod.protocol.record_batch import BatchHeader, read_header
from aioprod.protocol.record_reader import Record, read_records
from aioprod.testing.broker.cluster import NO_NODE, Leadership
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.leader_epochs import EpochEnd
from aioprod.testing.broker.log import MemoryUse, PartitionLog
from aioprod.testing.broker.markers import TransactionIndex, is_commit
from aioprod.testing.broker.producer_state import AppendedBatch, ProducerStates, SequenceError
from aioprod.testing.broker.settings.topic_settings import TopicConfig


class Partition:
    """A partition on all its replicas.

    The replicas share one log, the leader's, and each has a prefix of it. A follower has all
    records immediately, unless its node is stopped or its replication is paused; then it gets no
    further records. Consumers read the records that all in-sync replicas have, up to the high
    watermark. A new leader truncates the log to its own records: the other records are lost, even
    if the old leader restarts.

    Attributes:
        log: the log of the leader or, if there is none, of the last leader.
        leadership: the replicas, which of them are in sync, and the leader.
        config: the topic's settings, such as min.insync.replicas and
            unclean.leader.election.enable.
    """

    def __init__(
        self, leadership: Leadership, config: TopicConfig, memory: MemoryUse | None = None
    ) -> None:
        self.log: PartitionLog = PartitionLog(memory)
        self.producers: ProducerStates = ProducerStates()
        self.transactions: TransactionIndex = TransactionIndex()
        self.leadership = leadership
        self.config = config
        self._lagging: dict[int, int] = {}  # the end offset of each replica that is not replicating
        self._limit: int | None = None  # the high watermark, if it is not the end of the log
        self._waiting_markers: list[bytes] = []  # until there is a leader

    # -- offsets -----------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        """The end offset of the records that all in-sync replicas have. It does not advance while
        fewer than min.insync.replicas are in sync (KIP-966).
        """
        return self.log.end_offset if self._limit is None else self._limit

    @property
    def last_stable_offset(self) -> int:
        """The offset up to which read_committed consumers read: the first record of an open
        transaction, or the high watermark.
        """
        high_watermark = self.high_watermark
        first_unstable = self.transactions.first_unstable_offset(high_watermark)
        return high_watermark if first_unstable is None else min(first_unstable, high_watermark)

    @property
    def is_short_of_replicas(self) -> bool:
        """True if fewer replicas are in sync than min.insync.replicas, or than the number of
        replicas if that is lower.
        """
        return len(self.leadership.in_sync) < min(
            self.config.min_insync_replicas, len(self.leadership.replicas)
        )

    def check_in_sync(self) -> None:
        """Raise RequestError (NOT_ENOUGH_REPLICAS) if a record with acks=all can't be written."""
        if self.is_short_of_replicas:
            wanted, present = self.config.min_insync_replicas, list(self.leadership.in_sync)
            raise RequestError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"min.insync.replicas={wanted}, but only {present} are in sync",
            )

    @property
    def end_offsets(self) -> dict[int, int]:
        """The end offset of each replica's log."""
        return {
            node_id: self._lagging.get(node_id, self.log.end_offset)
            for node_id in self.leadership.replicas
        }

    @property
    def laggards(self) -> list[int]:
        """The followers that count as in sync but lack records."""
        if not self._lagging:
            return []
        return [
            node_id
            for node_id in self.leadership.in_sync
            if self._lagging.get(node_id, self.log.end_offset) < self.log.end_offset
        ]

    def find_epoch_end(self, epoch: int) -> EpochEnd:
        """Return where the records of a leader epoch end (KIP-101)."""
        return self.log.epochs.find_end(epoch, self.log.end_offset)

    # -- records -----------------------------------------------------------------------------------

    def append(self, header: BatchHeader, batch: bytes | memoryview, timestamp: int) -> int:
        """Append a batch or a marker whose latest record has ``timestamp``, and return its first
        offset.
        """
        offset = self.log.append(header, batch, timestamp)
        self._update_producer(header, batch, offset, timestamp)
        return offset

    def check_producer(self, header: BatchHeader, *, begins_at_zero: bool) -> AppendedBatch | None:
        """Return the batch of which this one is a duplicate, or None.

        Raises:
            RequestError: if its sequence is wrong, or if the producer has an open transaction and
                the batch is not part of it.
        """
        producer_id = header.producer_id
        if producer_id < 0:
            return None
        identity = producer_id, header.producer_epoch, header.base_sequence
        known = self.producers.find_duplicate(*identity, header.record_count)
        if known is not None:
            return known
        try:
            self.producers.check(*identity, begins_at_zero=begins_at_zero)
        except SequenceError as error:
            raise RequestError(error.code, str(error)) from None
        if not header.is_transactional and self.transactions.is_open(producer_id):
            raise RequestError(
                ErrorCode.INVALID_TXN_STATE,
                (
                    f"producer {producer_id} has an open transaction, but the batch is not "
                    "transactional"
                ),
            )
        return None

    def write_marker(self, marker: bytes) -> None:
        """Append a transaction marker, or keep it for the next leader if there is none."""
        if self.leadership.leader == NO_NODE:
            self._waiting_markers.append(marker)
            return
        header = read_header(marker)
        self.append(header, marker, header.max_timestamp)

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Return whether the producer has an open transaction here with this epoch."""
        return self.transactions.is_open(producer_id) and self.producers.epoch(producer_id) == epoch

    def records(self, *, committed_only: bool = False) -> list[Record]:
        """Decode all records except markers. With ``committed_only``, leave out the records of open
        and aborted transactions.
        """
        if not committed_only:
            return self.log.records()
        return self.log.visible(
            [
                record
                for header, batch in self.log.batches()
                if not header.is_transactional
                or self.transactions.is_committed(header.producer_id, header.base_offset)
                for record in read_records(batch)
            ]
        )

    def _update_producer(
        self, header: BatchHeader, batch: bytes | memoryview, offset: int, timestamp: int
    ) -> None:
        """Update the state of the producer that wrote the batch at ``offset``."""
        producer_id, epoch = header.producer_id, header.producer_epoch
        if header.is_control:
            self.producers.end_transaction(producer_id, epoch, offset, timestamp)
            self.transactions.end(producer_id, offset, commit=is_commit(bytes(batch)))
        elif producer_id >= 0:
            self.producers.record(
                producer_id,
                epoch,
                header.base_sequence,
                header.last_offset_delta + 1,  # compaction may have removed records
                offset,
                timestamp,
            )
            if header.is_transactional:
                self.transactions.begin(producer_id, offset)

    def _truncate(self, end_offset: int) -> None:
        """Drop the records that the new leader lacks, and write dropped markers again, because
        their transactions have ended (KIP-98).
        """
        if end_offset >= self.log.end_offset:
            return
        dropped = self.log.truncate(end_offset)
        self._waiting_markers = [
            batch for batch in dropped if read_header(batch).is_control
        ] + self._waiting_markers
        self._lagging = {
            node_id: min(end, self.log.end_offset) for node_id, end in self._lagging.items()
        }
        if self._limit is not None:
            self._limit = min(self._limit, self.log.end_offset)
        self._rebuild_state()

    def _rebuild_state(self) -> None:
        """Rebuild the state of producers and transactions from the log. Keep the state of producers
        whose records were all deleted.
        """
        kept = list(self.log.batches())
        start = kept[0][0].base_offset if kept else self.log.end_offset
        self.producers.forget_from(start)
        self.transactions = self.transactions.before(start)
        for header, batch in kept:
            self._update_producer(header, batch, header.base_offset, header.max_timestamp)

    # -- replicas ----------------------------------------------------------------------------------

    def adapt(self, running: Collection[int], paused: Collection[int] = ()) -> None:
        """Adapt to the running nodes and to the nodes whose replication is paused."""
        leadership = self.leadership
        for node_id in leadership.replicas:
            if node_id not in running:
                self._lagging.setdefault(node_id, self.log.end_offset)
        alive = tuple(node_id for node_id in leadership.in_sync if node_id in running)
        # The last ones stay in sync: only they have all records.
        leadership.in_sync = alive or leadership.in_sync
        if leadership.leader not in running:
            self._elect(alive[0] if alive else self._find_unclean_leader(running))
        self._catch_up(running, paused)

    def move_leader(
        self, node_id: int, running: Collection[int], paused: Collection[int] = ()
    ) -> None:
        """Make a running, in-sync replica the leader. Records that it lacks are lost."""
        self._elect(node_id)
        self._catch_up(running, paused)

    def reassign(
        self, replicas: tuple[int, ...], running: Collection[int], paused: Collection[int] = ()
    ) -> None:
        """Move the partition to other nodes. The running ones get all records before the old
        replicas are removed.
        """
        leadership = self.leadership
        added = tuple(node_id for node_id in replicas if node_id not in leadership.replicas)
        leadership.replicas += added
        self._lagging.update(dict.fromkeys(added, self.log.start_offset))
        self.adapt(running, paused)
        leadership.replicas = replicas
        leadership.in_sync = (
            tuple(node_id for node_id in replicas if node_id in leadership.in_sync) or replicas
        )
        self._lagging = {
            node_id: end for node_id, end in self._lagging.items() if node_id in replicas
        }
        if leadership.leader not in replicas:
            self._elect(
                next((node_id for node_id in leadership.in_sync if node_id in running), NO_NODE)
            )
        self.adapt(running, paused)

    def close(self) -> None:
        """Free the memory of a deleted partition, and wake the waiting tasks."""
        self._elect(NO_NODE)
        self.log.release()

    def replicate(self) -> None:
        """Give all records to the in-sync replicas, even to those whose replication is paused."""
        for node_id in self.leadership.in_sync:
            if node_id in self._lagging:
                self._lagging[node_id] = self.log.end_offset
        self._update_high_watermark()

    def drop_from_in_sync(self, node_id: int) -> None:
        """Remove a follower that lags for too long from the in-sync replicas."""
        leadership = self.leadership
        leadership.in_sync = tuple(each for each in leadership.in_sync if each != node_id)
        self._update_high_watermark()

    def _find_unclean_leader(self, running: Collection[int]) -> int:
        """Return the first running replica, if unclean.leader.election.enable allows one that is
        not in sync.
        """
        if not self.config.unclean_leader_election:
            return NO_NODE
        return next(
            (node_id for node_id in self.leadership.replicas if node_id in running), NO_NODE
        )

    def _elect(self, node_id: int) -> None:
        """Begin the next leader epoch, with a leader or with none."""
        leadership = self.leadership
        if leadership.leader == node_id:
            return
        leadership.leader = node_id
        self.log.leader_epoch += 1
        if node_id != NO_NODE:
            if node_id not in leadership.in_sync:
                leadership.in_sync = (node_id,)
            self._truncate(self._lagging.pop(node_id, self.log.end_offset))
            self.log.epochs.begin(self.log.leader_epoch, self.log.end_offset)
            markers, self._waiting_markers = self._waiting_markers, []
            for marker in markers:
                self.write_marker(marker)
        self.log.wake()

    def _catch_up(self, running: Collection[int], paused: Collection[int]) -> None:
        """Give all records to the followers that replicate, so that they are in sync."""
        leadership = self.leadership
        if leadership.leader != NO_NODE:
            for node_id in leadership.replicas:
                if node_id == leadership.leader or (node_id in running and node_id not in paused):
                    self._lagging.pop(node_id, None)
                else:
                    self._lagging.setdefault(node_id, self.log.end_offset)
            leadership.in_sync = tuple(
                each
                for each in leadership.replicas
                if each in leadership.in_sync or each not in self._lagging
            )
        self._update_high_watermark()

    def _update_high_watermark(self) -> None:
        """Compute the high watermark. Only a truncation lowers it."""
        before = self.high_watermark
        ends = [
            self._lagging[node_id]
            for node_id in self.leadership.in_sync
            if node_id in self._lagging
        ]
        if self.is_short_of_replicas:
            self._limit = before
        elif ends:
            self._limit = max(before, min(ends))
        else:
            self._limit = None
        if self.high_watermark != before:
            self.log.wake()
