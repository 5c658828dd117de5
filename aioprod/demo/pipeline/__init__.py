"""The Spark application of the demo: computes delays from flight events. ``aioprod demo`` and
``python -m aioprod.demo.pipeline`` run it.

- events.py: parses JSON by a schema, and gives the reason for each record that is not an event
- delays.py: event-time windows with a watermark: delays by carrier and hour, and by route
- outputs.py: writes each micro-batch's delays to a topic (exactly once) and to Parquet
- run.py: runs the two streaming queries
- options.py: the application's options

The functions of events.py and delays.py work on any DataFrame of records or events, batch or
streaming; `run_pipeline` combines them.
"""

from aioprod.demo.pipeline.delays import (
    LATE_AFTER_MINUTES,
    MIN_ROUTE_FLIGHTS,
    WATERMARK,
    CarrierHourDelay,
    RouteDelay,
    carrier_hours,
    delay_records,
    measure_delays,
    routes,
    worst_routes,
)
from aioprod.demo.pipeline.events import (
    EVENT_SCHEMA,
    dead_letters,
    judge_records,
    parse_events,
    read_records,
)
from aioprod.demo.pipeline.options import PipelineOptions, SourceFormat
from aioprod.demo.pipeline.run import PipelineResult, query_names, run_pipeline

__all__ = [
    "EVENT_SCHEMA",
    "LATE_AFTER_MINUTES",
    "MIN_ROUTE_FLIGHTS",
    "WATERMARK",
    "CarrierHourDelay",
    "PipelineOptions",
    "PipelineResult",
    "RouteDelay",
    "SourceFormat",
    "carrier_hours",
    "dead_letters",
    "delay_records",
    "judge_records",
    "measure_delays",
    "parse_events",
    "query_names",
    "read_records",
    "routes",
    "run_pipeline",
    "worst_routes",
]
