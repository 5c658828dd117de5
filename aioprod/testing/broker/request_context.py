"""One request on its way through the broker: what a handler may know of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TypeVar

from aioprod.error_codes import ErrorCode
from aioprod.testing.broker.actions import DropConnection, Failure
from aioprod.testing.broker.cluster import NodeAddress
from aioprod.testing.broker.security import Session
from aioprod.testing.broker.store import Store

T = TypeVar("T")


@dataclass(slots=True)
class RequestContext:
    """A request's surroundings.

    Attributes:
        store: the broker's state.
        node: the one that was asked.
        api_version: of this request.
        disconnected: done when the client is gone, so that nobody has to wait any longer on its
            behalf.
        failures: errors that a test asked for.
        session: the connection's login; None where the broker asks for none.
        client_id: the client's name for itself.
    """

    store: Store
    node: NodeAddress
    api_version: int
    disconnected: asyncio.Future[None]
    failures: tuple[Failure, ...] = ()
    session: Session | None = None
    client_id: str = ""

    def failure(self, topic: str | None = None, partition: int | None = None) -> ErrorCode:
        """The error that a test wants here, else NONE."""
        for failure in self.failures:
            if failure.hits(topic, partition):
                return failure.code
        return ErrorCode.NONE

    async def wait_for(self, answer: asyncio.Future[T]) -> T:
        """Wait for an answer; raise DropConnection if the client is gone before.

        A request that settles the answers of several members is answered first, then the others
        in the order in which they were settled, before the broker handles what came meanwhile.
        """
        if not answer.done():
            await asyncio.wait((answer, self.disconnected), return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise self.drop_connection()
        return answer.result()

    def drop_connection(self) -> DropConnection:
        """Make the exception that closes the connection without an answer."""
        return DropConnection()
