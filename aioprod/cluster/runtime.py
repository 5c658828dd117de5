"""Connections, metadata, start and close, for all clients.

A client has a `ClientRuntime` and implements `ClientLifecycle`. Background tasks must not refer to
the object that the application uses, or its ``__del__`` would never be called. Therefore the
runtime has no reference to the client; each call passes it as an argument.
"""

import asyncio
import logging
import random
import uuid
from collections.abc import Callable
from functools import partial

from aioprod import native
from aioprod.arguments import check_limit_ms
from aioprod.closing import close_in_turn
from aioprod.cluster.coordinators import Coordinators
from aioprod.cluster.loop_binding import LoopBinding
from aioprod.cluster.metadata import Metadata
from aioprod.cluster.telemetry import Telemetry
from aioprod.config.client import ClientConfig
from aioprod.errors import KafkaError
from aioprod.logs import Logger, get_logger
from aioprod.metrics.telemetry_source import TelemetrySource
from aioprod.net.backoff import Backoff
from aioprod.net.bootstrap import ConnectionCallback
from aioprod.net.brokers import Brokers
from aioprod.net.distance import FAR_S
from aioprod.running_loop import running_loop, start_task

log: Logger = get_logger(__name__)

_DROPPED = "was dropped without close()"
# A client of a larger cluster may need few of its brokers.
_FEW_BROKERS = 3


class ClientLifecycle:
    """Hooks of a kind of client, which `ClientRuntime` calls. The defaults do nothing."""

    async def connect(self) -> None:
        """Request what the client needs before it can start. Called by ``start``, and again after a
        failure.
        """

    def begin(self) -> None:
        """Start the tasks of the client. Called when ``connect`` has succeeded."""

    async def finish(self, deadline: float) -> None:
        """Complete the pending operations. Called by ``close`` if the client is started, and
        cancelled at ``deadline`` (loop time).
        """

    def stop(self, error: KafkaError) -> None:
        """Fail all pending operations with ``error``. The event loop may be closed, so nothing may
        be scheduled in it.
        """

    async def release(self) -> None:
        """End the tasks of the client, before metadata and connections are closed."""

    def close_plugins(self) -> None:
        """Close serializers, interceptors and other plug-ins; called once."""

    def closed(self) -> None:
        """Called when all connections are closed, or the event loop is closed."""


class ClientKind:
    """A kind of client.

    Attributes:
        name: the name in log and error messages, such as "producer".
        closed_error: the type of error of calls on a closed client.
        not_started_error: the type of error of calls on a client that is not started;
            ``closed_error`` if None.
    """

    __slots__ = ("closed_error", "name", "not_started_error")

    def __init__(
        self,
        name: str,
        closed_error: type[KafkaError],
        not_started_error: type[KafkaError] | None = None,
    ) -> None:
        self.name: str = name
        self.closed_error: type[KafkaError] = closed_error
        self.not_started_error: type[KafkaError] | None = not_started_error


