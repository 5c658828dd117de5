"""Unchanged Kafka clients and the embedded cluster in a simulation: the same seed gives the same
run, byte for byte.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from aioprod import (
    Admin,
    BrokerConnectionError,
    Consumer,
    DeliveryTimeoutError,
    Producer,
    TopicPartition,
)
from aioprod.cluster.client import ClusterClient
from aioprod.consumer.partition_reader import FetchSettings, PartitionReader
from aioprod.testing import BrokerSecurity, EmbeddedCluster
from aioprod.testing.simulation import SimulatedLoop, run
from tests.simulation.simulated_program import (
    COUNT,
    TOPIC,
    digest_of,
    produce_through_faults,
)

_PROGRAM = Path(__file__).with_name("simulated_program.py")


def test_equal_seeds_give_equal_runs() -> None:
    first, again, other = digest_of(1), digest_of(1), digest_of(2)
    assert first == again
    assert first != other


def test_equal_seeds_give_equal_runs_in_processes_with_other_hash_seeds() -> None:
    programs = [
        subprocess.Popen(
            [sys.executable, _PROGRAM, "3"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for hash_seed in ("1", "2")
    ]
    digests, errors = zip(*(program.communicate(timeout=60) for program in programs), strict=True)
    assert [digest.strip() for digest in digests] == [digest_of(3)] * 2, errors


def test_hostile_runs_are_repeatable() -> None:
    assert digest_of(1, hostile=True) == digest_of(1, hostile=True) != digest_of(1)


@pytest.mark.parametrize("seed", range(6))
def test_each_record_is_stored_once_and_in_order(seed: int) -> None:
    values = SimulatedLoop(seed, time_limit_seconds=600).run(produce_through_faults())
    assert sorted(value for partition in values for value in partition) == list(range(COUNT))
    assert all(partition == sorted(partition) for partition in values)


async def _default_producer() -> list[tuple[int, bytes | None]]:
    """Use time and random numbers of the standard library."""
    async with (
        EmbeddedCluster(num_partitions=4) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=0) as producer,
    ):
        for number in range(20):
            await (await producer.send(TOPIC, b"%d" % number))
            await asyncio.sleep(random.random())
        return [(record.timestamp, record.value) for record in cluster.records(TOPIC)]


def test_a_producer_without_clock_and_rng_is_repeatable() -> None:
    loops = [SimulatedLoop(seed) for seed in (1, 1, 2)]
    first, again, other = [loop.run(_default_producer()) for loop in loops]
    assert first == again != other
    assert loops[0].digest() == loops[1].digest() != loops[2].digest()


def test_default_client_ids_are_repeatable() -> None:
    async def main() -> set[str | None]:
        async with (
            EmbeddedCluster() as cluster,
            Producer(cluster.bootstrap_servers),
            Consumer(bootstrap_servers=cluster.bootstrap_servers),
            Admin(cluster.bootstrap_servers),
        ):
            return {request.client_id for request in cluster.requests}

    ids = {"aioprod-producer-1", "aioprod-consumer-1", "aioprod-admin-1"}
    assert run(main()) == run(main()) == ids


async def _stop_and_start(cluster: EmbeddedCluster) -> None:
    await cluster.stop_node(1)
    await asyncio.sleep(5)
    await cluster.start_node(1)


async def _stop_everything(cluster: EmbeddedCluster) -> None:
    await cluster.stop_all()
    await asyncio.sleep(5)
    await cluster.start()


async def _freeze(cluster: EmbeddedCluster) -> None:
    cluster.freeze_node(1)
    await asyncio.sleep(5)
    cluster.unfreeze_node(1)


async def _new_port(cluster: EmbeddedCluster) -> None:
    await cluster.stop_node(1)
    await cluster.start_node(1, new_port=True)


@pytest.mark.parametrize(
    "failure",
    [_stop_and_start, _stop_everything, _freeze, _new_port],
    ids=lambda failure: failure.__name__,
)
def test_nodes_stop_freeze_and_recover(
    failure: Callable[[EmbeddedCluster], Coroutine[Any, Any, None]],
) -> None:
    async def main() -> list[bytes | None]:
        async with EmbeddedCluster(nodes=3) as cluster:
            cluster.create_topic(TOPIC, 1)
            async with Producer(cluster.bootstrap_servers, request_timeout_ms=2_000) as producer:
                await (await producer.send(TOPIC, b"before"))
                troubling = asyncio.get_running_loop().create_task(failure(cluster))
                await asyncio.sleep(0.5)
                await (await producer.send(TOPIC, b"meanwhile"))
                await troubling
            return [record.value for record in cluster.records(TOPIC)]

    assert run(main(), time_limit_seconds=300) == [b"before", b"meanwhile"]


def test_waiting_hours_for_an_unreachable_cluster_takes_virtual_time() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        async with (
            EmbeddedCluster() as cluster,
            Producer(cluster.bootstrap_servers, delivery_timeout_ms=7_200_000) as producer,
        ):
            await (await producer.send(TOPIC, b"stored"))
            loop.network.vanish(cluster.address(1))
            begun = loop.time()
            with pytest.raises(DeliveryTimeoutError):
                await (await producer.send(TOPIC, b"lost"))
            return loop.time() - begun

    assert run(main()) == pytest.approx(7_200, abs=1)


def test_start_fails_if_the_broker_is_frozen() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        async with EmbeddedCluster() as cluster:
            loop.network.black_hole(cluster.address(1))
            begun = loop.time()
            with pytest.raises(BrokerConnectionError):
                await Producer(cluster.bootstrap_servers).start()
            return loop.time() - begun

    assert run(main()) < 60


def test_transactions_and_readers() -> None:
    async def main() -> list[bytes | None]:
        async with EmbeddedCluster(nodes=3) as cluster:
            cluster.create_topic(TOPIC, 1)
            async with Producer(cluster.bootstrap_servers, transactional_id="t") as producer:
                for name in ("one", "two", "three"):
                    await producer.begin_transaction()
                    await producer.send(TOPIC, name.encode())
                    await (
                        producer.abort_transaction()
                        if name == "two"
                        else producer.commit_transaction()
                    )
            async with ClusterClient(cluster.bootstrap_servers) as client:
                end = cluster.topics[TOPIC].partitions[0].log.end_offset
                settings = FetchSettings(isolation_level="read_committed")
                reader = PartitionReader(client, TopicPartition(TOPIC, 0), 0, end, settings)
                return [record.value async for fetched in reader for record in fetched.records()]

    assert run(main(), time_limit_seconds=300) == [b"one", b"three"]


def test_scram_authentication() -> None:
    async def main() -> int:
        security = BrokerSecurity(mechanisms=("SCRAM-SHA-256",), users={"alice": "secret"})
        async with EmbeddedCluster(security=security) as cluster:
            async with Producer(
                cluster.bootstrap_servers,
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="SCRAM-SHA-256",
                sasl_username="alice",
                sasl_password="secret",
            ) as producer:
                await (await producer.send(TOPIC, b"x"))
            return len(cluster.records(TOPIC))

    loops = [SimulatedLoop(1), SimulatedLoop(1)]
    assert [loop.run(main()) for loop in loops] == [1, 1]
    assert loops[0].digest() == loops[1].digest()  # nonces and salts included


async def _aiokafka() -> list[bytes]:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    async with EmbeddedCluster(nodes=3) as cluster:
        cluster.create_topic(TOPIC, 3)
        producer = AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers,
            client_id="p",
            enable_idempotence=True,
            request_timeout_ms=5_000,
        )
        await producer.start()
        sent = []
        for number in range(100):
            # Its record builder is compiled and would use the real clock.
            now_ms = int(loop.wall_clock() * 1000)
            sent.append(
                await producer.send(
                    TOPIC, b"%d" % number, key=b"%d" % (number % 7), timestamp_ms=now_ms
                )
            )
            await asyncio.sleep(0.01)
            if number == 30:
                loop.network.cut_while_sending(cluster.address(1), delivered=0)
            if number == 60:
                loop.network.cut()
        await asyncio.gather(*sent)
        await producer.stop()
        consumer = AIOKafkaConsumer(
            client_id="c", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
        )
        consumer.assign([aiokafka.TopicPartition(TOPIC, partition) for partition in range(3)])
        await consumer.start()
        read = [await consumer.getone() for _ in range(100)]
        await consumer.stop()
        return [record.value or b"" for record in read]


def test_aiokafka_is_repeatable() -> None:
    loops = [SimulatedLoop(seed, time_limit_seconds=300) for seed in (1, 1, 2)]
    first, again, other = [loop.run(_aiokafka()) for loop in loops]
    assert sorted(map(int, first)) == list(range(100)) == sorted(map(int, other))
    assert first == again
    assert loops[0].digest() == loops[1].digest() != loops[2].digest()
