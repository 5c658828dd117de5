"""Groups of processors in virtual time, judged by an oracle: positions without holes, the order of
keys, and the three guarantees. A seed that fails is repeated by its number.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import pytest

from aioprod import OffsetAndMetadata
from aioprod.processing.guarantees import AtLeastOnce, AtMostOnce, send_all
from aioprod.processing.partitions import CompletedOffsets
from aioprod.processing.scheduling import Item, Lane, OrderedScheduler
from aioprod.processing.sent_outputs import SentOutputs
from aioprod.processing.transactions import ExactlyOnce
from tests.processing.simulated_guarantees import (
    GUARANTEES,
    Guarantee,
    at_least_once,
    at_most_once,
    exactly_once,
    findings,
    judge,
)
from tests.processing.simulated_members import CONSUMER
from tests.selection import by_default_each

_FIRST, _MOST = 1, 8


def _seeds(by_default: int) -> list[Any]:
    """Return the seeds; all but the first are slow together, and the last run on demand."""
    return [
        *range(_FIRST),
        *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(_FIRST, by_default)),
        *(pytest.param(seed, marks=pytest.mark.faults) for seed in range(by_default, _MOST)),
    ]


SEEDS, SEEDS_OF_CONSUMER_PROTOCOL = _seeds(2), _seeds(1)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_guarantees(seed: int, guarantee: Guarantee) -> None:
    assert judge(guarantee, seed) == []


@pytest.mark.parametrize("seed", SEEDS_OF_CONSUMER_PROTOCOL)
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_guarantees_in_groups_of_the_consumer_protocol(seed: int, guarantee: Guarantee) -> None:
    """KIP-848."""
    assert judge(guarantee, seed, CONSUMER) == []


@pytest.mark.parametrize(
    ("guarantee", "seed"),
    # After drain_timeout_ms a cancelled handler began the next record of a partition given up.
    [(at_most_once, 230)],
)
def test_seeds_that_found_a_fault(guarantee: Guarantee, seed: int) -> None:
    assert judge(guarantee, seed) == []


# -- the oracle has teeth --------------------------------------------------------------------------


def commit_the_last_done(self: CompletedOffsets, offset: int, outputs: Any = ()) -> bool:
    """Commits holes."""
    moved = complete(self, offset, outputs)
    if self.position is None or offset >= self.position.offset:
        self.position = OffsetAndMetadata(offset + 1)
    return moved


async def commit_first(self: AtLeastOnce, items: Any, outputs: Any) -> None:
    """Counts records as done before their outputs are sent."""
    for item in items:
        item.partition.completed.complete(item.record.offset)
    await asyncio.sleep(0.5)
    await send_all(self._producer, outputs)


async def do_not_wait(self: SentOutputs, items: Any, outputs: Any, seconds: float) -> None:
    """Counts records as done when their outputs are sent."""
    self._completion.done(items)
    for output in outputs:
        await self._producer.send(*output)


def handle_none_again(self: SentOutputs, item: Item, now: float) -> None:
    """Counts a record as done although one of its outputs has failed."""
    self._completion.done([item])
    self.forget(item)


def forget_the_lane(self: OrderedScheduler, item: Item, now: float) -> None:
    """Handles all records at once."""
    self._arrivals += 1
    item.arrival = self._arrivals
    item.lane = Lane(None, item.partition, deque([item]))
    self.queued += 1
    self._queue(item.lane, now)


async def commit_nothing(self: ExactlyOnce, parts: Any, member: Any) -> None:
    """Sends the outputs without the positions."""
    async with self._producer.transaction():
        for part in parts.values():
            for output in part.outputs:
                await self._producer.send(*output)
    positions = {partition.tp: part.position for partition, part in parts.items()}
    async with self._producer.transaction():
        await self._producer.send_offsets_to_transaction(positions, member)


async def admit_first(self: AtMostOnce, items: Any) -> bool:
    """Lets handlers begin before the position is committed."""
    self._consumer.commit_async({i.partition.tp: i.record.offset + 1 for i in items})
    return True


complete = CompletedOffsets.complete
# The last is a seed that has found the bug before, quickly.
PLANTED: list[tuple[Guarantee, type, str, Any, int]] = [
    (at_least_once, CompletedOffsets, "complete", commit_the_last_done, 0),
    (at_least_once, AtLeastOnce, "deliver", commit_first, 0),
    (at_least_once, SentOutputs, "send", do_not_wait, 0),
    (at_least_once, SentOutputs, "handle_later_again", handle_none_again, 0),
    (at_least_once, OrderedScheduler, "add", forget_the_lane, 0),
    (at_least_once, OrderedScheduler, "drop", lambda self, partition: None, 0),
    (exactly_once, ExactlyOnce, "_transact", commit_nothing, 1),
    (at_most_once, AtMostOnce, "admit", admit_first, 7),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "planted",
    [
        pytest.param(each, marks=by_default_each(3, place), id=each[3].__name__)
        for place, each in enumerate(PLANTED)
    ],
)
def test_planted_bugs_are_found(
    planted: tuple[Guarantee, type, str, Any, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    guarantee, kind, method, bug, likely = planted
    monkeypatch.setattr(kind, method, bug)
    assert any(findings(guarantee, seed) for seed in (likely, *range(30)))
