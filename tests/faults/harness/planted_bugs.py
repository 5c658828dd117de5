"""Bugs to plant, each with the anomalies of which the checkers must find at least one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from aioprod.producer.batch import BatchState, ProducerBatch
from aioprod.producer.responses import ProduceResponseHandler
from aioprod.producer.sender import Sender
from tests.simulation import mutations

PlantedBug = Callable[[pytest.MonkeyPatch], set[str]]


def skipped_sequence(patch: pytest.MonkeyPatch) -> set[str]:
    """A retried batch gets a new sequence number: the broker does not recognize the duplicate, or
    rejects it as out of order.
    """
    mutations.sequence_not_kept_on_retry(patch)
    return {"duplicate", "nonmonotonic-send", "failure"}


def swapped_batches(patch: pytest.MonkeyPatch) -> set[str]:
    """A batch overtakes the previous one."""
    mutations.swapped_batches(patch)
    return {"nonmonotonic-send"}


def acknowledged_before_the_response(patch: pytest.MonkeyPatch) -> set[str]:
    """Some batches succeed when they are sent, and are lost with their request."""
    numbers = count()
    send = Sender._send

    def send_and_acknowledge(
        self: Sender, node_id: int, connection: Any, batches: list[ProducerBatch], now: float
    ) -> None:
        send(self, node_id, connection, batches, now)
        for batch in batches:
            if next(numbers) % 3 == 0 and batch.state is BatchState.PENDING:
                asyncio.get_running_loop().call_soon(acknowledge, self._handler, batch)

    def acknowledge(handler: ProduceResponseHandler, batch: ProducerBatch) -> None:
        if batch.state is BatchState.PENDING:
            handler.succeed(batch, -1, -1, asyncio.get_running_loop().time())

    patch.setattr(Sender, "_send", send_and_acknowledge)
    return {"lost-write"}


def callbacks_not_called(patch: pytest.MonkeyPatch) -> set[str]:
    """The callbacks of some batches are not called."""
    numbers = count()
    finish = ProducerBatch._finish

    def finish_without_callbacks(self: ProducerBatch, state: BatchState) -> None:
        if state is BatchState.SUCCEEDED and next(numbers) % 20 == 19:
            self._callbacks = {}
        finish(self, state)

    patch.setattr(ProducerBatch, "_finish", finish_without_callbacks)
    return {"hang"}


PLANTED_BUGS: tuple[PlantedBug, ...] = (
    skipped_sequence,
    swapped_batches,
    acknowledged_before_the_response,
    callbacks_not_called,
)
