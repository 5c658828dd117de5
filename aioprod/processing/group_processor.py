"""What processors of consumer groups have in common: their collaborators, state and figures."""

from __future__ import annotations

import random
from collections.abc import Mapping

from aioprod import (
    ConfigError,
    ConsumerSettings,
    ConsumerStateError,
    Deserializer,
    TopicPartition,
)
from aioprod.processing.base_runner import Stage
from aioprod.processing.clients import make_consumer, make_producer
from aioprod.processing.config import GuaranteeName, ProcessorConfig, ProcessorSettings, split
from aioprod.processing.guarantees import AtLeastOnce, AtMostOnce, Guarantee
from aioprod.processing.health import ProcessorState
from aioprod.processing.lifetime import ProcessorLife, check_handler, checked_topics
from aioprod.processing.observers import ProcessorFigures
from aioprod.processing.records import AnyHandler
from aioprod.processing.runner import Runner
from aioprod.processing.scheduling import Order, OrderedScheduler
from aioprod.processing.transactions import ExactlyOnce
from aioprod.processing.workers import Workers

_MOST_POLL_RECORDS = 500
_FAILING_TRANSACTIONS_S = 60.0


class ProcessorBase(ProcessorLife):
    """What both kinds of processors have in common."""

    config: ProcessorConfig
    _runner: Runner

    def _build(
        self,
        handler: AnyHandler,
        topics: tuple[str, ...],
        key_deserializer: Deserializer | None,
        value_deserializer: Deserializer | None,
        settings: ProcessorSettings,
        batch_records: int | None = None,
    ) -> None:
        check_handler(handler)
        config, shared = split(ProcessorConfig, settings, ConsumerSettings)
        named = checked_topics(topics, config)
        self.config = config
        rng = random.Random()
        self._consumer = make_consumer(
            config, shared, rng, min(_MOST_POLL_RECORDS, config.max_pending_records // 2)
        )
        if config.drain_timeout_ms >= self._consumer.config.max_poll_interval_ms:
            raise ConfigError(
                f"drain_timeout_ms={config.drain_timeout_ms}: must be below max_poll_interval_ms="
                f"{self._consumer.config.max_poll_interval_ms}, after which the group gives the "
                "partitions to others"
            )
        self._producer = make_producer(config, shared, rng)
        scheduler = OrderedScheduler(Order(config.order), one_lane=config.is_exactly_once)
        figures = ProcessorFigures(config.observers)
        self._runner = runner = Runner(
            config,
            named,
            self._consumer,
            self._producer,
            scheduler,
            (key_deserializer, value_deserializer, figures),
        )
        guarantee = self._make_guarantee(figures)
        workers = Workers(
            config,
            handler,
            batch_records,
            (key_deserializer, value_deserializer),
            scheduler,
            guarantee,
            self._producer,
            figures,
            rng,
            runner.changed,
            runner.fail,
        )
        runner.connect(workers, guarantee)
        self._connect(self._consumer.config.client_id, scheduler, figures, workers)

    def _make_guarantee(self, figures: ProcessorFigures) -> Guarantee:
        config, consumer, producer = self.config, self._consumer, self._producer
        interval_s = (config.commit_interval_ms or 0) / 1000
        if config.guarantee == GuaranteeName.AT_MOST_ONCE:
            return AtMostOnce(consumer, producer, figures)
        if config.guarantee == GuaranteeName.AT_LEAST_ONCE:
            return AtLeastOnce(consumer, producer, figures, interval_s)
        return ExactlyOnce(
            consumer,
            producer,
            figures,
            interval_s,
            max(1, config.max_pending_records // 4),
            _FAILING_TRANSACTIONS_S,
            self._runner.changed,
            self._runner.fail,
        )

    # -- state -------------------------------------------------------------------------------------

    def _running_state(self, polls: bool, limit_s: float) -> ProcessorState:
        return self._reading_state(self._consumer.state, self._runner.joined, polls, limit_s)

    # -- figures -----------------------------------------------------------------------------------

    def metrics(self) -> Mapping[str, float]:
        """Return counts since the start, and present figures; see docs/processing.md."""
        lags = self.lag().values()
        return {
            **self._common_metrics(),
            "records-lag-max": max(lags, default=0),
            "assigned-partitions": len(self._runner.partitions),
        }

    def metrics_by_partition(self) -> Mapping[TopicPartition, Mapping[str, float]]:
        """Return ``records-in-flight`` (in handlers), ``records-pending`` (read, and not done) and
        ``records-lag`` of each assigned partition; the lag is left out before its first fetch.
        """
        lags = self.lag()
        return {
            tp: {
                "records-in-flight": float(partition.active),
                "records-pending": float(partition.completed.incomplete),
                **({"records-lag": float(lags[tp])} if tp in lags else {}),
            }
            for tp, partition in self._runner.partitions.copy().items()
        }

    def lag(self) -> Mapping[TopicPartition, int]:
        """Return the number of offsets between the position to commit and the end of each assigned
        partition, as of its last fetch; partitions without a fetch are left out.
        """
        if self._runner.stage not in (Stage.RUNNING, Stage.STOPPING):
            return {}
        lags = {}
        for tp, partition in self._runner.partitions.copy().items():
            try:
                first, end = partition.completed.first_incomplete, self._consumer.highwater(tp)
                if end is not None:
                    left = max(0, end - first) if first is not None else self._consumer.lag(tp)
                    lags[tp] = left or 0
            except (ConsumerStateError, IndexError):
                continue  # revoked meanwhile: this may run in another thread
        return lags
