"""Takes over shards of the outbox, alone or together with other relays, and sends their rows."""

from __future__ import annotations

import asyncio
import math
import uuid
from collections.abc import Sequence
from functools import partial
from typing import Unpack, cast

from aioprod import (
    AdminSettings,
    BrokerError,
    ClientSettings,
    ConfigError,
    ErrorCode,
    KafkaError,
    ProducerFencedError,
)
from aioprod.admin import Admin, NewTopic
from aioprod.background import Background
from aioprod.closing import close_in_turn
from aioprod.config.checks import check_name, in_range, one_of
from aioprod.interceptors import ProducerInterceptor
from aioprod.logs import Logger, get_logger
from aioprod.outbox.backlog import OutboxBacklog, read_backlog
from aioprod.outbox.databases import make_database
from aioprod.outbox.errors import OutboxError
from aioprod.outbox.refusals import OnRefused
from aioprod.outbox.schema import BUCKETS
from aioprod.outbox.shard import POSITIONS_TOPIC, LostCommits, RelaySettings, Shard
from aioprod.outbox.sharing import changes
from aioprod.outbox.steps import Claim, OtherVersion, Replaced, Steps, TakenOver
from aioprod.outbox.waking import Waking
from aioprod.probes import Probed
from aioprod.public_module import set_module
from aioprod.running_loop import running_loop, start_task

log: Logger = get_logger(__name__)

_DATABASE = -1  # represents the database among the failing shards
_BACKLOG_S = 10.0
_MOST_COUNTED = 100_000
_LEAVE_S = 2.0
_RETRY_S = 1.0
_RETRY_MAX_S = 30.0
_UNHEALTHY_AFTER_S = 60.0


class _Failures:
    """The failing shards, and the times at which they are taken over again."""

    def __init__(self) -> None:
        self._since: dict[int, float] = {}
        self._pauses: dict[int, float] = {}
        self._next: dict[int, float] = {}

    def failed(self, shard: int, now: float) -> bool:
        """Count a failure. Return whether it is the first one."""
        first = shard not in self._since
        self._since.setdefault(shard, now)
        pause = min(_RETRY_MAX_S, 2 * self._pauses.get(shard, _RETRY_S / 2))
        self._pauses[shard], self._next[shard] = pause, now + pause
        return first

    def recovered(self, shard: int) -> bool:
        """Forget the failures of a shard. Return whether there were any."""
        self._pauses.pop(shard, None)
        self._next.pop(shard, None)
        return self._since.pop(shard, None) is not None

    def may_try(self, shard: int, now: float) -> bool:
        """Return whether the pause has ended."""
        return now >= self._next.get(shard, now)

    def wait_s(self, now: float) -> float:
        """Return the seconds until a pause ends; infinity if there is none."""
        return min((max(0.0, each - now) for each in self._next.values()), default=math.inf)

    @property
    def number(self) -> int:
        """The number of failing shards."""
        return len(self._since)

    def oldest(self) -> float | None:
        """Return the start of the oldest failure that continues."""
        return min(self._since.values(), default=None)


