"""Turns a request's bytes into a response: decodes it, applies the test's rules, handles it, and
encodes the response.
"""

from __future__ import annotations

import asyncio

from aioprod.error_codes import ErrorCode
from aioprod.errors import ProtocolError
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.framing import encode_response
from aioprod.protocol.message import Message
from aioprod.protocol.messages.api_versions import ApiVersionsRequest
from aioprod.protocol.primitives import Reader
from aioprod.protocol.request_headers import RequestHeader, decode_request_header
from aioprod.testing.broker.access.client_access import ApiRule, ClientAccess, Peer, RequestAccess
from aioprod.testing.broker.access.rules import RULES
from aioprod.testing.broker.access.scram_users import ScramUsers
from aioprod.testing.broker.actions import Answer, in_pieces
from aioprod.testing.broker.cluster import NodeAddress
from aioprod.testing.broker.dead_letters import DeadLetterWriter
from aioprod.testing.broker.handlers import HANDLERS
from aioprod.testing.broker.handlers.api_versions import unsupported_version
from aioprod.testing.broker.quotas.throttle import Client, Throttle
from aioprod.testing.broker.request_context import RequestContext
from aioprod.testing.broker.request_log import RequestLog, SeenRequest
from aioprod.testing.broker.rules import RuleBook
from aioprod.testing.broker.security import ConnectionLogin
from aioprod.testing.broker.store import Store


class Dispatcher:
    """Handles the requests to all nodes of a cluster."""

    def __init__(self, store: Store) -> None:
        self.rules: RuleBook = RuleBook()
        self.log: RequestLog = RequestLog()
        self._store = store
        store.shares.undertakers.append(DeadLetterWriter(store).bury)
        self._throttle = Throttle(store.quotas)

    async def answer(
        self,
        frame: bytes,
        disconnected: asyncio.Future[None],
        node: NodeAddress,
        peer: Peer,
        session: ConnectionLogin | None = None,
    ) -> Answer:
        """Handle one request to ``node``. ``session`` is the login of its connection."""
        await self._throttle.wait(disconnected)
        header = decode_request_header(frame)
        self.log.add(
            SeenRequest(header.api_key, header.api_version, header.client_id, node.node_id)
        )
        imitation = self._store.cluster.imitation
        imitation.arrived(header, len(frame))
        handler = HANDLERS.get(header.api_key)
        versions = handler and imitation.versions(header.api_key, handler.versions, node.node_id)
        if handler is None or versions is None:
            raise ProtocolError(
                f"API key {header.api_key} is not supported: see the ApiVersions response"
            )
        if not versions[0] <= header.api_version <= versions[1]:
            return _answer_unknown_version(header, versions)
        # Like Kafka, ignore bytes after the request: librdkafka sends three with its Metadata
        # request for all topics.
        request = handler.request_type.read(Reader(frame, header.body_offset), header.api_version)
        actions = self.rules.take(header.api_key, request, node.node_id)
        failures = imitation.decoded(request, self._store.topics) + tuple(
            action.failure for action in actions if action.failure is not None
        )
        context = RequestContext(
            self._store,
            node,
            header.api_version,
            disconnected,
            failures,
            session,
            header.client_id or "",
            self._access(request, peer, session),
        )
        for action in actions:
            await action.before()
        client = Client(
            node.node_id,
            None if session is None else session.user,
            header.client_id or "",
            disconnected,
        )
        self._throttle.narrow(request, client)
        response = await handler.handle(request, context)
        self._throttle.apply(request, len(frame), response, client)
        await imitation.handled(header.api_key, response, node.node_id, disconnected)
        for action in actions:
            await action.after()
            if response is not None:
                action.change(response)
        return None if response is None else in_pieces(_encode(response, header), actions)

    @property
    def scram_users(self) -> ScramUsers:
        """The SCRAM users that requests have created."""
        return self._store.scram_users

    def _access(
        self, request: Message, peer: Peer, session: ConnectionLogin | None
    ) -> RequestAccess:
        user = None if session is None else session.user
        client = ClientAccess(self._store.authorizer, peer, user)
        if not client.is_limited:
            return RequestAccess(client, ApiRule(), request, ErrorCode.NONE)
        rule = RULES[ApiKey(request.API_KEY)]
        return RequestAccess(client, rule, request, rule.whole(client, request))


def _encode(response: Message, header: RequestHeader) -> bytes:
    try:
        return encode_response(response, header.api_version, header.correlation_id)
    except ProtocolError as error:
        raise RuntimeError(
            f"can't encode the response to API {header.api_key} v{header.api_version}: {error}"
        ) from error  # a bug of the broker, not of the client


def _answer_unknown_version(header: RequestHeader, versions: tuple[int, int]) -> bytes:
    if header.api_key != ApiVersionsRequest.API_KEY:
        raise ProtocolError(
            f"API key {header.api_key} has versions {versions}, not {header.api_version}"
        )
    return encode_response(unsupported_version(versions), 0, header.correlation_id)
