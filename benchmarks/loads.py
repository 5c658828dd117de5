"""Measurements that send records, and check that the broker has them."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from benchmarks.adapters import Load, Settings
from benchmarks.measures import Numbers
from benchmarks.real_broker import check_record_count, topic
from benchmarks.workers import Worker


class CountedTopic:
    """A new topic and the number of its acknowledged records.

    Args:
        servers: where its records are counted; default: where they are sent.
    """

    def __init__(self, name: str, partitions: int = 1, servers: str = "") -> None:
        self.name = name
        self.partitions = partitions
        self._servers = servers
        self.acknowledged = 0

    async def measure(
        self,
        worker: Worker,
        measure: str,
        settings: Settings,
        load: Load,
        *,
        warm_up_records: int,
        **arguments: Any,
    ) -> Numbers:
        """Run a measure with ``load`` on this topic and return its numbers.

        If the measure may send fewer records, its numbers include ``sent``.

        Raises:
            RecordsMissingError: if the topic does not have exactly the acknowledged records.
        """
        all_arguments = {
            "load": asdict(replace(load, topic=self.name)),
            "warm_up_records": warm_up_records,
            **arguments,
        }
        numbers = await worker.call(measure, settings, all_arguments)
        self.acknowledged += numbers.get("sent", warm_up_records + load.records)
        servers = self._servers or settings.bootstrap_servers
        check_record_count(servers, self.name, self.partitions, self.acknowledged)
        return numbers


async def measure_on_new_topic(
    worker: Worker,
    measure: str,
    settings: Settings,
    load: Load,
    *,
    warm_up_records: int,
    partitions: int = 1,
    **arguments: Any,
) -> Numbers:
    """Run a measure on a new topic, which is deleted afterwards."""
    with topic(settings.bootstrap_servers, partitions) as name:
        return await CountedTopic(name, partitions).measure(
            worker, measure, settings, load, warm_up_records=warm_up_records, **arguments
        )
