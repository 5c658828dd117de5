"""A killed member's history has what its application got."""

from __future__ import annotations

import asyncio
import json
import signal

from aioprod import Producer
from aioprod.testing import EmbeddedCluster
from tests.anomalies.history import Outcome, Read
from tests.anomalies.member_process import MemberProcess, MemberTask
from tests.anomalies.recorder import Recorder
from tests.waiting import until

RECORDS = 30


class Printed:
    """Stands for a process that printed some lines and was killed."""

    def __init__(self, *lines: str) -> None:
        self.stdout = asyncio.StreamReader()
        self.stdout.feed_data("\n".join(lines).encode())
        self.stdout.feed_eof()


def line(*values: object) -> str:
    return f"member: {json.dumps(values)}"


async def followed(*lines: str) -> tuple[Recorder, list[tuple[int | None, list[int]]]]:
    """Return the history of a process that printed these lines, and what it was assigned."""
    recorder, assigned = Recorder(lambda: 9.0), list[tuple[int | None, list[int]]]()
    process = MemberProcess(
        Printed(*lines),  # type: ignore[arg-type]
        recorder,
        "killed",
        "t",
        lambda *values: assigned.append(values),
    )
    await process._follow()
    assert process.reads.is_set()
    return recorder, assigned


async def test_what_a_process_printed_is_its_history() -> None:
    recorder, assigned = await followed(
        line("begin", 1.0),
        line("assigned", 4, [0, 1]),
        "a line of a library",
        line("end", 2.0, [[0, 7, 70]], {}, ""),
        line("begin", 3.0),
        line("end", 4.0, [], {"0": 8}, ""),
        line("begin", 5.0),
        line("end", 6.0, [], {}, "KafkaError: 16"),
        "",
    )
    poll, commit, failed = recorder.history.operations
    assert assigned == [(4, [0, 1])]
    assert (poll.invoked, poll.completed, poll.outcome) == (1.0, 2.0, Outcome.OK)
    assert poll.reads == (Read("t/0", 7, 70),)
    assert (commit.commits, commit.outcome) == ({"t/0": 8}, Outcome.OK)
    assert (failed.error, failed.outcome) == ("KafkaError: 16", Outcome.UNKNOWN)


async def test_an_operation_that_the_kill_cut_has_an_unknown_outcome() -> None:
    end = line("end", 2.0, [[0, 7, 70]], {}, "")
    for cut in ("", end[:-5], end):  # the last one lacks its end of line
        recorder, _ = await followed(line("begin", 1.0), cut)
        [poll] = recorder.history.operations
        assert (poll.completed, poll.outcome, poll.reads) == (9.0, Outcome.UNKNOWN, ())


async def test_a_process_reads_and_commits_until_it_is_killed() -> None:
    recorder = Recorder()
    with EmbeddedCluster.in_thread() as cluster:
        cluster.create_topic("t", 1)
        async with Producer(cluster.bootstrap_servers) as producer:
            for number in range(RECORDS):
                await producer.send_and_wait("t", b"%d" % number)
        task = MemberTask("aioprod-pure", cluster.bootstrap_servers, "t", "g", "1")
        operations = recorder.history.operations
        async with MemberProcess.running(
            task, recorder, "killed", lambda generation, partitions: None
        ) as process:
            await until(
                lambda: (
                    sum(len(each.reads) for each in operations) == RECORDS
                    and any(each.commits.get("t/0") == RECORDS for each in operations)
                ),
                60,
            )
        assert process._process.returncode == -signal.SIGKILL
    read = [each for operation in operations for each in operation.reads]
    assert read == [Read("t/0", number, number) for number in range(RECORDS)]
    assert all(each.outcome is not Outcome.OPEN for each in operations)
