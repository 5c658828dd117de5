"""The addresses of databases that an outbox and an inbox can use."""

from __future__ import annotations

from typing import Literal

from aioprod.errors import KafkaError

Dialect = Literal["postgresql", "sqlite"]


def database_address(database: str, error_type: type[KafkaError]) -> tuple[Dialect, str]:
    """Return the kind of a database, and its URL (``postgresql://...``) or file (SQLite). A URL of
    SQLAlchemy, such as ``postgresql+psycopg://...``, names the same database.

    Raises:
        KafkaError: ``error_type``, if the database is of an unknown kind.
    """
    scheme, found, rest = database.partition("://")
    if not found:
        return "sqlite", database
    kind = scheme.partition("+")[0]
    if kind == "sqlite":
        return "sqlite", rest.removeprefix("/")
    if kind in ("postgresql", "postgres"):
        return "postgresql", f"postgresql://{rest}"
    raise error_type(f"database {scheme}://...: must be postgresql://... or a file of SQLite")
