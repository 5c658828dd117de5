r"""Orders over HTTP into Kafka, with FastAPI.

pip install aioprod fastapi uvicorn
aioprod broker  # a broker for tests, in another terminal
python fastapi_app.py  # or: AIOPROD_BOOTSTRAP_SERVERS=localhost:9092 uvicorn fastapi_app:app
curl localhost:8000/orders -H 'content-type: application/json' \
    -d '{"customer": "42", "item": "tea", "quantity": 3}'
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel

from aioprod import BrokerConnectionError, KafkaError, Producer, connection_settings

TOPIC = "orders"


class Order(BaseModel):
    """An order of a customer."""

    customer: str
    item: str
    quantity: int


class Stored(BaseModel):
    """The location of the order in Kafka."""

    partition: int
    offset: int


def make_producer() -> Producer:
    return Producer(**connection_settings())


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Run one producer for all requests. It starts with the application, and delivers all buffered
    records before the application ends.
    """
    async with make_producer() as producer:
        app.state.producer = producer
        yield


app = FastAPI(title="Orders", lifespan=lifespan)


@app.post("/orders", status_code=201)
async def place_order(order: Order, request: Request) -> Stored:
    """Respond when the brokers have acknowledged the order. Orders of one customer stay in order,
    because they go to the same partition.
    """
    producer: Producer = request.app.state.producer
    try:
        delivery = await producer.send(
            TOPIC, order.model_dump_json().encode(), key=order.customer.encode()
        )
        metadata = await delivery
    except KafkaError as error:
        raise HTTPException(503, f"the order was not stored: {error}") from error
    return Stored(partition=metadata.partition, offset=metadata.offset)


@app.post("/clicks/{page}", status_code=202)
async def count_click(page: str, request: Request) -> None:
    """Respond immediately; the click is sent with the next batch."""
    producer: Producer = request.app.state.producer
    await producer.send("clicks", page.encode())


async def check_broker() -> None:
    """End the program if no broker responds; uvicorn would show a long traceback."""
    try:
        async with make_producer():
            pass
    except BrokerConnectionError as error:
        sys.exit(f"{error}\nStart a broker for tests with: aioprod broker")


if __name__ == "__main__":
    import uvicorn

    asyncio.run(check_broker())
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ.get("PORT", "8000")))
