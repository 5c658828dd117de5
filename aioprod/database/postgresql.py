"""PostgreSQL with asyncpg, which is imported when a connection is opened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from aioprod.errors import KafkaError


@contextmanager
def asyncpg_for(error_type: type[KafkaError]) -> Iterator[ModuleType]:
    """Yield asyncpg.

    Raises:
        KafkaError: ``error_type``, if asyncpg is not installed, or instead of its errors.
    """
    try:
        import asyncpg
    except ImportError as error:
        raise error_type('PostgreSQL needs asyncpg: pip install "aioprod[outbox]"') from error
    try:
        yield asyncpg
    except errors_of_asyncpg() as error:
        raise error_type(f"PostgreSQL: {type(error).__name__}: {error}") from None


def errors_of_asyncpg() -> tuple[type[Exception], ...]:
    """Return what asyncpg raises if a server is not there, ends a connection or refuses something.

    An operation that begins between the server's last message and the end of the connection fails
    with ``InternalClientError``.
    """
    import asyncpg

    own = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
    return (OSError, TimeoutError, *own)
