"""The context of a request: its node, version, connection and client."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TypeVar

from aioprod.error_codes import ErrorCode
from aioprod.protocol.acls import CLUSTER_NAME, AclOperation, ResourceType
from aioprod.testing.broker.access.client_access import RequestAccess
from aioprod.testing.broker.actions import DropConnection, Failure
from aioprod.testing.broker.cluster import NodeAddress
from aioprod.testing.broker.security import ConnectionLogin
from aioprod.testing.broker.store import Store

T = TypeVar("T")


@dataclass(slots=True)
class RequestContext:
    """The origin of a request, and the state that its handler uses.

    Attributes:
        store: the broker's state.
        node: the node that received the request.
        api_version: the request's version.
        disconnected: done when the client has disconnected, so that waiting handlers can stop.
        failures: the errors that a test requested.
        session: the connection's login; None if the broker requires none.
        client_id: the client.id of the client.
        access: the permissions of the client, and those that the request needs.
    """

    store: Store
    node: NodeAddress
    api_version: int
    disconnected: asyncio.Future[None]
    failures: tuple[Failure, ...]
    session: ConnectionLogin | None
    client_id: str
    access: RequestAccess

    def failure(self, topic: str | None = None, partition: int | None = None) -> ErrorCode:
        """Return the error that a test requested for this topic or partition, or the authorization
        error of the topic or the whole request. Return NONE if there is none.
        """
        for failure in self.failures:
            if failure.hits(topic, partition):
                return failure.code
        # Without a name, a topic id is unknown.
        return self.access.refusal_of(ResourceType.TOPIC, topic) if topic else self.access.refusal

    def refusal_of(self, kind: ResourceType, name: str) -> ErrorCode:
        """Return :meth:`failure`, or the authorization error of a resource other than a topic."""
        return self.failure() or self.access.refusal_of(kind, name)

    def allows(self, operation: AclOperation, kind: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Return whether the client is authorized for an operation on a resource, by default the
        cluster.
        """
        return self.access.client.allows(operation, kind, name)

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
        """Return the exception that closes the connection without a response."""
        return DropConnection()
