"""The brokers of a cluster, with one connection to each."""

import asyncio
import random
from collections.abc import Callable, Collection, Coroutine, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

from aioprod.closing import all_in_turn
from aioprod.config.client import ClientConfig
from aioprod.error_codes import ErrorCode
from aioprod.errors import (
    AuthenticationError,
    BrokerConnectionError,
    BrokerError,
    KafkaError,
    RequestTimedOutError,
)
from aioprod.logs import LOG_AGAIN_S, LastingProblem, Logger, get_logger
from aioprod.net.bootstrap import Attempt, BootstrapServers, ConnectionCallback
from aioprod.net.bounds import TimeLimit
from aioprod.net.broker_link import BrokerLink, ReconnectBackoff
from aioprod.net.connection import Connection
from aioprod.net.failures import address_of
from aioprod.net.handshake import connect
from aioprod.net.race import first_answer, first_to_succeed
from aioprod.net.silence import HESITATION_S, SilenceWatch
from aioprod.net.versions import AcceptedVersions
from aioprod.running_loop import start_task

log: Logger = get_logger(__name__)

T = TypeVar("T")


class BrokerAddress(NamedTuple):
    """A broker: its id, and the address at which it listens."""

    node_id: int
    host: str
    port: int

    @property
    def address(self) -> str:
        """The host and the port."""
        return address_of(self.host, self.port)


