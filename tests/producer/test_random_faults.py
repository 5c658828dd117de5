"""Seeded random trouble: what is acknowledged is stored exactly once, at the reported offset, in
the order of the sends.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from aioprod import ErrorCode, KafkaError, Producer
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import Action, EmbeddedCluster, close, delay, drop_after, drop_before, fail
from aioprod.types import RecordMetadata

CODES = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.INVALID_RECORD,
]
# No broker says these of a batch that it has stored, so they don't go together with lost answers.
SEQUENCE_CODES = [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID]


def random_action(rng: random.Random, answers_get_lost: bool) -> Action:
    lossy = [drop_after(), close(), delay(rng.uniform(0, 0.02)), delay(0.15)]
    codes = CODES if answers_get_lost else CODES + SEQUENCE_CODES
    if rng.random() < 0.5:
        return rng.choice([drop_before(), *(lossy if answers_get_lost else [])])
    return fail(rng.choice(codes), topic="t", partition=rng.choice([None, 0, 1, 2]))


@pytest.mark.parametrize("seed", range(40))
async def test_acknowledged_means_stored_once_and_in_order(
    broker: EmbeddedCluster, seed: int
) -> None:
    rng = random.Random(seed)
    broker.create_topic("t", num_partitions=3)
    sent: dict[int, list[tuple[bytes, RecordMetadata | KafkaError]]] = {0: [], 1: [], 2: []}
    producer = Producer(
        broker.bootstrap_servers,
        rng=random.Random(seed),
        batch_size=rng.choice([100, 300, 2_000]),
        linger_ms=rng.choice([0, 2]),
        retry_backoff_ms=2,
        retry_backoff_max_ms=10,
        reconnect_backoff_ms=2,
        reconnect_backoff_max_ms=10,
        delivery_timeout_ms=rng.choice([150, 20_000]),
        request_timeout_ms=100,
        compression_type=rng.choice(["none", "lz4"]),
    )
    async with producer:
        for burst in range(8):
            for _ in range(rng.randrange(3)):
                broker.on(
                    ApiKey.PRODUCE,
                    random_action(rng, answers_get_lost=seed % 2 == 0),
                    times=rng.randrange(1, 4),
                )
            waiting = []
            for number in range(rng.randrange(1, 120)):
                partition = rng.randrange(3)
                value = b"%d-%d" % (burst, number)
                waiting.append(
                    (partition, value, await producer.send("t", value, partition=partition))
                )
                if rng.random() < 0.05:
                    await asyncio.sleep(rng.uniform(0, 0.005))
            async with asyncio.timeout(25):
                for partition, value, delivery in waiting:
                    try:
                        sent[partition].append((value, await delivery))
                    except KafkaError as error:
                        sent[partition].append((value, error))
        assert producer._pool.available == producer.config.buffer_memory
        assert not producer._accumulator.incomplete
    for partition, outcomes in sent.items():
        check_partition(
            seed, [record.value or b"" for record in broker.records("t", partition)], outcomes
        )


def check_partition(
    seed: int, log: list[bytes], outcomes: list[tuple[bytes, RecordMetadata | KafkaError]]
) -> None:
    assert len(log) == len(set(log)), f"seed {seed}: a record is stored twice"
    places = {value: offset for offset, value in enumerate(log)}
    for value, result in outcomes:
        if isinstance(result, RecordMetadata):
            assert value in places, f"seed {seed}: {value!r} was acknowledged and is lost"
            # -1: the broker knew the batch as a duplicate and not its place any more.
            assert result.offset in (-1, places[value]), (
                f"seed {seed}: {value!r} is not where the acknowledgement says"
            )
    stored_in_send_order = [places[value] for value, _ in outcomes if value in places]
    assert stored_in_send_order == sorted(stored_in_send_order), f"seed {seed}: order changed"
