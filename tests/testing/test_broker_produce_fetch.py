"""Fetch and ListOffsets return what Produce has stored. The broker refuses what Kafka refuses, with
Kafka's error code.
"""

from __future__ import annotations

import asyncio
import time

import pytest

from aioprod.error_codes import ErrorCode
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from aioprod.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from aioprod.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from aioprod.protocol.record_reader import read_records
from aioprod.testing import EmbeddedCluster
from aioprod.testing.broker.handlers import HANDLERS
from tests.testing.raw_client import RawClient, fetch_request, make_batch, produce_request
from tests.waiting import until

PRODUCE_BY_NAME = range(HANDLERS[ApiKey.PRODUCE].versions[0], 13)
FETCH_BY_NAME = range(HANDLERS[ApiKey.FETCH].versions[0], 13)


def fetched(response: FetchResponse, partition: int = 0) -> list[tuple[int, bytes | None]]:
    records = response.responses[0].partitions[partition].records or b""
    return [(record.offset, record.value) for record in read_records(records)]


def codes(response: FetchResponse) -> list[int]:
    return [partition.error_code for partition in response.responses[0].partitions]


def broken(batch: bytes, index: int) -> bytes:
    changed = bytearray(batch)
    changed[index] ^= 0xFF
    return bytes(changed)


async def list_offset(
    client: RawClient, timestamp: int, version: int
) -> ListOffsetsPartitionResponse:
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[ListOffsetsTopic("t", [ListOffsetsPartition(0, timestamp=timestamp)])],
    )
    return (await client.call(request, version)).topics[0].partitions[0]


