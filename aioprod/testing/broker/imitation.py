"""Applies the quirks of `quirks.py` to the embedded broker."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from aioprod.codecs import Codec
from aioprod.error_codes import ErrorCode
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.message import Message
from aioprod.protocol.messages.api_versions import ApiVersionsRequest
from aioprod.protocol.messages.create_topics import CreateTopicsRequest
from aioprod.protocol.messages.metadata import MetadataRequest, MetadataResponse
from aioprod.protocol.messages.produce import ProduceRequest
from aioprod.protocol.request_headers import RequestHeader
from aioprod.testing.broker.actions import DropConnection, Failure, ResetConnection
from aioprod.testing.broker.quirks import Quirk

_ATTRIBUTES_AT = 22  # the low byte of a batch's attributes
_CODEC_BITS = 7
_PAUSED = (ApiKey.PRODUCE, ApiKey.FETCH)


class KnownTopic(Protocol):
    """A topic of the cluster."""

    topic_id: uuid.UUID


class Imitation:
    """The differences between the embedded broker and Apache Kafka.

    Args:
        quirks: any number of `quirks.QUIRKS`.

    Attributes:
        any_node_serves, most_connections, idle_s, lifetime_s, advertised_host, has_balancer: see
            `Quirk`.
    """

    def __init__(self, quirks: Iterable[Quirk] = ()) -> None:
        self._quirks = tuple(quirks)
        self._random = random.Random(1)
        self._ready_at: dict[str, float] = {}
        self.any_node_serves: bool = any(quirk.any_node_serves for quirk in self._quirks)
        self.has_balancer: bool = any(quirk.has_balancer for quirk in self._quirks)
        self.most_connections: int | None = self._first("most_connections")
        self.idle_s: float | None = self._first("idle_s")
        self.lifetime_s: float | None = self._first("lifetime_s")
        self.advertised_host: str | None = self._first("advertised_host")

    def _first(self, attribute: str) -> Any:
        found = (getattr(quirk, attribute) for quirk in self._quirks)
        return next((value for value in found if value is not None), None)

    def versions(
        self, api_key: int, versions: tuple[int, int], node_id: int
    ) -> tuple[int, int] | None:
        """Return the lowest and highest version of an API that a node supports; None if it does not
        support the API.
        """
        low, high = versions
        for quirk in self._quirks:
            if not quirk.second_node_only or node_id % 2 == 0:
                high = min(high, quirk.newest.get(api_key, high))
        return (low, high) if low <= high else None

    def arrived(self, header: RequestHeader, size: int) -> None:
        """Raise ResetConnection if a request of ``size`` bytes resets its connection."""
        for quirk in self._quirks:
            limit, most = quirk.resets_api_versions_above, quirk.most_request_bytes
            if header.api_key == ApiKey.API_VERSIONS and limit is not None:
                if header.api_version > limit:
                    raise ResetConnection
            elif most is not None and size > most:
                raise ResetConnection

    def decoded(self, request: Message, topics: Mapping[str, KnownTopic]) -> tuple[Failure, ...]:
        """Return the failures of a request; raise DropConnection if its connection is closed
        instead.

        Args:
            topics: the existing topics.
        """
        if (
            isinstance(request, ApiVersionsRequest)
            and request.cluster_id is not None
            and any(quirk.closes_on_route for quirk in self._quirks)
        ):
            raise DropConnection
        wait_s = max((quirk.topic_is_ready_after_s for quirk in self._quirks), default=0)
        if wait_s and isinstance(request, CreateTopicsRequest | MetadataRequest):
            ready_at = asyncio.get_running_loop().time() + wait_s
            for topic in request.topics or ():
                if topic.name is not None and topic.name not in topics:
                    self._ready_at.setdefault(topic.name, ready_at)
        codecs = next((each.codecs for each in self._quirks if each.codecs is not None), None)
        if codecs is not None and isinstance(request, ProduceRequest):
            names = {topic.topic_id: name for name, topic in topics.items()}
            return tuple(_refused(request, codecs, names))
        return ()

    async def handled(
        self, api_key: int, response: Message | None, node_id: int, disconnected: Any
    ) -> None:
        """Delay and modify a response."""
        for quirk in self._quirks:
            if api_key == ApiKey.PRODUCE and quirk.acknowledges_after_s is not None:
                await asyncio.wait(
                    [disconnected], timeout=self._random.uniform(*quirk.acknowledges_after_s)
                )
            if response is None:
                continue
            if quirk.throttle_ms and api_key in _PAUSED:
                response.throttle_time_ms = quirk.throttle_ms  # type: ignore[attr-defined]
            if api_key in quirk.changes:
                quirk.changes[api_key](response)
        if isinstance(response, MetadataResponse):
            self._hide_new_topics(response)
            if self.any_node_serves:
                _lead_everything(response, node_id)

    def _hide_new_topics(self, response: MetadataResponse) -> None:
        now = asyncio.get_running_loop().time()
        for topic in response.topics:
            if self._ready_at.get(topic.name or "", now) > now:
                topic.error_code, topic.partitions = ErrorCode.LEADER_NOT_AVAILABLE, []


def _refused(
    request: ProduceRequest, codecs: frozenset[Codec], names: Mapping[uuid.UUID, str]
) -> Iterable[Failure]:
    for topic in request.topic_data:
        name = topic.name or names.get(topic.topic_id, "")
        for partition in topic.partition_data:
            records = bytes((partition.records or b"")[: _ATTRIBUTES_AT + 1])
            if len(records) > _ATTRIBUTES_AT and records[-1] & _CODEC_BITS not in codecs:
                yield Failure(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, name, partition.index)


def _lead_everything(response: MetadataResponse, node_id: int) -> None:
    response.controller_id = node_id
    for topic in response.topics:
        for partition in topic.partitions:
            partition.leader_id = node_id
            partition.error_code = ErrorCode.NONE
