"""One file per API, each with a coroutine ``handle(request, exchange)`` for all versions of it; this is the list of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from aioprod.protocol.message import Message
from aioprod.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from aioprod.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from aioprod.protocol.messages.api_versions import ApiVersionsRequest
from aioprod.protocol.messages.create_topics import CreateTopicsRequest
from aioprod.protocol.messages.delete_topics import DeleteTopicsRequest
from aioprod.protocol.messages.end_txn import EndTxnRequest
from aioprod.protocol.messages.fetch import FetchRequest
from aioprod.protocol.messages.find_coordinator import FindCoordinatorRequest
from aioprod.protocol.messages.init_producer_id import InitProducerIdRequest
from aioprod.protocol.messages.list_offsets import ListOffsetsRequest
from aioprod.protocol.messages.metadata import MetadataRequest
from aioprod.protocol.messages.offset_commit import OffsetCommitRequest
from aioprod.protocol.messages.offset_fetch import OffsetFetchRequest
from aioprod.protocol.messages.produce import ProduceRequest
from aioprod.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from aioprod.protocol.messages.sasl_handshake import SaslHandshakeRequest
from aioprod.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from aioprod.testing.broker.exchange import Exchange
from aioprod.testing.broker.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    api_versions,
    create_topics,
    delete_topics,
    end_txn,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
    sasl_authenticate,
    sasl_handshake,
    txn_offset_commit,
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
    Handler(SaslAuthenticateRequest, sasl_authenticate.handle),
    Handler(SaslHandshakeRequest, sasl_handshake.handle),
    Handler(AddOffsetsToTxnRequest, add_offsets_to_txn.handle),
    Handler(AddPartitionsToTxnRequest, add_partitions_to_txn.handle),
    Handler(EndTxnRequest, end_txn.handle),
    Handler(OffsetCommitRequest, offset_commit.handle),
    Handler(OffsetFetchRequest, offset_fetch.handle),
    Handler(TxnOffsetCommitRequest, txn_offset_commit.handle),
)
HANDLERS = {handler.request_type.API_KEY: handler for handler in _ALL}
SUPPORTED = {key: (handler.request_type.MIN_VERSION, handler.request_type.MAX_VERSION) for key, handler in HANDLERS.items()}
SUPPORTED[SaslHandshakeRequest.API_KEY] = (1, 1)  # after version 0 the login would go on in bare bytes