@set_module("aioprod.outbox")
class OutboxRelay(Background):
    """Sends the rows of the table ``aioprod_outbox`` to Kafka, and deletes them. Readers with
    ``isolation_level="read_committed"`` see each row exactly once.

    Several relays of a database share the work: each sends the rows of some shards, and takes over
    those of a relay that ends or hangs. With a single shard, one relay sends and the others stand
    by. All relays need the same ``name`` and ``shards``. Rows of a shard are sent in the order of
    their ids, and all rows of a key are in the same shard.

    Use it as ``await relay.run()``, as ``async with relay:``, or as the lifespan of an application.
    A relay can be started once.

    Args:
        database: a URL ``postgresql://...``, or the path of an SQLite file.
        bootstrap_servers: as in :class:`aioprod.Producer`.
        name: the name of the relays. Transactional ids and groups are
            ``aioprod-outbox-NAME-SHARD``.
        shards: the number of parts that the work is divided into, 1 to 64. Change it only while no
            relay is running.
        on_refused: the action if Kafka refuses a row, for example because it is too large. With
            ``"stop_key"``, later rows of its topic and key wait until it is retried or discarded
            (:class:`OutboxAdmin`). With ``"set_aside"``, only the row waits. If a topic does not
            exist or is not authorized, its rows wait and are retried every 30 s.
        max_batch_records: the maximum number of rows in a transaction.
        max_batch_bytes: the size in bytes after which no further row is added to a transaction.
        poll_interval_ms: the interval for reading an empty table if the database sends no
            notifications.
        lease_ms: the time after which another relay takes over from one that ended without
            releasing its shards.
        interceptors: as in :class:`aioprod.Producer`, such as ``OpenTelemetryInterceptor``.
        settings: settings that all clients share, such as security.

    Raises:
        ConfigError: if an argument or a setting is invalid.
        OutboxError: if the database is of an unknown kind.
    """

    def __init__(
        self,
        database: str,
        bootstrap_servers: str = "localhost:9092",
        *,
        name: str = "default",
        shards: int = 1,
        on_refused: OnRefused = "stop_key",
        max_batch_records: int = 1_000,
        max_batch_bytes: int = 4 * 1024 * 1024,
        poll_interval_ms: int = 50,
        lease_ms: int = 10_000,
        interceptors: Sequence[ProducerInterceptor] = (),
        **settings: Unpack[ClientSettings],
    ) -> None:
        self._settings = RelaySettings(
            database,
            bootstrap_servers,
            check_name("name", name),
            in_range(1, BUCKETS)("shards", shards),
            in_range(1, 100_000)("max_batch_records", max_batch_records),
            in_range(1, 64 * 1024 * 1024)("max_batch_bytes", max_batch_bytes),
            in_range(100, 3_600_000)("lease_ms", lease_ms),
            one_of(("stop_key", "set_aside"))("on_refused", on_refused),
            interceptors,
            settings,
        )
        poll_s = in_range(1, 3_600_000)("poll_interval_ms", poll_interval_ms) / 1000
        self._waking = Waking(poll_s)
        self._database = make_database(database)
        self._steps = self._new_steps()
        self._admin = Admin(bootstrap_servers, **cast("AdminSettings", settings))
        self._owner = uuid.uuid4().hex
        self._running: dict[int, tuple[Shard, asyncio.Task[None]]] = {}
        self._failures = _Failures()
        self._beat_at: float | None = None  # the last response of the database
        self._backlog = OutboxBacklog(0, 0, 0, ())
        self._backlog_at = -math.inf
        self._stopping = False
        self._ended = False
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.records_sent: int = 0

    # -- life --------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Send rows until :meth:`stop`, a cancellation or an error. A failure of the database or of
        Kafka after the start is logged, and retried.

        Raises:
            OutboxError: if the database can't be used at the start, lost commits that Kafka has,
                has relays with other ``shards``, or has tables of another version.
            KafkaError: if Kafka can't be used at the start.
        """
        running_loop()
        if self._ended:
            raise ConfigError("run: a relay starts once; make a new one")
        try:
            await self._open()
            await self._coordinate()
        finally:
            self._ended = True
            await close_in_turn(
                self._end_shards, self._leave, self._admin.close, self._database.close
            )

    async def start(self) -> None:
        """Send rows in the background. An error is logged, and raised by :meth:`stop`."""
        if self._task is not None:
            raise ConfigError("start: a relay starts once; make a new one")
        self._task = start_task(self._run_logged(), name="aioprod-outbox-relay")

    async def _run_logged(self) -> None:
        try:
            await self.run()
        except Exception as error:
            log.error("outbox relay ended, no rows are sent any more: %s", error)
            raise

    async def stop(self) -> None:
        """Finish the running transactions, and stop.

        Raises:
            OutboxError, KafkaError: the error that ended the relay.
        """
        self._stopping = True
        self._changed.set()
        if self._task is None:
            return
        try:
            await asyncio.wait([self._task])
        except asyncio.CancelledError:
            self._task.cancel()
            await asyncio.wait([self._task])
            raise
        if not self._task.cancelled():
            self._task.result()

    @property
    def name(self) -> str:
        """The name of the relays that share the work."""
        return self._settings.name

    def _probed(self) -> Probed:
        return Probed(self.ready, self.healthy)

    @property
    def ready(self) -> bool:
        """True if the relay is working: the database has responded within ``lease_ms``, and none of
        the relay's shards is failing.
        """
        beat_at = self._beat_at
        if self._ended or beat_at is None or self._failures.oldest() is not None:
            return False
        return (self._now() - beat_at) * 1000 < self._settings.lease_ms

    @property
    def healthy(self) -> bool:
        """False if the relay has ended with an error, or has failed for a minute."""
        task = self._task
        if task is not None and task.done() and (task.cancelled() or task.exception()):
            return False
        since = self._failures.oldest()
        return since is None or self._now() - since < _UNHEALTHY_AFTER_S

    def metrics(self) -> dict[str, float]:
        """Return counts since the start, and gauges of the outbox that are at most 10 s old. At
        most 100,000 rows are counted.
        """
        backlog = self._backlog
        return {
            "records-sent-total": self.records_sent,
            "shards-owned": len(self._running),
            "shards-failing": self._failures.number,
            "rows-waiting": backlog.rows,
            "rows-refused": backlog.refused,
            "oldest-row-age-seconds": backlog.oldest_age_ms / 1000,
        }

    def metrics_by_shard(self) -> dict[int, dict[str, float]]:
        """Return the gauges of each shard, including those of other relays."""
        return {
            each.shard: {
                "rows-waiting": each.rows,
                "oldest-row-age-seconds": each.oldest_age_ms / 1000,
            }
            for each in self._backlog.shards
        }

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    # -- sharing the work --------------------------------------------------------------------------

    async def _open(self) -> None:
        await self._connect()
        await self._admin.start()
        try:
            await self._admin.create_topics(NewTopic(POSITIONS_TOPIC, num_partitions=1))
        except BrokerError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    async def _connect(self) -> None:
        await self._database.open()
        self._steps = self._new_steps()
        await self._steps.set_up()
        await self._database.listen(self._waking.notify, self._disconnected)

    def _new_steps(self) -> Steps:
        return Steps(self._database, self._settings.name, self._settings.shards)

    def _disconnected(self) -> None:
        self._waking.distrust()
        self._changed.set()

    async def _coordinate(self) -> None:
        beat_s = self._settings.lease_ms / 3000
        while True:
            self._changed.clear()
            self._collect()
            if self._stopping:
                for shard, _ in self._running.values():
                    shard.stop()
            try:
                await self._beat()
            except (LostCommits, OtherVersion, Replaced):
                raise
            except OutboxError as error:
                await self._reconnect(error)
            else:
                if self._failures.recovered(_DATABASE):
                    log.info("outbox database: works again")
            if self._stopping and not self._running:
                return
            await self._wait(min(beat_s, self._failures.wait_s(self._now())))

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _collect(self) -> None:
        """Remove the shards that have ended.

        Raises:
            Exception: an error that ends the relay.
        """
        for number, (_, task) in list(self._running.items()):
            if task.done():
                del self._running[number]
                task.result()

    async def _beat(self) -> None:
        settings = self._settings
        leases, members = await self._steps.beat(
            self._owner, settings.lease_ms, list(self._running)
        )
        self._beat_at = self._now()
        for lease in leases:
            if lease.valid and lease.owner != self._owner:
                self._failures.recovered(lease.shard)
        if self._stopping:
            return
        free, surplus = changes(self._owner, leases, members, self._running)
        for number in surplus:
            self._running[number][0].stop()
        for number in free:
            if self._failures.may_try(number, self._now()):
                claim = await self._steps.take_over(number, self._owner, settings.lease_ms)
                if claim is not None:
                    self._begin(claim)
        if self._now() - self._backlog_at >= _BACKLOG_S:
            self._backlog = await self._database.transact(read_backlog(_MOST_COUNTED))
            self._backlog_at = self._now()

    def _begin(self, claim: Claim) -> None:
        report = partial(self._report, claim.shard)
        shard = Shard(self._settings, claim, self._admin, self._waking, report)
        task = start_task(self._send(claim, shard), name=f"aioprod-outbox-shard-{claim.shard}")
        self._running[claim.shard] = shard, task

    async def _send(self, claim: Claim, shard: Shard) -> None:
        try:
            await shard.run()
        except LostCommits:
            raise
        except (TakenOver, ProducerFencedError) as error:
            log.info("outbox shard %d: another relay has taken over (%s)", claim.shard, error)
        except KafkaError as error:
            self._failed(claim.shard, f"shard {claim.shard}", error)
        finally:
            self._changed.set()

    def _report(self, shard: int, rows: int) -> None:
        self.records_sent += rows
        if self._failures.recovered(shard):
            log.info("outbox shard %d: works again", shard)

    def _failed(self, number: int, name: str, error: KafkaError) -> None:
        if self._failures.failed(number, self._now()):
            log.warning(
                "outbox %s failed; trying again, further failures not logged until it works: %s",
                name,
                error,
            )

    async def _reconnect(self, error: OutboxError) -> None:
        self._failed(_DATABASE, "database", error)
        await self._database.close()
        self._database = make_database(self._settings.database)
        try:
            await self._connect()
        except (OtherVersion, Replaced):
            raise
        except OutboxError as another:
            self._failed(_DATABASE, "database", another)

    # -- the end -----------------------------------------------------------------------------------

    async def _end_shards(self) -> None:
        tasks = [task for _, task in self._running.values()]
        for task in tasks:
            task.cancel()
        while any(not task.done() for task in tasks):
            await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled():
                task.exception()

    async def _leave(self) -> None:
        """Let other relays take over immediately. If this fails, they wait until the leases
        expire.
        """
        try:
            async with asyncio.timeout(_LEAVE_S):
                await self._steps.leave(self._owner)
        except (OutboxError, TimeoutError):
            pass
