"""The pipeline's command line, also the main file for ``spark-submit``:
``python -m aioprod.demo.pipeline --help``.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from aioprod.config.properties_file import read_settings, warn_of_secrets
from aioprod.demo.pipeline.delays import WATERMARK
from aioprod.demo.pipeline.options import MAX_OFFSETS_PER_TRIGGER, PipelineOptions
from aioprod.demo.pipeline.run import PipelineResult, run_pipeline
from aioprod.errors import ConfigError
from aioprod.spark.page import PageError
from aioprod.spark.pipeline.running import failure_reason
from aioprod.spark.pipeline.watching import Watch, add_watching, watched
from aioprod.spark.progress import QueryProgress
from aioprod.spark.session import spark_session_builder
from aioprod.testing.cache import SetupError

INTERRUPTED = 130
"""The exit status after Ctrl-C: 128 + SIGINT."""

PROGRAM = "aioprod.demo.pipeline"
"""The name in messages and in the help."""

_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the pipeline.

    Returns:
        The exit status: 0 on success, 1 on failure, 2 for wrong usage, 3 if the lag at the end or
        the dead letters of the run exceed their limits, 130 if Ctrl-C ended a run without
        ``--follow``.
    """
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        kafka = _kafka(given)
    except ConfigError as error:
        parser.error(str(error))
    stop = threading.Event()
    try:
        with (
            _stopped_by_signals(stop) if given.follow else nullcontext(),
            watched(given, PROGRAM, f"pipeline of {given.topic}") as watch,
            _shown(given.progress) as show,
        ):
            result = _run(given, kafka, stop, watch, show)
    except (PySparkException, TimeoutError, SetupError, PageError) as error:
        print(f"{PROGRAM}: {failure_reason(str(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    print(_summary(result, as_json=given.progress == "json"), flush=True)
    return watch.status()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Reads flight events (JSON) from a topic. Writes delays by carrier and hour to "
        "another topic, exactly once, and to Parquet; the worst routes to Parquet; and records "
        "that are not events to a dead-letter topic. Resumes from an earlier run's checkpoint.",
        allow_abbrev=False,
    )
    _add_places(parser)
    _add_limits(parser)
    _add_clients(parser)
    add_watching(parser)
    ways = ("table", "lines", "json", "none")
    parser.add_argument(
        "--progress",
        choices=ways,
        default=_default_progress(),
        help="how to show progress (default here: %(default)s)",
    )
    return parser


def _add_places(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--bootstrap-servers", required=True, metavar="HOST:PORT[,...]", help="the Kafka cluster"
    )
    parser.add_argument(
        "--topic", default="flights", help="the topic of the events (default: %(default)s)"
    )
    parser.add_argument(
        "--sink-topic",
        default="flights.delays",
        help="the topic for the delays (default: %(default)s)",
    )
    parser.add_argument(
        "--dead-letter-topic",
        help="the topic for records that are not events (default: TOPIC.dead-letters)",
    )
    parser.add_argument(
        "--out",
        required=True,
        metavar="DIR",
        help="directory or URL of the Parquet files, shared by all executors",
    )
    parser.add_argument(
        "--checkpoint",
        required=True,
        metavar="DIR",
        help="directory or URL of the queries' checkpoints; belongs to --out",
    )


def _add_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--max-offsets-per-trigger",
        type=int,
        default=MAX_OFFSETS_PER_TRIGGER,
        metavar="N",
        help="maximum number of records in a micro-batch; 0: no limit (default: %(default)s)",
    )
    parser.add_argument(
        "--watermark",
        default=WATERMARK,
        metavar="TIME",
        help="how late an event may be (default: %(default)s)",
    )
    parser.add_argument("--follow", action="store_true", help="read until Ctrl-C or SIGTERM")
    parser.add_argument(
        "--timeout",
        type=float,
        default=3600,
        metavar="S",
        help="time limit in seconds without --follow (default: %(default)s)",
    )


def _add_clients(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format",
        choices=("aioprod", "kafka"),
        default="aioprod",
        help="the source and sink: this library's, or Spark's own",
    )
    parser.add_argument(
        "--kafka",
        type=_setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a client setting; may be repeated",
    )
    parser.add_argument(
        "--kafka-file",
        type=Path,
        metavar="FILE",
        help="a properties file with client settings: for passwords",
    )
    parser.add_argument(
        "--master",
        metavar="URL",
        help="Spark's master (default: that of spark-submit, else local[*])",
    )


