"""The parts of the page: a command each, whose numbers a JSON file keeps."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import (
    bursts,
    clusters,
    consumer,
    distance,
    growth,
    latency,
    memory,
    processing,
    producer,
    registry,
    scaling,
    start,
    steady,
    transactions,
    trickle,
    webapp,
)
from benchmarks.ceilings import Ceiling
from benchmarks.results import Metric, Results
from benchmarks.targets import GrowthTarget, Target
from benchmarks.webapp_server import FRAMEWORKS

MEASURED = Path(__file__).parent / "measured"
CODECS = ("lz4", "zstd", "snappy")
CODEC_SIZES = (100, 1_000)

_Targets = Callable[[Results], Sequence[Target]]


@dataclass(frozen=True, slots=True)
class Part:
    """A command of ``benchmarks``.

    Attributes:
        name: name of its JSON file.
        module: the benchmark.
        arguments: for the page.
        quick: more arguments, for a test of the command.
        minutes: how long it takes on two cores.
        metrics: by the names that the page uses.
        targets: returns the targets for what was measured.
        takes_broker: whether the command accepts ``--bootstrap``.
    """

    name: str
    module: str
    arguments: tuple[str, ...]
    quick: tuple[str, ...]
    minutes: float
    metrics: Mapping[str, Metric]
    targets: _Targets = field(default=lambda results: ())
    ceilings: Sequence[Ceiling] = ()
    growth: Sequence[GrowthTarget] = ()
    takes_broker: bool = True

    @property
    def file(self) -> Path:
        """The numbers."""
        return MEASURED / f"{self.name}.json"


@dataclass(frozen=True, slots=True)
class Published:
    """The numbers of a part.

    Attributes:
        about: the other fields of the file: machine, date, interpreter.
    """

    part: Part
    results: Results
    about: Mapping[str, Any]


def _always(targets: Sequence[Target]) -> _Targets:
    return lambda results: targets


def _far(results: Results) -> list[Target]:
    return [
        Target(case, "aioprod", distance.RATE, distance.best(results, case), "at least", 0.8)
        for case in results.rounds
    ]


_ONCE = ("--repetitions", "1")
_SENT = {"rate": producer.RATE, "cpu": producer.CPU}
_PRODUCER_QUICK = (*_ONCE, "--seconds", "0.02")
_LATENCY = {"p50": latency.P50, "p99": latency.P99}
_LATENCY_ARGUMENTS = ("--rates", "--clients", "aioprod,confluent-kafka,aiokafka")
_FAR = {"rate": distance.RATE}
_FAR_ARGUMENTS = ("--records", "100000", "--repetitions", "3", "--directions")
_FAR_QUICK = (
    *("--round-trips", "5", "--partitions", "1", "--records", "2000"),
    *("--clients", "aioprod,confluent-kafka", *_ONCE),
)
_READ_WITH = (
    "aioprod async for,aioprod getmany,aioprod getarrow,confluent-kafka consume,"
    "aiokafka async for,aiokafka getmany,franz-go,java,line rate of Fetch"
)
_COSTS = {"rate": processing.RATE, "cpu": processing.CPU}

PARTS = (
    Part(
        "sending",
        "producer",
        ("--clients", "aioprod,aioprod-pure,confluent-kafka,franz-go,java", "--seconds", "1"),
        (*_PRODUCER_QUICK, "--clients", "aioprod,confluent-kafka", "--value-size", "100"),
        5,
        _SENT,
        _always(producer.TARGETS),
    ),
    Part(
        "bulk",
        "producer",
        (
            *("--clients", "aioprod send_many,aioprod send_arrow,confluent-kafka,line rate"),
            *("--value-size", "100", "--seconds", "1"),
        ),
        _PRODUCER_QUICK,
        1,
        _SENT,
        _always(producer.TARGETS),
    ),
    Part(
        "python",
        "producer",
        (
            "--clients",
            "aioprod,confluent-kafka,confluent-kafka AIOProducer,aiokafka,kafka-python",
            *("--value-size", "100", "--seconds", "1"),
        ),
        (*_PRODUCER_QUICK, "--clients", "confluent-kafka,aiokafka"),
        1,
        _SENT,
        _always(producer.TARGETS),
    ),
    Part(
        "codecs",
        "producer",
        (
            *("--clients", "aioprod,confluent-kafka,franz-go", "--seconds", "0.7"),
            *("--value-size", ",".join(map(str, CODEC_SIZES))),
            *("--compression-type", ",".join(CODECS)),
        ),
        (*_PRODUCER_QUICK, "--clients", "aioprod,confluent-kafka", "--value-size", "100"),
        3,
        _SENT,
    ),
    Part(
        "lone",
        "latency",
        _LATENCY_ARGUMENTS,
        ("--records", "20", "--clients", "aioprod", *_ONCE),
        1,
        _LATENCY,
        _always(latency.ONE_AT_A_TIME_TARGETS),
    ),
    Part(
        "lone-uvloop",
        "latency",
        (*_LATENCY_ARGUMENTS, "--uvloop"),
        ("--records", "20", "--clients", "aioprod", *_ONCE),
        1,
        _LATENCY,
        _always(latency.ONE_AT_A_TIME_TARGETS),
    ),
    Part(
        "event-loops",
        "event_loops",
        (),
        ("--records", "200", "--tasks", "1", *_ONCE),
        1,
        {"cpu": bursts.CPU},
    ),
    Part(
        "webapp",
        "webapp",
        ("--seconds", "2"),
        ("--seconds", "1", "--frameworks", "aiohttp", "--connections", "16", *_ONCE),
        6,
        {
            "rate": webapp.RATE,
            "share": webapp.SHARE,
            "cpu": webapp.CPU,
            "p50": webapp.P50,
            "p99": webapp.P99,
        },
        _always(webapp.targets(FRAMEWORKS)),
    ),
    Part(
        "reading",
        "consumer",
        ("--records", "300000", "--polls", "0", "--clients", _READ_WITH),
        ("--records", "1000", "--clients", "aioprod getmany,confluent-kafka consume", *_ONCE),
        6,
        {"rate": consumer.RATE, "cpu": consumer.CPU},
        _always(consumer.TARGETS),
    ),
    Part(
        "trickle",
        "trickle",
        (),
        ("--records", "20", "--partitions", "1", *_ONCE),
        3,
        {"cpu": consumer.CPU},
        _always(trickle.TARGETS),
    ),
    Part(
        "far-sending",
        "distance",
        (*_FAR_ARGUMENTS, "sending"),
        _FAR_QUICK,
        4,
        _FAR,
        _far,
        takes_broker=False,
    ),
    Part(
        "far-reading",
        "distance",
        (*_FAR_ARGUMENTS, "reading"),
        _FAR_QUICK,
        3,
        _FAR,
        _far,
        takes_broker=False,
    ),
    Part(
        "transactions",
        "transactions",
        (),
        ("--transactions", "3", "--clients", "aioprod,confluent-kafka", *_ONCE),
        5,
        {"rate": transactions.RATE, "records": transactions.RECORDS, "cpu": transactions.CPU},
        _always(transactions.targets(transactions.BROKERS)),
    ),
    Part(
        "clusters",
        "clusters",
        (),
        ("--records", "500", "--clusters", clusters.TLS, *_ONCE),
        2,
        _SENT,
        growth=[
            GrowthTarget(
                clusters.case_of(size, name),
                clusters.case_of(size, clusters.ONE),
                "aioprod",
                producer.CPU,
                limit,
            )
            for name, limit in clusters.LIMITS.items()
            for size in clusters.SIZES
        ],
        takes_broker=False,
    ),
    Part(
        "bursts",
        "bursts",
        (),
        ("--records", "500", "--tasks", "20", "500", "--clients", "aioprod", *_ONCE),
        1,
        {"cpu": bursts.CPU},
        growth=[
            GrowthTarget(
                f"{bursts.TASKS[-1]:,} tasks",
                f"{bursts.TASKS[0]:,} tasks",
                "aioprod",
                bursts.CPU,
                bursts.TARGET_RATIO,
            )
        ],
    ),
    Part(
        "growth",
        "growth",
        ("--records", "200000", "--clients", "aioprod", "--png", "docs/images/growth.png"),
        ("--records", "1000", "--axes", "producers", "--png", "/dev/null", *_ONCE),
        3,
        {"cpu": scaling.CPU},
        growth=[
            GrowthTarget(case.name, cases[0].name, "aioprod", scaling.CPU, growth.LIMIT)
            for axis, cases in growth.AXES.items()
            if axis != growth.PAYLOAD
            for case in cases[1:]
        ],
        takes_broker=False,
    ),
    Part(
        "memory",
        "memory",
        ("--clients", "aioprod,confluent-kafka"),
        ("--sizes", "1000", "--clients", "aioprod", *_ONCE),
        2,
        {"growth": memory.GROWTH},
        ceilings=memory.CEILINGS,
        takes_broker=False,
    ),
    Part(
        "start",
        "start",
        ("--repetitions", "5"),
        ("--clients", "aioprod", *_ONCE),
        1,
        {"cpu": start.CPU, "wall": start.WALL, "memory": start.MEMORY},
        _always(start.TARGETS),
        start.CEILINGS,
    ),
    Part(
        "processing",
        "processing",
        (),
        ("--concurrency", "8", "--records", "60", "--clients", "aioprod", *_ONCE),
        2,
        _COSTS,
    ),
    Part("sharing", "sharing", (), ("--records", "1000", *_ONCE), 1, _COSTS),
    Part("registry", "registry", (), _ONCE, 1, {"cpu": registry.CPU}, takes_broker=False),
    Part(
        "steady",
        "steady",
        (),
        ("--rate", "200", "--minutes", "0.02", "--window-seconds", "0.4"),
        16,
        {"memory": steady.MEMORY, "cpu": steady.CPU, "p99": steady.P99},
        ceilings=steady.CEILINGS,
    ),
)
BY_NAME = {part.name: part for part in PARTS}


def read(part: Part) -> Published:
    """Return the numbers of a part.

    Raises:
        FileNotFoundError: if it was not measured.
    """
    if not part.file.exists():
        raise FileNotFoundError(
            f"{part.name} was not measured: python -m benchmarks.publish --parts {part.name}"
        )
    about = json.loads(part.file.read_text(encoding="utf-8"))
    results = Results(
        about["title"],
        tuple(part.metrics.values()),
        about["baseline"],
        about["rounds"],
        about["interpreter"],
        about["clients"],
        about["left_out"],
    )
    return Published(part, results, about)
