"""Each setting is checked by itself and against the others, and Java's way of writing a
configuration is understood.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

from aioprod.config.plugins import close_plugins
from aioprod.config.producer import ProducerConfig, producer_arguments
from aioprod.config.unsupported import PRODUCER_UNSUPPORTED
from aioprod.errors import ConfigError
from aioprod.interceptors import ProducerInterceptor
from aioprod.metrics import ProducerObserver
from aioprod.producer.partitioner import RoundRobinPartitioner
from aioprod.serialization import IntegerSerializer, StringSerializer
from aioprod.types import Headers

HERE = __name__


def config(**settings: Any) -> ProducerConfig:
    return ProducerConfig(**settings)


def parsed(settings: Mapping[str, Any]) -> dict[str, Any]:
    with producer_arguments(
        settings, lambda transactional_id: f"client-of-{transactional_id}"
    ) as arguments:
        return arguments


# -- limits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "low", "high"),
    [
        ("retries", 0, 2**31 - 1),
        ("delivery_timeout_ms", None, 2**31 - 1),
        ("request_timeout_ms", 1, None),
        ("max_block_ms", 0, 2**31 - 1),
        ("max_request_size", 1, 2**31 - 1),
        ("max_in_flight_requests_per_connection", 1, None),
        ("linger_ms", 0, None),
        ("batch_size", 0, None),
        ("buffer_memory", None, 2**63 - 1),
        ("compression_lz4_level", 1, 17),
        ("compression_gzip_level", -1, 9),
        ("compression_zstd_level", -131_072, 22),
        ("send_buffer_bytes", -1, 2**31 - 1),
        ("receive_buffer_bytes", -1, 2**31 - 1),
        ("socket_connection_setup_timeout_ms", 1, 2**31 - 1),
        ("socket_connection_setup_timeout_max_ms", 1, 2**31 - 1),
        ("retry_backoff_ms", 0, 2**31 - 1),
        ("retry_backoff_max_ms", 0, 2**31 - 1),
        ("reconnect_backoff_ms", 0, 2**31 - 1),
        ("reconnect_backoff_max_ms", 0, 2**31 - 1),
        ("connections_max_idle_ms", 1, 2**31 - 1),
        ("metadata_max_age_ms", 1, 2**31 - 1),
        ("metadata_max_idle_ms", 5_000, 2**31 - 1),
        ("metadata_recovery_rebootstrap_trigger_ms", 0, 2**31 - 1),
        ("partitioner_availability_timeout_ms", 0, 2**31 - 1),
        ("transaction_timeout_ms", 1, 2**31 - 1),
        ("metrics_sample_window_ms", 1, 2**31 - 1),
        ("metrics_num_samples", 1, 2**31 - 1),
    ],
)
def test_a_number_has_limits(setting: str, low: int | None, high: int | None) -> None:
    without = {"enable_idempotence": False} if setting == "retries" else {}
    for limit, beyond in ((low, -1), (high, 1)):
        if limit is not None:
            assert getattr(config(**{setting: limit}, **without), setting) == limit
            with pytest.raises(ConfigError, match=rf"{setting}={limit + beyond}\b"):
                config(**{setting: limit + beyond})
    for wrong in ("5", True, None, float("nan"), [5]):
        with pytest.raises(ConfigError, match=setting):
            config(**{setting: wrong})
    if not setting.endswith("_ms"):
        with pytest.raises(ConfigError, match=setting):
            config(**{setting: 2.5})


@pytest.mark.parametrize(
    ("setting", "wrong"),
    [
        ("acks", 2),
        ("acks", True),
        ("acks", "some"),
        ("enable_idempotence", "true"),
        ("enable_idempotence", 1),
        ("compression_type", "ZSTD"),
        ("client_dns_lookup", "default"),
        ("client_id", 5),
        ("metadata_recovery_strategy", "other"),
        ("partitioner_ignore_keys", None),
        ("transactional_id", ""),
        ("transactional_id", 5),
        ("key_serializer", StringSerializer),
        ("value_serializer", "upper"),
        ("partitioner", RoundRobinPartitioner),
        ("partitioner", lambda *args: 0),
        ("interceptors", ProducerInterceptor()),
        ("interceptors", [ProducerInterceptor]),
        ("interceptors", "a.B"),
        ("observers", [object()]),
        ("topic_compression", "zstd"),
        ("topic_compression", {"t": "brotli"}),
        ("topic_compression", {"t": ("zstd", 23)}),
        ("topic_compression", {"t": ("snappy", 1)}),
        ("topic_compression", {"t": ("zstd", 1, 2)}),
        ("topic_compression", {5: "zstd"}),
    ],
)
def test_a_wrong_value_is_refused_by_name(setting: str, wrong: Any) -> None:
    with pytest.raises(ConfigError, match=setting):
        config(**{setting: wrong})


def test_a_configuration_is_read_only() -> None:
    made = config(linger_ms=4)
    with pytest.raises(FrozenInstanceError, match="linger_ms"):
        made.linger_ms = 5  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="another"):
        made.another = 5
    with pytest.raises(FrozenInstanceError, match="linger_ms"):
        del made.linger_ms
    assert made.linger_ms == 4


def test_lists_become_read_only() -> None:
    interceptor, observer = ProducerInterceptor(), ProducerObserver()
    made = config(
        interceptors=[interceptor], observers=iter([observer]), topic_compression={"t": ["zstd", 3]}
    )
    assert made.interceptors == (interceptor,) and made.observers == (observer,)
    with pytest.raises(TypeError):
        made.topic_compression["u"] = "lz4"  # type: ignore[index]


# -- one against another ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"acks": 1}, "acks=1: idempotence needs acks='all'"),
        ({"acks": 0}, "acks=0: idempotence needs acks='all'"),
        ({"retries": 0}, "retries=0: idempotence"),
        ({"max_in_flight_requests_per_connection": 6}, "idempotence allows at most 5"),
        (
            {"transactional_id": "t", "enable_idempotence": False},
            "transactions need enable_idempotence=True",
        ),
        ({"transactional_id": "t", "acks": 1}, "idempotence needs acks='all'"),
        (
            {"delivery_timeout_ms": 30_004},
            (
                r"delivery_timeout_ms=30004: must be at least linger_ms \+ request_timeout_ms = "
                r"5 \+ 30000"
            ),
        ),
        ({"buffer_memory": 16_383}, "buffer_memory=16383: must be at least batch_size=16384"),
        (
            {"compression_type": "zstd", "compression_level": 5, "compression_zstd_level": 6},
            "contradict",
        ),
        (
            {"compression_type": "zstd", "compression_level": 23},
            "=23: the level of zstd must be",
        ),
        (
            {"compression_type": "gzip", "compression_level": 0},
            "=0: the level of gzip must be",
        ),
        ({"compression_level": 5}, "compression_level=5: none has no levels"),
        (
            {"partitioner": RoundRobinPartitioner(), "partitioner_ignore_keys": True},
            "partitioner_ignore_keys=True: is for the built-in choice",
        ),
        (
            {"partitioner": RoundRobinPartitioner(), "partitioner_availability_timeout_ms": 5},
            "timeout_ms=5: is for the built-in",
        ),
        (
            {
                "partitioner": RoundRobinPartitioner(),
                "partitioner_adaptive_partitioning_enable": False,
            },
            "partitioner_adaptive.*built-in",
        ),
        (
            {
                "partitioner_availability_timeout_ms": 5,
                "partitioner_adaptive_partitioning_enable": False,
            },
            "has no effect",
        ),
    ],
)
def test_what_contradicts_itself_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(**settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"acks": 1, "enable_idempotence": False},
        {"retries": 0, "enable_idempotence": False},
        {"max_in_flight_requests_per_connection": 50, "enable_idempotence": False},
        {"max_in_flight_requests_per_connection": 5, "retries": 1, "transactional_id": "t"},
        {"delivery_timeout_ms": 30_005},
        {"buffer_memory": 16_384},
        {"batch_size": 2**31 - 1, "buffer_memory": 2**31 - 1},
        {"batch_size": 0, "buffer_memory": 1},
        {"compression_type": "zstd", "compression_level": 5, "compression_zstd_level": 5},
        {"compression_type": "zstd", "compression_level": 5, "compression_gzip_level": 6},
    ],
)
def test_what_goes_together_is_taken(settings: dict[str, Any]) -> None:
    config(**settings)


def test_the_codec_of_a_topic() -> None:
    plain = config(
        compression_type="gzip",
        compression_gzip_level=7,
        topic_compression={"a": ("zstd", 9), "b": "lz4", "c": "none", "d": "gzip"},
    )
    assert plain.compression_of("other") == ("gzip", 7)
    assert plain.compression_of("a") == ("zstd", 9)
    assert plain.compression_of("b") == ("lz4", 9)
    assert plain.compression_of("c") == ("none", None)
    assert plain.compression_of("d") == ("gzip", 7)
    levelled = config(compression_type="zstd", compression_level=1, topic_compression={"d": "zstd"})
    assert levelled.compression_of("other") == ("zstd", 1)
    assert levelled.compression_of("d") == ("zstd", 3)
    assert config(compression_type="snappy").compression_of("other") == ("snappy", None)


# -- as Java writes it -----------------------------------------------------------------------------


def test_text_becomes_what_the_setting_is() -> None:
    arguments = parsed(
        {
            "bootstrap.servers": "a:9092, b:9092",
            "acks": "all",
            "retries": " 5 ",
            "linger.ms": "0.5",
            "enable.idempotence": "TRUE",
            "partitioner.ignore.keys": "false",
            "compression.type": " lz4 ",
            "compression_level": "4",
            "metadata.recovery.strategy": "REBOOTSTRAP",
            "security.protocol": "plaintext",
            "transactional.id": "mine",
        }
    )
    made = ProducerConfig(**arguments)
    assert made.bootstrap_servers == ("a:9092", "b:9092")
    assert (
        made.acks,
        made.retries,
        made.linger_ms,
        made.enable_idempotence,
        made.partitioner_ignore_keys,
    ) == (-1, 5, 0.5, True, False)
    assert made.compression_of("t") == ("lz4", 4)
    assert (made.metadata_recovery_strategy, made.security_protocol) == ("rebootstrap", "PLAINTEXT")
    assert made.client_id == "client-of-mine"
    assert parsed({"client.id": "own"})["client_id"] == "own"


@pytest.mark.parametrize(
    ("setting", "text", "kind"),
    [
        ("retries", "many", "a whole number"),
        ("retries", "5.5", "a whole number"),
        ("retries", "", "a whole number"),
        ("linger.ms", "soon", "a number"),
        ("enable.idempotence", "yes", "true or false"),
        ("compression_level", "high", "a whole number"),
    ],
)
def test_text_of_another_kind_is_refused(setting: str, text: str, kind: str) -> None:
    with pytest.raises(ConfigError, match=rf"{setting.replace('.', '_')}='{text}': must be {kind}"):
        parsed({setting: text})


def test_every_setting_can_be_given_with_dots() -> None:
    made = ProducerConfig()
    given = {
        field.name.replace("_", "."): getattr(made, field.name) for field in fields(ProducerConfig)
    }
    assert ProducerConfig(**parsed(given)) == made


def test_a_password_keeps_its_spaces_and_shows_nowhere() -> None:
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": " tiger ",
        "interceptors": Recording,
    }
    arguments = parsed(settings)
    assert arguments["sasl_password"] == " tiger "
    assert "tiger" not in repr(ProducerConfig(**arguments))
    assert "tiger" not in repr(arguments["interceptors"][0].settings)
    assert arguments["interceptors"][0].settings["sasl_username"] == "alice"


@pytest.mark.parametrize("setting", PRODUCER_UNSUPPORTED)
def test_a_setting_of_javas_that_is_not_here_says_why(setting: str) -> None:
    for name in (setting, setting.replace(".", "_")):
        with pytest.raises(ConfigError) as caught:
            parsed({name: "x"})
        assert name in str(caught.value) and PRODUCER_UNSUPPORTED[setting] in str(caught.value)


@pytest.mark.parametrize(
    ("given", "near"),
    [
        ("linger.mss", "'linger.ms'"),
        ("linger_mss", "'linger_ms'"),
        ("interceptor.class", "'interceptor.classes'"),
        ("partitioner.klass", "'partitioner.class'"),
        ("value.serialiser", "'value.serializer'"),
    ],
)
def test_an_unknown_setting_names_the_nearest(given: str, near: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown setting '{given}': did you mean {near}"):
        parsed({given: "1"})


def test_settings_that_make_no_sense() -> None:
    with pytest.raises(ConfigError, match=r"unknown setting 'zzz'; docs/configuration.md"):
        parsed({"zzz": 1})
    with pytest.raises(ConfigError, match="set twice"):
        parsed({"linger.ms": 1, "linger_ms": 1})
    with pytest.raises(ConfigError, match="is 5: must be a string"):
        parsed({5: 1})  # type: ignore[dict-item]


# -- classes and import paths ----------------------------------------------------------------------


class Recording(ProducerInterceptor):
    settings: Mapping[str, Any] | None = None
    closed = 0

    def configure(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings

    def close(self) -> None:
        self.closed += 1


class BadConfigure(ProducerInterceptor):
    def configure(self, settings: Mapping[str, Any]) -> None:
        raise RuntimeError("no such thing")


class NeedsArguments(ProducerInterceptor):
    def __init__(self, needed: int) -> None: ...


class Watching(ProducerObserver):
    made: list[Watching] = []  # noqa: RUF012

    def __init__(self) -> None:
        self.closed = 0
        self.made.append(self)

    def close(self) -> None:
        self.closed += 1


class KeyOrValue:
    is_key: bool | None = None

    def configure(self, settings: Mapping[str, Any], is_key: bool) -> None:
        self.is_key = is_key

    def __call__(self, topic: str, headers: Headers, data: Any) -> bytes:
        return b""


def shout(topic: str, headers: Headers, data: Any) -> bytes:
    return str(data).upper().encode()


shared = Recording()


def test_classes_and_paths_become_configured_objects() -> None:
    own = Recording()
    arguments = parsed(
        {
            "key.serializer": KeyOrValue,
            "value.serializer": f"{HERE}.KeyOrValue",
            "partitioner.class": "aioprod.producer.partitioner.RoundRobinPartitioner",
            "interceptor.classes": [Recording, f"{HERE}.Recording", own, f"{HERE}.shared"],
            "observers": f" {HERE}.Watching , {HERE}.Watching,",
            "linger.ms": "7",
        }
    )
    made = ProducerConfig(**arguments)
    assert isinstance(made.key_serializer, KeyOrValue) and made.key_serializer.is_key is True
    assert isinstance(made.value_serializer, KeyOrValue) and made.value_serializer.is_key is False
    assert isinstance(made.partitioner, RoundRobinPartitioner)
    first, second, *others = made.interceptors
    assert isinstance(first, Recording) and isinstance(second, Recording) and first is not second
    assert (
        first.settings is not None
        and first.settings["linger_ms"] == 7
        and first.settings["client_id"] == "client-of-None"
    )
    assert others == [own, shared] and own.settings is None, "an object is set up by who made it"
    assert [type(observer) for observer in made.observers] == [Watching, Watching]


def test_javas_names_lead_to_ours() -> None:
    arguments = parsed(
        {
            "key.serializer": "org.apache.kafka.common.serialization.IntegerSerializer",
            "value.serializer": "org.apache.kafka.common.serialization.StringSerializer",
            "partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner",
        }
    )
    assert isinstance(arguments["key_serializer"], IntegerSerializer)
    assert isinstance(arguments["value_serializer"], StringSerializer)
    assert isinstance(arguments["partitioner"], RoundRobinPartitioner)
    with pytest.raises(ConfigError, match=r"value_serializer='org\.apache.*no equivalent"):
        parsed({"value.serializer": "org.apache.kafka.common.serialization.ListSerializer"})


def test_empty_text_is_none() -> None:
    arguments = parsed(
        {"partitioner.class": "", "interceptor.classes": "", "value.serializer": f"{HERE}.shout"}
    )
    assert arguments["partitioner"] is None and arguments["interceptors"] == []
    assert arguments["value_serializer"] is shout


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"key.serializer": "upper"}, "key_serializer='upper': must be an import path"),
        ({"key.serializer": "no.such.module.Thing"}, r"importing no\.such\.module failed"),
        ({"key.serializer": f"{HERE}.Nothing"}, "has no Nothing"),
        (
            {"interceptor.classes": [f"{HERE}.NeedsArguments"]},
            r"interceptors: NeedsArguments\(\) failed",
        ),
        (
            {"interceptor.classes": [BadConfigure]},
            "interceptors: configure of BadConfigure failed: .*no such thing",
        ),
        ({"interceptor.classes": "builtins.int"}, "interceptors: 0 is not a ProducerInterceptor"),
        ({"observers": 5}, "observers=5: must be a list"),
    ],
)
def test_what_can_t_be_made_is_named_and_the_rest_is_closed(
    settings: dict[str, Any], message: str
) -> None:
    Watching.made.clear()
    with pytest.raises(ConfigError, match=message):
        parsed(
            {"observers": Watching} | settings
            if "observers" in settings
            else {"observers": [Watching]} | settings
        )
    assert [watching.closed for watching in Watching.made] == [1] * len(Watching.made)


def test_parts_are_closed_where_making_the_producer_fails() -> None:
    own = Recording()
    with pytest.raises(RuntimeError, match="later"):
        with producer_arguments(
            {"interceptors": [Recording, own]}, lambda transactional_id: "c"
        ) as arguments:
            made = arguments["interceptors"][0]
            raise RuntimeError("later")
    assert made.closed == 1 and own.closed == 0


def test_each_part_is_closed_once_whatever_one_raises(caplog: pytest.LogCaptureFixture) -> None:
    class Bad:
        def close(self) -> None:
            raise RuntimeError("not now")

    part = Recording()
    with caplog.at_level(logging.WARNING):
        close_plugins([part, Bad(), None, shout, object(), part])
    assert part.closed == 1
    assert "close of " in caplog.text and "not now" in caplog.text
