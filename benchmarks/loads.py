"""Asking a worker about records, and seeing that the broker has them."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from benchmarks.adapters import Load, Settings
from benchmarks.measures import Figures
from benchmarks.real_broker import check_record_count, topic
from benchmarks.workers import Worker


class CountedTopic:
    """A new topic, and how many records of it were acknowledged so far."""

    def __init__(self, name: str, partitions: int = 1) -> None:
        self.name = name
        self.partitions = partitions
        self.acknowledged = 0

    async def ask(
        self,
        worker: Worker,
        measure: str,
        settings: Settings,
        load: Load,
        *,
        warm_up_records: int,
        **arguments: Any,
    ) -> Figures:
        """The figures of a measure that takes ``load`` (whatever topic it names) and
        ``warm_up_records``, with further ``arguments``.

        A measure that may send fewer records than these tells how many it ``sent``. Raises
        RecordsMissingError unless the topic has exactly the records that were acknowledged.
        """
        given = {
            "load": asdict(replace(load, topic=self.name)),
            "warm_up_records": warm_up_records,
            **arguments,
        }
        figures = await worker.call(measure, settings, given)
        self.acknowledged += figures.get("sent", warm_up_records + load.records)
        check_record_count(
            settings.bootstrap_servers, self.name, self.partitions, self.acknowledged
        )
        return figures


async def ask_on_new_topic(
    worker: Worker,
    measure: str,
    settings: Settings,
    load: Load,
    *,
    warm_up_records: int,
    **arguments: Any,
) -> Figures:
    """The same on a topic of one partition that is there for this question only."""
    with topic(settings.bootstrap_servers) as name:
        return await CountedTopic(name).ask(
            worker, measure, settings, load, warm_up_records=warm_up_records, **arguments
        )
