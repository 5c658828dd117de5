"""Deliveries in C and in Python do the same, and leak nothing although the garbage collector does
not know those in C.
"""

from __future__ import annotations

import asyncio
import copy
import gc
import sys
import traceback
import weakref
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioprod import Producer, native
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, KafkaError, RecordTooLargeError, copy_of
from aioprod.producer.batch import ProducerBatch
from aioprod.producer.delivery import Delivery
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, fail
from aioprod.types import RecordMetadata
from tests.protocol.test_native import accelerator, needs_native


def variants() -> list[tuple[Any, Any]]:
    """Return outcome and delivery in Python, and both in C."""
    source, in_c = native.python_sources["Delivery"], accelerator().Delivery
    if not native.in_use:  # then it has no methods of the class in Python
        in_c._wait = vars(source)["_wait"]
    return [
        (native.python_sources["BatchFields"], source),
        (accelerator().BatchFields, in_c),
    ]


def awaited(delivery: Any) -> Any:
    """Return what ``await`` returns, without an event loop."""

    async def wait() -> Any:
        return await delivery

    with pytest.raises(StopIteration) as stop:
        wait().send(None)
    return stop.value.value


@needs_native
@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=8),
    st.integers(0, 1 << 62),
    st.booleans(),
    st.data(),
)
def test_both_return_the_same_metadata(
    runs: list[int], base_offset: int, with_keys: bool, data: st.DataObject
) -> None:
    count = sum(runs)
    starts = [sum(runs[:at]) for at in range(len(runs))]
    sizes = data.draw(st.lists(st.integers(-1, 1 << 30), min_size=count, max_size=count))
    index = data.draw(st.integers(0, count - 1))
    found = []
    for outcome_type, delivery_type in variants():
        outcome = outcome_type()
        outcome.topic, outcome.partition, outcome.base_offset = "orders", 3, base_offset
        outcome.starts, outcome.timestamps = starts, [1_000 + start for start in starts]
        outcome.key_sizes, outcome.value_sizes = sizes if with_keys else (), sizes
        delivery = delivery_type()
        delivery._batch, delivery._index = outcome, index
        found.append(awaited(delivery))
        assert list(delivery.__await__()) == []  # as "yield from" uses it
    stored = delivery._stored()  # in C
    assert (stored, type(stored)) == (found[0], RecordMetadata)
    outcome.base_offset = -1
    assert delivery._stored() is None
    assert found[0] == found[1] and type(found[0]) is type(found[1]) is RecordMetadata
    assert found[0].offset == base_offset + index and found[0].serialized_value_size == sizes[index]


@needs_native
def test_a_kept_exception_keeps_its_result() -> None:
    outcome, delivery = (kind() for kind in variants()[1])
    outcome.topic, outcome.partition, outcome.base_offset = "orders", 3, 7
    outcome.starts, outcome.timestamps = [0], [5]
    outcome.key_sizes = outcome.value_sizes = ()
    kept = []
    for index in range(4):
        delivery._batch, delivery._index = outcome, index
        with pytest.raises(StopIteration) as stop:
            next(delivery)  # as ``await`` does on 3.12 and later
        if index != 1:
            kept.append(stop.value)
        del stop
    assert [stop.value.offset for stop in kept] == [7, 9, 10]
    # The traceback of one that was raised again is its own.
    assert all(len(traceback.extract_tb(stop.__traceback__)) == 1 for stop in kept)


@needs_native
def test_only_await_iterates_over_a_delivery() -> None:
    outcome, delivery = (kind() for kind in variants()[1])
    outcome.base_offset = -1  # it is pending
    delivery._batch, delivery._index = outcome, 0
    with pytest.raises(TypeError, match="await it"):
        next(delivery)
    with pytest.raises(TypeError, match="not iterable"):
        iter(delivery)
    with pytest.raises(TypeError, match="await it"):
        next(variants()[1][1]())


@needs_native
def test_without_a_batch_both_raise() -> None:
    for _, delivery_type in variants():
        with pytest.raises(AttributeError, match="_batch"):
            awaited(delivery_type())
    with pytest.raises(TypeError, match="_batch must be a BatchFields"):
        accelerator().Delivery()._batch = object()


