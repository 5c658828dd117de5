"""What does the first record to a topic cost when the producer knows many topics already?

One topic after another gets one record, which has to wait for the topic's metadata; ten times as many topics should cost ten times as much.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.broker import broker_process
from benchmarks.clients import PEERS, Client, Open, Settings, aioprod
from benchmarks.harness import Case, Cost, measured, options, run

VALUE = b"v" * 100
SETTINGS = Settings()


def cases(servers: str, *, few: int, many: int, peers: bool) -> dict[str, Case]:
    """The table's rows; a record is a topic here."""

    def case(client: Open, count: int, beside: str = "", target: float | None = None) -> Case:
        async def once() -> Cost:
            async with client(servers, SETTINGS) as opened:
                return await measured(count, lambda: _one_record_each(opened, count))

        return Case(once, beside, target)

    found: dict[str, Case] = {}
    for name, client in {"aioprod": aioprod, **(PEERS if peers else {})}.items():
        base = f"{name}: {few} topics"
        found[base] = case(client, few)
        found[f"{name}: {many} topics"] = case(client, many, base, 2.0 if client is aioprod else None)
    return found


async def _one_record_each(client: Client, topics: int) -> None:
    for number in range(topics):
        delivery = await client.send(f"topic-{number:05d}", VALUE, None)
    await client.flush()
    await delivery


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__ or "", records=2_000)
    chosen = parser.parse_args(arguments)
    few = max(1, chosen.records // 10)
    with broker_process({f"topic-{number:05d}": 1 for number in range(chosen.records)}) as servers:
        run(cases(servers, few=few, many=chosen.records, peers=not chosen.no_peers), repetitions=chosen.repetitions, uvloop=chosen.uvloop)


if __name__ == "__main__":
    main()
