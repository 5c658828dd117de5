"""Compresses large batches in threads, because each blocks the event loop for milliseconds.
Compression releases the GIL.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from aioprod.codecs import Codec
from aioprod.logs import Logger, get_logger
from aioprod.producer.batch import BatchState, ProducerBatch

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

log: Logger = get_logger(__name__)

_MOST_THREADS: Final = 4
_CLOSE_LIMIT_S: Final = 1.0


class Compressor:
    """Compresses large batches in its own threads.

    Args:
        codecs: the codecs whose libraries are imported now, and not with the first batch.
        wake: called when a batch is ready.
    """

    def __init__(self, codecs: Iterable[Codec], wake: Callable[[], object]) -> None:
        for codec in codecs:
            if codec is not Codec.NONE:  # most producers do not compress
                _load(codec)
        self._wake = wake
        self._executor: ThreadPoolExecutor | None = None
        self._running: dict[ProducerBatch, asyncio.Future[bytes]] = {}

    def is_ready(self, batch: ProducerBatch, level: int | None) -> bool:
        """Return whether a batch can be sent now. If not, start to compress it; it must accept no
        more records.
        """
        if (
            batch.codec is Codec.NONE
            or batch.encoded is not None
            or batch.writer.compressed is not None
        ):
            return True
        if batch in self._running:
            return False
        if batch.writer.size < _thread_from(batch.codec, level):
            return True
        if self._executor is None:
            from concurrent.futures import ThreadPoolExecutor

            threads = min(_MOST_THREADS, os.cpu_count() or 1)
            self._executor = ThreadPoolExecutor(threads, thread_name_prefix="aioprod-compress")
        body = batch.writer.body()
        future = asyncio.get_running_loop().run_in_executor(
            self._executor, _compress, batch.codec, body, level
        )
        self._running[batch] = future
        future.add_done_callback(partial(self._done, batch))
        return False

    def _done(self, batch: ProducerBatch, future: asyncio.Future[bytes]) -> None:
        del self._running[batch]
        if future.cancelled() or batch.state is not BatchState.PENDING:
            return
        error = future.exception()
        if error is None:
            batch.writer.compressed = future.result()
        else:
            log.error(
                "compressing a batch for %s failed; sending it uncompressed",
                batch.tp,
                exc_info=error,
            )
            batch.codec = Codec.NONE
        self._wake()

    async def close(self) -> None:
        """End the threads; wait up to a second for their present work."""
        if self._running:
            await asyncio.wait(self._running.values(), timeout=_CLOSE_LIMIT_S)
        for future in list(self._running.values()):
            future.cancel()
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)


def _load(codec: Codec) -> None:
    from aioprod.protocol.compression import load

    load(codec)


def _compress(codec: Codec, data: bytes, level: int | None) -> bytes:
    from aioprod.protocol.compression import compress

    return compress(codec, data, level)


def _thread_from(codec: Codec, level: int | None) -> int:
    is_high = level is not None and codec.levels is not None and level > codec.levels.default
    return codec.thread_from_at_high_level if is_high else codec.thread_from
