"""The request for a producer id, when the producer closes meanwhile."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from aioprod.net.backoff import Backoff
from aioprod.producer.producer_id import ProducerIdRequest
from aioprod.producer.sequences import ProducerState


class SlowToEnd:
    """Brokers that never answer, and that have something to do when the request is cancelled."""

    ended = False

    async def ask_any(self, ask: object) -> None:
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