class Brokers:
    """Connections by node id, opened on demand and shared. An unreachable node does not delay
    others.

    Args:
        config: timeouts and backoff.
        rng: source of jitter.
        on_change: called when a connection was opened or closed, or could not be opened.
        on_connection: called with the node id (-1 for a bootstrap server), the address, whether the
            connection opened or closed, and why it closed.
        on_silence: called every second while a reply is due and the broker sends nothing.
        on_misrouted: called with the address if a connection leads to another node or cluster.
        is_needed: returns whether the connection to a node must stay open even if it is idle.
        shares_with: another object of the same client, whose knowledge of API versions this one
            uses, and which logs unreachable brokers; None for the first.

    Attributes:
        accepted: the addresses that accept only an older version of ApiVersions.
        cluster_id: the id of the cluster of `update_nodes`, if known.
    """

    def __init__(
        self,
        config: ClientConfig,
        rng: random.Random,
        *,
        on_change: Callable[[], None] = lambda: None,
        on_connection: ConnectionCallback = lambda *_: None,
        on_silence: Callable[[], object] = lambda: None,
        on_misrouted: Callable[[str], object] = lambda _: None,
        is_needed: Callable[[int], bool] = lambda _: False,
        shares_with: "Brokers | None" = None,
    ) -> None:
        self.cluster_id: str | None = None
        self.accepted: AcceptedVersions = (
            AcceptedVersions() if shares_with is None else shares_with.accepted
        )
        self._on_misrouted = on_misrouted
        self._config = config
        self._rng = rng
        self._backoff = ReconnectBackoff(config, rng)
        self._bootstrap = BootstrapServers(
            config, rng, self._backoff, on_connection, on_silence, self.accepted
        )
        self._nodes: dict[int, BrokerAddress] = {}
        self._links: dict[int, BrokerLink] = {}
        # Nodes that were logged as unreachable. Stored here, as links are dropped and created
        # again.
        self._unreachable: dict[int, LastingProblem] = (
            {} if shares_with is None else shares_with._unreachable
        )
        self._closed = False
        self._on_change = on_change
        self._on_connection = on_connection
        self._on_silence = on_silence
        self._is_needed = is_needed

    def open(self) -> None:
        """Allow connections. Called at the start, and again after :meth:`close`."""
        self._closed = False
        self._bootstrap.open()

    def update_nodes(self, nodes: Mapping[int, BrokerAddress]) -> None:
        """Set the brokers of the cluster, and close connections to brokers that moved or left."""
        for node_id, old in self._nodes.items():
            if nodes.get(node_id) != old:
                link = self._links.pop(node_id, None)
                if link is not None:
                    self._drop(link, f"{old.address}: broker {node_id} moved or left the cluster")
        self._nodes = dict(nodes)

    def learn(self, node: BrokerAddress) -> None:
        """Add a broker that is not in the metadata yet, such as a group's coordinator."""
        if self._nodes.get(node.node_id) != node:
            self.update_nodes({**self._nodes, node.node_id: node})

    def forget_nodes(self) -> None:
        """Forget all brokers, and connect to the bootstrap servers again (KIP-899, KIP-1102)."""
        self.update_nodes({})
        self._bootstrap.abort("starting again from the bootstrap servers")

    def knows(self, node_id: int) -> bool:
        """Return whether the latest metadata contains a node."""
        return node_id in self._nodes

    @property
    def open_connections(self) -> list[Connection]:
        """The open connections; that to a bootstrap server is last."""
        connections = [link.connection for link in self._links.values()]
        connections.append(self._bootstrap.connection)
        return [connection for connection in connections if connection is not None]

    @property
    def connected(self) -> int:
        """The number of open connections."""
        return len(self.open_connections)

    @property
    def last_reply_at(self) -> float:
        """Loop time of the last reply on an open connection; 0 if there is none."""
        return max((each.replied_at for each in self.open_connections), default=0.0)

    def live(self, node_id: int) -> Connection | None:
        """Return the open connection to a node, if there is one now."""
        link = self._links.get(node_id)
        return link.connection if link is not None else None

    def connecting(self, node_id: int) -> bool:
        """Return whether a connection to a node is being opened."""
        link = self._links.get(node_id)
        return link is not None and link.connecting is not None

    def retry_at(self, node_id: int) -> float:
        """Return the loop time before which no attempt to connect is made."""
        link = self._links.get(node_id)
        return link.retry_at if link is not None else 0.0

    def last_error(self, node_id: int) -> KafkaError | None:
        """Return why the last attempt to connect failed, or why the connection broke."""
        link = self._links.get(node_id)
        return link.last_error if link is not None else None

    def start_connecting(self, node_id: int) -> None:
        """Start connecting, unless an attempt is running or the backoff has not passed.
        ``on_change`` is called when the attempt ends.
        """
        link = self._links.setdefault(node_id, BrokerLink())
        node = self._nodes.get(node_id)
        if (
            self._closed
            or node is None
            or link.connection
            or link.connecting
            or asyncio.get_running_loop().time() < link.retry_at
        ):
            return
        link.connecting = start_task(self._connect(node, link), name=f"aioprod-connect-{node_id}")
        link.connecting.add_done_callback(partial(self._attempt_ended, link))

    def _attempt_ended(self, link: BrokerLink, task: asyncio.Task[Connection]) -> None:
        if link.connecting is task:  # cancelled before it started
            link.connecting = None
            self._on_change()
        # The link has the error; asyncio would log it if no task awaits the attempt.
        if not task.cancelled():
            task.exception()

    async def connection(self, node_id: int) -> Connection:
        """Return the connection to a node, and open it if necessary.

        Raises:
            BrokerConnectionError: if the node can't be reached, or is not known.
            AuthenticationError: if the broker refuses this client. For
                ``reconnect_backoff_max_ms``, the error is then raised without another attempt to
                connect.
        """
        live = self.live(node_id)
        if live is not None:
            return live
        if node_id not in self._nodes:
            raise BrokerConnectionError(f"broker {node_id} is not in the cluster")
        pause = self.retry_at(node_id) - asyncio.get_running_loop().time()
        if pause > 0:
            refusal = self.last_error(node_id)
            if isinstance(refusal, AuthenticationError):
                raise refusal.with_traceback(None)
            await asyncio.sleep(pause)
        self.start_connecting(node_id)
        link = self._links.get(node_id)
        if link is None or (link.connecting is None and link.connection is None):
            reason = link.last_error if link is not None else None
            raise BrokerConnectionError(
                f"broker {node_id}: {reason or 'it left the cluster, or the client was closed'}"
            )
        if link.connection is not None:
            return link.connection
        assert link.connecting is not None
        # Several tasks may wait for the same connection, so cancelling one does not cancel it.
        connecting = link.connecting
        await asyncio.wait([connecting])
        if connecting.cancelled():
            raise BrokerConnectionError(
                f"broker {node_id}: moved or left the cluster, or the client was closed, while "
                "connecting"
            )
        return connecting.result()

    async def ask_any(
        self, ask: Callable[[Connection], Coroutine[Any, Any, T]], unable: set[str] | None = None
    ) -> T:
        """Send a request to any broker, and return the first response. If a broker does not respond
        within a quarter of a second, the request is also sent to another one.

        The limit is ``request_timeout_ms``, after the time that :meth:`any` takes to connect.

        Args:
            ask: sends requests on the given connection. It may run concurrently on several ones, so
                the requests must be idempotent.
            unable: the addresses of brokers that could not serve this request before: one that is
                cut off from the controller fails for minutes. They are asked only if there is no
                other. A retriable BrokerError of ``ask`` adds to them, a response clears them.

        Raises:
            RequestTimedOutError: if the limit has expired.
            KafkaError: if :meth:`any` or ``ask`` raises it.
        """
        unable = set() if unable is None else unable
        if unable.issuperset(node.address for node in self._nodes.values()):
            unable.clear()
        asked = [await self.any(unable)]
        looking = False

        async def attempt(connection: Connection) -> T:
            try:
                found = await ask(connection)
            except BrokerError as error:
                if error.code.retriable:
                    unable.add(connection.address)
                raise
            unable.clear()
            return found

        async def ask_another() -> T:
            nonlocal looking
            looking = True
            try:
                connection = await self.any([*unable, *asked])
            finally:
                looking = False
            if connection in asked:
                raise BrokerConnectionError(
                    f"{connection.address}: no response, and no other broker can be reached"
                )
            asked.append(connection)
            return await attempt(connection)

        # A silent bootstrap server gets the request once a second, on a new connection.
        servers = ", ".join(self._config.bootstrap_servers)
        async with TimeLimit(
            self._config.request_timeout_ms,
            f"a request to any broker ({servers})",
            "request_timeout_ms",
            error_type=RequestTimedOutError,
        ):
            return await first_answer(
                attempt(asked[0]), ask_another, lambda: not looking, HESITATION_S
            )

    async def any(self, avoid: Collection[Connection | str] = ()) -> Connection:
        """Return a connection to any broker: the open one with the fewest requests in flight,
        unless it is silent; else a new one, to a bootstrap server only if no known broker can be
        reached.

        Makes one attempt for each address. An attempt may take
        ``socket_connection_setup_timeout_ms`` (which grows up to
        ``socket_connection_setup_timeout_max_ms``) for the connection, the same again for
        ApiVersions, and ``request_timeout_ms`` for each step of the login.

        Args:
            avoid: connections, and addresses, that are used only if there are no others.

        Raises:
            BrokerConnectionError: if no broker responds; the message contains each address and the
                reason.
            AuthenticationError: if no broker accepts this client, and at least one refuses it.
        """

        def is_prompt(connection: Connection) -> bool:
            avoided = connection in avoid or connection.address in avoid
            return connection.waited_s < HESITATION_S and not avoided

        open_ones = [link.connection for link in self._links.values() if link.connection]
        if prompt := [each for each in open_ones if is_prompt(each)]:
            now = asyncio.get_running_loop().time()
            return min(
                prompt,
                key=lambda connection: (connection.throttled_until > now, connection.in_flight),
            )
        bootstrap = self._bootstrap.connection
        if bootstrap is not None:
            if is_prompt(bootstrap):
                return bootstrap
            open_ones.append(bootstrap)
        errors: list[KafkaError] = []
        try:
            connection = await first_to_succeed(await self._attempts(avoid), errors)
        except AuthenticationError:
            if all(each.closed for each in open_ones):
                raise
            connection = None
        if connection is not None:
            return connection
        # No other broker can be reached, and a slow one may still respond.
        if still_open := [connection for connection in open_ones if not connection.closed]:
            return min(still_open, key=lambda connection: connection.waited_s)
        refusal = next((error for error in errors if isinstance(error, AuthenticationError)), None)
        if refusal is not None:
            self._bootstrap.refused(refusal)
            raise refusal
        failure = BrokerConnectionError(
            "no broker responds: " + "; ".join(dict.fromkeys(str(error) for error in errors))
        )
        failure.was_open = any(
            isinstance(error, BrokerConnectionError) and error.was_open for error in errors
        )
        raise failure

    async def _attempts(self, avoid: Collection[Connection | str]) -> list[Attempt]:
        """Return functions that connect to the known nodes, followed by those for the bootstrap
        servers unless a setting forbids these.
        """
        now = asyncio.get_running_loop().time()
        known = [
            node_id
            for node_id in self._nodes
            if self.live(node_id) is None and self.retry_at(node_id) <= now
        ]
        self._rng.shuffle(known)
        known.sort(key=lambda node_id: self._nodes[node_id].address in avoid)
        attempts: list[Attempt] = [partial(self.connection, node_id) for node_id in known]
        bootstrap = self._bootstrap
        if bootstrap.refusal is not None:
            if not attempts:
                raise bootstrap.refusal.with_traceback(None)
            return attempts
        if self._nodes and self._config.metadata_recovery_strategy == "none":
            return attempts
        if bootstrap.connection is not None and not bootstrap.connection.silent:
            return attempts
        return attempts + await bootstrap.attempts()

    def _expected(self, node_id: int) -> tuple[str, int] | None:
        """Return the cluster id and node id that the broker compares with its own (KIP-1242)."""
        config = self._config
        if (
            self.cluster_id is None
            or not config.metadata_cluster_check_enable
            or config.metadata_recovery_strategy == "none"
        ):
            return None
        return self.cluster_id, node_id

    async def _connect(self, node: BrokerAddress, link: BrokerLink) -> Connection:
        begun = asyncio.get_running_loop().time()
        silence = SilenceWatch(lambda: begun, self._on_silence)
        try:
            silence.begin()
            connection = await connect(
                node.host,
                node.port,
                self._config,
                self._rng,
                expected=self._expected(node.node_id),
                accepted=self.accepted,
                failures=link.failures,
                on_closed=partial(self._connection_closed, node, link),
                on_silence=partial(self._connection_silent, link),
            )
        except KafkaError as error:
            self._note_unreachable(node, error)
            self._backoff.note_failure(link, link.failures + 1, error)
            if isinstance(error, BrokerError) and error.code == ErrorCode.REBOOTSTRAP_REQUIRED:
                self._on_misrouted(node.address)
            raise
        else:
            if self._closed or self._links.get(node.node_id) is not link:
                await connection.close()
                raise BrokerConnectionError(
                    f"{connection.address}: the client was closed, or the broker moved, while "
                    "connecting"
                )
            link.failures = 0
            problem = self._unreachable.pop(node.node_id, None)
            if problem is not None:
                log.info(
                    "%s: broker %d (%s) can be reached again, after %.0f s",
                    self._config.client_id,
                    node.node_id,
                    connection.address,
                    problem.seconds(asyncio.get_running_loop().time()),
                )
            link.connection = connection
            self._on_connection(node.node_id, connection.address, True, None)
            connection.idle.is_needed = partial(self._is_needed, node.node_id)
            connection.close_when_idle(self._config.connections_max_idle_ms)
            await self._bootstrap.close_unused()
            return connection
        finally:
            link.connecting = None
            all_in_turn((silence.stop, self._on_change))

    def _note_unreachable(self, node: BrokerAddress, error: KafkaError) -> None:
        problem = self._unreachable.setdefault(node.node_id, LastingProblem(0, LOG_AGAIN_S))
        now = asyncio.get_running_loop().time()
        if problem.lasts(now):
            log.warning(
                "%s: broker %d (%s) can't be reached%s: %s; retrying, logged once a minute",
                self._config.client_id,
                node.node_id,
                node.address,
                problem.duration(now),
                error,
            )

    def _connection_closed(
        self, node: BrokerAddress, link: BrokerLink, connection: Connection
    ) -> None:
        if link.connection is not connection:
            return  # the handshake failed
        error = connection.error
        self._on_connection(node.node_id, connection.address, False, error)
        link.connection = None
        self._backoff.note_failure(link, max(link.failures, 1), error)
        self._on_change()

    def _connection_silent(self, link: BrokerLink) -> None:
        if link.connection is not None:
            self._on_silence()

    def _drop(self, link: BrokerLink, reason: str) -> None:
        if link.connecting is not None:
            link.connecting.cancel()
        if link.connection is not None:
            link.connection.abort(BrokerConnectionError(reason))

    async def close(self) -> None:
        """Close all connections, and wait. If the call is cancelled, they are aborted."""
        self._closed = True
        connecting = [link.connecting for link in self._links.values() if link.connecting]
        for task in connecting:
            task.cancel()
        try:
            if connecting:
                await asyncio.wait(connecting, timeout=1)
            await asyncio.gather(*(each.close() for each in self.open_connections))
        finally:
            self.end()

    def end(self) -> None:
        """Close all connections at once, and allow no further ones."""
        self._closed = True
        for link in self._links.values():
            self._drop(link, "closed by this client")
        self._bootstrap.end()