class TestProduce:
    async def test_every_version_by_name_and_what_comes_back(self, broker: EmbeddedCluster) -> None:
        broker.create_topic("t")
        async with RawClient(broker.bootstrap_servers) as client:
            for number, version in enumerate(PRODUCE_BY_NAME):
                answer = await client.produce(
                    "t", make_batch([b"a%d" % version, b"b%d" % version]), version=version
                )
                assert (answer.error_code, answer.base_offset) == (0, number * 2)
        values = [record.value for record in broker.records("t", 0)]
        assert values == [
            b"%b%d" % (letter, version) for version in PRODUCE_BY_NAME for letter in (b"a", b"b")
        ]

    async def test_by_topic_id(self, broker: EmbeddedCluster) -> None:
        topic = broker.create_topic("t")
        data = [PartitionProduceData(0, make_batch([b"x"]))]
        async with RawClient(broker.bootstrap_servers) as client:
            request = ProduceRequest(
                acks=-1, topic_data=[TopicProduceData(topic_id=topic.topic_id, partition_data=data)]
            )
            answer = (await client.call(request, 13)).responses[0]
            assert (answer.topic_id, answer.partition_responses[0].error_code) == (
                topic.topic_id,
                0,
            )
            broker.delete_topic("t")
            answer = (await client.call(request, 13)).responses[0]
            assert answer.partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID

    async def test_acks_0_gets_no_answer(self, broker: EmbeddedCluster) -> None:
        broker.create_topic("t")
        async with RawClient(broker.bootstrap_servers) as client:
            client.send(produce_request("t", make_batch([b"silent"]), acks=0), 9)
            answer = await client.produce("t", make_batch([b"loud"]), acks=1)
            assert (answer.error_code, answer.base_offset) == (0, 1)
        assert [record.value for record in broker.records("t")] == [b"silent", b"loud"]

    async def test_acks_0_and_an_error_closes_the_connection(self, broker: EmbeddedCluster) -> None:
        async with RawClient(broker.bootstrap_servers) as client:
            client.send(produce_request("unknown", make_batch([b"x"]), acks=0), 9)
            assert await client.is_closed()

    async def test_acks_0_is_applied_though_the_client_hangs_up_at_once(
        self, broker: EmbeddedCluster
    ) -> None:
        broker.create_topic("t")
        async with RawClient(broker.bootstrap_servers) as client:
            for number in range(100):
                client.send(produce_request("t", make_batch([b"%d" % number]), acks=0), 9)
        records = await broker.wait_for_records("t", 100)
        assert [record.value for record in records] == [b"%d" % number for number in range(100)]

    @pytest.mark.parametrize(
        ("batch", "code"),
        [
            (None, ErrorCode.INVALID_RECORD),
            (b"", ErrorCode.INVALID_RECORD),
            (make_batch([b"x"])[:-1], ErrorCode.INVALID_RECORD),
            (make_batch([b"x"]) * 2, ErrorCode.INVALID_RECORD),
            (broken(make_batch([b"x"]), 7), ErrorCode.INVALID_RECORD),  # base offset
            (broken(make_batch([b"x"]), 16), ErrorCode.CORRUPT_MESSAGE),  # an unknown magic
            # An old magic.
            (make_batch([b"x"])[:16] + b"\x01" + make_batch([b"x"])[17:], ErrorCode.INVALID_RECORD),
            (broken(make_batch([b"x"]), 17), ErrorCode.CORRUPT_MESSAGE),  # CRC
            (broken(make_batch([b"x"]), -1), ErrorCode.CORRUPT_MESSAGE),  # a record
            (broken(make_batch([b"x"]), 8), ErrorCode.CORRUPT_MESSAGE),  # a negative length
            (make_batch([b"x"], producer=(5, 0, -1)), ErrorCode.INVALID_RECORD),
            (
                make_batch([b"x"], producer=(5, 0, 0), transactional=True),
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            ),
            (
                make_batch([b"x"], timestamps=[int(time.time() * 1000) + 7_200_000]),
                ErrorCode.INVALID_TIMESTAMP,
            ),
            (make_batch([b"x" * 2000]), ErrorCode.MESSAGE_TOO_LARGE),
        ],
        # pytest-xdist needs the same ids in each process.
        ids=lambda value: value.name if isinstance(value, ErrorCode) else "batch",
    )
    async def test_what_is_refused(
        self, broker: EmbeddedCluster, batch: bytes | None, code: ErrorCode
    ) -> None:
        broker.create_topic("t", configs={"max.message.bytes": "1000"})
        async with RawClient(broker.bootstrap_servers) as client:
            answer = await client.produce("t", batch)
            assert (ErrorCode.of(answer.error_code), answer.base_offset) == (code, -1)
            assert answer.error_message
            assert (await client.produce("t", make_batch([b"good"]))).base_offset == 0

    async def test_unknown_places_and_wrong_acks(self, broker: EmbeddedCluster) -> None:
        broker.create_topic("t")
        async with RawClient(broker.bootstrap_servers) as client:
            assert (
                await client.produce("no", make_batch([b"x"]))
            ).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert (
                await client.produce("t", make_batch([b"x"]), partition=1)
            ).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert (
                await client.produce("t", make_batch([b"x"]), partition=-1)
            ).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert (
                await client.produce("t", make_batch([b"x"]), acks=2)
            ).error_code == ErrorCode.INVALID_REQUIRED_ACKS

    async def test_one_bad_partition_does_not_keep_the_others_back(
        self, broker: EmbeddedCluster
    ) -> None:
        broker.create_topic("t", 3)
        data = [
            PartitionProduceData(
                index, broken(make_batch([b"x"]), -1) if index == 1 else make_batch([b"x"])
            )
            for index in range(3)
        ]
        async with RawClient(broker.bootstrap_servers) as client:
            response = await client.call(
                ProduceRequest(acks=-1, topic_data=[TopicProduceData("t", partition_data=data)]), 9
            )
        assert [answer.error_code for answer in response.responses[0].partition_responses] == [
            0,
            ErrorCode.CORRUPT_MESSAGE,
            0,
        ]
        assert [len(broker.records("t", index)) for index in range(3)] == [1, 0, 1]

    async def test_a_full_broker_says_so(self) -> None:
        async with (
            EmbeddedCluster(max_memory_bytes=5000) as broker,
            RawClient(broker.bootstrap_servers) as client,
        ):
            broker.create_topic("t")
            assert (await client.produce("t", make_batch([b"x" * 4000]))).error_code == 0
            answer = await client.produce("t", make_batch([b"x" * 4000]))
            assert answer.error_code == ErrorCode.POLICY_VIOLATION
            assert (
                answer.error_message is not None
                and "max_memory_bytes is 5000" in answer.error_message
            )
            broker.delete_topic("t")
            broker.create_topic("t")
            assert (await client.produce("t", make_batch([b"x" * 4000]))).error_code == 0


