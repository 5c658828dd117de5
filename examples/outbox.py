"""A transactional outbox: changes in a database are sent to Kafka exactly once, even if a process
crashes in between.

pip install aioprod
python outbox.py orders.db order "two apples"  # stores an order and its event
python outbox.py orders.db relay  # sends stored events until Ctrl-C or SIGTERM

An application that writes to a database and then to Kafka loses the event if it crashes in between.
Here it writes the event to a table instead, in the same transaction as the change, and a relay
sends the events in order.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sqlite3
import sys
from contextlib import closing, suppress

from aioprod import BrokerConnectionError, connection_settings
from aioprod.outbox import Outbox, OutboxRelay, ddl

TOPIC = "orders"


def has_tables(connection: sqlite3.Connection) -> bool:
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'orders'").fetchone()
    return found is not None


def connect(database: str) -> sqlite3.Connection:
    """Open the database, and create its tables if they are missing."""
    connection = sqlite3.connect(database)
    if not has_tables(connection):
        tables = "CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT NOT NULL);"
        try:
            connection.executescript(f"BEGIN IMMEDIATE; {tables} {ddl('sqlite')} COMMIT;")
        except sqlite3.OperationalError:
            connection.rollback()
            if not has_tables(connection):  # another process may have created them meanwhile
                raise
    return connection


async def place_order(connection: sqlite3.Connection, item: str, topic: str = TOPIC) -> int:
    """Store an order and its event in one transaction."""
    with connection:
        order = connection.execute("INSERT INTO orders (item) VALUES (?)", (item,)).lastrowid
        await Outbox().add(connection, topic, item.encode(), key=str(order).encode())
    assert order is not None
    return order


async def relay(database: str) -> None:
    """Send events until SIGTERM or SIGINT. A second relay waits for the end of the first one."""
    connect(database).close()
    sending = asyncio.ensure_future(OutboxRelay(database, **connection_settings()).run())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, sending.cancel)
    with suppress(asyncio.CancelledError):
        await sending


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
            print("order", asyncio.run(place_order(connection, options.item)))
        return
    try:
        asyncio.run(relay(options.database))
    except BrokerConnectionError as error:
        sys.exit(f"{error}\nStart a broker for tests with: aioprod broker")


if __name__ == "__main__":
    main()
