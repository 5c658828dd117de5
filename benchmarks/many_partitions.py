"""Does a record cost more when the cluster has a thousand partitions, or five thousand topics?

A topic of one partition in a cluster with nothing else is what the others are compared with. Batches are as full everywhere: where records
spread over a thousand partitions, linger is long and batches are small, beside the same on one partition. The row "at linger 5 ms" only informs:
there batches hold as many records as come in that time, and in the row beside it they are small.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from functools import partial

from benchmarks.broker import broker_process
from benchmarks.clients import PEERS, Client, Open, Settings, aioprod
from benchmarks.harness import Case, Cost, measured, options, run

ONE, MANY = "one-partition", "many-partitions"
PARTITIONS, TOPICS = 1_000, 5_000
VALUE = b"v" * 100
LONG_LINGER_MS = 2_000
AS_USUAL = Settings(buffer_memory=64 << 20)


async def _send(client: Client, topics: Sequence[str], keys: Sequence[bytes | None], records: int) -> None:
    """Record after record, topics and keys in rotation; waits for all, and raises where one was not delivered."""
    send = client.send
    deliveries: list[Awaitable[object]] = []
    for number in range(records):
        deliveries.append(await send(topics[number % len(topics)], VALUE, keys[number % len(keys)]))
    await client.flush()
    for delivery in deliveries[-len(topics) :]:
        await delivery


def cases(small: str, large: str, *, records: int, partitions: int, topics: int, linger_ms: int, peers: bool) -> dict[str, Case]:
    """The table's rows. ``small`` and ``large``: bootstrap servers of the cluster with one topic, and of the one with all."""
    full_batches = Settings(batch_size=4_096, linger_ms=linger_ms, buffer_memory=64 << 20)
    keys = [b"key %05d" % number for number in range(partitions * 7)]  # not a multiple of anything: partitions come in no order
    no_key = [None]

    async def once(
        client: Open, servers: str, settings: Settings, names: Sequence[str], keys: Sequence[bytes | None], known: Sequence[str] = ()
    ) -> Cost:
        async with client(servers, settings) as opened:
            # Connections and metadata are not what is asked: every topic and partition is used once before.
            await asyncio.gather(*(opened.send(name, VALUE, None) for name in known))
            await _send(opened, names, keys, len(names) * len(keys))
            return await measured(records, lambda: _send(opened, names, keys, records))

    every_topic = [f"topic-{number:05d}" for number in range(topics)]
    found: dict[str, Case] = {}

    def rows(label: str, client: Open, target: float | None) -> None:
        one = f"{label}: one partition"
        found[one] = Case(partial(once, client, small, AS_USUAL, [ONE], no_key))
        found[f"{one}, again"] = Case(partial(once, client, small, AS_USUAL, [ONE], no_key), one)
        found[f"{label}: {partitions} partitions, no keys"] = Case(partial(once, client, large, AS_USUAL, [MANY], no_key), one, target)
        found[f"{label}: {topics} topics in the cluster, one used"] = Case(partial(once, client, large, AS_USUAL, [ONE], no_key), one, target)
        keyed = f"{label}: one partition, keys"
        found[keyed] = Case(partial(once, client, small, full_batches, [ONE], keys))
        found[f"{label}: {partitions} partitions, keys"] = Case(partial(once, client, large, full_batches, [MANY], keys), keyed, target)
        found[f"{label}: {partitions} partitions, keys, at linger 5 ms"] = Case(partial(once, client, large, AS_USUAL, [MANY], keys), keyed)

    rows("aioprod", aioprod, 1.2)
    known = Case(partial(once, aioprod, large, AS_USUAL, [ONE], no_key, every_topic), "aioprod: one partition", 1.2)
    found[f"aioprod: {topics} topics known to the producer, one used"] = known
    for name, client in PEERS.items() if peers else ():
        rows(name, client, None)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__ or "", records=350_000)
    parser.add_argument("--partitions", type=int, default=PARTITIONS, help="partitions of the large topic (default: %(default)s)")
    parser.add_argument("--topics", type=int, default=TOPICS, help="topics of the large cluster (default: %(default)s)")
    parser.add_argument("--linger-ms", type=int, default=LONG_LINGER_MS, help="time for batches to get full (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    all_topics = {ONE: 1, MANY: chosen.partitions} | {f"topic-{number:05d}": 1 for number in range(chosen.topics)}
    with broker_process({ONE: 1}) as small, broker_process(all_topics) as large:
        listed = cases(
            small,
            large,
            records=chosen.records,
            partitions=chosen.partitions,
            topics=chosen.topics,
            linger_ms=chosen.linger_ms,
            peers=not chosen.no_peers,
        )
        run(listed, repetitions=chosen.repetitions, uvloop=chosen.uvloop)


if __name__ == "__main__":
    main()