def _default_progress() -> str:
    return (
        "table" if sys.stderr.isatty() and importlib.util.find_spec("rich") is not None else "lines"
    )


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(
            "must be NAME=VALUE, for example security.protocol=SASL_SSL"
        )
    return name.removeprefix("kafka."), value


def _kafka(given: argparse.Namespace) -> dict[str, str]:
    """Return the ``kafka.*`` options; the command line overrides the file."""
    lines = read_settings(given.kafka_file, "--kafka-file") if given.kafka_file is not None else {}
    warn_of_secrets(dict(given.kafka), "--kafka", "--kafka-file")
    settings = {name.removeprefix("kafka."): value for name, value in lines.items()}
    return {f"kafka.{name}": value for name, value in {**settings, **dict(given.kafka)}.items()}


def _run(
    given: argparse.Namespace,
    kafka: dict[str, str],
    stop: threading.Event,
    watch: Watch,
    show: Callable[[QueryProgress], None],
) -> PipelineResult:
    def add(progress: QueryProgress) -> None:
        watch.add(progress)
        show(progress)

    options = PipelineOptions(
        bootstrap_servers=given.bootstrap_servers,
        out_dir=given.out.rstrip("/"),
        checkpoint_dir=given.checkpoint.rstrip("/"),
        topic=given.topic,
        sink_topic=given.sink_topic,
        dead_letter_topic=given.dead_letter_topic,
        source_format=given.format,
        max_offsets_per_trigger=given.max_offsets_per_trigger or None,
        watermark=given.watermark,
        kafka=kafka,
    )
    builder = spark_session_builder(
        given.master,
        app_name="aioprod pipeline",
        short_run=False if given.follow else None,  # it may run for years
    )
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    _limit_shuffle(spark)
    watch.running(spark.sparkContext.uiWebUrl)
    try:
        return run_pipeline(
            spark,
            options,
            follow=given.follow,
            stop=stop,
            on_progress=add,
            signs=watch.signs,
            timeout_s=given.timeout,
        )
    finally:
        spark.stop()


def _limit_shuffle(spark: SparkSession) -> None:
    """Set as many shuffle partitions as task slots, unless they were set: Spark's 200 cost seconds
    in each micro-batch.
    """
    if not spark.sparkContext.getConf().contains(_SHUFFLE_PARTITIONS):
        spark.conf.set(_SHUFFLE_PARTITIONS, str(max(2, spark.sparkContext.defaultParallelism)))


@contextmanager
def _stopped_by_signals(stop: threading.Event) -> Iterator[None]:
    """Set ``stop`` on Ctrl-C and SIGTERM, so that running micro-batches complete."""
    before = {
        number: signal.signal(number, lambda *_: stop.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _shown(way: str) -> Iterator[Callable[[QueryProgress], None]]:
    """Show progress as chosen, on standard error."""
    if way == "table":
        from rich.console import Console
        from rich.live import Live

        from aioprod.spark.pipeline.table import ProgressTable

        table = ProgressTable()
        with Live(table, console=Console(stderr=True), refresh_per_second=4):
            yield table.add
    else:
        yield _PRINTERS[way]


def _print_line(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


_PRINTERS: dict[str, Callable[[QueryProgress], None]] = {
    "lines": lambda progress: _print_line(str(progress)),
    "json": lambda progress: _print_line(json.dumps(asdict(progress), default=str)),
    "none": lambda progress: None,
}


def _summary(result: PipelineResult, *, as_json: bool) -> str:
    counts = {
        "rows_read": result.rows_read,
        "dead_letters": result.dead_letters,
        "late": result.late,
    }
    paths = {"delays_path": result.delays_path, "routes_path": result.routes_path}
    if as_json:
        return json.dumps({**counts, **paths})
    return (
        f"{result.rows_read:,} records read, {result.dead_letters:,} of them dead letters, "
        f"{result.late:,} events dropped as late\n"
        f"{len(result.delays):,} carriers by hours in {result.delays_path}, "
        f"{len(result.routes):,} routes in {result.routes_path}"
    )


if __name__ == "__main__":
    sys.exit(main())