@needs_native
def test_outcomes_that_are_not_complete_raise() -> None:
    outcome, delivery = accelerator().BatchFields(), accelerator().Delivery()
    delivery._batch, delivery._index = outcome, 0  # base_offset is 0 from the start
    with pytest.raises(AttributeError):
        awaited(delivery)
    outcome.topic, outcome.partition, outcome.key_sizes, outcome.value_sizes = "t", 0, (), ()
    for starts, timestamps in (([0], 5), ([0, "x"], [1, 2]), ([0], []), ([0, 1 << 80], [1, 2])):
        outcome.starts, outcome.timestamps = starts, timestamps
        with pytest.raises((TypeError, IndexError, OverflowError)):
            awaited(delivery)


@needs_native
@pytest.mark.parametrize("index", [0, 1, (1 << 31) - 1, -1])
def test_offsets_past_64_bits_are_the_same(index: int) -> None:
    """A broker may answer with any offset."""
    for fields_type, delivery_type in variants():
        fields, delivery = fields_type(), delivery_type()
        fields.topic, fields.partition, fields.base_offset = "orders", 3, (1 << 63) - 1
        fields.starts, fields.timestamps = (0,), (5,)
        fields.key_sizes = fields.value_sizes = ()
        delivery._batch, delivery._index = fields, index
        assert awaited(delivery).offset == (1 << 63) - 1 + index


@needs_native
@pytest.mark.parametrize("name", ["starts", "timestamps", "key_sizes", "value_sizes"])
def test_sequences_may_change_their_batch_while_they_are_read(name: str) -> None:
    fields_type, delivery_type = variants()[1]
    fields, delivery = fields_type(), delivery_type()

    class Sequence(list[int]):
        def __len__(self) -> int:
            if kept_back:
                fields = kept_back.pop()
                for each in ("starts", "timestamps", "key_sizes", "value_sizes", "topic"):
                    delattr(fields, each)
                delivery._batch = fields_type()
                del fields
                gc.collect()
            return 3

        def __getitem__(self, at: Any) -> Any:
            len(self)
            return at

    fields.topic, fields.partition, fields.base_offset = "orders", 3, 7
    fields.starts = fields.timestamps = fields.key_sizes = fields.value_sizes = [0, 1, 2]
    setattr(fields, name, Sequence([0, 1, 2]))
    delivery._batch, delivery._index, kept_back = fields, 1, [fields]
    del fields
    assert awaited(delivery) == ("orders", 3, 8, 1, 1, 1) and not kept_back


@needs_native
@pytest.mark.parametrize("name", ["base_offset", "open_until", "_index"])
@pytest.mark.parametrize("given", ["1", None, 1.5, 1 << 64, -(1 << 64)])
def test_other_types_than_numbers_are_refused(name: str, given: Any) -> None:
    fields_type, delivery_type = variants()[1]
    owner = delivery_type() if name == "_index" else fields_type()
    with pytest.raises((TypeError, OverflowError)):
        setattr(owner, name, given)
    with pytest.raises(TypeError):
        delattr(owner, name)


@needs_native
def test_the_garbage_collector_does_not_know_it() -> None:
    delivery = accelerator().Delivery()
    assert not gc.is_tracked(delivery) and sys.getsizeof(delivery) == 32


async def fail_some(producer: Producer, kept: list[Any]) -> list[weakref.ref[ProducerBatch]]:
    """Let the tracebacks of errors lead to frames that keep the deliveries."""
    deliveries = [await producer.send("orders", b"x" * 100) for _ in range(50)]
    batches = [weakref.ref(delivery.position[0]) for delivery in deliveries]
    for delivery in deliveries:
        try:
            await delivery
        except KafkaError as error:
            kept.append(error)
        kept.append(delivery.exception())
    return batches


async def test_failed_deliveries_leave_nothing_behind() -> None:
    kept: list[Any] = []
    async with EmbeddedCluster() as broker, Producer(broker.bootstrap_servers) as producer:
        broker.create_topic("orders")
        broker.on(ApiKey.PRODUCE, fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED), times=None)
        batches = await fail_some(producer, kept)
        assert len(kept) == 100 and all(isinstance(error, KafkaError) for error in kept)
        assert len(set(map(id, kept))) == 100, "each caller has its own error"
        assert len({repr(error) for error in kept}) == 1
        kept.clear()
        await asyncio.sleep(0)  # the connection releases the last reply
        gc.collect()
        assert not [batch for batch in batches if batch() is not None]


