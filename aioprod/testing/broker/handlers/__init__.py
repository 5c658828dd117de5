"""One file per API, each with a coroutine ``handle(request, exchange)`` for all versions of it; this is the list of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from aioprod.protocol.message import Message
from aioprod.protocol.messages.api_versions import ApiVersionsRequest
from aioprod.protocol.messages.create_topics import CreateTopicsRequest
from aioprod.protocol.messages.delete_topics import DeleteTopicsRequest
from aioprod.protocol.messages.fetch import FetchRequest
from aioprod.protocol.messages.find_coordinator import FindCoordinatorRequest
from aioprod.protocol.messages.init_producer_id import InitProducerIdRequest
from aioprod.protocol.messages.list_offsets import ListOffsetsRequest
from aioprod.protocol.messages.metadata import MetadataRequest
from aioprod.protocol.messages.produce import ProduceRequest
from aioprod.testing.broker.exchange import Exchange
from aioprod.testing.broker.handlers import (
    api_versions,
    create_topics,
    delete_topics,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    produce,
)


class Handler(NamedTuple):
    """What decodes the requests of an API and what answers them (None: no answer)."""

    request_type: type[Message]
    handle: Callable[[Any, Exchange], Awaitable[Message | None]]


_ALL = (
    Handler(ApiVersionsRequest, api_versions.handle),
    Handler(CreateTopicsRequest, create_topics.handle),
    Handler(DeleteTopicsRequest, delete_topics.handle),
    Handler(FetchRequest, fetch.handle),
    Handler(FindCoordinatorRequest, find_coordinator.handle),
    Handler(InitProducerIdRequest, init_producer_id.handle),
    Handler(ListOffsetsRequest, list_offsets.handle),
    Handler(MetadataRequest, metadata.handle),
    Handler(ProduceRequest, produce.handle),
)
HANDLERS = {handler.request_type.API_KEY: handler for handler in _ALL}
SUPPORTED = {key: (handler.request_type.MIN_VERSION, handler.request_type.MAX_VERSION) for key, handler in HANDLERS.items()}