class TestIdempotence:
    async def test_the_same_batch_again_gets_its_old_offset(self, broker: EmbeddedCluster) -> None:
        broker.create_topic("t")
        batches = [
            make_batch([b"%d" % number] * 2, producer=(5, 0, number * 2)) for number in range(6)
        ]
        async with RawClient(broker.bootstrap_servers) as client:
            for number, batch in enumerate(batches):
                assert (await client.produce("t", batch)).base_offset == number * 2
            for number, batch in list(enumerate(batches))[1:]:
                answer = await client.produce("t", batch)
                assert (answer.error_code, answer.base_offset) == (0, number * 2)
            assert (
                await client.produce("t", batches[0])
            ).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert len(broker.records("t")) == 12

    async def test_a_gap_and_an_old_epoch_are_refused(self, broker: EmbeddedCluster) -> None:
        broker.create_topic("t")
        async with RawClient(broker.bootstrap_servers) as client:
            assert (
                await client.produce("t", make_batch([b"x"], producer=(5, 1, 0)))
            ).error_code == 0
            assert (
                await client.produce("t", make_batch([b"x"], producer=(5, 1, 2)))
            ).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert (
                await client.produce("t", make_batch([b"x"], producer=(5, 0, 1)))
            ).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
            assert (
                await client.produce("t", make_batch([b"x"], producer=(5, 2, 1)))
            ).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert (
                await client.produce("t", make_batch([b"x"], producer=(5, 2, 0)))
            ).error_code == 0

    async def test_partitions_count_for_themselves(self, broker: EmbeddedCluster) -> None:
        broker.create_topic("t", 2)
        async with RawClient(broker.bootstrap_servers) as client:
            for partition in (0, 1):
                assert (
                    await client.produce(
                        "t", make_batch([b"x"], producer=(5, 0, 0)), partition=partition
                    )
                ).error_code == 0
        assert [len(broker.records("t", partition)) for partition in (0, 1)] == [1, 1]


