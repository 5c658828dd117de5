"""One table of codecs: each part that reads it follows when a codec is added."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import aioprod.codecs
from aioprod.codecs import CODECS, Codec
from aioprod.errors import ConfigError
from aioprod.protocol.compression import _BACKENDS, _LIBRARIES
from aioprod.protocol.record_batch import CODEC_MASK

ADDED = """
    ROT = 7, Facts(Levels(2, ((1, 4),)), thread_from=1 << 10, telemetry_rank=7)
"""

# Loads the table with the added codec before all other modules, as if it were in the file.
PROGRAM = """
import asyncio, sys
from pathlib import Path
from types import ModuleType

import aioprod.errors

path, added = sys.argv[1:]
module = ModuleType("aioprod.codecs")
sys.modules["aioprod.codecs"] = module
before, label, after = Path(path).read_text().partition("\\n    @property\\n    def label(")
assert label
exec(compile(before + added + label + after, path, "exec"), module.__dict__)

from aioprod.codecs import Codec
from aioprod.protocol import compression
from aioprod.protocol.codecs.backends import Backend
from aioprod.config.settings.producer import PRODUCER_SETTINGS
from aioprod.config.compression import check_topic_compression
from aioprod.compat.aiokafka import AIOKafkaProducer
from aioprod.producer.compressor import _thread_from
from aioprod.testing.broker.settings.broker_settings import broker_settings
from aioprod.testing.broker.settings.topic_settings import topic_settings
from aioprod.testing.broker.telemetry.receiver import MetricsSubscription
from aioprod._tools import generate_config


def rotated(data, number):
    return bytes((byte + 128) % 256 for byte in bytes(data))


compression._BACKENDS[Codec.ROT] = Backend(rotated, rotated, ())

setting = PRODUCER_SETTINGS["compression_rot_level"]
assert (setting.default, setting.values) == (2, "1 to 4"), setting
assert setting.check("compression_rot_level", 4) == 4
assert "`rot`" in PRODUCER_SETTINGS["compression_type"].values
assert PRODUCER_SETTINGS["compression_type"].check("compression_type", "rot") == "rot"
assert dict(check_topic_compression("topic_compression", {"t": ("rot", 3)})) == {"t": ("rot", 3)}
assert "compression_rot_level: int = 2" in generate_config.class_body("ProducerConfig")
assert "compression_rot_level: int" in generate_config.keywords("producer")
assert _thread_from(Codec.ROT, None) == 1 << 10
assert _thread_from(Codec.ROT, 3) == 8 << 10
assert MetricsSubscription().compression_types[-1] == "rot"
assert topic_settings()["compression.rot.level"].allowed == ((1, 4),)
assert "rot" in topic_settings()["compression.type"].allowed
assert broker_settings()["compression.rot.level"].default == "2"


async def main():
    from aioprod import Consumer, Producer
    from aioprod.config.producer import ProducerConfig
    from aioprod.testing import EmbeddedCluster

    ProducerConfig.compression_rot_level = 2  # the generator writes this field
    async with EmbeddedCluster() as broker:
        await AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, compression_type="rot"
        ).stop()
        async with Producer(broker.bootstrap_servers, compression_type="rot") as producer:
            await producer.send_and_wait("t", b"a value" * 1000)  # compressed in a thread
        async with Consumer("t", bootstrap_servers=broker.bootstrap_servers,
                            auto_offset_reset="earliest") as consumer:
            assert (await consumer.getone()).value == b"a value" * 1000
        (log,) = [each.log for each in broker.topics["t"].partitions if each.log.end_offset]
        assert [header.codec for header, _ in log.batches()] == [Codec.ROT]


asyncio.run(main())
"""


def test_a_codec_that_is_added_to_the_table_works_everywhere() -> None:
    path = Path(aioprod.codecs.__file__)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path), ADDED],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_each_codec_has_functions_a_place_for_its_number_and_a_rank() -> None:
    assert {*_BACKENDS, *_LIBRARIES} == set(Codec)
    assert all(0 <= codec <= CODEC_MASK for codec in Codec)
    ranks = [codec.telemetry_rank for codec in Codec if codec]
    assert sorted(ranks) == list(range(1, len(ranks) + 1))
    assert list(CODECS) == ["none", "gzip", "snappy", "lz4", "zstd"]
    assert all(codec.thread_from for codec in Codec if codec)


@pytest.mark.parametrize(
    ("codec", "allowed", "refused"),
    [
        (Codec.GZIP, [-1, 1, 9], [-2, 0, 10, True, 1.0, "1", None]),
        (Codec.LZ4, [1, 17], [0, 18, -1]),
        (Codec.ZSTD, [-131_072, 0, 22], [-131_073, 23]),
        (Codec.SNAPPY, [], [0, 1]),
        (Codec.NONE, [], [0, 1]),
    ],
)
def test_levels_are_those_of_kafka(
    codec: Codec, allowed: list[object], refused: list[object]
) -> None:
    for level in allowed:
        codec.check_level("a_level", level)
    for level in refused:
        with pytest.raises(ConfigError, match=r"^a_level="):
            codec.check_level("a_level", level)
