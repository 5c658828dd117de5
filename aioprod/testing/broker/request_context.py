"""The context of a request: its node, version, connection and client."""

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
    """Where a request came from, and what its handler may use.

    Attributes:
        store: the broker's state.
        node: the node that got the request.
        api_version: the request's version.
        disconnected: done when the client has disconnected, so that nothing needs to wait for it.
        failures: the errors that a test has asked for.
        session: the connection's login; None if the broker requires none.
        client_id: the client.id of the client.
    """

    store: Store
    node: NodeAddress
    api_version: int
    disconnected: asyncio.Future[None]
    failures: tuple[Failure, ...] = ()
    session: Session | None = None
    client_id: str = ""

    def failure(self, topic: str | None = None, partition: int | None = None) -> ErrorCode:
        """Return the error that a test has asked for here, or NONE."""
        for failure in self.failures:
            if failure.hits(topic, partition):
                return failure.code
        return ErrorCode.NONE

    async def wait_for(self, answer: asyncio.Future[T]) -> T:
        """Wait for a response; raise DropConnection if the client disconnects first.

        If a request completes the responses of several members, its own response is sent first and
        the others follow in the order in which they were completed, before the broker handles newer
        requests.
        """
        if not answer.done():
            await asyncio.wait((answer, self.disconnected), return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise self.drop_connection()
        return answer.result()

    def drop_connection(self) -> DropConnection:
        """Make the exception that closes the connection without a response."""
        return DropConnection()
