"""A future for each record, since aiokafka's ``send`` returns one. Synchronous."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import aioprod
from aioprod import Deliveries, Delivery
from aioprod.closing import all_in_turn
from aioprod.compat.aiokafka.errors import KafkaTimeoutError
from aioprod.compat.aiokafka.structs import RecordMetadata, TopicPartition
from aioprod.compat.aiokafka.translation import translated

# None with acks=0. Any, so that programs pass type checks without testing for None.
RecordFuture = asyncio.Future[RecordMetadata | Any]


class Futures:
    """Creates the futures, and completes those of a batch in one callback: one for each record
    would take as long as sending it.

    Args:
        has_acks: whether the brokers acknowledge records; if not, the results are None.
    """

    def __init__(self, *, has_acks: bool) -> None:
        self._has_acks = has_acks
        # By batch: each record's future, followed by its delivery.
        self._waiting: dict[object, list[Any]] = {}

    def of(self, delivery: Delivery) -> RecordFuture:
        """Return a future of the record's metadata.

        Raises:
            Exception: aiokafka's error, if the record was refused.
        """
        batch = delivery.position[0]
        waiting = self._waiting.get(batch)
        if waiting is None:
            if delivery.done() and (refused := delivery.exception()) is not None:
                raise translated(refused)
            waiting = self._waiting[batch] = []
            delivery.add_done_callback(partial(self._ended, batch))
        future: RecordFuture = asyncio.get_running_loop().create_future()
        waiting += (future, delivery)
        return future

    def of_batch(self, deliveries: Deliveries) -> RecordFuture:
        """Return a future of the metadata of the first of several records."""
        future: RecordFuture = asyncio.get_running_loop().create_future()
        if not deliveries:
            future.set_exception(KafkaTimeoutError("the batch is empty"))
            return future
        deliveries[-1].add_done_callback(lambda _: self._complete_batch(future, deliveries))
        return future

    def _ended(self, batch: object, _: Delivery) -> None:
        items = iter(self._waiting.pop(batch))
        all_in_turn(partial(self._complete, *each) for each in zip(items, items, strict=True))

    def _complete_batch(self, future: RecordFuture, deliveries: Deliveries) -> None:
        pending = next((each for each in deliveries if not each.done()), None)
        if pending is not None:  # part of the batch was retried
            pending.add_done_callback(lambda _: self._complete_batch(future, deliveries))
            return
        failed = next((each for each in deliveries if each.exception() is not None), None)
        self._complete(future, deliveries[0] if failed is None else failed)

    def _complete(self, future: RecordFuture, delivery: Delivery) -> None:
        if future.done():  # cancelled by the application
            return
        try:
            topic, partition, offset, timestamp, _, _ = delivery.result()
        except asyncio.InvalidStateError:  # its batch was split, and this part has no outcome yet
            delivery.add_done_callback(partial(self._complete, future))
        except aioprod.KafkaError:
            error = delivery.exception()  # without the traceback, which leads to the future
            assert error is not None
            future.set_exception(translated(error))
        else:
            place = TopicPartition(topic, partition)
            future.set_result(
                RecordMetadata(topic, partition, place, offset, timestamp, 0, None)
                if self._has_acks
                else None
            )
