"""The tables of the page: what each cell compares."""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks import (
    bursts,
    clusters,
    consumer,
    distance,
    event_loops,
    growth,
    latency,
    memory,
    processing,
    producer,
    start,
    steady,
    transactions,
    trickle,
    webapp,
)
from benchmarks.publish.parts import CODEC_SIZES, CODECS
from benchmarks.sharing import CASE as SHARING
from benchmarks.webapp_server import FRAMEWORKS, NO_KAFKA, WAITING

C, AIO, PRODUCER = "confluent-kafka", "aiokafka", "confluent-kafka AIOProducer"
FRANZ_GO, JAVA, PURE = "franz-go", "java", "aioprod-pure"


@dataclass(frozen=True, slots=True)
class Cell:
    """The content of a cell: the median of a metric, or of its ratio in each round.

    Attributes:
        metric: a name of the part's metrics.
        baseline: a client, for a ratio.
        base_case: a case, for a ratio.
        ranges: whether the smallest and largest value are shown.
    """

    part: str = ""
    case: str = ""
    client: str = "aioprod"
    metric: str = "rate"
    baseline: str = ""
    base_case: str = ""
    ranges: bool = True


@dataclass(frozen=True, slots=True)
class Column:
    """A column; its cell has what the row's does not say."""

    title: str
    cell: Cell


@dataclass(frozen=True, slots=True)
class Row:
    """A row; what it says replaces what the columns say."""

    title: str
    part: str
    case: str
    client: str = ""
    base_case: str = ""
    baseline: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells, with a title for the rows."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

    def cell(self, row: Row, column: Column) -> Cell:
        """Return what a cell shows."""
        cell = column.cell
        return replace(
            cell,
            part=row.part,
            case=row.case,
            client=row.client or cell.client,
            base_case=row.base_case or cell.base_case,
            baseline=row.baseline or cell.baseline,
        )


def _value(title: str, client: str, metric: str, *, ranges: bool = False) -> Column:
    return Column(title, Cell(client=client, metric=metric, ranges=ranges))


def _ratio(title: str, client: str, metric: str, baseline: str) -> Column:
    return Column(title, Cell(client=client, metric=metric, baseline=baseline))


_NAMES = {
    producer.HEADLINE: "100 B",
    producer.KEYED: "10,000 keys, 6 partitions",
    producer.HEADERS: "two headers",
    producer.SMALL: "10 B",
    producer.LARGE: "1,000 B",
}
_HEADLINE = producer.HEADLINE.name
_POINTS = tuple(Row(title, "sending", point.name) for point, title in _NAMES.items())
_PLACES = tuple(
    (far, partitions, distance.case_of(far, partitions))
    for far in distance.ROUND_TRIPS_MS
    for partitions in distance.PARTITIONS
)
_FAR_COLUMNS = tuple(
    Column(client, Cell(client=client, ranges=client == "aioprod")) for client in distance.CLIENTS
)
_TRANSACTORS = ("aioprod", C, JAVA, AIO)
_GROWN = {
    growth.BROKERS: "3 brokers, 6 partitions, keys",
    "partitions, no keys": "5,000 partitions",
    "partitions, 7,000 keys, full batches": "1,000 partitions, 7,000 keys, full batches",
    "tasks": "10,000 tasks",
    "producers": "50 producers",
}

