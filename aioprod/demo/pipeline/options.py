"""The options of the pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from aioprod.demo.pipeline.delays import WATERMARK

SourceFormat = Literal["aioprod", "kafka"]

MAX_OFFSETS_PER_TRIGGER = 300_000
"""The default: a micro-batch takes half a second of CPU in addition to its records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineOptions:
    """The topics, directories and limits of a run.

    Attributes:
        bootstrap_servers: ``host:port``, separated by commas.
        out_dir: directory or address (``hdfs://``, ``s3a://``) of the Parquet files, which driver
            and executors must share. It belongs to the checkpoint and must be kept with it.
        checkpoint_dir: the same for Spark's progress; a second run resumes from it.
        topic: the topic of the events.
        sink_topic: the topic for the delays.
        dead_letter_topic: the topic for records that are not events; by default the topic's name
            and ``.dead-letters``.
        source_format: this library's source and sink, or Spark's own, which writes at least once
            and needs its connector's jars.
        max_offsets_per_trigger: maximum number of records in one micro-batch; None: no limit, the
            only choice for this library's source before Spark 4.2.
        watermark: how much older than the newest event an event may be before it is dropped (and
            counted): ``2 hours``, ``400 days``.
        kafka: further ``kafka.*`` options for the source and the sinks, such as
            ``kafka.security.protocol``.
    """

    bootstrap_servers: str
    out_dir: str
    checkpoint_dir: str
    topic: str = "flights"
    sink_topic: str = "flights.delays"
    dead_letter_topic: str | None = None
    source_format: SourceFormat = "aioprod"
    max_offsets_per_trigger: int | None = MAX_OFFSETS_PER_TRIGGER
    watermark: str = WATERMARK
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)  # it may have passwords

    @property
    def dead_letters(self) -> str:
        """The topic for dead letters."""
        return (
            self.dead_letter_topic
            if self.dead_letter_topic is not None
            else f"{self.topic}.dead-letters"
        )

    @property
    def client(self) -> dict[str, str]:
        """The options that source and sinks share."""
        return {**self.kafka, "kafka.bootstrap.servers": self.bootstrap_servers}
