"""Sends dead letters again, exactly once.

A transaction has the records of a batch, and the positions after it as offsets of a group, those of
records that were left out included. A redrive first fences former ones by the transactional id,
which ends a transaction that is open, and then reads the positions.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, Unpack, cast

from aioprod import (
    AdminSettings,
    ClientSettings,
    ConfigError,
    KafkaError,
    OffsetAndMetadata,
    Producer,
    ProducerSettings,
    TopicPartition,
)
from aioprod.admin import Admin
from aioprod.closing import close_in_turn
from aioprod.config.checks import check_name
from aioprod.logs import Logger, get_logger
from aioprod.processing.dead_letters.letters import DeadLetter
from aioprod.processing.dead_letters.progress import Progress, group_of, read_progress
from aioprod.processing.dead_letters.reading import LetterReader
from aioprod.processing.dead_letters.selection import FILTERED, SELECTED, Choice, Selection
from aioprod.processing.errors import ProcessingError
from aioprod.public_module import Uncopyable, set_module

log: Logger = get_logger(__name__)

_BATCH_RECORDS: Final = 500
_CLOSE_MS = 2_000
# A dead letter may have been written with a larger limit than that of a producer. Brokers have
# their own.
_MOST_REQUEST_BYTES = 64 << 20
# The open transaction of a killed redrive delays readers of the topics for this long.
_TRANSACTION_TIMEOUT_MS = 10_000
_MAX_BLOCK_MS = 10_000
_COMMIT_EACH_S = 5.0
_MOST_KINDS = 1_000
_MOST_ERROR_TEXT = 200
_OTHER_ERRORS = "(others)"
# offsets.retention.minutes: brokers forget the offsets of a group without members after a week.
_RETENTION_MS: Final = 7 * 24 * 3_600_000

DONE: Final = "done before"
MISSING: Final = "missing"


@set_module("aioprod.processing.dead_letters")
class DeadLetterKind(NamedTuple):
    """Dead letters that are counted together.

    Attributes:
        original_topic: where they come from; None if unknown.
        error: the class of the error, or the message if there is no class, up to 200 characters;
            after 1,000 kinds the others are counted together.
        verdict: ``selected``, ``filtered`` (not selected), ``done before``, ``too often`` (redriven
            as often as allowed), ``no origin`` (the original topic is unknown) or ``missing`` (a
            share group's record that is deleted).
    """

    original_topic: str | None
    error: str
    verdict: str


@set_module("aioprod.processing.dead_letters")
class Redrive(Uncopyable):
    """Sends dead letters again, each exactly once for readers with
    ``isolation_level="read_committed"``, even if it is killed and started again, and even if its
    selections overlap. Use it once: call :meth:`plan`, :meth:`run` or :meth:`drop`.

    Args:
        topic: the dead-letter topic.
        bootstrap_servers: as in :class:`aioprod.Producer`.
        selection: the dead letters to send; by default all that were not sent again three times.
        to_topic: where to send them: by key. By default each goes to its original topic, into its
            original partition if that exists.
        group_id: the group whose offsets say what was sent, and the transactional id; by default
            ``aioprod-redrive-TOPIC``. Another group knows nothing of what was sent.
        max_records_per_s: the maximum number of records sent per second; None for no limit.
        settings: settings that all clients share, such as security.

    Attributes:
        records_read: the number of dead letters that were read.
        records_sent: the number of records in committed transactions.
        offsets_deleted: the number of offsets that :meth:`drop` has deleted.

    Raises:
        ConfigError: if an argument or a setting is invalid.
    """

    def __init__(
        self,
        topic: str,
        bootstrap_servers: str = "localhost:9092",
        *,
        selection: Selection | None = None,
        to_topic: str | None = None,
        group_id: str | None = None,
        max_records_per_s: float | None = None,
        **settings: Unpack[ClientSettings],
    ) -> None:
        if max_records_per_s is not None and not max_records_per_s > 0:
            raise ConfigError(f"max_records_per_s={max_records_per_s!r}: must be above 0")
        if to_topic == topic:
            raise ConfigError(
                f"to_topic={to_topic!r}: is the dead-letter topic; the records would stay in it"
            )
        self._topic = check_name("topic", topic)
        self._to_topic = to_topic
        self.group_id: str = group_of(topic, group_id)
        self._selection = Selection() if selection is None else selection
        self._choice = Choice(self._selection, needs_origin=to_topic is None)
        self._per_s = max_records_per_s
        self._reader = LetterReader(topic, bootstrap_servers, settings)
        self._admin = Admin(bootstrap_servers, **cast("AdminSettings", settings))
        sending: dict[str, Any] = {
            **settings,
            "transactional_id": self.group_id,
            "transaction_timeout_ms": _TRANSACTION_TIMEOUT_MS,
            "max_block_ms": _MAX_BLOCK_MS,
            "max_request_size": _MOST_REQUEST_BYTES,
        }
        self._producer = Producer(bootstrap_servers, **cast("ProducerSettings", sending))
        self._progress: dict[TopicPartition, Progress] = {}
        self._kinds: Counter[DeadLetterKind] = Counter()
        self._partitions: dict[str, frozenset[int]] = {}
        self._new = False
        self.records_read: int = 0
        self.records_sent: int = 0
        self.offsets_deleted: int = 0

    async def plan(self, *, new: bool = True) -> Counter[DeadLetterKind]:
        """Count the dead letters by origin, error and verdict; send and commit nothing.

        Args:
            new: as in :meth:`run`; by default old dead letters are counted without an error.
        """
        self._new = new
        try:
            await self._open()
            while not await self._reader.is_at_end():
                self._choose(await self._reader.read(_BATCH_RECORDS))
            return self._kinds
        finally:
            await self._close()

    async def run(self, *, follow: bool = False, new: bool = False) -> Counter[DeadLetterKind]:
        """Send the selected dead letters again, and return how many there were of each kind.

        Args:
            follow: continue with dead letters that are written after the start, until cancelled. By
                default the end offsets at the start are the end, so that a record that fails again
                is not sent twice in one run.
            new: whether it is certain that no earlier redrive has sent the dead letters that are
                older than a week, of which the group knows nothing: brokers forget the offsets of a
                group after ``offsets.retention.minutes``.

        Raises:
            ProcessingError: if a record can't be sent, or is too old without ``new``. It and all
                later ones stay unsent; those before it are sent.
            KafkaError: if brokers refuse, or none responds, or another redrive with the group was
                started. A new run continues after the last commit.
        """
        self._new = new
        try:
            await self._producer.start()  # fences a former redrive, and ends its transaction
            await self._open()
            self._reader.seek(self._start_positions(), follow=follow)
            await self._send_all()
            return self._kinds
        finally:
            await self._close()

    async def drop(self, *, new: bool = False) -> Counter[DeadLetterKind]:
        """Mark the selected dead letters as done, without sending them, however often they were
        sent again. Then delete, at the beginning of each partition, the records up to the first one
        that is neither dropped nor sent again.

        Args:
            new: as in :meth:`run`.
        """
        self._new = new
        self._choice = Choice(replace(self._selection, max_redrives=None), needs_origin=False)
        try:
            await self._producer.start()
            await self._open()
            kept: dict[TopicPartition, int] = {}
            while not await self._reader.is_at_end():
                for letter in await self._reader.read(_BATCH_RECORDS):
                    is_left_out = self._verdict(letter) == FILTERED
                    if is_left_out and not self._progress[letter.place].is_done(letter):
                        kept.setdefault(letter.place, letter.record.offset)
            async with self._producer.transaction():
                await self._commit_positions()
            await self._delete({**self._reader.ends, **kept})
            return self._kinds
        finally:
            await self._close()

    # -- life --------------------------------------------------------------------------------------

    async def _open(self) -> None:
        await self._admin.start()
        await self._reader.start()
        self._progress = await read_progress(
            self._admin, self.group_id, self._topic, self._reader.ends, stable=True
        )

    async def _close(self) -> None:
        async def close_producer() -> None:
            await self._producer.close(_CLOSE_MS)

        await close_in_turn(close_producer, self._reader.close, self._admin.close)

    def _start_positions(self) -> Mapping[TopicPartition, int]:
        return {
            partition: progress.reached.get(self._choice, 0)
            for partition, progress in self._progress.items()
        }

    # -- choosing ----------------------------------------------------------------------------------

    def _choose(self, letters: Sequence[DeadLetter]) -> list[DeadLetter]:
        return [letter for letter in letters if self._verdict(letter) == SELECTED]

    def _verdict(self, letter: DeadLetter) -> str:
        self.records_read += 1
        verdict = self._choice.verdict(letter)
        progress = self._progress[letter.place]
        if verdict == SELECTED and progress.is_done(letter):
            verdict = DONE
        elif verdict == SELECTED and letter.missing:
            verdict = MISSING
            log.warning(
                "%s is lost: the broker copied no content, and the record at offset %s of %s-%s is "
                "deleted",
                *(_name(letter), letter.original_offset, letter.original_topic),
                letter.original_partition,
            )
        elif verdict == SELECTED and not (progress.is_known or self._new):
            self._check_age(letter)
        self._count(letter, verdict)
        return verdict

    def _count(self, letter: DeadLetter, verdict: str) -> None:
        error = letter.error or letter.message.partition("\n")[0]
        kind = DeadLetterKind(letter.original_topic, error[:_MOST_ERROR_TEXT], verdict)
        if kind not in self._kinds and len(self._kinds) >= _MOST_KINDS:
            kind = DeadLetterKind(None, _OTHER_ERRORS, verdict)
        self._kinds[kind] += 1

    def _check_age(self, letter: DeadLetter) -> None:
        if letter.record.timestamp < time.time() * 1000 - _RETENTION_MS:
            raise ProcessingError(
                f"{_name(letter)} is older than a week, and group {self.group_id} has no offsets: "
                "brokers forget them after offsets.retention.minutes, so an earlier redrive may "
                "have sent it. If none did, say so (new=True, --new); otherwise select later ones",
                letter.place,
                letter.record.offset,
            )

    # -- sending -----------------------------------------------------------------------------------

    async def _send_all(self) -> None:
        most = _BATCH_RECORDS
        if self._per_s is not None:
            most = max(1, min(most, round(self._per_s)))
        now = asyncio.get_running_loop().time
        begun = committed_at = now()
        while not await self._reader.is_at_end():
            chosen = self._choose(await self._reader.read(most))
            if chosen or now() - committed_at >= _COMMIT_EACH_S:
                await self._transact(chosen)
                committed_at = now()
            if self._per_s is not None and chosen:
                await asyncio.sleep(begun + self.records_sent / self._per_s - now())
        await self._transact([])

    async def _transact(self, letters: Sequence[DeadLetter]) -> None:
        async with self._producer.transaction():
            await self._send(letters)
            await self._commit_positions()
        self.records_sent += len(letters)

    async def _send(self, letters: Sequence[DeadLetter]) -> None:
        producer = self._producer
        deliveries = []
        for letter in letters:
            topic = self._target_of(letter)
            try:
                partitions = await self._partitions_of(topic)
                partition = letter.original_partition if self._to_topic is None else None
                if partition not in partitions:
                    partition = None
                deliveries.append(await producer.send(*letter.to_send(topic, partition)))
            except KafkaError as error:
                raise _unsent(letter, topic, error) from error
        await producer.flush()
        for letter, delivery in zip(letters, deliveries, strict=True):
            try:
                await delivery
            except KafkaError as error:
                raise _unsent(letter, self._target_of(letter), error) from error

    def _target_of(self, letter: DeadLetter) -> str:
        topic = self._to_topic or letter.original_topic
        assert topic is not None  # only those with an origin are selected otherwise
        return topic

    async def _partitions_of(self, topic: str) -> frozenset[int]:
        """Return the partitions of a target. Without this look brokers might create a topic that
        was deleted, and no program would read it.
        """
        found = self._partitions.get(topic)
        if found is None:
            found = await self._reader.partitions_of(topic)
            if not found:
                raise KafkaError(f"topic {topic!r} does not exist; create it, or give another one")
            self._partitions[topic] = found
        return found

    async def _commit_positions(self) -> None:
        """Add the positions of all partitions to the transaction, including unchanged ones,
        as brokers forget old ones.
        """
        offsets: dict[TopicPartition, OffsetAndMetadata] = {
            partition: progress.committed(
                self._choice, self._reader.position[partition], self._reader.begins[partition]
            )
            for partition, progress in self._progress.items()
        }
        await self._producer.send_offsets_to_transaction(offsets, self.group_id)

    async def _delete(self, before: Mapping[TopicPartition, int]) -> None:
        wanted = {
            partition: offset
            for partition, offset in before.items()
            if offset > self._reader.begins[partition]
        }
        if wanted:
            (await self._admin.delete_records(wanted)).check()
            count = sum(offset - self._reader.begins[each] for each, offset in wanted.items())
            self.offsets_deleted = count


def _name(letter: DeadLetter) -> str:
    record = letter.record
    return f"the dead letter at offset {record.offset} of {record.topic}-{record.partition}"


def _unsent(letter: DeadLetter, topic: str, error: KafkaError) -> ProcessingError:
    return ProcessingError(
        f"{_name(letter)} can't be sent to {topic}: {error}; it and the records after it are not "
        "sent",
        letter.place,
        letter.record.offset,
    )
