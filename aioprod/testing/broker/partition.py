"""One partition: its log, how much of it each replica has, who leads, and what it knows of
producers and transactions.

Plain decisions: no socket, no clock, no loop. Whoever waits on the log is woken where something
    changed for him.
"""

from __future__ import annotations

from collections.abc import Collection

from aioprod.protocol.record_batch import BatchHeader, read_header
from aioprod.protocol.record_reader import Record, read_records
from aioprod.testing.broker.cluster import NOBODY, Leadership
from aioprod.testing.broker.leader_epochs import EpochEnd
from aioprod.testing.broker.log import MemoryUse, PartitionLog
from aioprod.testing.broker.markers import TransactionIndex, is_commit
from aioprod.testing.broker.producer_state import ProducerStates
from aioprod.testing.broker.settings.topic_settings import TopicConfig


class Partition:
    """A partition on all its replicas.

    They share one log, the leader's, and each has a beginning of it. A follower has all of it at
    once, unless its node is down or its
    replication is paused: then it keeps what it had. Consumers see what all replicas in sync have
        (the high watermark). A new leader drops what
    it does not have, and so it is lost; for good, also where its old leader comes back without the
    others.

    Attributes:
        log: of the leader, or of the last one while there is none.
        leadership: who keeps it, who is in sync, who leads.
        config: the topic's; min.insync.replicas and unclean.leader.election.enable count here.
    """

    def __init__(
        self, leadership: Leadership, config: TopicConfig, memory: MemoryUse | None = None
    ) -> None:
        self.log = PartitionLog(memory)
        self.producers = ProducerStates()
        self.transactions = TransactionIndex()
        self.leadership = leadership
        self.config = config
        self._held: dict[
            int, int
        ] = {}  # the end offset of each replica that does not follow at present
        self._limit: int | None = None  # the high watermark, where it is not the end of the log
        self._waiting_markers: list[bytes] = []  # while there is no leader

    # -- how far -----------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        """The end of what all replicas in sync have. It stands still while fewer than
        min.insync.replicas are in sync (KIP-966).
        """
        return self.log.end_offset if self._limit is None else self._limit

    @property
    def last_stable_offset(self) -> int:
        """Where read_committed readers have to stop: at the first record of an open transaction, at
        the high watermark at the latest.
        """
        high_watermark = self.high_watermark
        first_unstable = self.transactions.first_unstable_offset(high_watermark)
        return high_watermark if first_unstable is None else min(first_unstable, high_watermark)

    @property
    def is_short_of_replicas(self) -> bool:
        """Whether fewer are in sync than min.insync.replicas asks for, or than there are."""
        return len(self.leadership.in_sync) < min(
            self.config.min_insync_replicas, len(self.leadership.replicas)
        )

    @property
    def end_offsets(self) -> dict[int, int]:
        """Where the log of each replica ends."""
        return {
            node_id: self._held.get(node_id, self.log.end_offset)
            for node_id in self.leadership.replicas
        }

    @property
    def laggards(self) -> list[int]:
        """The followers that count as in sync, and lack records."""
        if not self._held:
            return []
        return [
            node_id
            for node_id in self.leadership.in_sync
            if self._held.get(node_id, self.log.end_offset) < self.log.end_offset
        ]

    def find_epoch_end(self, epoch: int) -> EpochEnd:
        """Where the records of a leader epoch end (KIP-101)."""
        return self.log.epochs.find_end(epoch, self.log.end_offset)

    # -- records -----------------------------------------------------------------------------------

    def append(self, header: BatchHeader, batch: bytes | memoryview, timestamp: int) -> int:
        """Append a batch or a marker, whose newest record has ``timestamp``; return its first
        offset.
        """
        offset = self.log.append(header, batch, timestamp)
        self._take_note(header, batch, offset, timestamp)
        return offset

    def write_marker(self, marker: bytes) -> None:
        """Append a transaction marker; while there is no leader it waits for the next one."""
        if self.leadership.leader == NOBODY:
            self._waiting_markers.append(marker)
            return
        header = read_header(marker)
        self.append(header, marker, header.max_timestamp)

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has begun a transaction here under this epoch."""
        return self.transactions.is_open(producer_id) and self.producers.epoch(producer_id) == epoch

    def records(self, *, committed_only: bool = False) -> list[Record]:
        """Decode everything but markers; with ``committed_only`` without what belongs to an open or
        an aborted transaction.
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

    def _take_note(
        self, header: BatchHeader, batch: bytes | memoryview, offset: int, timestamp: int
    ) -> None:
        """Have the batch at ``offset`` change what is known of its producer."""
        producer_id, epoch = header.producer_id, header.producer_epoch
        if header.is_control:
            self.producers.end_transaction(producer_id, epoch, offset, timestamp)
            self.transactions.end(producer_id, offset, commit=is_commit(bytes(batch)))
        elif producer_id >= 0:
            self.producers.record(
                producer_id, epoch, header.base_sequence, header.record_count, offset, timestamp
            )
            if header.is_transactional:
                self.transactions.begin(producer_id, offset)

    def _truncate(self, end_offset: int) -> None:
        """Drop what the new leader does not have. Markers are written again: their transactions are
        decided (KIP-98).
        """
        if end_offset >= self.log.end_offset:
            return
        dropped = self.log.truncate(end_offset)
        self._waiting_markers = [
            batch for batch in dropped if read_header(batch).is_control
        ] + self._waiting_markers
        self._held = {
            node_id: min(held, self.log.end_offset) for node_id, held in self._held.items()
        }
        if self._limit is not None:
            self._limit = min(self._limit, self.log.end_offset)
        self._learn_again()

    def _learn_again(self) -> None:
        """Rebuild what is known of producers and transactions from the log; of those whose records
        were all deleted it stays.
        """
        kept = list(self.log.batches())
        start = kept[0][0].base_offset if kept else self.log.end_offset
        self.producers.forget_from(start)
        self.transactions = self.transactions.before(start)
        for header, batch in kept:
            self._take_note(header, batch, header.base_offset, header.max_timestamp)

    # -- replicas ----------------------------------------------------------------------------------

    def adapt(self, running: Collection[int], paused: Collection[int] = ()) -> None:
        """Adapt to the nodes that run now, and to those whose replication is paused."""
        leadership = self.leadership
        for node_id in leadership.replicas:
            if node_id not in running:
                self._held.setdefault(node_id, self.log.end_offset)
        alive = tuple(node_id for node_id in leadership.in_sync if node_id in running)
        leadership.in_sync = (
            alive or leadership.in_sync
        )  # the last of them stay in sync: only they have everything
        if leadership.leader not in running:
            self._elect(alive[0] if alive else self._find_unclean_leader(running))
        self._catch_up(running, paused)

    def move_leader(
        self, node_id: int, running: Collection[int], paused: Collection[int] = ()
    ) -> None:
        """Have another replica lead, which has to run and to be in sync. What it does not have is
        lost.
        """
        self._elect(node_id)
        self._catch_up(running, paused)

    def reassign(
        self, replicas: tuple[int, ...], running: Collection[int], paused: Collection[int] = ()
    ) -> None:
        """Have other nodes keep the partition. Those of them that run get everything before the old
        ones go.
        """
        leadership = self.leadership
        added = tuple(node_id for node_id in replicas if node_id not in leadership.replicas)
        leadership.replicas += added
        self._held.update(dict.fromkeys(added, self.log.start_offset))
        self.adapt(running, paused)
        leadership.replicas = replicas
        leadership.in_sync = (
            tuple(node_id for node_id in replicas if node_id in leadership.in_sync) or replicas
        )
        self._held = {node_id: held for node_id, held in self._held.items() if node_id in replicas}
        if leadership.leader not in replicas:
            self._elect(
                next((node_id for node_id in leadership.in_sync if node_id in running), NOBODY)
            )
        self.adapt(running, paused)

    def close(self) -> None:
        """The topic is deleted: free the memory, and let nobody wait any longer."""
        self._elect(NOBODY)
        self.log.release()

    def replicate(self) -> None:
        """Have the replicas in sync get everything now, also those whose replication is paused."""
        for node_id in self.leadership.in_sync:
            if node_id in self._held:
                self._held[node_id] = self.log.end_offset
        self._settle()

    def drop_from_in_sync(self, node_id: int) -> None:
        """A follower lags for too long: the others no longer wait for it."""
        leadership = self.leadership
        leadership.in_sync = tuple(each for each in leadership.in_sync if each != node_id)
        self._settle()

    def _find_unclean_leader(self, running: Collection[int]) -> int:
        """The first replica that runs, where the topic would rather lose records than wait."""
        if not self.config.unclean_leader_election:
            return NOBODY
        return next((node_id for node_id in self.leadership.replicas if node_id in running), NOBODY)

    def _elect(self, node_id: int) -> None:
        """Begin the next leader epoch, with this leader or with none."""
        leadership = self.leadership
        if leadership.leader == node_id:
            return
        leadership.leader = node_id
        self.log.leader_epoch += 1
        if node_id != NOBODY:
            if node_id not in leadership.in_sync:
                leadership.in_sync = (node_id,)
            self._truncate(self._held.pop(node_id, self.log.end_offset))
            self.log.epochs.begin(self.log.leader_epoch, self.log.end_offset)
            markers, self._waiting_markers = self._waiting_markers, []
            for marker in markers:
                self.write_marker(marker)
        self.log.wake()

    def _catch_up(self, running: Collection[int], paused: Collection[int]) -> None:
        """Have all followers that can get everything; they are in sync then."""
        leadership = self.leadership
        if leadership.leader != NOBODY:
            for node_id in leadership.replicas:
                if node_id == leadership.leader or (node_id in running and node_id not in paused):
                    self._held.pop(node_id, None)
                else:
                    self._held.setdefault(node_id, self.log.end_offset)
            leadership.in_sync = tuple(
                each
                for each in leadership.replicas
                if each in leadership.in_sync or each not in self._held
            )
        self._settle()

    def _settle(self) -> None:
        """Find the high watermark anew. It goes back with a truncation only."""
        before = self.high_watermark
        held = [self._held[node_id] for node_id in self.leadership.in_sync if node_id in self._held]
        if self.is_short_of_replicas:
            self._limit = before
        elif held:
            self._limit = max(before, min(held))
        else:
            self._limit = None
        if self.high_watermark != before:
            self.log.wake()
