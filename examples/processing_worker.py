"""A worker that calls a coroutine for each order, up to twenty at a time, and for each customer in
order.

aioprod broker  # a broker for tests, in another terminal
python processing_worker.py orders --group billing
echo '42:{"customer": "42", "amount": 3}' | aioprod produce orders -K :

A failing order is retried after a second and after a minute, without delaying others. If all
retries fail, or if the order is not JSON, it is sent to the topic orders.dead, with the reason in
its headers. On SIGTERM, the worker finishes the running calls and stops. The next process continues
after them.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
from typing import Any

from aioprod import JsonDeserializer, connection_settings
from aioprod.processing import Processor, Record, RetryPolicy, RetryTopic


async def charge(order: Record[bytes | None, Any]) -> None:
    """Charge the customer. If this raises, the order is retried."""
    amount = order.value["amount"]
    if amount < 0:
        raise ValueError(f"amount {amount}: must be at least 0")
    await asyncio.sleep(0.01)  # calls a payment service
    print(order.value["customer"], amount, flush=True)


def make_processor(topic: str, group: str) -> Processor[bytes | None, Any]:
    return Processor(
        charge,
        topic,
        **connection_settings(),
        group_id=group,
        value_deserializer=JsonDeserializer(),
        concurrency=20,
        retry=RetryPolicy(
            attempts=1,
            keep_order=False,
            retry_topics=[
                RetryTopic(f"{topic}.retry.1s", 1_000),
                RetryTopic(f"{topic}.retry.1m", 60_000),
            ],
        ),
        dead_letter_topic=f"{topic}.dead",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Charge orders.")
    parser.add_argument("topic")
    parser.add_argument("--group", default="billing")
    options = parser.parse_args()
    logging.basicConfig(format="%(levelname)s %(message)s")
    asyncio.run(make_processor(options.topic, options.group).run())


if __name__ == "__main__":
    main()
