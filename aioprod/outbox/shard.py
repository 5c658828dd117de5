"""Sends the rows of a shard to Kafka, exactly once.

A batch is fixed before it is sent: the database stores its number and the ids of its rows. One
Kafka transaction contains the records of the batch and, as a committed offset of a group, its
number. Then the rows are deleted in the same database transaction that fixes the next batch. A
relay that takes over becomes the owner in the database, fences the former producer, and reads the
number in Kafka, which shows whether the last batch was sent. The proof is in docs/outbox.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, cast

from aioprod import (
    ClientSettings,
    Delivery,
    KafkaError,
    KafkaTimeoutError,
    OffsetAndMetadata,
    Producer,
    ProducerSettings,
    TopicPartition,
)
from aioprod.admin import Admin
from aioprod.closing import close_in_turn
from aioprod.interceptors import ProducerInterceptor
from aioprod.logs import Logger, get_logger
from aioprod.outbox.databases import Row, make_database
from aioprod.outbox.errors import OutboxError
from aioprod.outbox.refusals import OnRefused, is_of_topic, record_of, refusals
from aioprod.outbox.schema import COLUMNS
from aioprod.outbox.steps import Claim, Refusal, Step, Steps
from aioprod.outbox.waking import Waking

log: Logger = get_logger(__name__)

#: Its partition 0 has no records: a group's offset in it is the number of the last batch.
POSITIONS_TOPIC = "aioprod-outbox-positions"

_POSITION = TopicPartition(POSITIONS_TOPIC, 0)
_TOPIC = 1 + COLUMNS.index("topic")
_CLOSE_MS = 2_000
_TRANSACTION_TIMEOUT_MS = 10_000
_RETRY_MS = 5
_MAX_REQUEST_BYTES = 64 * 1024 * 1024  # the topic's limit applies
_MOST_LOGGED = 10_000
_OUTCOME_LIMIT_S = 60.0
_TOPIC_LIMIT_S = 3.0


class LostCommits(OutboxError):
    """The database has fewer batches than Kafka."""


class RelaySettings(NamedTuple):
    """The settings that all shards of a relay share; see :class:`aioprod.outbox.OutboxRelay`."""

    database: str
    bootstrap_servers: str
    name: str
    shards: int
    max_batch_records: int
    max_batch_bytes: int
    lease_ms: int
    on_refused: OnRefused
    interceptors: Sequence[ProducerInterceptor]
    client: ClientSettings


class Shard:
    """Sends the rows of a shard that this relay has taken over.

    Args:
        settings: the settings of its relay.
        claim: the take-over.
        admin: a started admin client.
        waking: wakes it when there are new rows.
        report: called with the number of rows after each transaction, and with 0 if there are
            none.
    """

    def __init__(
        self,
        settings: RelaySettings,
        claim: Claim,
        admin: Admin,
        waking: Waking,
        report: Callable[[int], None],
    ) -> None:
        self._settings = settings
        self._claim = claim
        self._admin = admin
        self._waking = waking
        self._report = report
        self._batch = claim.batch
        self._sent: Sequence[int] = ()
        self._refused: Sequence[Refusal] = ()
        self._logged: set[int] = set()  # ids of refused rows
        self._most = settings.max_batch_records
        self._database = make_database(settings.database)
        self._steps = Steps(self._database, settings.name, settings.shards)
        #: The transactional id, and the group of the position.
        self._id = f"aioprod-outbox-{settings.name}-{claim.shard}"
        sending: dict[str, Any] = {
            # Kafka refuses the position while the coordinator ends the last transaction, which
            # takes milliseconds.
            "retry_backoff_ms": _RETRY_MS,
            **settings.client,
            "transactional_id": self._id,
            "transaction_timeout_ms": _TRANSACTION_TIMEOUT_MS,
            "max_request_size": _MAX_REQUEST_BYTES,
            "interceptors": settings.interceptors,
        }
        self._producer = Producer(settings.bootstrap_servers, **cast("ProducerSettings", sending))
        self._wake = asyncio.Event()
        self._stopping = False
        self._polled = False  # it has looked for rows without a notification

    def stop(self) -> None:
        """Finish the running transaction, then end :meth:`run`."""
        self._stopping = True
        self._wake.set()

    async def run(self) -> None:
        """Send rows until :meth:`stop`, or an error.

        Raises:
            TakenOver: if another relay has the shard.
            LostCommits: if the database was restored from a backup.
            OutboxError, KafkaError: if the database or Kafka fails; another :class:`Shard`
                continues.
        """
        self._waking.add(self._wake)
        try:
            await self._producer.start()  # fences the former one: before the position is read
            position = await self._position()
            await self._database.open()
            await self._decide(position)
            while await self._step():
                pass
        finally:
            self._waking.remove(self._wake)
            await close_in_turn(self._close_producer, self._database.close)

    async def _close_producer(self) -> None:
        await self._producer.close(_CLOSE_MS)

    async def _position(self) -> int:
        found = await self._admin.list_consumer_group_offsets(
            self._id, [_POSITION], require_stable=True
        )
        position = found[_POSITION]
        # A position that belongs to former tables is ignored.
        known = position is not None and position.metadata == self._claim.outbox_id
        return position.offset if known and position is not None else 0

    async def _decide(self, position: int) -> None:
        """Handle the rows of the last batch: delete them if it was sent, or send them with the next
        one.
        """
        claim = self._claim
        if position > claim.batch:
            # A later owner may have sent batches before this relay fenced it.
            await self._steps.check_owner(claim)
            raise LostCommits(
                f"relay {self._settings.name!r}: Kafka has batch {position} of shard "
                f"{claim.shard}, and the database knows batch {claim.batch} only: it was restored "
                "from a backup, or lost its last commits. Rows may have been sent: compare them "
                "with the topics, delete those, then: DELETE FROM aioprod_outbox_relay"
            )
        if position == claim.batch:
            self._sent = claim.ids
        elif claim.ids:
            log.info("outbox shard %d: batch %d was not sent; sending its rows again",
                     claim.shard, claim.batch)  # fmt: skip

    # -- sending -----------------------------------------------------------------------------------

    async def _step(self) -> bool:
        """Fix a batch and send it. Return False at the end."""
        self._wake.clear()
        stopping = self._stopping
        # Without a further batch, only the outcome of the last one is stored.
        most = 0 if stopping else self._most
        step = Step(
            self._batch + 1, self._sent, self._refused, most, self._settings.max_batch_bytes
        )
        rows = await self._steps.take(self._claim, step)
        if rows or self._sent or self._refused:
            self._batch += 1
        for refusal in self._refused:
            if refusal.id in self._logged:
                continue
            if len(self._logged) >= _MOST_LOGGED:
                self._logged.clear()
            self._logged.add(refusal.id)
            log.warning("outbox: Kafka refused row %d, so %s: %s", refusal.id,
                        _consequence(refusal), refusal.reason)  # fmt: skip
        self._sent = self._refused = ()
        if not rows:
            self._report(0)
            if not stopping:
                await self._pause()
            return not stopping
        if self._polled:
            self._waking.distrust()
            self._polled = False
        refused = await self._refused_topics(rows)
        if not refused:
            refused = await self._send(rows)
        self._refused = refused
        return True

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(self._waking.pause_s):
                await self._wake.wait()
            self._polled = False
        except TimeoutError:
            self._polled = True

    async def _send(self, rows: list[Row]) -> list[Refusal]:
        """Send rows in a transaction. If Kafka refuses some, send none and return them."""
        producer = self._producer
        await producer.begin_transaction()
        deliveries: list[Delivery] = []
        try:
            for row in rows:
                deliveries.append(await producer.send(*record_of(row)))
            position = OffsetAndMetadata(self._batch, self._claim.outbox_id)
            await producer.send_offsets_to_transaction({_POSITION: position}, self._id)
            await _finished(producer.commit_transaction)
        except (KafkaError, ValueError) as error:
            return await self._undo(rows, deliveries, error)
        self._sent = tuple(row[0] for row in rows)
        self._logged.difference_update(self._sent)
        self._most = min(2 * self._most, self._settings.max_batch_records)
        self._report(len(rows))
        return []

    async def _undo(
        self, rows: list[Row], deliveries: list[Delivery], failure: Exception
    ) -> list[Refusal]:
        """Abort a transaction that failed because of some rows, and return those. If no row is the
        cause, raise ``failure``.
        """
        errors: dict[int, Exception] = {
            place: error
            for place, delivery in enumerate(deliveries)
            if delivery.done() and (error := delivery.exception()) is not None
        }
        if len(deliveries) < len(rows):
            errors[len(deliveries)] = failure
        refused = refusals(rows, errors, self._settings.on_refused)
        if refused is not None and not refused:
            raise failure
        # If this raises no error, no record of the batch is or will be visible.
        await _finished(self._producer.abort_transaction)
        if refused is None:
            self._most = max(1, len(rows) // 2)
        return refused or []

    async def _refused_topics(self, rows: list[Row]) -> list[Refusal]:
        """Return one row of each topic that does not exist, or is not authorized.

        ``send`` would wait for such a topic for ``max_block_ms``.
        """
        topics = [row[_TOPIC] for row in rows]
        new = [name for name in dict.fromkeys(topics) if not self._is_known(name)]
        if not new:
            return []
        found = await asyncio.gather(*map(self._fault, new))
        errors = {
            topics.index(name): error
            for name, error in zip(new, found, strict=True)
            if error is not None
        }
        return refusals(rows, errors, self._settings.on_refused) or []

    def _is_known(self, name: str) -> bool:
        try:
            return self._producer.known_partitions(name) is not None
        except KafkaError:
            return False

    async def _fault(self, name: str) -> Exception | None:
        try:
            async with asyncio.timeout(_TOPIC_LIMIT_S):
                await self._producer.partitions_for(name)
        except TimeoutError:
            # The broker does not know the topic, or can't be reached.
            try:
                await self._admin.describe_topics(name)
            except KafkaError as error:
                if not is_of_topic(error):
                    raise
                return error
        except KafkaError as error:
            if not is_of_topic(error):
                raise
            return error
        return None


def _consequence(refusal: Refusal) -> str:
    return {
        "topic": f"all rows of topic {refusal.topic!r} wait",
        "key": "later rows of its key wait",
        "row": "it is set aside",
    }[refusal.stops]


async def _finished(call: Callable[[], Awaitable[None]]) -> None:
    """Wait for a commit or an abort, which continues after each timeout."""
    deadline = asyncio.get_running_loop().time() + _OUTCOME_LIMIT_S
    while True:
        try:
            await call()
            return
        except KafkaTimeoutError as error:
            # Subclasses are those of a record, which has failed.
            if (
                type(error) is not KafkaTimeoutError
                or asyncio.get_running_loop().time() >= deadline
            ):
                raise
