"""A transactional producer for tests of the broker, one request per call. Results are plain values,
so that those of two brokers can be compared.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from aioprod.error_codes import ErrorCode
from aioprod.protocol.batch_cursor import iter_batches
from aioprod.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from aioprod.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from aioprod.protocol.messages.describe_transactions import DescribeTransactionsRequest
from aioprod.protocol.messages.end_txn import EndTxnRequest
from aioprod.protocol.messages.find_coordinator import FindCoordinatorRequest
from aioprod.protocol.messages.init_producer_id import InitProducerIdRequest
from aioprod.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from aioprod.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from aioprod.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)
from aioprod.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from aioprod.protocol.record_reader import read_batch_records
from tests.testing.raw_client import RawClient, fetch_request, make_batch, produce_request

V1 = {"produce": 11, "end": 4, "offsets": 4}
V2 = {"produce": 12, "end": 5, "offsets": 5}
READ_COMMITTED = 1
GROUP, TRANSACTION = 0, 1
LIMIT_SECONDS = 15.0
# Markers have the current time, and a real broker begins a new segment after a week.
NOW_MS = int(time.time() * 1000) - 1000
_UNREADY = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)
_WAIT = (ErrorCode.CONCURRENT_TRANSACTIONS,)

T = TypeVar("T")
Position = tuple[int, int, str | None, str]


def name(code: int) -> str:
    return ErrorCode.of(code).name


class Member(NamedTuple):
    """The sender of a commit."""

    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


NO_NODE = Member()


async def ask_until(good: Callable[[T], bool], ask: Callable[[], Awaitable[T]]) -> T:
    """Repeat a request until the response is the expected one: a real broker has no event to wait
    for.
    """
    async with asyncio.timeout(LIMIT_SECONDS):
        while True:
            answer = await ask()
            if good(answer):
                return answer
            await asyncio.sleep(0.01)


def by_partition(result: AddPartitionsToTxnPartitionResult) -> int:
    """Sort partitions, because brokers list failed ones first."""
    return result.partition_index


def position(found: OffsetFetchResponsePartition | OffsetFetchResponsePartitions) -> Position:
    """Return partition, offset, metadata and error."""
    return found.partition_index, found.committed_offset, found.metadata, name(found.error_code)


class TransactionalClient:
    """A producer with a transactional id whose requests are sent by hand.

    ``protocol`` is V1 or V2; ``producer_id`` and ``epoch`` follow the responses, but can be set.
    """

    def __init__(
        self, client: RawClient, transactional_id: str, topic: str, protocol: dict[str, int]
    ) -> None:
        self.client = client
        self.transactional_id = transactional_id
        self.topic = topic
        self.protocol = protocol
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[tuple[int, int, int], int] = {}

    @property
    def identity(self) -> tuple[int, int]:
        """Producer id and epoch."""
        return self.producer_id, self.epoch

    async def find(self, kind: int, key: str) -> str:
        """Send FindCoordinator until there is one: a real broker creates its internal topics
        first.
        """
        asked = FindCoordinatorRequest(key=key, key_type=kind)
        answer = await ask_until(
            lambda answer: answer.error_code not in _UNREADY, lambda: self.client.call(asked, 2)
        )
        return name(answer.error_code)

    async def init(
        self,
        *,
        timeout_ms: int = 60_000,
        expected: tuple[int, int] = (-1, -1),
        version: int = 5,
        keep: bool = True,
        patient: bool = False,
    ) -> tuple[str, int]:
        """Send InitProducerId; return error and epoch. With ``patient``, retry while the previous
        transaction is ending.
        """
        asked = InitProducerIdRequest(self.transactional_id, timeout_ms, *expected)
        passing = _UNREADY + (_WAIT if patient else ())
        answer = await ask_until(
            lambda answer: answer.error_code not in passing,
            lambda: self.client.call(asked, version),
        )
        if keep and not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return name(answer.error_code), answer.producer_epoch

    async def use_up_epochs(self, last: int) -> None:
        """Send InitProducerId, many at a time, until the epoch is ``last``."""
        asked = InitProducerIdRequest(self.transactional_id, 60_000)
        while (missing := min(last - self.epoch, 1000)) > 0:
            for _ in range(missing):
                self.client.send(asked, 5)
            answers = [
                (await self.client.receive(InitProducerIdRequest, 5))[1] for _ in range(missing)
            ]
            assert not any(answer.error_code for answer in answers)
            self.producer_id, self.epoch = answers[-1].producer_id, answers[-1].producer_epoch

    async def add(
        self, *partitions: int, topic: str | None = None, version: int = 3, patient: bool = True
    ) -> list[str]:
        """Send AddPartitionsToTxn; return an error for each partition."""
        asked = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(topic or self.topic, list(partitions or (0,)))
            ],
        )

        async def ask() -> list[str]:
            results = (
                (await self.client.call(asked, version))
                .results_by_topic_v3_and_below[0]
                .results_by_partition
            )
            return [name(each.partition_error_code) for each in sorted(results, key=by_partition)]

        return await ask_until(
            lambda found: not patient or "CONCURRENT_TRANSACTIONS" not in found, ask
        )

    async def add_batched(
        self,
        *partitions: int,
        verify_only: bool = False,
        version: int = 5,
        topic: str | None = None,
    ) -> list[str]:
        """Send AddPartitionsToTxn as brokers do; return an error for each partition."""
        topics = [AddPartitionsToTxnTopic(topic or self.topic, list(partitions or (0,)))]
        asked = AddPartitionsToTxnTransaction(
            self.transactional_id, self.producer_id, self.epoch, verify_only, topics
        )
        answer = await self.client.call(AddPartitionsToTxnRequest(transactions=[asked]), version)
        return [
            f"{name(answer.error_code)}/{name(each.partition_error_code)}"
            for result in answer.results_by_transaction
            for topic_result in result.topic_results
            for each in sorted(topic_result.results_by_partition, key=by_partition)
        ]

    async def produce(
        self,
        *values: bytes,
        partition: int = 0,
        sequence: int | None = None,
        transactional: bool = True,
        named: bool = True,
        version: int | None = None,
    ) -> tuple[str, int]:
        """Produce with the next sequence, which advances on success; return error and offset. Retry
        while the previous transaction is ending.
        """
        key = (self.producer_id, self.epoch, partition)
        first = self.sequences.get(key, 0) if sequence is None else sequence
        values = values or (b"x",)
        timestamps = [NOW_MS + number for number in range(len(values))]
        batch = make_batch(
            values, timestamps=timestamps, producer=(*key[:2], first), transactional=transactional
        )
        request = produce_request(self.topic, batch, partition=partition)
        request.transactional_id = self.transactional_id if named else None

        async def ask() -> tuple[str, int]:
            answer = (
                (await self.client.call(request, version or self.protocol["produce"]))
                .responses[0]
                .partition_responses[0]
            )
            return name(answer.error_code), answer.base_offset

        found = await ask_until(lambda found: found[0] != "CONCURRENT_TRANSACTIONS", ask)
        if found[0] == "NONE":
            self.sequences[key] = first + len(values)
        return found

    async def end(
        self, *, commit: bool, version: int | None = None, patient: bool = True, keep: bool = True
    ) -> tuple[str, int, int]:
        """Send EndTxn; return error, whether the producer id changed (0 or 1) and the epoch."""
        asked = EndTxnRequest(self.transactional_id, self.producer_id, self.epoch, commit)
        passing = _WAIT if patient else ()
        answer = await ask_until(
            lambda answer: answer.error_code not in passing,
            lambda: self.client.call(asked, self.protocol["end"] if version is None else version),
        )
        changed = int(answer.producer_id not in (-1, self.producer_id))
        if keep and answer.producer_id >= 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return name(answer.error_code), changed, answer.producer_epoch

    async def add_offsets(self, group: str, *, version: int = 4) -> str:
        """Send AddOffsetsToTxn."""
        asked = AddOffsetsToTxnRequest(self.transactional_id, self.producer_id, self.epoch, group)
        answer = await ask_until(
            lambda answer: answer.error_code not in _WAIT, lambda: self.client.call(asked, version)
        )
        return name(answer.error_code)

    async def commit_offset(
        self,
        group: str,
        offset: int,
        *,
        partition: int = 0,
        member: Member = NO_NODE,
        topic: str | None = None,
        version: int | None = None,
        note: str = "",
    ) -> str:
        """Send TxnOffsetCommit for one partition."""
        topics = [
            TxnOffsetCommitRequestTopic(
                topic or self.topic,
                partitions=[TxnOffsetCommitRequestPartition(partition, offset, -1, note)],
            )
        ]
        asked = TxnOffsetCommitRequest(
            self.transactional_id, group, self.producer_id, self.epoch, *member, topics
        )
        answer = await ask_until(
            lambda answer: answer.topics[0].partitions[0].error_code not in (*_UNREADY, *_WAIT),
            lambda: self.client.call(asked, version or self.protocol["offsets"]),
        )
        return name(answer.topics[0].partitions[0].error_code)

    async def commit_offset_plainly(
        self,
        group: str,
        offset: int,
        *,
        member: Member = NO_NODE,
        topic: str | None = None,
        version: int = 8,
        note: str = "",
    ) -> str:
        """Send OffsetCommit for partition 0."""
        topics = [
            OffsetCommitRequestTopic(
                topic or self.topic,
                partitions=[OffsetCommitRequestPartition(0, offset, -1, note)],
            )
        ]
        instance = member.group_instance_id if version >= 7 else None
        asked = OffsetCommitRequest(
            group, member.generation_id, member.member_id, instance, topics=topics
        )
        return name((await self.client.call(asked, version)).topics[0].partitions[0].error_code)

    async def committed(
        self, group: str, *, stable: bool = False, version: int = 8, all_topics: bool = False
    ) -> list[Position]:
        """Send OffsetFetch; return the positions of partition 0 or of all partitions."""
        if version < 8:
            wanted = None if all_topics else [OffsetFetchRequestTopic(self.topic, [0])]
            answer = await self.client.call(
                OffsetFetchRequest(group, wanted, require_stable=stable), version
            )
            assert not answer.error_code, name(answer.error_code)
            return [position(each) for topic in answer.topics for each in topic.partitions]
        topics = (
            None if all_topics else [OffsetFetchRequestTopics(self.topic, partition_indexes=[0])]
        )
        asked = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group, topics=topics)], require_stable=stable
        )
        found = (await self.client.call(asked, version)).groups[0]
        assert not found.error_code, name(found.error_code)
        return [position(each) for topic in found.topics for each in topic.partitions]

    async def read(
        self, *, committed: bool, partition: int = 0, offset: int = 0, max_bytes: int = 1 << 20
    ) -> list[object]:
        """Send Fetch; return error, high watermark, last stable offset, aborted transactions (by
        their offsets), and the kind of each batch.
        """
        request = fetch_request(
            self.topic, offset, max_bytes=max_bytes, partition_max_bytes=max_bytes
        )
        request.topics[0].partitions[0].partition = partition
        request.isolation_level = READ_COMMITTED if committed else 0
        found = (await self.client.call(request, 12)).responses[0].partitions[0]
        data = found.records or b""
        answer: list[object] = [
            name(found.error_code),
            found.high_watermark,
            found.last_stable_offset,
        ]
        if found.aborted_transactions is not None:
            # A real broker also names transactions after the records, as far as its sparse
            # index covers.
            end = max((header.last_offset for header, _ in iter_batches(data)), default=-1)
            answer.append(
                sorted(
                    each.first_offset
                    for each in found.aborted_transactions
                    if each.first_offset <= end
                )
            )
        for header, start in iter_batches(data):
            records = read_batch_records(data, start, header)
            content = [
                (record.key, record.value) if header.is_control else record.value
                for record in records
            ]
            kind = (
                "control"
                if header.is_control
                else "transactional"
                if header.is_transactional
                else "plain"
            )
            answer.append(
                (header.base_offset, header.producer_epoch, header.base_sequence, kind, content)
            )
        return answer

    async def list_offset(
        self, timestamp: int, *, committed: bool, partition: int = 0
    ) -> tuple[str, int]:
        """Send ListOffsets; return error and offset."""
        topics = [ListOffsetsTopic(self.topic, [ListOffsetsPartition(partition, -1, timestamp)])]
        answer = await self.client.call(
            ListOffsetsRequest(-1, READ_COMMITTED if committed else 0, topics), 7
        )
        found = answer.topics[0].partitions[0]
        return name(found.error_code), found.offset

    async def wait_for_end(self, offset: int) -> None:
        """Wait until partition 0 has ``offset`` records and markers."""
        await ask_until(
            lambda found: found[1] >= offset, lambda: self.list_offset(-1, committed=False)
        )

    async def until_idle(self) -> None:
        """Wait until partition 0 has no open transaction and none is ending: a real broker writes
        its markers after it has answered.
        """

        async def both() -> tuple[tuple[str, int], tuple[str, int]]:
            return await self.list_offset(-1, committed=True), await self.list_offset(
                -1, committed=False
            )

        await ask_until(lambda found: found[0] == found[1], both)
        await ask_until(lambda state: not state.startswith("Prepare"), self.state)

    async def state(self) -> str:
        """Send DescribeTransactions; return the state at the coordinator, which waits for the
        markers of all partitions.
        """
        answer = await self.client.call(
            DescribeTransactionsRequest(transactional_ids=[self.transactional_id]), 0
        )
        return answer.transaction_states[0].transaction_state

    async def finish_offsets(self, group: str) -> None:
        """Wait until no transaction can change the group's offset of partition 0."""
        await ask_until(
            lambda found: found[0][3] == "NONE", lambda: self.committed(group, stable=True)
        )


async def begin(it: TransactionalClient, partition: int = 0) -> list[object]:
    """Send what the protocol needs before the first record."""
    return list(await it.add(partition)) if it.protocol is V1 else []


async def other(
    it: TransactionalClient, transactional_id: str | None = None
) -> TransactionalClient:
    """Make another producer on the same connection."""
    return TransactionalClient(
        it.client, transactional_id or it.transactional_id, it.topic, it.protocol
    )
