"""Groups of our consumers and of other projects' clients: whichever leads, each record is
processed once.
"""

from __future__ import annotations

import random
import uuid
from functools import partial
from typing import Any

import pytest

from tests.consumer.group.foreign_readers import AiokafkaReader, ConfluentReader
from tests.consumer.group.group_readers import Reader, check_once, come_and_go, make_topic

PARTITIONS = 6
PAIRS = [
    pytest.param(AiokafkaReader, "range", id="aiokafka-range"),
    pytest.param(AiokafkaReader, "roundrobin", id="aiokafka-roundrobin"),
    pytest.param(ConfluentReader, "roundrobin", id="librdkafka-roundrobin"),
    pytest.param(ConfluentReader, "cooperative-sticky", id="librdkafka-cooperative"),
]


async def run(bootstrap: str, foreign: Any, seed: int, changes: int, **settings: Any) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    await make_topic(bootstrap, topic, PARTITIONS)
    makers = [
        partial(Reader, group_id=f"g-{topic}", **settings),
        partial(foreign, group_id=f"g-{topic}"),
    ]
    if seed % 2:  # who comes first leads
        makers.reverse()
    written, processed, members = await come_and_go(
        bootstrap, topic, PARTITIONS, changes, random.Random(seed), makers
    )
    print(f"seed {seed}: {len(written)} records, {len(members)} members")
    check_once(written, processed)


@pytest.mark.parametrize(("foreign", "strategy"), PAIRS)
async def test_ours_and_theirs(bootstrap: str, foreign: Any, strategy: str) -> None:
    seed = 2 if strategy == "range" else 5
    await run(
        bootstrap,
        partial(foreign, strategy=strategy),
        seed,
        6,
        partition_assignment_strategy=(strategy,),
    )


@pytest.mark.parametrize(("foreign", "strategy"), [PAIRS[0], PAIRS[1], PAIRS[3]])
async def test_ours_and_theirs_on_kafka_3_9(kafka_3_9: str, foreign: Any, strategy: str) -> None:
    await run(
        kafka_3_9,
        partial(foreign, strategy=strategy),
        5,
        5,
        partition_assignment_strategy=(strategy,),
    )


async def test_ours_and_librdkafka_in_a_group_of_the_new_protocol(bootstrap: str) -> None:
    settings: dict[str, Any] = {"group.protocol": "consumer"}
    foreign = partial(ConfluentReader, **settings)
    await run(bootstrap, foreign, 4, 5, group_protocol="consumer")
