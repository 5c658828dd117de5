"""The fetch buffer counts the memory of a response as long as any of its data is unread."""

from __future__ import annotations

from aioprod.consumer.fetch_buffer import FetchBuffer
from aioprod.consumer.fetched_data import FetchedData
from aioprod.consumer.subscription import PartitionState, Position
from aioprod.protocol.record_batch import set_base_offset
from aioprod.protocol.record_writer import RecordBatchWriter
from aioprod.types import TopicPartition


def batch(offset: int) -> bytes:
    writer = RecordBatchWriter(0)
    writer.append(0, None, b"v")
    data = bytearray(writer.build())
    set_base_offset(data, 0, offset, 0)
    return bytes(data)


def state(partition: int) -> PartitionState:
    found = PartitionState(TopicPartition("t", partition))
    found.jump(Position(0))
    return found


def data_of(state: PartitionState, data: bytes | memoryview) -> FetchedData:
    return FetchedData(state, data, Position(0), None, None, check_crcs=True)


def test_a_response_counts_once_until_the_last_of_its_data_is_gone() -> None:
    ended: list[None] = []
    buffer = FetchBuffer(on_end=lambda: ended.append(None))
    memory = bytearray(2 * batch(0) + bytes(100))
    size = len(batch(0))
    states = [state(0), state(1)]
    with memoryview(memory) as response:
        for number, each in enumerate(states):
            with response[number * size : (number + 1) * size] as part:
                buffer.add(data_of(each, part[:]))
    assert buffer.size == len(memory)
    assert buffer.take(5) is not None
    assert buffer.take(5) is not None
    assert len(ended) == 1
    assert buffer.size == len(memory)
    buffer.drop(TopicPartition("t", 0))
    assert buffer.take(5) is None
    assert len(ended) == 2
    assert buffer.size == 0
    memory.clear()  # a BufferError if something still refers to it


def test_fetched_data_is_removed_with_its_last_record() -> None:
    ended: list[None] = []
    buffer = FetchBuffer(on_end=lambda: ended.append(None))
    partition = state(0)
    memory = bytearray(batch(0) + batch(1))
    buffer.add(data_of(partition, memoryview(memory)))
    for expected in (0, 1):
        assert buffer.has_data(partition.tp)
        found = buffer.take(1)
        assert found is not None
        data, records = found
        assert [record.offset for record in records] == [expected]
        buffer.returned(data)
        assert partition.offset == expected + 1
    assert len(ended) == 1
    assert not buffer.has_data(partition.tp)
    assert buffer.size == 0
    memory.clear()  # a BufferError if something still refers to it


def test_fetched_data_remains_if_records_were_given_back() -> None:
    buffer = FetchBuffer(on_end=lambda: None)
    partition = state(0)
    buffer.add(data_of(partition, batch(0)))
    found = buffer.take(1)
    assert found is not None
    data, records = found
    data.give_back(list(records))
    buffer.returned(data)
    assert partition.offset == 0
    assert buffer.has_data(partition.tp)
    assert buffer.take(1) is not None


def test_fetched_data_that_was_dropped_before_is_not_removed_again() -> None:
    buffer = FetchBuffer(on_end=lambda: None)
    partition = state(0)
    buffer.add(data_of(partition, batch(0)))
    found = buffer.take(1)
    assert found is not None
    buffer.drop(partition.tp)
    buffer.add(data_of(partition, batch(0)))
    buffer.returned(found[0])
    assert buffer.has_data(partition.tp)
    assert buffer.size == len(batch(0))


def test_dropped_data_release_the_response() -> None:
    buffer = FetchBuffer(on_end=lambda: None)
    memory = bytearray(batch(0))
    data = data_of(state(0), memoryview(memory))
    buffer.add(data)
    buffer.drop(TopicPartition("t", 0))
    assert buffer.size == 0
    memory.clear()


def test_copied_data_count_their_own_size() -> None:
    buffer = FetchBuffer(on_end=lambda: None)
    for number in range(2):
        buffer.add(data_of(state(number), batch(0) + bytes(number)))
    assert buffer.size == 2 * len(batch(0)) + 1
