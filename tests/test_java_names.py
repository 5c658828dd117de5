"""A consumer's and an admin client's settings are Java's: each is here, or it is said why not; and
defaults that differ are named.
"""

from __future__ import annotations

import html
import os
import re
import subprocess
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from aioprod import Admin, ConfigError
from aioprod.config.admin import ADMIN, AdminSettings
from aioprod.config.consumer import CONSUMER, ConsumerSettings
from aioprod.config.kafka_properties import ClientSettings
from aioprod.consumer.consumer import Consumer
from aioprod.serialization import JsonDeserializer, StringDeserializer
from aioprod.testing.jars import kafka_jars
from aioprod.testing.java import find_java

FORMS = {"consumer": CONSUMER, "admin": ADMIN}
JAVA_CLASSES = {
    "consumer": "org.apache.kafka.clients.consumer.ConsumerConfig",
    "admin": "org.apache.kafka.clients.admin.AdminClientConfig",
}
OTHER_DEFAULTS = {
    "bootstrap.servers",
    "client.id",
    "sasl.mechanism",
    "send.buffer.bytes",
    "receive.buffer.bytes",
}
OTHER_DEFAULTS_OF = {
    "consumer": {
        "partition.assignment.strategy",
        "key.deserializer",
        "value.deserializer",
    },  # Java writes its classes, or has no default
    "admin": {"client.id"},
}
OURS = {
    "consumer": {"max.buffered.bytes", "metadata.max.idle.ms"},
    "admin": {"metadata.max.idle.ms"},
}
OURS_EVERYWHERE = {"ssl.context", "sasl.oauth.token.provider", "sasl.username", "sasl.password"}
IN_JAVAS_WORDS = {"None": "null", "True": "true", "False": "false", "()": '""', "": '""'}


def javas(kind: str) -> dict[str, str]:
    lines = Path(__file__).with_name(f"java_{kind}_config.txt").read_text().splitlines()
    return dict(line.partition(" ")[::2] for line in lines)


def ours(form: ClientSettings) -> dict[str, object]:
    longer = {short: dotted for dotted, short in form.renamed.items()}
    return {
        longer.get(field.name, field.name.replace("_", ".")): field.default
        if field.default_factory is MISSING
        else field.default_factory()
        for field in fields(form.kind)
    }


@pytest.mark.parametrize("kind", FORMS)
def test_every_setting_of_java_is_here_or_has_a_reason(kind: str) -> None:
    form, java, here = FORMS[kind], javas(kind), ours(FORMS[kind])
    assert java.keys() - here.keys() == form.absent.keys()
    assert here.keys() - java.keys() == (OURS[kind] | OURS_EVERYWHERE)
    assert all(form.knows(name) for name in java)


@pytest.mark.parametrize("kind", FORMS)
def test_defaults_are_javas(kind: str) -> None:
    java = javas(kind)
    different = {
        name
        for name, value in ours(FORMS[kind]).items()
        if name in java and IN_JAVAS_WORDS.get(str(value), str(value)) != java[name]
    }
    assert different - OTHER_DEFAULTS - OTHER_DEFAULTS_OF[kind] == set()


def test_the_keyword_arguments_are_exactly_the_settings() -> None:
    for settings, form in ((ConsumerSettings, CONSUMER), (AdminSettings, ADMIN)):
        assert settings.__optional_keys__ | {"bootstrap_servers"} == {
            field.name for field in fields(form.kind)
        }


@pytest.mark.kafka
@pytest.mark.parametrize("kind", FORMS)
def test_the_list_of_javas_settings_is_what_java_itself_prints(kind: str) -> None:
    command = [
        str(find_java()),
        "-cp",
        os.pathsep.join(str(jar) for jar in kafka_jars("4.1.0")),
        JAVA_CLASSES[kind],
    ]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    found = {}
    for block in printed.split('<h4><a id="')[1:]:
        default = re.search(r"<th>Default:</th><td>(.*?)</td>", block, re.DOTALL)
        assert default is not None
        # Long numbers come with an explanation: 540000 (9 minutes).
        found[block[: block.index('"')]] = html.unescape(re.sub(r" \(.*\)$", "", default[1]))
    assert found == javas(kind)


def test_a_consumer_by_javas_names() -> None:
    consumer = Consumer.from_config(
        {
            "bootstrap.servers": "a:9092,b:9092",
            "group.id": "mine",
            "enable.auto.commit": "false",
            "max.poll.records": "50",
            "partition.assignment.strategy": (
                "org.apache.kafka.clients.consumer.RangeAssignor, sticky"
            ),
            "key.deserializer": "org.apache.kafka.common.serialization.StringDeserializer",
            "value.deserializer": JsonDeserializer,
        },
        "orders",
    )
    config = consumer.config
    assert (config.bootstrap_servers, config.enable_auto_commit, config.max_poll_records) == (
        ("a:9092", "b:9092"),
        False,
        50,
    )
    assert list(config.partition_assignment_strategy) == ["range", "sticky"]
    assert isinstance(config.key_deserializer, StringDeserializer) and isinstance(
        config.value_deserializer, JsonDeserializer
    )
    assert "mine" in config.client_id


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {"enable.metrics.push": "false"},
            "setting 'enable.metrics.push' of Java's consumer is not there: metrics are not pushed",
        ),
        ({"max.poll.record": "5"}, "did you mean 'max.poll.records'"),
        ({"max.poll.records": "few"}, "max_poll_records='few': must be a whole number"),
        ({"check.crcs": "perhaps"}, "check_crcs='perhaps': must be true or false"),
        (
            {"partition.assignment.strategy": "org.apache.kafka.clients.consumer.MyAssignor"},
            "a class of Java's that has no counterpart",
        ),
        (
            {"partition.assignment.strategy": ""},
            "partition_assignment_strategy=[]: must be a list of assignors",
        ),
    ],
)
def test_a_bad_setting_of_a_consumer_is_named(settings: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Consumer.from_config(settings)
    assert text in str(raised.value)


def test_an_admin_client_by_javas_names() -> None:
    assert (
        Admin.from_config(
            {"request.timeout.ms": "5000", "client_id": "me"}
        ).config.request_timeout_ms
        == 5000
    )
