"""The request for a producer id, when the producer closes meanwhile, or a broker grants none."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from aioprod import ErrorCode, Producer
from aioprod.net.backoff import Backoff
from aioprod.producer.producer_id import ProducerIdRequest
from aioprod.producer.sequences import ProducerState
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, fail


class SlowToEnd:
    """Brokers that never answer, and that have something to do when the request is cancelled."""

    ended = False

    async def ask_any(self, ask: object, unable: set[str]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            self.ended = True


async def test_the_end_of_the_request_is_not_interrupted() -> None:
    brokers: Any = SlowToEnd()
    failures: list[Exception] = []
    request = ProducerIdRequest(
        brokers,
        ProducerState("p"),
        Backoff(1, 1, random.Random(1)),
        wake=lambda: None,
        on_fatal=failures.append,
    )
    request.start()
    await asyncio.sleep(0)
    request.stop()
    await asyncio.sleep(0)
    await request.close()
    assert brokers.ended, "a second cancellation came into the end of the first"
    assert failures == []


async def test_the_third_broker_grants_it_if_the_others_never_do() -> None:
    """A broker that is cut off from the controller has no ids, and says so for minutes."""
    async with EmbeddedCluster(nodes=3) as cluster:
        cluster.create_topic("t", 1)
        cluster.move_leader("t", 0, 2)  # so that it connects to no other one
        refuse = fail(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        for node in (2, 3):
            cluster.on_every(ApiKey.INIT_PRODUCER_ID, refuse, node=node)
        async with Producer(cluster.address(2), retry_backoff_ms=5) as producer:
            await producer.send_and_wait("t", b"x")
        asked = {
            seen.node_id for seen in cluster.requests if seen.api_key == ApiKey.INIT_PRODUCER_ID
        }
    assert {1, 2} <= asked