class TestFetch:
    async def test_every_version_by_name(self, broker: EmbeddedCluster) -> None:
        broker.create_topic("t")
        async with RawClient(broker.bootstrap_servers) as client:
            await client.produce("t", make_batch([b"a", b"b"]))
            await client.produce("t", make_batch([b"c"]))
            for version in FETCH_BY_NAME:
                response = await client.call(fetch_request("t", 2), version)
                assert fetched(response) == [(2, b"c")]
                partition = response.responses[0].partitions[0]
                assert (
                    partition.high_watermark,
                    partition.last_stable_offset,
                    response.session_id,
                ) == (3, 3, 0)

    async def test_by_topic_id(self, broker: EmbeddedCluster) -> None:
        topic = broker.create_topic("t")
        async with RawClient(broker.bootstrap_servers) as client:
            await client.produce("t", make_batch([b"a"]))
            for version in range(13, HANDLERS[ApiKey.FETCH].versions[1] + 1):
                request = FetchRequest(
                    topics=[
                        FetchTopic(
                            topic_id=topic.topic_id,
                            partitions=[FetchPartition(partition_max_bytes=1000)],
                        )
                    ]
                )
                assert fetched(await client.call(request, version)) == [(0, b"a")]
            broker.delete_topic("t")
            assert codes(await client.call(request, 13)) == [ErrorCode.UNKNOWN_TOPIC_ID]

    async def test_errors_are_answered_at_once(self, broker: EmbeddedCluster) -> None:
        broker.create_topic("t")
        async with RawClient(broker.bootstrap_servers) as client:
            async with asyncio.timeout(5):
                assert codes(await client.call(fetch_request("t", 1, max_wait_ms=60_000), 12)) == [
                    ErrorCode.OFFSET_OUT_OF_RANGE
                ]
                assert codes(await client.call(fetch_request("t", -1, max_wait_ms=60_000), 12)) == [
                    ErrorCode.OFFSET_OUT_OF_RANGE
                ]
                assert codes(await client.call(fetch_request("no", 0, max_wait_ms=60_000), 12)) == [
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                ]
                request = fetch_request("t", 0, max_wait_ms=60_000)
                request.topics[0].partitions[0].current_leader_epoch = 1
                assert codes(await client.call(request, 12)) == [ErrorCode.UNKNOWN_LEADER_EPOCH]
                request.session_id, request.session_epoch = 77, 1
                assert (
                    await client.call(request, 12)
                ).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    async def test_it_waits_for_records_and_delays_no_other_client(
        self, broker: EmbeddedCluster
    ) -> None:
        broker.create_topic("t")
        async with (
            RawClient(broker.bootstrap_servers) as reader,
            RawClient(broker.bootstrap_servers) as writer,
        ):
            waiting = asyncio.create_task(
                reader.call(fetch_request("t", 0, max_wait_ms=60_000), 12)
            )
            assert (await writer.produce("t", make_batch([b"a"]))).error_code == 0
            async with asyncio.timeout(5):
                assert fetched(await waiting) == [(0, b"a")]

    async def test_it_waits_for_min_bytes_over_all_partitions(
        self, broker: EmbeddedCluster
    ) -> None:
        broker.create_topic("t", 2)
        async with (
            RawClient(broker.bootstrap_servers) as reader,
            RawClient(broker.bootstrap_servers) as writer,
        ):
            batch = make_batch([b"a"])
            waiting = asyncio.create_task(
                reader.call(
                    fetch_request("t", 0, 0, max_wait_ms=60_000, min_bytes=len(batch) + 1), 12
                )
            )
            await writer.produce("t", batch)
            await writer.produce("t", batch)
            async with asyncio.timeout(5):
                assert len(fetched(await waiting)) == 2
            waiting = asyncio.create_task(
                reader.call(
                    fetch_request("t", 1, 0, max_wait_ms=60_000, min_bytes=len(batch) + 1), 12
                )
            )
            await writer.produce("t", batch, partition=1)
            async with asyncio.timeout(5):
                response = await waiting
            assert [len(fetched(response, partition)) for partition in (0, 1)] == [1, 1]

    async def test_it_answers_with_nothing_at_its_time_limit(self, broker: EmbeddedCluster) -> None:
        broker.create_topic("t")
        async with RawClient(broker.bootstrap_servers) as client:
            started = time.monotonic()
            assert fetched(await client.call(fetch_request("t", 0, max_wait_ms=50), 12)) == []
            assert time.monotonic() - started >= 0.045

    async def test_deleting_the_topic_wakes_it(self, broker: EmbeddedCluster) -> None:
        broker.create_topic("t")
        async with RawClient(broker.bootstrap_servers) as client:
            client.send(fetch_request("t", 0, max_wait_ms=60_000), 12)
            await until(lambda: len(broker.requests) == 1)
            broker.delete_topic("t")
            _, response = await client.receive(FetchRequest, 12)
            assert codes(response) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    async def test_limits_in_bytes_but_at_least_one_batch(self, broker: EmbeddedCluster) -> None:
        broker.create_topic("t", 2)
        batch = make_batch([b"x" * 100])
        async with RawClient(broker.bootstrap_servers) as client:
            for _ in range(3):
                for partition in (0, 1):
                    await client.produce("t", batch, partition=partition)

            async def counts(max_bytes: int, partition_max_bytes: int) -> list[int]:
                response = await client.call(
                    fetch_request(
                        "t", 0, 0, max_bytes=max_bytes, partition_max_bytes=partition_max_bytes
                    ),
                    12,
                )
                return [len(fetched(response, partition)) for partition in (0, 1)]

            assert await counts(1 << 20, 1 << 20) == [3, 3]
            assert await counts(1 << 20, 2 * len(batch)) == [2, 2]
            assert await counts(4 * len(batch), 1 << 20) == [3, 1]
            assert await counts(1, 1 << 20) == [1, 0]
            assert await counts(1 << 20, 1) == [1, 0]

    async def test_read_committed_gives_an_empty_list_of_aborted_transactions(
        self, broker: EmbeddedCluster
    ) -> None:
        broker.create_topic("t")
        request = fetch_request("t", 0)
        async with RawClient(broker.bootstrap_servers) as client:
            assert (await client.call(request, 12)).responses[0].partitions[
                0
            ].aborted_transactions is None
            request.isolation_level = 1
            assert (await client.call(request, 12)).responses[0].partitions[
                0
            ].aborted_transactions == []


