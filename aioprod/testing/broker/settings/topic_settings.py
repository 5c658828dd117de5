"""The settings of a topic in Kafka 4.4, and those that have an effect on the embedded broker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from aioprod.codecs import Codec
from aioprod.error_codes import ErrorCode
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.settings.setting import Setting, SettingType

# Name, type, default, the broker's setting for the default, and the allowed values: words, or
# ranges low..high. A dash means none.
_TABLE = """
cleanup.policy                          list    delete              log.cleanup.policy                    compact|delete
delete.retention.ms                     long    86400000            log.cleaner.delete.retention.ms       0..
errors.deadletterqueue.group.enable     boolean false               -                                     -
file.delete.delay.ms                    long    60000               log.segment.delete.delay.ms           0..
flush.messages                          long    9223372036854775807 log.flush.interval.messages           1..
flush.ms                                long    9223372036854775807 log.flush.interval.ms                 0..
follower.replication.throttled.replicas list    ""                  -                                     -
index.interval.bytes                    int     4096                log.index.interval.bytes              0..
leader.replication.throttled.replicas   list    ""                  -                                     -
local.retention.bytes                   long    -2                  log.local.retention.bytes             -2..
local.retention.ms                      long    -2                  log.local.retention.ms                -2..
max.compaction.lag.ms                   long    9223372036854775807 log.cleaner.max.compaction.lag.ms     1..
max.decompressed.message.bytes          int     2147483639          max.decompressed.message.bytes        1..2147483639
max.message.bytes                       int     1048588             message.max.bytes                     0..
message.timestamp.after.max.ms          long    3600000             log.message.timestamp.after.max.ms    0..
message.timestamp.before.max.ms         long    9223372036854775807 log.message.timestamp.before.max.ms   0..
message.timestamp.type                  string  CreateTime          log.message.timestamp.type            CreateTime|LogAppendTime
min.cleanable.dirty.ratio               double  0.5                 log.cleaner.min.cleanable.ratio       0..1
min.compaction.lag.ms                   long    0                   log.cleaner.min.compaction.lag.ms     0..
min.insync.replicas                     int     1                   min.insync.replicas                   1..
preallocate                             boolean false               log.preallocate                       -
remote.copy.lag.bytes                   long    -1                  log.remote.copy.lag.bytes             -1..
remote.copy.lag.ms                      long    0                   log.remote.copy.lag.ms                -1..
remote.log.copy.disable                 boolean false               -                                     -
remote.log.delete.on.disable            boolean false               -                                     -
remote.storage.enable                   boolean false               -                                     -
retention.bytes                         long    -1                  log.retention.bytes                   -
retention.ms                            long    604800000           log.retention.ms                      -1..
segment.bytes                           int     1073741824          log.segment.bytes                     1048576..
segment.index.bytes                     int     10485760            log.index.size.max.bytes              4..
segment.jitter.ms                       long    0                   log.roll.jitter.ms                    0..
segment.ms                              long    604800000           log.roll.ms                           1..
unclean.leader.election.enable          boolean false               unclean.leader.election.enable        -
"""

#: Allows share groups to write dead letters to the topic (KIP-1191).
DEAD_LETTERS = "errors.deadletterqueue.group.enable"


@cache
def topic_settings() -> dict[str, Setting]:
    """Return all settings by name."""
    lines = sorted([*_TABLE.strip().splitlines(), *_compression()])
    return {setting.name: setting for setting in map(_parse, lines)}


def _compression() -> Iterator[str]:
    codecs = [codec for codec in sorted(Codec, reverse=True) if codec]
    names = "|".join(["uncompressed", *(codec.label for codec in codecs), "producer"])
    yield f"compression.type string producer compression.type {names}"
    for codec in codecs:
        if codec.levels:
            name = f"compression.{codec.label}.level"
            ranges = "|".join(f"{low}..{high}" for low, high in codec.levels.ranges)
            yield f"{name} int {codec.levels.default} {name} {ranges}"


def _parse(line: str) -> Setting:
    name, kind, default, broker_name, allowed = line.split()
    values = () if allowed == "-" else tuple(map(_range_or_word, allowed.split("|")))
    return Setting(
        name,
        SettingType[kind.upper()],
        default.strip('"'),
        broker_name=broker_name.strip("-"),
        allowed=values,
    )


def _range_or_word(text: str) -> str | tuple[float, float]:
    low, dots, high = text.partition("..")
    return (float(low), float(high or "inf")) if dots else text


@dataclass(slots=True, frozen=True)
class TopicConfig:
    """The topic settings that have an effect. All others are only stored and described."""

    max_message_bytes: int
    log_append_time: bool = False
    timestamp_before_max_ms: int = 2**63 - 1
    timestamp_after_max_ms: int = 3_600_000
    min_insync_replicas: int = 1
    unclean_leader_election: bool = False
    is_deletable: bool = True
    is_compacted: bool = False
    retention_ms: int = -1
    retention_bytes: int = -1
    delete_retention_ms: int = 86_400_000
    takes_dead_letters: bool = False

    @classmethod
    def parse(cls, values: Mapping[str, str]) -> TopicConfig:
        """Parse the effective settings of a topic by Kafka's names."""
        policies = [item.strip() for item in values["cleanup.policy"].split(",")]
        return cls(
            max_message_bytes=int(values["max.message.bytes"]),
            log_append_time=values["message.timestamp.type"].strip() == "LogAppendTime",
            timestamp_before_max_ms=int(values["message.timestamp.before.max.ms"]),
            timestamp_after_max_ms=int(values["message.timestamp.after.max.ms"]),
            min_insync_replicas=int(values["min.insync.replicas"]),
            unclean_leader_election=_is_true(values["unclean.leader.election.enable"]),
            is_deletable="delete" in policies,
            is_compacted="compact" in policies,
            retention_ms=int(values["retention.ms"]),
            retention_bytes=int(values["retention.bytes"]),
            delete_retention_ms=int(values["delete.retention.ms"]),
            takes_dead_letters=_is_true(values[DEAD_LETTERS]),
        )


def check_values(overrides: Mapping[str, str | None]) -> None:
    """Raise RequestError (INVALID_CONFIG) if a setting is unknown or a value is invalid."""
    for name, text in overrides.items():
        setting = topic_settings().get(name)
        if setting is None:
            raise RequestError(ErrorCode.INVALID_CONFIG, f"{name}: unknown topic setting")
        if text is None:
            raise RequestError(ErrorCode.INVALID_CONFIG, f"{name}: null is not a value")
        setting.check(text)


def check_together(values: Mapping[str, str]) -> None:
    """Raise RequestError (INVALID_CONFIG) if values contradict each other or the broker."""
    if int(values["min.compaction.lag.ms"]) > int(values["max.compaction.lag.ms"]):
        raise RequestError(
            ErrorCode.INVALID_CONFIG,
            "min.compaction.lag.ms must not be above max.compaction.lag.ms",
        )
    if _is_true(values["remote.storage.enable"]):
        raise RequestError(
            ErrorCode.INVALID_CONFIG, "remote.storage.enable: this broker has no remote storage"
        )


def _is_true(text: str) -> bool:
    return text.strip().lower() == "true"
