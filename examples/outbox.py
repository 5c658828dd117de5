"""A transactional outbox: changes of a database reach Kafka, also if a process crashes in between.

pip install aioprod
python outbox.py orders.db order "two apples"  # stores an order and its event
python outbox.py orders.db relay  # sends stored events until Ctrl-C or SIGTERM

An application that writes to a database and then to Kafka loses the event if it crashes in between.
Here it writes the event to a table instead, in the transaction of the change. A relay sends the
events in order, each batch in one Kafka transaction, and then deletes them. If the relay crashes
before it deletes them, it sends the batch again: readers with isolation_level="read_committed" see
each event at least once, and recognize duplicates by the header event-id.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sqlite3
import sys
from contextlib import closing

from aioprod import AbortableTransactionError, BrokerConnectionError, Producer

TOPIC = "orders"
BATCH = 500
PAUSE_S = 0.2
_TABLES = """
CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, item TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT, key BLOB NOT NULL, value BLOB NOT NULL
);
"""


def connect(database: str) -> sqlite3.Connection:
    """Open the database, with its tables."""
    connection = sqlite3.connect(database, check_same_thread=False)
    connection.executescript(_TABLES)
    return connection


def place_order(connection: sqlite3.Connection, item: str) -> int:
    """Store an order and its event, both or neither."""
    with connection:
        order = connection.execute("INSERT INTO orders (item) VALUES (?)", (item,)).lastrowid
        assert order is not None
        connection.execute(
            "INSERT INTO outbox (key, value) VALUES (?, ?)", (str(order).encode(), item.encode())
        )
    return order


async def relay_batch(connection: sqlite3.Connection, producer: Producer, topic: str) -> int:
    """Send the oldest events and delete them; return their number.

    The queries run in a thread, so that they do not block the event loop.
    """
    events = await asyncio.to_thread(
        lambda: connection.execute(
            "SELECT id, key, value FROM outbox ORDER BY id LIMIT ?", (BATCH,)
        ).fetchall()
    )
    if not events:
        return 0
    try:
        async with producer.transaction():
            for number, key, value in events:
                await producer.send(
                    topic, value, key=key, headers=[("event-id", str(number).encode())]
                )
    except AbortableTransactionError as error:
        print(f"sending the events again: {error}", file=sys.stderr)
        return 0

    def delete() -> None:
        with connection:
            connection.execute("DELETE FROM outbox WHERE id <= ?", (events[-1][0],))

    await asyncio.to_thread(delete)
    return len(events)


async def relay(database: str, servers: str) -> None:
    """Send events until SIGTERM or SIGINT. A second relay fences the first one."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    with closing(connect(database)) as connection:
        async with Producer(servers, transactional_id="orders-outbox") as producer:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, stop.set)
            while not stop.is_set():
                if not await relay_batch(connection, producer, TOPIC):
                    await asyncio.sleep(PAUSE_S)


def main() -> None:
    parser = argparse.ArgumentParser(description="Store orders, and send their events to Kafka.")
    parser.add_argument("database", help="a SQLite file")
    commands = parser.add_subparsers(dest="command", required=True)
    order = commands.add_parser("order", help="store an order and its event")
    order.add_argument("item")
    commands.add_parser("relay", help="send stored events")
    options = parser.parse_args()
    if options.command == "order":
        with closing(connect(options.database)) as connection:
            print("order", place_order(connection, options.item))
        return
    try:
        servers = os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092")
        asyncio.run(relay(options.database, servers))
    except BrokerConnectionError as error:
        sys.exit(f"{error}\nStart a broker for tests with: aioprod broker")


if __name__ == "__main__":
    main()
