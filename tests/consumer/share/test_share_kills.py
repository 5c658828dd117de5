"""Members of a share group in processes of their own, a consumer, a processor and Java's client,
are killed in the middle of their work.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.consumer.share.member_processes import (
    AIOPROD,
    JAVA,
    MAX_POLL_RECORDS,
    PROCESSOR,
    Members,
    Step,
    judge,
)
from tests.consumer.share.share_groups import ShareTopic, lag

KILLS = 5
ALL_CLIENTS = [AIOPROD, PROCESSOR, JAVA]  # a JVM takes seconds of CPU time to start
# Of each process before the next one is killed: Java's client needs seconds to start.
LEAST_ACCEPTED = 30


@pytest.mark.kafka
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("share_broker", "clients"),
    [
        pytest.param("kafka", [AIOPROD, PROCESSOR], id="kafka"),
        pytest.param("kafka", ALL_CLIENTS, id="kafka-java", marks=pytest.mark.interop),
        pytest.param("embedded", ALL_CLIENTS, id="embedded-java", marks=pytest.mark.interop),
    ],
    indirect=["share_broker"],
)
async def test_killed_members_lose_nothing_that_is_not_confirmed(
    share_broker: str, clients: list[str], tmp_path: Path
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    topic = ShareTopic(share_broker)
    # Kills count as deliveries, so few of them could use up a small limit.
    await topic.create(share_record_lock_duration_ms="5000", share_delivery_count_limit="10")
    members = Members(topic, tmp_path, clients)
    killed = asyncio.Event()
    writing = asyncio.create_task(write_until(killed, topic))
    try:
        for _ in range(KILLS):
            await members.fill()
            await members.until_each_has_accepted(LEAST_ACCEPTED)
            await asyncio.sleep(rng.uniform(0, 0.5))  # the moment is the test's input
            await members.kill_one(rng)
        killed.set()
        written = await writing
        await members.fill()
        async with asyncio.timeout(90):
            # What a killed member had accepted without knowing it is in no ledger.
            while await lag(topic) != 0:  # noqa: ASYNC110 - a question to the broker
                await asyncio.sleep(0.5)
    finally:
        writing.cancel()
        await members.kill_all()
    judgment = judge(members.steps(), {(0, offset) for offset in range(written)})
    assert judgment.findings == []
    # The rest was accepted by members that were killed before they knew it.
    assert judgment.confirmed >= written - KILLS * MAX_POLL_RECORDS
    assert judgment.repeated > 0
    assert judgment.by_client.keys() == set(clients)


async def write_until(end: asyncio.Event, topic: ShareTopic) -> int:
    """Write until all kills are done; return the number of records."""
    written = 0
    while not end.is_set():
        await topic.write(range(written, written + 200))
        written += 200
        await asyncio.sleep(0.5)
    return written


GOT, SURE = Step("got", (0, 1), 1, 10, AIOPROD), Step("sure", (0, 1), 1, 20, AIOPROD)
AGAIN = Step("got", (0, 1), 2, 30, JAVA)


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ([GOT, SURE, AGAIN], "came after"),
        ([GOT, AGAIN, SURE, SURE._replace(at=40)], "was accepted twice"),
        ([GOT, GOT._replace(at=15), SURE], "is not above"),
        ([AGAIN._replace(place=(0, 2))], "was not delivered"),
    ],
)
def test_the_judge_finds(steps: list[Step], text: str) -> None:
    (finding,) = judge(steps, [(0, 1)]).findings
    assert text in finding


def test_leaders_that_change_deliver_and_confirm_again() -> None:
    judgment = judge([GOT, SURE, AGAIN], [(0, 1)], leaders_change=True)
    assert (judgment.findings, judgment.stale, judgment.twice) == ([], 1, 0)
    twice = judge([GOT, AGAIN, SURE, SURE._replace(at=40)], [(0, 1)], leaders_change=True)
    assert (twice.findings, twice.stale, twice.twice) == ([], 0, 1)


def test_the_judge_allows_a_delivery_that_was_not_confirmed() -> None:
    judgment = judge([GOT, AGAIN, SURE._replace(at=40)], [(0, 1)])
    assert (judgment.findings, judgment.confirmed, judgment.repeated) == ([], 1, 1)
