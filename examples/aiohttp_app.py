"""Orders over HTTP into Kafka, with aiohttp.

pip install aioprod aiohttp
aioprod broker  # a broker for tests, in another terminal
AIOPROD_BOOTSTRAP_SERVERS=localhost:9092 PORT=8080 python aiohttp_app.py
curl -d '{"customer": "42", "item": "tea"}' localhost:8080/orders
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator

from aiohttp import web

from aioprod import BrokerConnectionError, KafkaError, Producer, connection_settings

TOPIC = "orders"
PRODUCER = web.AppKey("producer", Producer)


async def producer_context(app: web.Application) -> AsyncIterator[None]:
    """Run one producer for all requests. It starts with the application, and delivers all buffered
    records before the application ends.
    """
    async with Producer(**connection_settings()) as producer:
        app[PRODUCER] = producer
        yield


async def place_order(request: web.Request) -> web.Response:
    """Respond when the brokers have acknowledged the order. Orders of one customer stay in order,
    because they go to the same partition.
    """
    try:
        order = json.loads(await request.text())
        customer = str(order["customer"])
    except (ValueError, KeyError, TypeError):
        raise web.HTTPBadRequest(text="an order is a JSON object with a customer") from None
    producer = request.app[PRODUCER]
    try:
        delivery = await producer.send(TOPIC, json.dumps(order).encode(), key=customer.encode())
        metadata = await delivery
    except KafkaError as error:
        raise web.HTTPServiceUnavailable(text=f"the order was not stored: {error}") from error
    return web.json_response(
        {"partition": metadata.partition, "offset": metadata.offset}, status=201
    )


async def count_click(request: web.Request) -> web.Response:
    """Respond immediately; the click is sent with the next batch."""
    await request.app[PRODUCER].send("clicks", request.match_info["page"].encode())
    return web.Response(status=202)


def make_app() -> web.Application:
    """Return the application with its routes."""
    app = web.Application()
    app.cleanup_ctx.append(producer_context)
    app.router.add_post("/orders", place_order)
    app.router.add_post("/clicks/{page}", count_click)
    return app


if __name__ == "__main__":
    try:
        web.run_app(make_app(), host="127.0.0.1", port=int(os.environ.get("PORT", "8080")))
    except BrokerConnectionError as error:
        sys.exit(f"{error}\nStart a broker for tests with: aioprod broker")
