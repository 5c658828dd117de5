"""A program for the simulation: a producer sends to three nodes while network faults occur. Prints
the digest of its seed.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable

from aioprod import Delivery, Producer
from aioprod.testing import EmbeddedCluster
from aioprod.testing.simulation import Network, NetworkFault, SimulatedLoop

COUNT = 120
TOPIC = "topic"


async def produce_through_faults() -> list[list[int]]:
    """Return the values in each partition at the end."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    async with EmbeddedCluster(
        nodes=3, wall_clock=loop.wall_clock, random_source=loop.random("cluster")
    ) as cluster:
        for name in (TOPIC, "other-1", "other-2"):
            cluster.create_topic(name, 3)
        addresses = [cluster.address(node) for node in cluster.node_ids]
        faults = loop.create_task(_inject_faults(loop.network, addresses, loop.random("faults")))
        async with Producer(
            cluster.bootstrap_servers,
            clock=loop.wall_clock,
            rng=loop.random("producer"),
            client_id="p",
            request_timeout_ms=1_000,
            linger_ms=1,
        ) as producer:
            deliveries: list[Delivery] = []
            for number in range(COUNT):
                # Several topics, as their names are kept in dicts and sets.
                for name in ("other-1", "other-2"):
                    await producer.send(name, b"")
                deliveries.append(
                    await producer.send(TOPIC, b"%d" % number, key=b"%d" % (number % 7))
                )
                await asyncio.sleep(0.02)
            for delivery in deliveries:
                await delivery
            faults.cancel()
            loop.network.heal()
        return [
            [int(record.value or b"") for record in cluster.records(TOPIC, partition)]
            for partition in range(3)
        ]


async def _inject_faults(network: Network, addresses: list[str], rng: random.Random) -> None:
    while True:
        await asyncio.sleep(rng.random() * 0.2)
        fault = _inject_fault(network, rng.choice(addresses), rng)
        if isinstance(fault, NetworkFault):
            await asyncio.sleep(rng.random())
            fault.heal()


def _inject_fault(network: Network, address: str, rng: random.Random) -> NetworkFault | int:
    faults: list[Callable[[], NetworkFault | int]] = [
        lambda: network.cut(address),
        lambda: network.cut_while_sending(address),
        lambda: network.cut_while_sending("client", address),
        lambda: network.black_hole(address),
        lambda: network.vanish(address),
        lambda: network.refuse(address),
        lambda: network.slow(5_000, address),
        lambda: network.delay(0.05, 0.2, address),
        lambda: network.partition(address, one_way=True),
    ]
    return rng.choice(faults)()


def digest_of(seed: int, *, hostile: bool = False) -> str:
    """Run a seed and return the digest of all events."""
    loop = SimulatedLoop(seed, hostile=hostile, time_limit_seconds=600)
    loop.run(produce_through_faults())
    return loop.digest()


if __name__ == "__main__":
    print(digest_of(int(sys.argv[1])))
