"""Makes calls wait for their topic: until metadata has it, and while another call puts many records
into it.

The code that ends a wait gives the waiting calls their places, or places in the lines of their
partitions, in the order of the calls and before any other code runs, so no later call can overtake
them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Self, cast

from aioprod.arguments import shown_topic, topic_fault
from aioprod.cluster.metadata import Metadata
from aioprod.config.producer import ProducerConfig
from aioprod.error_codes import ErrorCode
from aioprod.errors import (
    AuthenticationError,
    BrokerError,
    BufferExhaustedError,
    InvalidTopicError,
    KafkaError,
    MetadataTimeoutError,
)
from aioprod.metrics import ProducerMetrics
from aioprod.producer.admission import Admission
from aioprod.producer.appender import Appender
from aioprod.producer.appends import PendingRecord
from aioprod.producer.partition_queue import Topic
from aioprod.producer.pending import PendingCall


class TopicGate:
    """Admits calls to their topics.

    Args:
        fast: gets the topics whose records need not wait; the fast path of ``send`` checks only
            this.
        topics: the topics in metadata.
        appender: gives a record its place at a partition, or a place in the partition's line.
        admission: checks whether a call's records are still accepted when its turn comes.

    Attributes:
        topics: as given; read only.
        touch: marks a topic as in use that the fast path of ``send`` has found: it is not reserved.
    """

    def __init__(
        self,
        config: ProducerConfig,
        fast: dict[str, Topic],
        topics: Mapping[str, Topic],
        appender: Appender,
        admission: Admission,
        metadata: Metadata,
        metrics: ProducerMetrics,
    ) -> None:
        self._fast = fast
        self.topics = topics
        self._appender = appender
        self._admission = admission
        self._metadata = metadata
        self.touch: Callable[[str], None] = metadata.touch
        self._metrics = metrics
        self._max_block_ms = config.max_block_ms
        # Calls that wait for metadata, by topic, in the order of the calls.
        self._arrivals: dict[str, dict[PendingCall, None]] = {}

    # -- records -----------------------------------------------------------------------------------

    def enter(self, pending: PendingRecord, reservation: TopicReservation | None) -> None:
        """Let a record enter its partition if it need not wait for its topic: the topic is known,
        has the partition, and no call except ``reservation`` has reserved it.
        """
        name, partition = pending.record.topic, pending.record.partition
        known = self.topics.get(name)
        if (
            known is not None
            and known.reserved_by is reservation
            and (partition is None or partition < known.count)
        ):
            self._metadata.touch(name)
            self._appender.enter_topic(pending, known)

    async def wait(self, pending: PendingRecord, reservation: TopicReservation | None) -> None:
        """Wait until the record has entered its partition.

        Raises:
            MetadataTimeoutError, InvalidTopicError, InvalidPartitionError, BrokerError: if the
                topic or partition does not exist.
            BufferExhaustedError: if other calls reserved the topic for ``max_block_ms``.
        """
        name = pending.record.topic
        asked = reservation is not None and reservation.asked
        try:
            while pending.queue is None:
                known = self.topics.get(name)
                if (
                    known is not None
                    and known.reserved_by is not reservation
                    and not self._arrives(pending, name)
                ):
                    await self._in_line(pending, known)
                elif known is None or not (asked or _has_partition(known, pending)):
                    # The partition may be new: refresh metadata once. If they lack it, the record
                    # is refused.
                    asked = known is not None
                    if reservation is not None:
                        reservation.asked = True  # its other records do not ask again
                    await self._arrive(pending, name)
                else:
                    self._appender.enter_topic(pending, known)
        finally:
            self._leave(pending, name)

    # -- reserving a topic -------------------------------------------------------------------------

    def reserve(
        self,
        name: str,
        deadline: float,
        transaction: int | None = None,
        before: Callable[[], Awaitable[object]] | None = None,
    ) -> TopicReservation:
        """Return a reservation for ``async with``: all later calls for the topic wait until the
        block ends.

        Args:
            before: awaited when the call has its place before all later ones, before metadata of
                the topic are requested.
        """
        return TopicReservation(self, name, deadline, transaction, before)

    async def acquire(self, reservation: TopicReservation) -> Topic:
        """Wait until the topic is known, and all earlier calls for it have entered their
        partitions.

        Raises:
            MetadataTimeoutError, InvalidTopicError, BrokerError, BufferExhaustedError: as
                :meth:`wait`.
        """
        known = self.topics.get(checked_topic(reservation.name))
        if known is None:
            self._arrivals.setdefault(reservation.name, {})[reservation] = None
        elif known.reserved_by is None:
            self._give(known, reservation)
        else:
            known.line[reservation] = None
        try:
            if reservation.before is not None:
                await reservation.before()
            while reservation.topic is None:
                known = self.topics.get(reservation.name)
                if known is None:
                    await self._arrive(reservation, reservation.name)
                else:
                    await self._in_line(reservation, known)
        except BaseException:
            self.release(reservation)
            raise
        finally:
            self._leave(reservation, reservation.name)
        assert reservation.topic is not None
        self._metadata.touch(reservation.name)
        return reservation.topic

    def release(self, reservation: TopicReservation) -> None:
        """Let the calls that wait for the end of ``reservation`` enter, up to the next one that
        reserves the topic.
        """
        topic, reservation.topic = reservation.topic, None
        if topic is None:
            return
        # It stays reserved until the line is empty: user code that runs here may call again.
        while topic.line:
            call, _ = topic.line.popitem(last=False)
            if isinstance(call, TopicReservation):
                self._give(topic, call)
                return
            if _has_partition(topic, call):
                self._let_in(topic, call)
            else:
                self._arrivals.setdefault(topic.name, {})[call] = None
                call.wake()
        topic.reserved_by = None
        self._fast[topic.name] = topic

    def _give(self, topic: Topic, reservation: TopicReservation) -> None:
        topic.reserved_by, reservation.topic = reservation, topic
        self._fast.pop(topic.name, None)
        reservation.wake()

    def _let_in(self, topic: Topic, call: PendingCall) -> None:
        """Let the record of a waiting call enter; the call raises any exception."""
        assert isinstance(call, PendingRecord)
        try:
            self._admission.check_may_send(call.transaction)
            self._appender.enter_topic(call, topic)
        except BaseException as error:
            call.error = error
        call.wake()

    async def _in_line(self, call: PendingCall, topic: Topic) -> None:
        """Wait until the call that reserved the topic has ended and has admitted this one."""
        topic.line.setdefault(call)
        try:
            await call.wait()
        except TimeoutError:
            # It is no longer in line if it got its place in this turn.
            if call in topic.line:
                raise BufferExhaustedError(
                    f"max_block_ms={self._max_block_ms} has passed: topic {topic.name!r} is still "
                    "reserved by calls of send_many or send_arrow, or by a serializer that waits"
                ) from None
        if call.error is not None:
            raise call.error

    # -- metadata ----------------------------------------------------------------------------------

    def update(self) -> None:
        """Let calls enter whose topic or partition is known now, after new metadata."""
        for name, topic in self.topics.items():
            if name in self._arrivals:
                self._admit_arrivals(topic)
            if topic.reserved_by is None:
                self._fast[name] = topic

    def _admit_arrivals(self, topic: Topic) -> None:
        # Calls that wait for metadata came before the reservation, or send its records.
        reserved_by = topic.reserved_by
        for call in list(self._arrivals[topic.name]):
            if topic.reserved_by is not reserved_by:
                topic.line[call] = None  # after the call that has just got the topic
            elif isinstance(call, TopicReservation):
                self._give(topic, call)
            elif _has_partition(topic, call):
                self._let_in(topic, call)
            else:
                continue
            self._forget(call, topic.name)

    async def topic(self, name: str, deadline: float) -> Topic:
        """Return the topic; wait until metadata has it. No transaction has to be open.

        Raises:
            MetadataTimeoutError, InvalidTopicError, BrokerError: if there is no such topic.
        """
        call = PendingCall(deadline)
        while (known := self.topics.get(checked_topic(name))) is None:
            await self._refreshed(call, name, self._admission.check_running)
        self._metadata.touch(name)
        return known

    async def look_for(
        self, reservation: TopicReservation, partition: int, deadline: float
    ) -> None:
        """Refresh metadata if the reserved topic lacks a partition, which may be new."""
        if reservation.topic is not None and partition >= reservation.topic.count:
            call = PendingCall(deadline)
            check = partial(self._admission.check_may_send, reservation.transaction)
            await self._refreshed(call, reservation.name, check)

    async def _arrive(self, call: PendingCall, name: str) -> None:
        """Wait for one refresh of metadata with this topic, in which :meth:`update` may admit the
        call.
        """
        self._arrivals.setdefault(name, {}).setdefault(call)
        check = partial(self._admission.check_may_send, call.transaction)
        await self._refreshed(call, name, check)

    def _arrives(self, call: PendingCall, name: str) -> bool:
        """Return whether the call waits for metadata only: the call that reserved the topic came
        later.
        """
        return call in self._arrivals.get(name, ())

    def _leave(self, call: PendingCall, name: str) -> None:
        """Remove a call that no longer waits: its task continues, has failed or was cancelled."""
        self._forget(call, name)
        if (topic := self.topics.get(name)) is not None:
            topic.line.pop(call, None)

    def _forget(self, call: PendingCall, name: str) -> None:
        arrivals = self._arrivals.get(name)
        if arrivals is not None:
            arrivals.pop(call, None)
            if not arrivals:
                del self._arrivals[name]

    async def _refreshed(self, call: PendingCall, name: str, check: Callable[[], None]) -> None:
        """Wait for one refresh of metadata with this topic; it may admit the call."""
        started = asyncio.get_running_loop().time()
        try:
            await self._refresh(call, name)
            check()
            self._raise_error_of(name)
        except KafkaError:
            if call.is_admitted:
                return
            raise
        finally:
            self._metrics.metadata_waited(asyncio.get_running_loop().time() - started)
        if call.error is not None:
            raise call.error

    async def _refresh(self, call: PendingCall, name: str) -> None:
        version = self._metadata.request_topic(name)
        try:
            async with asyncio.timeout_at(call.deadline):
                await self._metadata.await_update(version)
        except TimeoutError:
            reason = self._metadata.last_error or self._topic_error(name)
            raise MetadataTimeoutError(
                f"topic {name!r} is not known after max_block_ms={self._max_block_ms}"
                + (f": {reason}" if reason else "")
            ) from None

    def _raise_error_of(self, name: str) -> None:
        if isinstance(self._metadata.last_error, AuthenticationError):
            raise self._metadata.last_error.with_traceback(None)
        error = self._topic_error(name)
        if isinstance(error, BrokerError) and not error.code.retriable:
            raise (
                InvalidTopicError(str(error))
                if error.code == ErrorCode.INVALID_TOPIC_EXCEPTION
                else error
            )

    def _topic_error(self, name: str) -> BrokerError | None:
        return self._metadata.snapshot.topic_error(name)


class TopicReservation(PendingCall):
    """A call that puts many records into a topic; later calls wait until it has finished.

    Attributes:
        topic: set while the topic is reserved.
        asked: whether metadata was refreshed for a record of it with an unknown partition.
    """

    __slots__ = ("_gate", "asked", "before", "name", "topic")

    def __init__(
        self,
        gate: TopicGate,
        name: str,
        deadline: float,
        transaction: int | None,
        before: Callable[[], Awaitable[object]] | None,
    ) -> None:
        super().__init__(deadline, transaction)
        self._gate = gate
        self.name: str = name
        self.before: Callable[[], Awaitable[object]] | None = before
        self.asked: bool = False
        self.topic: Topic | None = None

    @property
    def is_admitted(self) -> bool:
        """True if the topic is reserved."""
        return self.topic is not None

    async def __aenter__(self) -> Self:
        await self._gate.acquire(self)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._gate.release(self)


def _has_partition(topic: Topic, call: PendingCall) -> bool:
    """Return whether the topic has the partition that the record names, if it names one."""
    partition = call.record.partition if isinstance(call, PendingRecord) else None
    return partition is None or partition < topic.count


def checked_topic(topic: object) -> str:
    """Return the name of a topic.

    Raises:
        InvalidTopicError: if it is not a valid name.
    """
    if (fault := topic_fault(topic)) is not None:
        raise InvalidTopicError(f"topic={shown_topic(topic)}: {fault}")
    return cast("str", topic)
