"""Writes the dead letters of share groups (KIP-1191) to the groups' topics. As in Kafka, a dead
letter that can't be written is lost; only a log message reports it.
"""

from __future__ import annotations

from collections.abc import Sequence

from aioprod.error_codes import ErrorCode
from aioprod.logs import get_logger
from aioprod.protocol.record_batch import read_header
from aioprod.testing.broker.cluster import NO_NODE
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.record_rules import check_records, check_size
from aioprod.testing.broker.settings.topic_settings import DEAD_LETTERS
from aioprod.testing.broker.share_groups.dead_records import DeadRecord, build_letter
from aioprod.testing.broker.share_groups.share_partitions import ShareKey
from aioprod.testing.broker.store import Store, Topic
from aioprod.types import TopicPartition

_log = get_logger(__name__)


class DeadLetterWriter:
    """Writes dead letters to the topics of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def bury(self, key: ShareKey, dead: Sequence[DeadRecord]) -> None:
        """Write dead letters of a partition of a share group, if the group is configured for
        them.
        """
        source = self._store.find_topic("", key.topic_id)
        if source is None or not self._store.group_configs.share(key.group_id).dead_letter_topic:
            return
        for each in dead:
            try:
                self._write(key.group_id, source, key.partition, each)
            except RequestError as error:
                _log.warning(
                    "dead letter of share group %r lost (record %d of partition %d of %r): %s",
                    *(key.group_id, each.offset, key.partition, source.name, error.text),
                )

    def _write(self, group_id: str, source: Topic, number: int, dead: DeadRecord) -> None:
        store = self._store
        settings = store.group_configs.share(group_id)
        topic = self._destination(settings.dead_letter_topic)
        partition = topic.partitions[number % len(topic.partitions)]
        if partition.leadership.leader == NO_NODE:
            raise RequestError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic.name!r} has no leader")
        partition.check_in_sync()
        copied = None
        if settings.copies_dead_letters:
            copied = source.partitions[number].log.find(dead.offset)
        letter = build_letter(
            *(group_id, TopicPartition(source.name, number), dead, copied),
            *(topic.config.max_message_bytes, store.now_ms()),
        )
        header = read_header(letter)
        check_size(letter, topic.config)
        check_records(letter, header, topic.config, store.now_ms())
        store.append(topic, partition, header, letter)

    def _destination(self, name: str) -> Topic:
        """Return the topic, creating it if brokers may do so. Raise RequestError if it is not a
        topic for dead letters.
        """
        topic, settings = self._store.topics.get(name), self._store.configs
        if topic is not None and not topic.config.takes_dead_letters:
            raise RequestError(ErrorCode.INVALID_CONFIG, f"{name!r} does not have {DEAD_LETTERS}")
        prefix = settings.broker_value("errors.deadletterqueue.topic.name.prefix") or ""
        if not name.startswith(prefix):
            raise RequestError(ErrorCode.INVALID_CONFIG, f"{name!r} does not begin with {prefix!r}")
        if topic is not None:
            return topic
        may_create = settings.broker_value("errors.deadletterqueue.auto.create.topics.enable")
        if may_create != "true":
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name!r} does not exist")
        configs = {DEAD_LETTERS: "true", "message.timestamp.type": "CreateTime"}
        return self._store.create_topic(name, configs=configs)
