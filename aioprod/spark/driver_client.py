"""The driver's connections: kept between the questions of a query, which come every few
milliseconds while a stream is idle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

from aioprod.cluster.client import ClusterClient
from aioprod.errors import BrokerConnectionError
from aioprod.spark.source_options import SourceOptions, client_config

AnswerT = TypeVar("AnswerT")


def open_client(options: SourceOptions) -> ClusterClient:
    """A client, not started yet, with the options' settings."""
    return ClusterClient(options.bootstrap_servers, **client_config(options.client))


class DriverClient:
    """Runs coroutines that ask the brokers, from code that is not asynchronous. The event loop
    stands still in between.

    It connects when it is first needed. After an error it connects anew.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._open: tuple[asyncio.Runner, ClusterClient] | None = None

    def run(self, ask: Callable[[ClusterClient], Coroutine[Any, Any, AnswerT]]) -> AnswerT:
        """The answer of ``ask``, which is given a started client."""
        if self._open is not None:
            try:
                return self._run(ask)
            except (
                BrokerConnectionError
            ):  # of a connection that ended since the last question, maybe
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
            self._open[0].run(self._open[1].start())
        return self._open
