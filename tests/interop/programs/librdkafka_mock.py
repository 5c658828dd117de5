"""The mock cluster of librdkafka, which is part of confluent-kafka, called by ctypes.

It injects faults on demand. Its limits: it detects duplicates of transactional producers only,
writes control batches with a checksum of zero, and does not support CreateTopics.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import confluent_kafka

from aioprod.protocol.api_keys import ApiKey
from tests.interop.programs.foreign_cluster import CoordinatorKind, ForeignCluster

# librdkafka's code of a broken connection, which makes the mock close it.
_CLOSE_CONNECTION = -195
_PRODUCER = 0
_LIBRARY_PATTERNS = (
    "../confluent_kafka.libs/librdkafka*",
    ".dylibs/librdkafka*",
    "../confluent_kafka.libs/*rdkafka*.dll",
)
_MAX_METADATA_VERSION = 8  # responses of later versions have an extra byte at their end
_ERROR_LENGTH = 512
_WAKE_INTERVAL_S = 0.005
_POINTER, _TEXT, _NUMBER, _SHORT, _SIZE = (
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.c_int32,
    ctypes.c_int16,
    ctypes.c_size_t,
)
_CODES = ctypes.POINTER(ctypes.c_int)
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "rd_kafka_conf_new": (_POINTER, []),
    "rd_kafka_new": (_POINTER, [ctypes.c_int, _POINTER, _TEXT, _SIZE]),
    "rd_kafka_destroy": (None, [_POINTER]),
    "rd_kafka_mock_cluster_new": (_POINTER, [_POINTER, ctypes.c_int]),
    "rd_kafka_mock_cluster_destroy": (None, [_POINTER]),
    "rd_kafka_mock_cluster_bootstraps": (_TEXT, [_POINTER]),
    "rd_kafka_mock_topic_create": (ctypes.c_int, [_POINTER, _TEXT, ctypes.c_int, ctypes.c_int]),
    "rd_kafka_mock_partition_set_leader": (ctypes.c_int, [_POINTER, _TEXT, _NUMBER, _NUMBER]),
    "rd_kafka_mock_coordinator_set": (ctypes.c_int, [_POINTER, _TEXT, _TEXT, _NUMBER]),
    "rd_kafka_mock_broker_set_down": (ctypes.c_int, [_POINTER, _NUMBER]),
    "rd_kafka_mock_broker_set_up": (ctypes.c_int, [_POINTER, _NUMBER]),
    "rd_kafka_mock_broker_set_rtt": (ctypes.c_int, [_POINTER, _NUMBER, ctypes.c_int]),
    "rd_kafka_mock_set_apiversion": (ctypes.c_int, [_POINTER, _SHORT, _SHORT, _SHORT]),
    "rd_kafka_mock_push_request_errors_array": (None, [_POINTER, _SHORT, _SIZE, _CODES]),
}


class LibrdkafkaMock(ForeignCluster):
    """A running mock cluster, started by :func:`librdkafka_mock`."""

    checks_sequences = False  # only those of transactional producers
    # It writes markers, but Fetch responses list no aborted transactions, and offsets are lost.
    ends_transactions = False

    def __init__(self, library: Any, handle: int, nodes: int) -> None:
        self._coordinator = 0
        self._library = library
        self._handle = handle
        self._nodes = nodes

    @property
    def bootstrap_servers(self) -> str:
        servers: bytes = self._library.rd_kafka_mock_cluster_bootstraps(self._handle)
        return servers.decode()

    async def create_topic(self, name: str, partitions: int) -> None:
        await self._call("rd_kafka_mock_topic_create", name.encode(), partitions, 1)
        for partition in range(partitions):
            await self.move_leader(name, partition, partition % self._nodes + 1)

    async def fail(self, api_key: int, code: int, times: int = 1) -> None:
        self._library.rd_kafka_mock_push_request_errors_array(
            self._handle, api_key, times, (ctypes.c_int * times)(*[code] * times)
        )

    async def cut(self, api_key: int, times: int = 1) -> None:
        await self.fail(api_key, _CLOSE_CONNECTION, times)

    async def move_leader(self, topic: str, partition: int, node: int) -> None:
        await self._call("rd_kafka_mock_partition_set_leader", topic.encode(), partition, node)

    async def move_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        self._coordinator = self._coordinator % self._nodes + 1
        await self._call(
            "rd_kafka_mock_coordinator_set", kind.encode(), key.encode(), self._coordinator
        )

    async def stop_node(self, node: int) -> None:
        await self._call("rd_kafka_mock_broker_set_down", node)

    async def start_node(self, node: int) -> None:
        await self._call("rd_kafka_mock_broker_set_up", node)

    async def delay_responses(self, node: int, delay_ms: int) -> None:
        """Delay the responses of a node by ``delay_ms``, but not the handling of its requests."""
        await self._call("rd_kafka_mock_broker_set_rtt", node, delay_ms)

    async def limit_versions(self, api_key: int, low: int, high: int) -> None:
        """Support only these versions of an API; none if both are -1."""
        await self._call("rd_kafka_mock_set_apiversion", api_key, low, high)

    async def _call(self, function: str, *arguments: object) -> None:
        call = asyncio.ensure_future(
            asyncio.to_thread(getattr(self._library, function), self._handle, *arguments)
        )
        while not (await asyncio.wait([call], timeout=_WAKE_INTERVAL_S))[0]:
            await self._wake()
        if code := call.result():
            raise RuntimeError(f"{function}{arguments} failed with error {code}")

    async def _wake(self) -> None:
        """Connect to a node, as the mock's thread sometimes misses a command for a second; a new
        connection wakes it.
        """
        for address in self.bootstrap_servers.split(","):
            host, _, port = address.rpartition(":")
            try:
                _, writer = await asyncio.open_connection(host, int(port))
            except ConnectionRefusedError:
                continue  # the node is stopped
            writer.close()
            return


@asynccontextmanager
async def librdkafka_mock(nodes: int = 3) -> AsyncIterator[LibrdkafkaMock]:
    """Run a mock cluster until the block ends.

    Raises:
        RuntimeError: if confluent-kafka has no librdkafka with a mock cluster.
    """
    library = _library()
    message = ctypes.create_string_buffer(_ERROR_LENGTH)
    client = library.rd_kafka_new(_PRODUCER, library.rd_kafka_conf_new(), message, _ERROR_LENGTH)
    if not client:
        raise RuntimeError(message.value.decode())
    try:
        handle = library.rd_kafka_mock_cluster_new(client, nodes)
        try:
            mock = LibrdkafkaMock(library, handle, nodes)
            await mock.limit_versions(ApiKey.METADATA, 0, _MAX_METADATA_VERSION)
            yield mock
        finally:
            library.rd_kafka_mock_cluster_destroy(handle)
    finally:
        library.rd_kafka_destroy(client)


def _library() -> Any:
    root = Path(confluent_kafka.__file__).parent
    for path in [path for pattern in _LIBRARY_PATTERNS for path in sorted(root.glob(pattern))]:
        library = ctypes.CDLL(str(path))
        if hasattr(library, "rd_kafka_mock_cluster_new"):
            for name, (result, arguments) in _SIGNATURES.items():
                function = getattr(library, name)
                function.restype, function.argtypes = result, arguments
            return library
    raise RuntimeError(
        f"confluent-kafka in {root} has no librdkafka with a mock cluster; install its wheel"
    )