async def test_records_of_a_closed_producer_leave_nothing_behind() -> None:
    kept: list[Any] = []
    async with EmbeddedCluster() as broker:
        broker.create_topic("orders")
        producer = Producer(broker.bootstrap_servers, linger_ms=60_000)
        await producer.start()
        await producer.partitions_for("orders")
        failing = asyncio.ensure_future(fail_some(producer, kept))
        await asyncio.sleep(0)
        await producer.close(0)
        batches = await failing
        with pytest.raises(KafkaError) as refused:
            await producer.send("orders", b"x")
        del refused
        assert len(kept) == 100
        kept.clear()
        del failing
        await asyncio.sleep(0)
        gc.collect()
        assert not [batch for batch in batches if batch() is not None]


async def test_callbacks_that_refer_to_their_delivery_are_freed() -> None:
    called = []
    async with EmbeddedCluster() as broker, Producer(broker.bootstrap_servers) as producer:
        delivery = await producer.send("orders", b"x")

        def call(done: Delivery, mine: Delivery = delivery) -> None:
            called.append((done, mine))

        delivery.add_done_callback(call)
        batch = weakref.ref(delivery.position[0])
        await delivery
        assert [done.result() for done, _ in called] == [called[0][1].result()]
        called.clear()
        del delivery, call
        await asyncio.sleep(0)
        gc.collect()
        assert batch() is None


@needs_native
def test_awaiting_leaks_no_blocks() -> None:
    outcome_type, delivery_type = variants()[1]
    outcome = outcome_type()
    outcome.topic, outcome.partition, outcome.base_offset = "orders", 3, 1 << 40
    outcome.starts, outcome.timestamps = [0, 10], [1 << 40, 1 << 41]
    outcome.key_sizes, outcome.value_sizes = (), [1 << 20] * 20

    def blocks_after_awaiting() -> int:
        for index in range(2_000):
            delivery = delivery_type()
            delivery._batch, delivery._index = outcome, index % 20
            waiting = iter(delivery.__await__())
            if index % 2:
                assert next(waiting, None) is None
            delivery._index = 99
            with pytest.raises(IndexError):
                next(delivery.__await__())
            with pytest.raises(IndexError):
                awaited(delivery)
        gc.collect()
        return sys.getallocatedblocks()

    blocks_after_awaiting()
    before = blocks_after_awaiting()
    assert abs(blocks_after_awaiting() - before) < 100


@needs_native
def test_awaiting_leaks_no_references() -> None:
    """Of objects that all deliveries of a batch share: the counts of blocks do not show these."""
    fields_type, delivery_type = variants()[1]
    fields, delivery = fields_type(), delivery_type()
    fields.topic, fields.partition, fields.base_offset = "orders", 1 << 40, 1 << 40
    fields.starts, fields.timestamps = [0, 10], [1 << 40, 1 << 41]
    fields.key_sizes, fields.value_sizes = [3] * 5, [1 << 20] * 5
    names = ("topic", "partition", "starts", "timestamps", "key_sizes", "value_sizes")
    objects = [fields, delivery, *(getattr(fields, name) for name in names)]
    before = [sys.getrefcount(item) for item in objects]
    for index in range(100):
        delivery._batch, delivery._index = fields, index % 7
        if index % 7 < 5:
            assert awaited(delivery).offset == (1 << 40) + index % 7
        else:
            with pytest.raises(IndexError):
                awaited(delivery)
    gc.collect()
    assert all(
        sys.getrefcount(item) - count < 10 for item, count in zip(objects, before, strict=True)
    )


def test_a_copy_of_an_error_is_equal() -> None:
    error = BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "orders-0")
    error.__cause__ = cause = ValueError("why")
    error.add_note("seen at noon")
    copy = copy_of(error)
    assert type(copy) is BrokerError and copy is not error and repr(copy) == repr(error)
    assert str(copy) == str(error) and copy.code == error.code
    assert copy.__cause__ is cause and copy.__suppress_context__
    copy.add_note("and later")
    assert error.__notes__ == ["seen at noon"]
    assert copy_of(RecordTooLargeError("too large")).args == ("too large",)


def test_a_delivery_shows_the_package_to_import_it_from() -> None:
    assert Delivery.__module__ == "aioprod.producer" and Delivery.__doc__


async def test_a_copy_has_the_same_outcome(broker: EmbeddedCluster) -> None:
    async with Producer(broker.bootstrap_servers) as producer:
        delivery = await producer.send("t", b"x")
        copied = copy.copy(delivery)
        assert copied is not delivery
        assert await copied == await delivery
