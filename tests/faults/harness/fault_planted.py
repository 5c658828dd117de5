"""Bugs to be switched in, and the anomalies of which one at least has to be found then."""

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
    """A batch that goes again skips to the next sequence: the broker can't tell that it has it
    already, or refuses it as out of order.
    """
    mutations.sequence_not_kept_on_retry(patch)
    return {"duplicate", "nonmonotonic-send", "failure"}


def swapped_batches(patch: pytest.MonkeyPatch) -> set[str]:
    """A batch overtakes the one before it, where several wait."""
    mutations.swapped_batches(patch)
    return {"nonmonotonic-send"}


def acknowledged_before_the_answer(patch: pytest.MonkeyPatch) -> set[str]:
    """Some batches count as stored when they were sent; when the request is lost, so are they."""
    numbers = count()
    send = Sender._send

    def send_and_acknowledge(
        self: Sender, node_id: int, connection: Any, batches: list[ProducerBatch], now: float
    ) -> None:
        send(self, node_id, connection, batches, now)
        for batch in batches:
            if next(numbers) % 3 == 0 and batch.state is BatchState.PENDING:
                asyncio.get_running_loop().call_soon(acknowledge, self.handler, batch)

    def acknowledge(handler: ProduceResponseHandler, batch: ProducerBatch) -> None:
        if batch.state is BatchState.PENDING:
            handler.succeed(batch, -1, -1)

    patch.setattr(Sender, "_send", send_and_acknowledge)
    return {"lost-write"}


def forgotten_waiter(patch: pytest.MonkeyPatch) -> set[str]:
    """Now and then nobody is told of a batch's end."""
    numbers = count()
    finish = ProducerBatch._finish

    def forget_and_finish(self: ProducerBatch, state: BatchState) -> None:
        if state is BatchState.SUCCEEDED and next(numbers) % 20 == 19:
            self._callbacks = []
        finish(self, state)

    patch.setattr(ProducerBatch, "_finish", forget_and_finish)
    return {"hang"}


PLANTED_BUGS: tuple[PlantedBug, ...] = (
    skipped_sequence,
    swapped_batches,
    acknowledged_before_the_answer,
    forgotten_waiter,
)
