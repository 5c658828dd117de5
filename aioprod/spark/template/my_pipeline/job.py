"""The job: `python -m my_pipeline.job --help`, or the main file for `spark-submit`."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from aioprod.config.properties_file import read_settings
from aioprod.errors import ConfigError
from aioprod.spark import (
    ProgressListener,
    QueryProgress,
    QuerySigns,
    register,
    spark_session_builder,
)
from aioprod.spark.page import PageError
from aioprod.spark.pipeline import add_watching, dead_letters, reason_of, run_queries, watched
from my_pipeline import sink
from my_pipeline.schema import events, reason, value_options

NAME = "my-pipeline"
WINDOW = "1 minute"
WATERMARK = "10 minutes"
"""The watermark: an event that is older than the newest one by more is dropped and counted."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The input, the output, and where to keep the progress. The name of the topic of dead letters
    begins with the input's name.
    """

    bootstrap_servers: str
    checkpoint: str
    topic: str = NAME
    output: str = sink.OUTPUT
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)  # may have passwords

    @property
    def client(self) -> dict[str, str]:
        """The options that the source and the sinks share."""
        return {**self.kafka, "kafka.bootstrap.servers": self.bootstrap_servers}


def read_records(
    spark: SparkSession, options: Options, span: tuple[datetime, datetime] | None = None
) -> DataFrame:
    """Read the topic's committed records as a stream, from the beginning or from the end of the
    last run. With a span of time, read the records with timestamps in it as a batch.
    """
    settings = {
        "subscribe": options.topic,
        "kafka.isolation.level": "read_committed",
        "includeHeaders": "true",
        "includeRawValue": "true",
        **value_options(),
    }
    if span is None:
        settings["startingOffsets"] = "earliest"
        return spark.readStream.format("aioprod").options(**options.client, **settings).load()
    begin, end = (str(int(moment.timestamp() * 1000)) for moment in span)
    settings |= {
        "startingTimestamp": begin,
        "startingOffsetsByTimestampStrategy": "latest",  # for partitions without later records
        "endingTimestamp": end,
    }
    return spark.read.format("aioprod").options(**options.client, **settings).load()


def without_duplicates(events: DataFrame) -> DataFrame:
    """Return each event once, by its id. A stream remembers an id for `WATERMARK` after the time of
    its event.
    """
    if events.isStreaming:
        return events.dropDuplicatesWithinWatermark(["id"])
    return events.dropDuplicates(["id"])


def totals(records: DataFrame) -> DataFrame:
    """Return sales by item and minute; each minute once, after the watermark has passed it."""
    by_minute = (
        without_duplicates(events(records).withWatermark("at", WATERMARK))
        .groupBy(F.window("at", WINDOW).alias("window"), "item")
        .agg(F.count("*").alias("sales"), F.sum("price").alias("total"))
    )
    return by_minute.select("item", F.col("window.start").alias("minute"), "sales", "total")


def run(
    spark: SparkSession,
    options: Options,
    *,
    follow: bool = False,
    stop: threading.Event | None = None,
    on_progress: Callable[[QueryProgress], None] | None = None,
    signs: QuerySigns | None = None,
    timeout_s: float = 3600,
) -> None:
    """Read all existing events, or with `follow` until `stop` is set.

    Raises:
        pyspark.errors.StreamingQueryException: if a query failed.
        TimeoutError: if a run without `follow` took longer than `timeout_s` seconds.
    """
    register(spark)
    records = read_records(spark, options)
    rejected = dead_letters(records, reason(), "rawValue", observed=True)
    writers = {
        "totals": sink.write_stream(totals(records), options.client, options.output),
        "dead-letters": rejected.writeStream.format("aioprod")
        .options(**options.client)
        .option("topic", f"{options.topic}.dead-letters"),
    }
    started = [_with_progress(each, name, options, follow) for name, each in writers.items()]
    listener = ProgressListener(on_progress, signs)
    spark.streams.addListener(listener)
    try:
        queries = run_queries(started, stop, follow=follow, timeout_s=timeout_s)
        listener.wait_until_ended([str(query.runId) for query in queries], 10)
    finally:
        spark.streams.removeListener(listener)


def backfill(spark: SparkSession, options: Options, span: tuple[datetime, datetime]) -> None:
    """Write the totals and dead letters of a span of time again, with the same functions, to
    separate outputs. A second call with the same span changes nothing.
    """
    register(spark)
    records = read_records(spark, options, span)
    begin, end = (f"{moment.astimezone(UTC):%Y%m%dT%H%M%SZ}" for moment in span)
    sink.write_span(totals(records), options.client, options.output, f"{begin}-{end}")
    topic = f"{options.topic}.dead-letters.backfill"
    once = {"txnAppId": f"{topic}-{begin}-{end}", "txnVersion": "0"}
    writer = dead_letters(records, reason(), "rawValue").write.format("aioprod").mode("append")
    writer.options(**options.client, **once, topic=topic).save()


def _with_progress(
    writer: DataStreamWriter, name: str, options: Options, follow: bool
) -> DataStreamWriter:
    writer = writer.queryName(name).option("checkpointLocation", f"{options.checkpoint}/{name}")
    if follow:
        return writer.trigger(processingTime="0 seconds")
    return writer.trigger(availableNow=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=NAME, description=__doc__)
    parser.add_argument("--bootstrap-servers", default="localhost:9092", metavar="HOST:PORT[,...]")
    parser.add_argument("--topic", default=NAME, help="the topic of the events")
    parser.add_argument(
        "--output", default=sink.OUTPUT, help=f"{sink.OUTPUT_HELP} (default: %(default)s)"
    )
    parser.add_argument("--checkpoint", default="checkpoint", metavar="DIR")
    parser.add_argument("--follow", action="store_true", help="read until Ctrl-C or SIGTERM")
    parser.add_argument(
        "--backfill",
        nargs=2,
        type=_time,
        metavar=("FROM", "UNTIL"),
        help="only compute the totals of this span again; times such as 2026-01-31T00:00:00Z",
    )
    parser.add_argument(
        "--kafka-file", type=Path, metavar="FILE", help="settings: NAME=VALUE lines"
    )
    add_watching(parser)
    return parser


def _time(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time of ISO 8601") from None
    if moment.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} has no zone; write {text}Z for UTC")
    return moment


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit status (see README.md)."""
    given = _parser().parse_args(arguments)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        with watched(given, NAME, NAME) as watch:
            settings = read_settings(given.kafka_file, "--kafka-file") if given.kafka_file else {}
            options = Options(
                bootstrap_servers=given.bootstrap_servers,
                checkpoint=given.checkpoint,
                topic=given.topic,
                output=given.output,
                kafka={f"kafka.{name}": value for name, value in settings.items()},
            )

            def on_progress(progress: QueryProgress) -> None:
                print(progress, file=sys.stderr, flush=True)
                watch.add(progress)

            builder = spark_session_builder(app_name=NAME).config(map={**sink.session_settings()})
            spark = builder.getOrCreate()
            spark.sparkContext.setLogLevel("ERROR")
            watch.running(spark.sparkContext.uiWebUrl)
            try:
                if given.backfill is not None:
                    backfill(spark, options, tuple(given.backfill))
                else:
                    run(
                        spark,
                        options,
                        follow=given.follow,
                        stop=stop,
                        on_progress=on_progress,
                        signs=watch.signs,
                    )
            finally:
                spark.stop()
    except (PySparkException, ConfigError, PageError, TimeoutError) as error:
        print(f"{NAME}: {reason_of(error)}", file=sys.stderr)
        return 1
    return watch.status()


if __name__ == "__main__":
    sys.exit(main())
