"""``AIOKafkaConsumer`` on :class:`aioprod.Consumer`."""

from __future__ import annotations

import asyncio
import ssl
import warnings
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, Self, TypeVar

import aioprod
from aioprod.compat.aiokafka.abc import ConsumerRebalanceListener
from aioprod.compat.aiokafka.client import ClientView
from aioprod.compat.aiokafka.consumer.driver import Driver
from aioprod.compat.aiokafka.consumer.read_ahead import Deserialize, ReadAhead, RecreatedTopics
from aioprod.compat.aiokafka.consumer.subscription import (
    Subscription,
    check_assigned,
    check_most,
    check_partitions,
)
from aioprod.compat.aiokafka.coordinator.assignors.foreign import assignors
from aioprod.compat.aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aioprod.compat.aiokafka.errors import (
    CommitFailedError,
    ConsumerStoppedError,
    IllegalOperation,
    IllegalStateError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from aioprod.compat.aiokafka.settings import consumer_settings, warn_deprecated
from aioprod.compat.aiokafka.structs import (
    ConsumerRecord,
    OffsetAndTimestamp,
    TopicPartition,
    check_offsets,
)
from aioprod.compat.aiokafka.translation import aiokafka_errors
from aioprod.public_module import Uncopyable

T = TypeVar("T")


class AIOKafkaConsumer(Uncopyable):
    """aiokafka's consumer, implemented on :class:`aioprod.Consumer`.

    Settings, defaults and errors are aiokafka's. docs/aiokafka.md lists the differences.
    """

    def __init__(
        self,
        *topics: str,
        loop: asyncio.AbstractEventLoop | None = None,
        bootstrap_servers: str | Iterable[str] = "localhost",
        client_id: str = "aiokafka-0.14.0",
        group_id: str | None = None,
        group_instance_id: str | None = None,
        key_deserializer: Deserialize | None = None,
        value_deserializer: Deserialize | None = None,
        fetch_max_wait_ms: int = 500,
        fetch_max_bytes: int = 52_428_800,
        fetch_min_bytes: int = 1,
        max_partition_fetch_bytes: int = 1_048_576,
        request_timeout_ms: int = 40_000,
        retry_backoff_ms: int = 100,
        auto_offset_reset: str = "latest",
        enable_auto_commit: bool = True,
        auto_commit_interval_ms: int = 5_000,
        check_crcs: bool = True,
        metadata_max_age_ms: int = 300_000,
        partition_assignment_strategy: Iterable[Any] = (RoundRobinPartitionAssignor,),
        max_poll_interval_ms: int = 300_000,
        rebalance_timeout_ms: int | None = None,
        session_timeout_ms: int = 10_000,
        heartbeat_interval_ms: int = 3_000,
        consumer_timeout_ms: int = 200,
        max_poll_records: int | None = None,
        ssl_context: ssl.SSLContext | None = None,
        security_protocol: str = "PLAINTEXT",
        api_version: str | None = None,
        exclude_internal_topics: bool = True,
        connections_max_idle_ms: int | None = 540_000,
        isolation_level: str = "read_uncommitted",
        sasl_mechanism: str = "PLAIN",
        sasl_plain_password: str | None = None,
        sasl_plain_username: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: Any = None,
        client_rack: str | None = None,
    ) -> None:
        given = locals()
        warn_deprecated(loop, api_version)
        self._set_up(topics, given)

    def _set_up(self, topics: tuple[str, ...], given: Mapping[str, Any]) -> None:
        if given["max_poll_records"] is not None:
            check_most("max_poll_records", given["max_poll_records"])
        self._group_id, self._max_poll_records = given["group_id"], given["max_poll_records"]
        self._request_timeout_ms = given["request_timeout_ms"]
        self._retry_backoff_ms = given["retry_backoff_ms"]
        most = given["max_partition_fetch_bytes"]
        self._ahead = ReadAhead(given["key_deserializer"], given["value_deserializer"], most)
        settings = {**consumer_settings(given), "observers": [RecreatedTopics(self._ahead)]}
        strategy = assignors(given["partition_assignment_strategy"])
        self._consumer = aioprod.Consumer(**settings, partition_assignment_strategy=strategy)
        commit_s = given["auto_commit_interval_ms"] / 1000
        self._driver = Driver(
            self._consumer,
            self._ahead,
            auto_commit_s=commit_s if given["enable_auto_commit"] else None,
            max_idle_s=given["max_poll_interval_ms"] / 1000,
            in_group=given["group_id"] is not None,
        )
        self._started = self._closed = False
        self._client = ClientView(
            given["bootstrap_servers"], given["client_id"], self._partitions_of
        )
        self._subscribed = Subscription()
        if topics:
            self._subscribed.subscribe(topics, None)

    async def start(self) -> None:
        """Connect, wait for the subscribed topics to exist, and join the group."""
        assert not self._started, "start was called twice"
        with aiokafka_errors():
            await self._consumer.start()
            for topic in self._subscribed.topics:
                await self._client._wait_on_metadata(topic)
            self._driver.start()
            self._started = True
            await self._driver.post(self._adopt)
            while self._subscribed.waits_for_assignment and not self._driver.assigned.is_set():
                if self._ahead.error is not None:
                    self._ahead.take((), None)  # raises it
                await self._ahead.wait(None)

    async def stop(self) -> None:
        """Commit, if commits are automatic, leave the group, and close."""
        if self._closed:
            return
        self._closed = True
        self._ahead.close()
        try:
            await self._driver.close()
        finally:
            with aiokafka_errors():
                await self._consumer.close()

    def __del__(self, _warnings: Any = warnings) -> None:
        if self.__dict__.get("_closed") is False:  # else the settings were invalid
            _warnings.warn(f"Unclosed AIOKafkaConsumer {self!r}", ResourceWarning, source=self)
            self._driver.abandon()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord[Any, Any]:
        """Return the next record, only of ``partitions`` if any are given; wait without a limit."""
        if not partitions and (record := self._ahead.take_one()) is not None:
            return record
        while True:
            found = await self._records(partitions, 1, None)
            for records in found.values():
                return records[0]

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        """Return the buffered records; if there are none, wait up to ``timeout_ms`` for one."""
        if max_records is not None:
            check_most("max_records", max_records)
        if self._closed:
            raise ConsumerStoppedError
        most = max_records or self._max_poll_records
        try:
            return await self._records(partitions, most, timeout_ms / 1000)
        except ConsumerStoppedError:
            return {}

    def __aiter__(self) -> Self:
        if self._closed:
            raise ConsumerStoppedError
        return self

    async def __anext__(self) -> ConsumerRecord[Any, Any]:
        while True:
            try:
                return await self.getone()
            except ConsumerStoppedError:
                raise StopAsyncIteration from None
            except RecordTooLargeError:
                continue

    async def _records(
        self, chosen: tuple[TopicPartition, ...], most: int | None, timeout_s: float | None
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        check_partitions(chosen, AssertionError)
        if self._closed:
            raise ConsumerStoppedError
        loop = asyncio.get_running_loop()
        deadline = None if timeout_s is None else loop.time() + timeout_s
        with self._ahead.call():
            while True:
                found = self._ahead.take(chosen, most)
                if found:
                    return found
                left_s = None if deadline is None else max(deadline - loop.time(), 0)
                if not await self._ahead.wait(left_s) and not timeout_s:
                    return {}
                if deadline is not None and loop.time() >= deadline:
                    return self._ahead.take(chosen, most)

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: str | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Subscribe to topics, or to all that match ``pattern``, instead of the earlier ones."""
        if bool(topics) == bool(pattern):
            raise TypeError("subscribe: give topics, or a pattern, not both")
        if listener is not None and not isinstance(listener, ConsumerRebalanceListener):
            raise TypeError("listener should be an instance of ConsumerRebalanceListener")
        if pattern is not None:
            self._subscribed.subscribe_pattern(pattern, listener)
        else:
            self._subscribed.subscribe(topics, listener)
        self._change()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign exactly these partitions."""
        self._subscribed.assign(partitions)
        self._change()

    def unsubscribe(self) -> None:
        """Unsubscribe, and leave the group."""
        self._subscribed.clear()
        self._change()

    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics; with a pattern, those that match so far."""
        if self._subscribed.pattern is not None:
            return self._consumer.subscription()
        return frozenset(self._subscribed.topics)

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the assigned partitions."""
        if self._subscribed.partitions is not None:
            return self._subscribed.partitions
        return self._consumer.assignment() if self._subscribed.waits_for_assignment else frozenset()

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions until ``resume``."""
        self._set_paused(partitions, True)

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these partitions again."""
        self._set_paused(partitions, False)

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return {tp for tp in self.assignment() if self._ahead[tp].paused}

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return a topic's partitions; None if the consumer has not looked it up."""
        return self._client.partitions.get(topic)

    async def topics(self) -> set[str]:
        """Return the names of all topics."""
        return set(await self._call(self._consumer.topics))

    def _set_paused(self, partitions: tuple[TopicPartition, ...], paused: bool) -> None:
        check_partitions(partitions, TypeError)
        self._check_assigned(partitions)
        for tp in partitions:
            self._ahead[tp].paused = paused
        self._ahead.notify()
        self._driver.wake()

    def _change(self) -> None:
        if self._started:
            self._ahead.begin_change()
            self._driver.assigned.clear()
            self._post(self._adopt_change)

    async def _adopt_change(self) -> None:
        try:
            await self._driver.unsubscribe()
            self._ahead.forget()
            await self._adopt()
        finally:
            self._ahead.end_change()

    async def _adopt(self) -> None:
        self._subscribed.adopt(self._consumer, self._driver)
        for topic in self._subscribed.all_topics():
            found = await self._consumer.partitions_for_topic(topic)
            self._client.partitions[topic] = set(found)

    async def _partitions_of(self, topic: str) -> Iterable[int]:
        """Return the partitions of a topic; wait until it exists."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._request_timeout_ms / 1000
        while True:
            found = await self._call(lambda: self._consumer.partitions_for_topic(topic))
            if found:
                return found
            if loop.time() > deadline:
                raise UnknownTopicOrPartitionError
            await asyncio.sleep(self._retry_backoff_ms / 1000)

    async def commit(self, offsets: Mapping[TopicPartition, Any] | None = None) -> None:
        """Commit these offsets, or the positions of all assigned partitions."""
        self._check_group()
        if not self._subscribed:
            raise IllegalStateError("Not subscribed to any topics")
        if self._subscribed.waits_for_assignment and not self._driver.assigned.is_set():
            raise IllegalStateError("No partitions assigned")
        if self._driver.left:
            raise CommitFailedError
        given: dict[TopicPartition, Any] | None = None
        if offsets is not None:
            checked = check_offsets(offsets)
            self._check_assigned(checked)
            given = {tp: aioprod.OffsetAndMetadata(*offset) for tp, offset in checked.items()}
        with aiokafka_errors():
            wait = await self._driver.post(partial(self._driver.begin_commit, given))
            await wait()

    async def committed(self, partition: TopicPartition) -> int | None:
        """Return the group's committed offset of a partition; None if there is none."""
        self._check_group()
        found = await self._call(lambda: self._consumer.committed(partition))
        offset = found[partition]
        return None if offset is None else offset.offset

    async def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record for the application."""
        self._check_assigned([partition])
        return await self._call(lambda: self._driver.position(partition))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue an assigned partition at ``offset``."""
        if not isinstance(offset, int) or offset < 0:
            raise ValueError("Offset must be a positive integer")
        self._check_assigned([partition])
        self._ahead.begin_move(partition, offset)
        self._post(lambda: self._driver.seek(partition, offset))

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        """Continue these, or all assigned partitions, at their first offset; return False if it is
        unknown after ``request_timeout_ms``.
        """
        return await self._seek_by(partitions, self._consumer.seek_to_beginning)

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        """Continue these, or all assigned partitions, at their end; return False if it is unknown
        after ``request_timeout_ms``.
        """
        return await self._seek_by(partitions, self._consumer.seek_to_end)

    async def seek_to_committed(
        self, *partitions: TopicPartition
    ) -> dict[TopicPartition, int | None]:
        """Continue these, or all assigned partitions, at their committed offsets; return them."""
        found = {tp: await self.committed(tp) for tp in self._chosen(partitions)}
        for tp, offset in found.items():
            if offset:
                self.seek(tp, offset)
        return found

    async def offsets_for_times(
        self, timestamps: dict[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after a time (milliseconds since 1970), by partition."""
        asked = {tp: int(timestamp) for tp, timestamp in timestamps.items()}
        for tp, timestamp in asked.items():
            if timestamp < 0:
                raise ValueError(f"The target time for partition {tp} is {timestamp}: negative")
        await self._client.look_up(asked)
        found = await self._call(lambda: self._consumer.offsets_for_times(asked))
        return {tp: at and OffsetAndTimestamp(at.offset, at.timestamp) for tp, at in found.items()}

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        await self._client.look_up(partitions)
        return await self._call(lambda: self._consumer.beginning_offsets(partitions))

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition."""
        await self._client.look_up(partitions)
        return await self._call(lambda: self._consumer.end_offsets(partitions))

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the high watermark of the last fetch; None before the first one."""
        assert partition in self.assignment(), "Partition is not assigned"
        return self._consumer.highwater(partition)

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """Return the last stable offset of the last fetch; None before the first one."""
        assert partition in self.assignment(), "Partition is not assigned"
        return self._consumer.last_stable_offset(partition)

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """Return when records last arrived, in milliseconds since 1970."""
        assert partition in self.assignment(), "Partition is not assigned"
        return self._ahead[partition].polled_ms

    async def _seek_by(
        self, partitions: tuple[TopicPartition, ...], seek: Callable[..., Awaitable[None]]
    ) -> bool:
        chosen = self._chosen(partitions)
        for tp in chosen:
            self._ahead.begin_move(tp, None)
        return await self._call(lambda: self._driver.seek_by(chosen, seek))

    def _chosen(self, partitions: tuple[TopicPartition, ...]) -> list[TopicPartition]:
        check_partitions(partitions, TypeError)
        if not partitions:
            assert self.assignment(), "No partitions are currently assigned"
            return list(self.assignment())
        self._check_assigned(partitions)
        return list(partitions)

    async def _call(self, function: Callable[[], Awaitable[T]]) -> T:
        with aiokafka_errors():
            return await (self._driver.post(function) if self._started else function())

    def _post(self, function: Callable[[], Awaitable[None]]) -> None:
        """Run a call in the background; the next call for records raises its error."""
        self._driver.post(function).add_done_callback(self._ahead.fail_with)

    @property
    def _coordinator(self) -> aioprod.ConsumerGroupMetadata:
        # FastStream logs consumer._coordinator.member_id.
        return self._consumer.group_metadata()

    def _check_group(self) -> None:
        if self._group_id is None:
            raise IllegalOperation("Requires group_id")

    def _check_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        check_assigned(partitions, self.assignment())