TABLES = {
    "sending": Table(
        "records",
        (
            _ratio("records/s, times confluent-kafka's", "aioprod", "rate", C),
            _ratio("CPU, times confluent-kafka's", "aioprod", "cpu", C),
        ),
        (
            *_POINTS,
            Row("`send_many`, lists of 1,000", "bulk", _HEADLINE, "aioprod send_many"),
            Row("`send_arrow`, 10,000 rows", "bulk", _HEADLINE, "aioprod send_arrow"),
        ),
    ),
    "others": Table(
        "aioprod, times",
        (
            _ratio("records/s: franz-go", "aioprod", "rate", FRANZ_GO),
            _ratio("Java", "aioprod", "rate", JAVA),
            _ratio("without the accelerator", "aioprod", "rate", PURE),
            _ratio("CPU: franz-go", "aioprod", "cpu", FRANZ_GO),
            _ratio("Java", "aioprod", "cpu", JAVA),
            _ratio("without the accelerator", "aioprod", "cpu", PURE),
        ),
        _POINTS,
    ),
    "python": Table(
        "100 B, times confluent-kafka's `produce`",
        (_ratio("records/s", "", "rate", C), _ratio("CPU", "", "cpu", C)),
        tuple(
            Row(title, "python", _HEADLINE, client)
            for title, client in (
                ("`AIOProducer`", PRODUCER),
                ("aiokafka", AIO),
                ("kafka-python", "kafka-python"),
            )
        ),
    ),
    "codecs": Table(
        "aioprod, times",
        (
            _ratio("records/s: confluent-kafka", "aioprod", "rate", C),
            _ratio("CPU: confluent-kafka", "aioprod", "cpu", C),
            _ratio("franz-go", "aioprod", "cpu", FRANZ_GO),
        ),
        tuple(
            Row(f"{codec}, {size:,} B", "codecs", point.name)
            for size in CODEC_SIZES
            for codec in CODECS
            for point in [producer.Point(value_size=size, compression_type=codec)]
        ),
    ),
    "lone": Table(
        "times a raw round trip",
        (
            _ratio("p50", "aioprod", "p50", latency.RAW),
            _ratio("p99", "aioprod", "p99", latency.RAW),
            _value("p50, ms", "aioprod", "p50"),
            _ratio("aiokafka: p50", AIO, "p50", latency.RAW),
            _ratio("p99", AIO, "p99", latency.RAW),
        ),
        tuple(
            Row(title, part, latency.ONE_AT_A_TIME)
            for title, part in (("asyncio", "lone"), ("uvloop", "lone-uvloop"))
        ),
    ),
    "event-loops": Table(
        "CPU us per record",
        (
            _value("asyncio", "aioprod", "cpu"),
            _value("uvloop", "aioprod (uvloop)", "cpu"),
            _ratio("ratio", "aioprod (uvloop)", "cpu", "aioprod"),
        ),
        tuple(
            Row(case, "event-loops", case)
            for tasks in event_loops.TASKS
            for case in [f"{tasks:,} tasks" if tasks > 1 else "1 task"]
        ),
    ),
    "webapp": Table(
        "framework, connections",
        (
            _ratio("requests/s, times without Kafka", "aioprod", "rate", NO_KAFKA),
            _ratio("aiokafka", AIO, "rate", NO_KAFKA),
            _value("client's CPU us: aioprod", "aioprod", "share"),
            _value("aiokafka", AIO, "share"),
            _value("`AIOProducer`", PRODUCER, "share"),
            _value("waiting, no Kafka", WAITING, "share"),
            _value("p50 ms: aioprod", "aioprod", "p50"),
            _value("aiokafka", AIO, "p50"),
            _value("p99 ms: aioprod", "aioprod", "p99"),
            _value("aiokafka", AIO, "p99"),
        ),
        tuple(
            Row(case, "webapp", case)
            for framework in FRAMEWORKS
            for connections in webapp.CONNECTIONS
            for case in [webapp.case_of(framework, connections)]
        ),
    ),
    "reading": Table(
        "CPU",
        (
            _value("`async for`, us", "aioprod async for", "cpu"),
            _ratio("times confluent-kafka", "aioprod async for", "cpu", consumer.BASELINE),
            _ratio("times franz-go", "aioprod async for", "cpu", FRANZ_GO),
            _value("`getmany`, us", "aioprod getmany", "cpu"),
            _ratio("times confluent-kafka", "aioprod getmany", "cpu", consumer.BASELINE),
            _ratio("times franz-go", "aioprod getmany", "cpu", FRANZ_GO),
            _ratio("times Java", "aioprod getmany", "cpu", JAVA),
        ),
        tuple(Row(point.name, "reading", point.name) for point in consumer.POINTS),
    ),
    "trickle": Table(
        "CPU us per record",
        (
            _value("aioprod", trickle.AIOPROD, "cpu"),
            _value("confluent-kafka", trickle.BASELINE, "cpu"),
            _value("aiokafka", trickle.AIOKAFKA, "cpu"),
            _ratio("times confluent-kafka", trickle.AIOPROD, "cpu", trickle.BASELINE),
            _ratio("times aiokafka", trickle.AIOPROD, "cpu", trickle.AIOKAFKA),
        ),
        tuple(Row(case, "trickle", case) for case in map(trickle.case_of, trickle.PARTITIONS)),
    ),
    "arrow": Table(
        "`getarrow`, times the line rate of Fetch",
        (_ratio("records/s", "aioprod getarrow", "rate", consumer.LINE_RATE),),
        tuple(
            Row(point.name, "reading", point.name) for point in (consumer.HEADLINE, consumer.LARGE)
        ),
    ),
    **{
        part: Table(
            "response later by",
            _FAR_COLUMNS,
            tuple(Row(case, part, case) for _, _, case in _PLACES),
        )
        for part in ("far-sending", "far-reading")
    },
    "transactions": Table(
        "transactions/s",
        (
            *(Column(name, Cell(client=name, ranges=name == "aioprod")) for name in _TRANSACTORS),
            _ratio("aioprod, times confluent-kafka", "aioprod", "rate", C),
        ),
        tuple(
            Row(case, "transactions", case)
            for brokers in transactions.BROKERS
            for each in transactions.SIZES
            for case in [transactions.case_of(brokers, each)]
        ),
    ),
    "clusters": Table(
        "CPU, times one broker without TLS",
        (_value("aioprod", "aioprod", "cpu", ranges=True), _value(C, C, "cpu", ranges=True)),
        tuple(
            Row(
                clusters.case_of(size, name),
                "clusters",
                clusters.case_of(size, name),
                base_case=clusters.case_of(size, clusters.ONE),
            )
            for name in clusters.LIMITS
            for size in clusters.SIZES
        ),
    ),
    "growth": Table(
        "with",
        (_value("CPU, times one of each", "aioprod", "cpu", ranges=True),),
        tuple(
            Row(
                title,
                "growth",
                growth.AXES[axis][-1].name,
                base_case=growth.AXES[axis][0].name,
            )
            for axis, title in _GROWN.items()
        ),
    ),
    "bursts": Table(
        "10,000 tasks at once, times 500",
        (_value("CPU of a record", "", "cpu", ranges=True),),
        tuple(
            Row(
                client,
                "bursts",
                f"{bursts.TASKS[-1]:,} tasks",
                client,
                f"{bursts.TASKS[0]:,} tasks",
            )
            for client in bursts.CLIENTS
        ),
    ),
    "memory": Table(
        "growth in buffers",
        (_value("aioprod", "aioprod", "growth"), _value(C, C, "growth")),
        tuple(
            Row(case, "memory", case)
            for keep in (False, True)
            for size in memory.SIZES
            for case in [memory.case(size, keep)]
        ),
    ),
    "start": Table(
        "",
        (
            _value("CPU ms: aioprod", "aioprod", "cpu"),
            _value(C, C, "cpu"),
            _value("aiokafka", AIO, "cpu"),
            _value("MB: aioprod", "aioprod", "memory"),
            _value(C, C, "memory"),
            _value("aiokafka", AIO, "memory"),
        ),
        tuple(Row(case, "start", case) for case in (start.IMPORT, start.FIRST_RECORD)),
    ),
    "steady": Table(
        "2,000 records/s for 15 minutes",
        (
            _value("RSS MB", "aioprod", "memory", ranges=True),
            _value("CPU %", "aioprod", "cpu", ranges=True),
            _value("p99 ms", "aioprod", "p99", ranges=True),
        ),
        tuple(Row(case, "steady", case) for case in (steady.FIRST, steady.LAST)),
    ),
    "processing": Table(
        "aioprod, times",
        (
            Column("records/s", Cell(metric="rate")),
            Column("CPU", Cell(metric="cpu")),
        ),
        (
            *(
                Row(f"parallel-consumer, {case}", "processing", case, baseline="parallel-consumer")
                for concurrency in (16, 100, 1_000)
                for case in [processing.case_of(concurrency)]
            ),
            Row("Java's share consumer", "sharing", SHARING, baseline=JAVA),
        ),
    ),
    "registry": Table(
        "CPU",
        (
            _value("us", "aioprod", "cpu"),
            _ratio("times confluent-kafka", "aioprod", "cpu", C),
            _ratio("times fastavro", "aioprod", "cpu", "fastavro"),
        ),
        tuple(
            Row(case, "registry", case)
            for case in (
                "write dicts",
                "write dataclasses",
                "write a column",
                "read dicts",
                "read dataclasses",
                "read a column",
            )
        ),
    ),
}
