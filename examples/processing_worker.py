"""A worker that calls a coroutine for each order, twenty at a time, those of one customer in order.

aioprod broker  # a broker for tests, in another terminal
python processing_worker.py orders --group billing
echo '42:{"customer": "42", "amount": 3}' | aioprod produce orders -K :

An order that fails is retried after a second and after a minute, while others pass. Then, or if it
is not JSON, it goes to the topic orders.dead, with the reason in its headers. SIGTERM stops the
worker when the running calls are done. The next process continues after them.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
from typing import Any

from aioprod import JsonDeserializer
from aioprod.processing import Processor, Record, RetryPolicy, RetryTopic


async def charge(order: Record[bytes | None, Any]) -> None:
    """Charge the customer. If this raises, the order is retried."""
    amount = order.value["amount"]
    if amount < 0:
        raise ValueError(f"amount {amount}: must be at least 0")
    await asyncio.sleep(0.01)  # calls a payment service
    print(order.value["customer"], amount, flush=True)


def make_processor(servers: str, topic: str, group: str) -> Processor[bytes | None, Any]:
    return Processor(
        charge,
        topic,
        bootstrap_servers=servers,
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
    parser.add_argument(
        "--bootstrap-servers", default=os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092")
    )
    options = parser.parse_args()
    logging.basicConfig(format="%(levelname)s %(message)s")
    asyncio.run(make_processor(options.bootstrap_servers, options.topic, options.group).run())


if __name__ == "__main__":
    main()
