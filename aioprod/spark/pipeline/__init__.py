"""Computes delay figures from flight events: an application to copy. ``aioprod demo`` and
``python -m aioprod.spark.pipeline`` run it.

- events.py: parses JSON by a schema; the rest goes to a dead-letter topic, with the reason
- figures.py: event-time windows with a watermark: delays by carrier and hour, and by route
- outputs.py: writes each micro-batch's figures to a topic (exactly once) and to Parquet
- run.py: starts and stops the two streaming queries
- options.py: the pipeline's options

The functions of events.py and figures.py work on any DataFrame of records or events, batch or
streaming; `run_pipeline` combines them.
"""

from aioprod.spark.pipeline.events import (
    EVENT_SCHEMA,
    dead_letters,
    judge_records,
    parse_events,
    read_records,
)
from aioprod.spark.pipeline.figures import (
    LATE_AFTER_MINUTES,
    MIN_ROUTE_FLIGHTS,
    WATERMARK,
    CarrierHourDelay,
    RouteDelay,
    carrier_hours,
    delay_figures,
    delay_records,
    routes,
    worst_routes,
)
from aioprod.spark.pipeline.options import PipelineOptions, SourceFormat
from aioprod.spark.pipeline.run import PipelineResult, query_names, run_pipeline, run_queries

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
    "delay_figures",
    "delay_records",
    "judge_records",
    "parse_events",
    "query_names",
    "read_records",
    "routes",
    "run_pipeline",
    "run_queries",
    "worst_routes",
]
