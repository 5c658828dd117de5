"""The mock cluster inside librdkafka, which comes with confluent-kafka, called by ctypes.

It is a broker that others wrote, with faults on demand. What it does not do: it tells duplicates of
transactional producers only, it writes control batches with a checksum of zero, and it does not
create topics by request.
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
from tests.judges.programs.foreign_cluster import CoordinatorKind, ForeignCluster

_CLOSE_CONNECTION = (
    -195
)  # librdkafka's own code of a broken connection, which the mock takes as an order
_PRODUCER = 0
_PLACES = (
    "../confluent_kafka.libs/librdkafka*",
    ".dylibs/librdkafka*",
    "../confluent_kafka.libs/*rdkafka*.dll",
)
_SOUND_METADATA = 8  # its answers of later versions have a byte too many at their end
_ERROR_LENGTH = 512
_PATIENCE_S = 0.005
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
    """The mock cluster, with nodes 1, 2 and so on. :func:`librdkafka_mock` starts one."""

    checks_sequences = False  # only those of transactional producers
    # it writes markers; it names no aborted transaction to those who fetch, and forgets offsets
    ends_transactions = False

    def __init__(self, library: Any, handle: int, nodes: int) -> None:
        self._coordinator = 0
        self._library = library
        self._handle = handle
        self._nodes = nodes

    @property
    def bootstrap_servers(self) -> str:
        found: bytes = self._library.rd_kafka_mock_cluster_bootstraps(self._handle)
        return found.decode()

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

    async def answer_late(self, node: int, delay_ms: int) -> None:
        """Have a node apply requests at once and answer each after ``delay_ms``; 0 ends it."""
        await self._call("rd_kafka_mock_broker_set_rtt", node, delay_ms)

    async def limit_versions(self, api_key: int, low: int, high: int) -> None:
        """Announce these versions of an API from now on. -1 and -1: the API is not there."""
        await self._call("rd_kafka_mock_set_apiversion", api_key, low, high)

    async def _call(self, function: str, *arguments: object) -> None:
        call = asyncio.ensure_future(
            asyncio.to_thread(getattr(self._library, function), self._handle, *arguments)
        )
        while not (await asyncio.wait([call], timeout=_PATIENCE_S))[0]:
            await self._wake()
        if code := call.result():
            raise RuntimeError(f"{function}{arguments} gave error {code}")

    async def _wake(self) -> None:
        """Its thread sometimes misses an order and would look again after a second; a connection
        has it look at once.
        """
        for address in self.bootstrap_servers.split(","):
            host, _, port = address.rpartition(":")
            try:
                _, writer = await asyncio.open_connection(host, int(port))
            except ConnectionRefusedError:
                continue  # a node that is stopped
            writer.close()
            return


@asynccontextmanager
async def librdkafka_mock(nodes: int = 3) -> AsyncIterator[LibrdkafkaMock]:
    """A running mock cluster, until the block ends. Raises RuntimeError where confluent-kafka's
    librdkafka is not found.
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
            await mock.limit_versions(ApiKey.METADATA, 0, _SOUND_METADATA)
            yield mock
        finally:
            library.rd_kafka_mock_cluster_destroy(handle)
    finally:
        library.rd_kafka_destroy(client)


def _library() -> Any:
    root = Path(confluent_kafka.__file__).parent
    for path in [path for pattern in _PLACES for path in sorted(root.glob(pattern))]:
        library = ctypes.CDLL(str(path))
        if hasattr(library, "rd_kafka_mock_cluster_new"):
            for name, (result, arguments) in _SIGNATURES.items():
                function = getattr(library, name)
                function.restype, function.argtypes = result, arguments
            return library
    raise RuntimeError(
        f"the confluent-kafka in {root} brings no librdkafka with a mock cluster: install its wheel"
    )
