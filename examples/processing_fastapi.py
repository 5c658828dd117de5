"""A FastAPI application that reads orders from Kafka and returns totals by customer.

pip install aioprod fastapi uvicorn
aioprod broker  # a broker for tests, in another terminal
AIOPROD_BOOTSTRAP_SERVERS=localhost:9092 uvicorn processing_fastapi:app
curl localhost:8000/customers/42
curl localhost:8000/kafka/ready  # for readiness probes; /kafka/healthy for liveness probes
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from fastapi import FastAPI

from aioprod import JsonDeserializer, connection_settings
from aioprod.processing import Processor, Record

totals: Counter[str] = Counter()


async def count(order: Record[bytes | None, Any]) -> None:
    """Add an order to its customer's total. Orders of one customer are processed one after
    another.
    """
    totals[order.value["customer"]] += order.value["quantity"]


processor = Processor(
    count,
    "orders",
    **connection_settings(),
    group_id="totals",
    value_deserializer=JsonDeserializer(),
    dead_letter_topic="orders.dead",
)
app = FastAPI(title="Totals", lifespan=processor.lifespan)
app.mount("/kafka", processor.health_app)


@app.get("/customers/{customer}")
async def total(customer: str) -> dict[str, int]:
    """Return the total amount of a customer's orders."""
    return {"quantity": totals[customer]}
