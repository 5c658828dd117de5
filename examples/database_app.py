r"""Orders over HTTP into a database and Kafka, and records of Kafka into the database, each exactly
once: FastAPI, SQLAlchemy, and PostgreSQL or SQLite.

pip install "aioprod[outbox]" "sqlalchemy[asyncio]" aiosqlite fastapi uvicorn
aioprod broker --topic orders --topic orders.dead  # a broker for tests, in another terminal
export DATABASE=sqlite+aiosqlite:///shop.db  # or: postgresql+asyncpg://shop@localhost/shop
python database_app.py  # creates the tables
uvicorn database_app:app
curl localhost:8000/orders -H 'content-type: application/json' \
    -d '{"customer": "anna", "amount": 3}'
curl localhost:8000/customers/anna
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from aioprod import JsonDeserializer, JsonSerializer, connection_settings
from aioprod.outbox import Outbox, OutboxRelay
from aioprod.outbox import ddl as outbox_tables
from aioprod.processing import Processor, Record
from aioprod.processing.inbox import Inbox
from aioprod.processing.inbox import ddl as inbox_tables

DATABASE = os.environ.get("DATABASE", "postgresql+asyncpg://shop@localhost/shop")
engine = create_async_engine(DATABASE)
sessions = async_sessionmaker(engine)
outbox = Outbox(value_serializer=JsonSerializer())
inbox = Inbox(sessions)


class Table(DeclarativeBase):
    pass


class Order(Table):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    amount: Mapped[int]


class Total(Table):
    __tablename__ = "totals"
    customer: Mapped[str] = mapped_column(primary_key=True)
    amount: Mapped[int]


class NewOrder(BaseModel):
    customer: str
    amount: int


async def add_to_total(order: Record[bytes | None, Any]) -> None:
    """Add an order to its customer's total, in the transaction that also has the position."""
    session: AsyncSession = inbox.connection
    customer, amount = order.value["customer"], order.value["amount"]
    total = await session.get(Total, customer) or Total(customer=customer, amount=0)
    total.amount += amount
    session.add(total)


relay = OutboxRelay(DATABASE, **connection_settings())
processor = Processor(
    add_to_total,
    "orders",
    **connection_settings(),
    group_id="totals",
    value_deserializer=JsonDeserializer(),
    guarantee="exactly_once_in_database",
    order="partition",
    inbox=inbox,
    dead_letter_topic="orders.dead",
)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    try:
        async with relay, processor:
            yield
    finally:
        await engine.dispose()


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=201)
async def place_order(order: NewOrder) -> None:
    async with sessions() as session, session.begin():
        session.add(Order(customer=order.customer, amount=order.amount))
        await outbox.add(session, "orders", order, key=order.customer.encode())


@app.get("/customers/{customer}")
async def total(customer: str) -> int:
    async with sessions() as session:
        found = await session.get(Total, customer)
        return 0 if found is None else found.amount


async def create_tables() -> None:
    """Create the tables. Put these statements into your migrations."""
    async with engine.begin() as connection:
        await connection.run_sync(Table.metadata.create_all)
        dialect: Any = engine.dialect.name  # "postgresql" or "sqlite"
        script = outbox_tables(dialect) + inbox_tables(dialect)
        driver: Any = (await connection.get_raw_connection()).driver_connection
        await (driver.executescript if dialect == "sqlite" else driver.execute)(script)
    await engine.dispose()


if __name__ == "__main__":
    asyncio.run(create_tables())
