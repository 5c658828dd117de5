"""The driver's connections, which are kept between the calls of a query: an idle stream requests
offsets every few milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

from aioprod.cluster.client import ClusterClient
from aioprod.errors import BrokerConnectionError
from aioprod.spark.source_options import SourceOptions, client_config
from aioprod.spark.waiting import named_wait

AnswerT = TypeVar("AnswerT")


def open_client(options: SourceOptions) -> ClusterClient:
    """Create a client with the options' settings, without starting it."""
    return ClusterClient(options.bootstrap_servers, **client_config(options.client))


async def _start(client: ClusterClient) -> None:
    servers = ", ".join(client.config.bootstrap_servers)
    with named_wait(f"connecting to {servers}", "kafka.request.timeout.ms"):
        await client.start()


class DriverClient:
    """Runs coroutines that query the brokers, from synchronous code. Between calls the event loop
    does not run.

    It connects at the first call, and reconnects after an error.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._open: tuple[asyncio.Runner, ClusterClient] | None = None

    def run(self, ask: Callable[[ClusterClient], Coroutine[Any, Any, AnswerT]]) -> AnswerT:
        """Call ``ask`` with a started client and return its result."""
        if self._open is not None:
            try:
                return self._run(ask)
            # The connection may have been closed since the last call: retry.
            except BrokerConnectionError:
                pass
        return self._run(ask)

    def close(self) -> None:
        if self._open is None:
            return
        (runner, client), self._open = self._open, None
        try:
            runner.run(client.close())
        finally:
            runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _run(self, ask: Callable[[ClusterClient], Coroutine[Any, Any, AnswerT]]) -> AnswerT:
        try:
            runner, client = self._started()
            return runner.run(ask(client))
        except BaseException:
            self.close()
            raise

    def _started(self) -> tuple[asyncio.Runner, ClusterClient]:
        if self._open is None:
            self._open = asyncio.Runner(), open_client(self._options)
            self._open[0].run(_start(self._open[1]))
        return self._open
