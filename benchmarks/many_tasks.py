"""What does a record cost when ten thousand tasks wait for room in a small buffer?

All tasks call ``send_and_wait`` on one partition, again and again; the buffer is 1 MiB, less than they want together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from benchmarks.broker import broker_process
from benchmarks.clients import PEERS, Client, Open, Settings, aioprod
from benchmarks.harness import Case, Cost, measured, options, run

TOPIC = "many-tasks"
VALUE = b"v" * 100
SETTINGS = Settings(buffer_memory=1_048_576)
FEW, MANY = 500, 10_000


def cases(servers: str, *, records: int, peer_records: int, few: int, many: int) -> dict[str, Case]:
    """The table's rows; the records are split evenly among the tasks of a case. No ``peer_records`` leaves the peers out."""

    def case(client: Open, tasks: int, beside: str = "", target: float | None = None) -> Case:
        async def once() -> Cost:
            async with client(servers, SETTINGS) as opened:
                await opened.send_and_wait(TOPIC, VALUE, None)  # connections and metadata are not what is asked
                each = max(1, (records if client is aioprod else peer_records) // tasks)
                return await measured(each * tasks, lambda: _all_tasks(opened, tasks, each))

        return Case(once, beside, target)

    base = f"aioprod, {few} tasks"
    found = {base: case(aioprod, few), f"{base}, again": case(aioprod, few, base), f"aioprod, {many} tasks": case(aioprod, many, base, 2.0)}
    for name, client in PEERS.items() if peer_records else ():
        found[f"{name}, {few} tasks"] = case(client, few, base)
        found[f"{name}, {many} tasks"] = case(client, many, f"{name}, {few} tasks")
    return found


async def _all_tasks(client: Client, tasks: int, each: int) -> None:
    async def one() -> None:
        for _ in range(each):
            await client.send_and_wait(TOPIC, VALUE, None)

    async with asyncio.TaskGroup() as group:
        for _ in range(tasks):
            group.create_task(one())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__ or "", records=200_000)
    parser.add_argument("--peer-records", type=int, default=20_000, help="the same for the peers, which take long (default: %(default)s)")
    parser.add_argument("--few", type=int, default=FEW, help="tasks of the first case (default: %(default)s)")
    parser.add_argument("--many", type=int, default=MANY, help="tasks of the second case (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    with broker_process({TOPIC: 1}) as servers:
        peer_records = 0 if chosen.no_peers else chosen.peer_records
        listed = cases(servers, records=chosen.records, peer_records=peer_records, few=chosen.few, many=chosen.many)
        run(listed, repetitions=chosen.repetitions, uvloop=chosen.uvloop)


if __name__ == "__main__":
    main()
