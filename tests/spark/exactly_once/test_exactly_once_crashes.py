"""A query that dies at any step of the protocol and starts again, with its rows spread over other
tasks: each row is there once.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from aioprod import Producer
from aioprod.spark.exactly_once import completing, driver, task, transactions
from aioprod.testing import EmbeddedCluster
from tests.selection import by_default_each
from tests.spark.exactly_once.job import (
    Job,
    committed,
    killed_at,
    open_transactions,
    rows_of,
    split,
)

TASK_STEPS: list[tuple[Any, str, str, int]] = [
    (task, "read_decided", "before", 1),
    (task, "_start", "after", 1),
    (task, "send_batch", "before", 1),
    (task, "send_batch", "after", 1),
    (task, "prepare", "before", 1),
    (task, "prepare", "after", 1),
]
DRIVER_STEPS: list[tuple[Any, str, str, int]] = [
    (driver, "fence_older_driver", "before", 1),
    (driver, "fence_older_driver", "after", 1),
    (driver, "read_decided", "after", 1),
    (driver, "check_transactions", "after", 1),
    (driver, "sweep", "after", 1),
    (driver, "decide", "before", 1),
    (Producer, "send_offsets_to_transaction", "before", 1),
    (Producer, "send_offsets_to_transaction", "after", 1),
    (Producer, "commit_transaction", "after", 1),
    (completing, "end_decided", "before", 1),
    (transactions, "end_transaction", "before", 1),
    (transactions, "end_transaction", "after", 1),
    (transactions, "end_transaction", "after", 2),
    (completing, "end_decided", "after", 1),
]


# Each second one runs without `-m faults`, the others in another test.
EVEN_STEPS, ODD_STEPS = (
    [
        pytest.param(step, marks=by_default_each(2, place + odd))
        for place, step in enumerate(DRIVER_STEPS)
    ]
    for odd in (0, 1)
)


def step_name(step: tuple[Any, str, str, int]) -> str:
    return f"{step[2]} {step[1]} {step[3]}"


async def goes_on(broker: EmbeddedCluster, job: Job, tasks: int) -> None:
    """The next run replays batch 1 and writes batch 2: all is there once, and nothing is left
    open.
    """
    job = job.again()
    await job.batch(1, split(rows_of(1), tasks))
    assert committed(broker) == sorted(rows_of(0) + rows_of(1)), (
        "the batch is visible as soon as it is committed"
    )
    await job.batch(2, split(rows_of(2), 2))
    assert committed(broker) == sorted(rows_of(0) + rows_of(1) + rows_of(2))
    assert open_transactions(broker) == []


@pytest.mark.parametrize("step", [*TASK_STEPS, *DRIVER_STEPS], ids=step_name)
async def test_a_query_that_dies_and_starts_again_with_other_tasks(
    broker: EmbeddedCluster, step: tuple[Any, str, str, int]
) -> None:
    job = Job(broker.bootstrap_servers)
    await job.batch(0, split(rows_of(0), 2))
    with killed_at(*step):
        await job.batch(1, split(rows_of(1), 2))
    await goes_on(broker, job, tasks=3)


@pytest.mark.parametrize("step", EVEN_STEPS, ids=step_name)
async def test_a_query_that_dies_in_its_first_batch(
    broker: EmbeddedCluster, step: tuple[Any, str, str, int]
) -> None:
    job = Job(broker.bootstrap_servers)
    with killed_at(*step):
        await job.batch(0, split(rows_of(0), 3))
    await job.again().batch(0, split(rows_of(0), 2))
    assert committed(broker) == sorted(rows_of(0))
    assert open_transactions(broker) == []


@pytest.mark.parametrize("step", TASK_STEPS, ids=step_name)
async def test_a_task_that_dies_and_is_tried_again(
    broker: EmbeddedCluster, step: tuple[Any, str, str, int]
) -> None:
    job = Job(broker.bootstrap_servers)
    first, second = split(rows_of(0), 2)
    with killed_at(*step):
        await job.task(0, 0, first)
    assert await job.commit(
        0, [await job.task(0, 0, first, attempt=1), await job.task(0, 1, second)]
    )
    assert committed(broker) == sorted(rows_of(0)), "what the dead attempt left open hides nothing"
    assert open_transactions(broker) == []


TWO_STEPS = list(itertools.product(DRIVER_STEPS[::3], DRIVER_STEPS[1::3]))


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(
            pair,
            marks=by_default_each(6, place),
            id=" then ".join(map(step_name, pair)),
        )
        for place, pair in enumerate(TWO_STEPS)
    ],
)
async def test_a_query_that_dies_twice(
    broker: EmbeddedCluster, steps: tuple[tuple[Any, str, str, int], ...]
) -> None:
    job = Job(broker.bootstrap_servers)
    await job.batch(0, split(rows_of(0), 2))
    for number, step in enumerate(steps):
        job = job.again()
        try:
            with killed_at(*step):
                await job.batch(1, split(rows_of(1), 2 + number))
        except BaseException as error:
            # The second time, the batch may be decided: then some steps are not reached.
            if number == 0 or not isinstance(error, pytest.fail.Exception):
                raise
    await goes_on(broker, job, tasks=5)


@pytest.mark.parametrize("step", ODD_STEPS, ids=step_name)
async def test_a_driver_that_fails_aborts_or_finishes(
    broker: EmbeddedCluster, step: tuple[Any, str, str, int]
) -> None:
    """Unlike one that dies it can clean up: afterwards the batch is visible whole, or not at all,
    and nothing is open.
    """
    job = Job(broker.bootstrap_servers)
    await job.batch(0, split(rows_of(0), 2))
    reports = await job.tasks(1, split(rows_of(1), 2))
    with killed_at(*step):
        await driver.commit_batch(job.options, reports, 1)
    await job.abort(1)
    assert committed(broker) in (sorted(rows_of(0)), sorted(rows_of(0) + rows_of(1)))
    assert open_transactions(broker) == []
    await goes_on(broker, job, tasks=4)


@pytest.mark.parametrize("every", [31, pytest.param(13, marks=pytest.mark.faults)])
async def test_a_commit_that_is_cancelled_anywhere_can_be_done_again(
    broker: EmbeddedCluster, every: int
) -> None:
    """Each batch is cancelled some turns of the loop later than the previous one, until one is
    committed first.
    """
    job = Job(broker.bootstrap_servers)
    before: list[str] = []
    for version in itertools.count():
        rows = rows_of(version)
        reports = await job.tasks(version, split(rows, 2))
        committing = asyncio.create_task(driver.commit_batch(job.options, reports, version))
        for _ in range(every * version):
            await asyncio.sleep(0)
        in_time = committing.done()
        committing.cancel()
        await asyncio.wait([committing])
        await job.abort(version)
        assert committed(broker) in (sorted(before), sorted(before + rows)), f"batch {version}"
        assert open_transactions(broker) == []
        job = job.again()
        await job.batch(version, split(rows, 3))
        before += rows
        assert committed(broker) == sorted(before)
        if in_time:
            assert version > 1
            break


async def test_a_task_that_is_cancelled_anywhere_leaves_nothing_behind(
    broker: EmbeddedCluster,
) -> None:
    job = Job(broker.bootstrap_servers)
    for turns in range(0, 150, 9):
        writing = asyncio.create_task(job.task(0, 0, rows_of(0), attempt=turns))
        for _ in range(turns):
            await asyncio.sleep(0)
        writing.cancel()
        await asyncio.wait([writing])
    await job.again().batch(0, split(rows_of(0), 2))
    assert committed(broker) == sorted(rows_of(0))
    assert open_transactions(broker) == []