class ClientRuntime:
    """The connections, metadata and state of one client.

    Args:
        config: the settings.
        rng: source of jitter.
        kind: the kind of the client.
        create_topics: whether a metadata request for an unknown topic may create it.
        on_change: called when a connection of ``brokers`` opens or closes.
        on_connection: called with details then; see :class:`aioprod.net.brokers.Brokers`.
        on_fork: called in a forked process; see :class:`aioprod.cluster.loop_binding.LoopBinding`.
        telemetry: the metrics to push to brokers; None for none.

    Attributes:
        config, rng: the arguments.
        loop_binding: the event loop and process in which the client was started.
        brokers: the connections.
        metadata: brokers, topics and leaders.
        coordinators: sends requests to the coordinators of groups and transactional ids.
        backoff: the pauses between retries.
        telemetry: pushes the metrics to brokers that ask for them.
        started: whether ``start`` has succeeded.
        closing: the error of new calls after ``close`` was called; None before.
        released: True if the client is closed, or a background task is closing it.
    """

    def __init__(
        self,
        config: ClientConfig,
        rng: random.Random,
        kind: ClientKind,
        *,
        create_topics: bool = False,
        on_change: Callable[[], None] = lambda: None,
        on_connection: ConnectionCallback = lambda *_: None,
        on_fork: Callable[[], object] = lambda: None,
        telemetry: TelemetrySource | None = None,
    ) -> None:
        self.config = config
        self.loop_binding: LoopBinding = LoopBinding(f"{kind.name} {config.client_id!r}", on_fork)
        self._on_change = on_change
        self.brokers: Brokers = Brokers(
            config,
            rng,
            on_change=self._connections_changed,
            on_connection=on_connection,
            on_silence=lambda: self.metadata.broker_silent(),
            on_misrouted=lambda address: self.metadata.misrouted(address),
        )
        self.metadata: Metadata = Metadata(config, self.brokers, rng, create_topics=create_topics)
        self.coordinators: Coordinators = Coordinators(config, self.brokers, rng)
        self.telemetry: Telemetry = Telemetry(config, self.brokers, rng, telemetry)
        self.backoff: Backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng)
        self.started: bool = False
        self.closing: KafkaError | None = None
        self.released: bool = False
        self.rng = rng
        self._loop: asyncio.AbstractEventLoop | None = None
        self._kind = kind
        self._name = f"{kind.name} {config.client_id!r}"
        self._separate: list[Brokers] = []
        self._starting = asyncio.Lock()
        self._start_limit: asyncio.Timeout | None = None
        self._close_limit: asyncio.Timeout | None = None
        self._closed: asyncio.Future[None] | None = None
        self._woken = asyncio.Event()
        self._plugins_closed = False

    def separate_connections(
        self,
        on_change: Callable[[], None] = lambda: None,
        on_connection: ConnectionCallback = lambda *_: None,
        on_silence: Callable[[], object] = lambda: None,
        is_needed: Callable[[int], bool] = lambda _: False,
    ) -> Brokers:
        """Create separate connections to the same brokers, for requests that would delay others on
        the same connection. The runtime keeps their addresses up to date and closes them.

        Args:
            on_change, on_connection, on_silence, is_needed: see
                :class:`aioprod.net.brokers.Brokers`.
        """
        brokers = Brokers(
            self.config,
            self.rng,
            on_change=on_change,
            on_connection=on_connection,
            on_silence=on_silence,
            on_misrouted=lambda address: self.metadata.misrouted(address),
            is_needed=is_needed,
            shares_with=self.brokers,
        )
        self.metadata.inform(brokers)
        self._separate.append(brokers)
        return brokers

    def connect_ahead(self) -> None:
        """Start to connect to the brokers of a small cluster that is far away, before calls need
        the connections: opening them takes two round trips or more.
        """
        nodes = self.metadata.snapshot.nodes
        known = (each.round_trip_s for each in self.brokers.open_connections)
        if len(nodes) <= _FEW_BROKERS and min(known, default=0.0) >= FAR_S:
            for node_id in nodes:
                self.brokers.start_connecting(node_id)

    def last_reply_at(self) -> float:
        """Return the loop time of the last response on any open connection; 0 if there was none."""
        return max(each.last_reply_at for each in (self.brokers, *self._separate))

    def _connections_changed(self) -> None:
        self._on_change()
        self.telemetry.connections_changed()

    # -- calls -------------------------------------------------------------------------------------

    def check_running(self) -> None:
        """Check that the client is started and not closed, and that its event loop is running.

        Raises:
            WrongEventLoopError: if the client was started in another event loop or process.
            KafkaError: if it is closed or not started; the type is that of the client's
                `ClientKind`.
        """
        self.loop_binding.check()
        if self.closing is not None:
            raise self.closing.with_traceback(None)
        if not self.started:
            error = self._kind.not_started_error or self._kind.closed_error
            raise error(f"the {self._kind.name} is not started: use 'async with', or await start()")

    @property
    def has_loop(self) -> bool:
        """True if the client was started in an event loop."""
        return self._loop is not None

    def now(self) -> float:
        """Return the time of the event loop in seconds; 0 before the first start."""
        return self._loop.time() if self._loop is not None else 0.0

    async def sleep(self, seconds: float) -> None:
        """Sleep. Raise the error of :meth:`check_running` as soon as the client is closed."""
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            pass
        self.check_running()

    async def client_instance_id(self, timeout_ms: float | None) -> uuid.UUID:
        """See :meth:`aioprod.Producer.client_instance_id`."""
        check_limit_ms(timeout_ms)
        self.check_running()
        limit_ms, limit_name = timeout_ms, "timeout_ms"
        if limit_ms is None:
            limit_ms, limit_name = self.config.request_timeout_ms, "request_timeout_ms"
        try:
            return await self.telemetry.instance_id(limit_ms, limit_name)
        except KafkaError:
            self.check_running()  # the client may have been closed meanwhile
            raise

    # -- start -------------------------------------------------------------------------------------

    async def start(self, client: ClientLifecycle) -> None:
        """Start the client, unless it is started. After a failure or cancellation, all connections
        are closed, and the client may be started again.

        Raises:
            KafkaError: if ``client.connect`` raises it, or if the client is closed before or during
                the call (``closing``).
        """
        loop = running_loop()
        self.loop_binding.check()
        async with self._starting:
            if self.closing is not None:
                raise self.closing.with_traceback(None)
            if self.started:
                return
            self._loop = loop
            self.loop_binding.bind()
            try:
                async with asyncio.timeout(None) as self._start_limit:
                    self.brokers.open()
                    await client.connect()
                if self.closing is not None:
                    raise self.closing.with_traceback(None)
            except BaseException as error:
                self._start_limit = None  # expired; close() must not change it
                try:
                    await self.brokers.close()
                finally:
                    self.loop_binding.unbind()
                if self.closing is not None and isinstance(error, KafkaError | TimeoutError):
                    # ``close`` has failed the pending operations.
                    raise self.closing.with_traceback(None) from None
                raise
            finally:
                self._start_limit = None
            for brokers in self._separate:
                brokers.open()
            self.started = True
            client.begin()
            self.telemetry.start()
            self._log_start()

    def _log_start(self) -> None:
        if log.isEnabledFor(logging.INFO):
            from aioprod import __version__

            code = "native" if native.in_use else f"pure Python: {native.reason_not_in_use}"
            log.info("%s started (aioprod %s, %s)", self._name, __version__, code)

    # -- close -------------------------------------------------------------------------------------

    def check_may_close(self) -> None:
        """Raise WrongEventLoopError if :meth:`close` would raise it."""
        if not self.loop_binding.loop_closed:
            self.loop_binding.check()

    async def close(self, client: ClientLifecycle, limit_ms: float = 0.0) -> None:
        """Close the client; ``limit_ms`` is the time limit of ``client.finish``.

        A second call waits for the first call, and shortens its limit if that of the second expires
        earlier. A cancelled call still closes all connections. If the event loop is closed, the
        call only fails the pending operations.

        Raises:
            WrongEventLoopError: if the client was started in another event loop that is not closed,
                or in another process.
            Exception: if ``client.finish`` raises it; all connections are closed nevertheless.
        """
        loop = running_loop()
        if self.loop_binding.loop_closed:
            self._close_without_loop(client)
            return
        self.loop_binding.check()
        deadline = loop.time() + limit_ms / 1000
        if self._closed is not None:
            _bring_forward(self._close_limit, deadline)
            await asyncio.shield(self._closed)
            return
        closed = self._closed = loop.create_future()
        self._set_closing("is closed")
        _bring_forward(self._start_limit, loop.time())
        try:
            if self.started:
                await self._finish(client, deadline)
        finally:
            timeout = f"close timeout {limit_ms:.0f} ms"
            try:
                client.stop(
                    self._kind.closed_error(
                        f"not completed before the {self._kind.name} closed ({timeout})"
                    )
                )
            finally:
                self.released = True
                release = self._release(client)
                release.add_done_callback(lambda _: closed.set_result(None))
                await asyncio.shield(closed)
                if not release.cancelled():
                    release.result()

    def dropped(self, source: object, client: ClientLifecycle, lost: str = "") -> None:
        """Warn that ``source``, the object that the application used, is dropped without ``close``,
        and close the client in its event loop. Pending operations fail.

        Args:
            source: the object whose ``__del__`` calls this.
            client: the client; a reference is kept until it is closed.
            lost: describes the lost data in the warning.
        """
        if self.released:
            return
        if self.loop_binding.loop_closed:
            self._set_closing(_DROPPED)
            self._fail_pending(client)
        self.loop_binding.warn_unclosed(source, lost, partial(self._abandon, client))

    def _abandon(self, client: ClientLifecycle) -> asyncio.Task[None]:
        self._set_closing(_DROPPED)
        self._fail_pending(client)  # now, as the event loop may stop before the task has run
        return self._release(client)

    def _close_without_loop(self, client: ClientLifecycle) -> None:
        """Fail the pending operations: the event loop is closed, so no task runs."""
        self._set_closing("is closed")
        self._closed = asyncio.get_running_loop().create_future()
        self._closed.set_result(None)
        self._fail_pending(client)
        client.closed()
        self.released = True
        self.loop_binding.unbind()

    def _fail_pending(self, client: ClientLifecycle) -> None:
        assert self.closing is not None
        client.stop(self.closing)
        self._close_plugins(client)

    def _set_closing(self, reason: str) -> None:
        self.closing = self.closing or self._kind.closed_error(f"the {self._kind.name} {reason}")
        if not self.loop_binding.loop_closed:  # else waking tasks of that loop would raise an error
            self._woken.set()

    async def _finish(self, client: ClientLifecycle, deadline: float) -> None:
        self.telemetry.client_closes()
        try:
            async with asyncio.timeout_at(deadline) as self._close_limit:
                await client.finish(deadline)
                await self.telemetry.finish()
        except TimeoutError:
            if self._close_limit is None or not self._close_limit.expired():
                raise
        finally:
            self._close_limit = None

    def _release(self, client: ClientLifecycle) -> asyncio.Task[None]:
        """Start the task that ends all tasks and connections."""
        task = start_task(
            close_in_turn(
                client.release, self.telemetry.close, self.metadata.close, self._close_connections
            ),
            name="aioprod-close",
        )
        task.add_done_callback(lambda _: self._released(client))
        return task

    async def _close_connections(self) -> None:
        await asyncio.gather(*(each.close() for each in (self.brokers, *self._separate)))

    def _released(self, client: ClientLifecycle) -> None:
        """End what is left if the task was cancelled, perhaps before it began."""
        self.metadata.end()
        for each in (self.brokers, *self._separate):
            each.end()
        self._close_plugins(client)
        client.closed()
        self.loop_binding.unbind()
        if self.started:
            log.info("%s closed", self._name)

    def _close_plugins(self, client: ClientLifecycle) -> None:
        if not self._plugins_closed:
            self._plugins_closed = True
            client.close_plugins()


def _bring_forward(limit: asyncio.Timeout | None, deadline: float) -> None:
    """Reschedule an ``asyncio.timeout`` to ``deadline`` (loop time) unless it expires earlier."""
    if limit is not None and not limit.expired():
        when = limit.when()
        if when is None or deadline < when:
            limit.reschedule(deadline)