class TestListOffsets:
    async def test_first_next_newest_and_by_time(self, broker: EmbeddedCluster) -> None:
        broker.create_topic("t")
        asked = {
            -1: (4, -1),
            -2: (0, -1),
            -3: (2, 300),
            -4: (0, -1),
            -5: (-1, -1),
            0: (0, 100),
            150: (1, 200),
            250: (2, 300),
            301: (-1, -1),
        }
        async with RawClient(broker.bootstrap_servers) as client:
            await client.produce("t", make_batch([b"a", b"b"], timestamps=[100, 200]))
            await client.produce("t", make_batch([b"c", b"d"], timestamps=[300, 250]))
            answers = [await list_offset(client, timestamp, 9) for timestamp in asked]
        assert [(answer.offset, answer.timestamp) for answer in answers] == list(asked.values())
        assert {answer.leader_epoch for answer in answers if answer.offset >= 0} == {0}

    async def test_an_empty_partition(self, broker: EmbeddedCluster) -> None:
        broker.create_topic("t")
        async with RawClient(broker.bootstrap_servers) as client:
            answers = [await list_offset(client, timestamp, 7) for timestamp in (-1, -2, -3, 0)]
        assert [answer.offset for answer in answers] == [0, 0, -1, -1]

    async def test_a_partition_may_be_asked_for_once(self, broker: EmbeddedCluster) -> None:
        broker.create_topic("t", 2)
        asked = [ListOffsetsPartition(index, timestamp=-1) for index in (0, 1, 0)]
        async with RawClient(broker.bootstrap_servers) as client:
            answers = (
                (await client.call(ListOffsetsRequest(topics=[ListOffsetsTopic("t", asked)]), 7))
                .topics[0]
                .partitions
            )
        assert [answer.error_code for answer in answers] == [
            ErrorCode.INVALID_REQUEST,
            0,
            ErrorCode.INVALID_REQUEST,
        ]

    async def test_unknown_places(self, broker: EmbeddedCluster) -> None:
        broker.create_topic("t")
        async with RawClient(broker.bootstrap_servers) as client:
            topics = [
                ListOffsetsTopic("t", [ListOffsetsPartition(1)]),
                ListOffsetsTopic("no", [ListOffsetsPartition(0)]),
            ]
            response = await client.call(ListOffsetsRequest(topics=topics), 7)
        assert {topic.partitions[0].error_code for topic in response.topics} == {
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        }


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
async def test_compressed_batches_are_kept_as_they_are(broker: EmbeddedCluster, codec: int) -> None:
    broker.create_topic("t")
    batch = make_batch([b"x" * 1000] * 10, codec=codec)
    async with RawClient(broker.bootstrap_servers) as client:
        await client.produce("t", batch)
        records = (await client.call(fetch_request("t", 0), 12)).responses[0].partitions[0].records
    assert records is not None and records[16:] == batch[16:]
    assert [record.value for record in broker.records("t")] == [b"x" * 1000] * 10
