"""The declarations of settings: they have all of Java's, and everything else comes from them."""

from __future__ import annotations

import ast
import copy
import html
import inspect
import os
import pickle
import pydoc
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import MISSING, asdict, fields, replace
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

import aioprod
from aioprod import (
    Admin,
    AdminConfig,
    ClientConfig,
    ConfigError,
    Consumer,
    ConsumerConfig,
    Producer,
    ProducerConfig,
    ShareConsumerConfig,
)
from aioprod._tools import generate_config
from aioprod.config.admin import ADMIN
from aioprod.config.consumer import CONSUMER
from aioprod.config.producer import PRODUCER
from aioprod.config.setting import SettingsTable, choice, milliseconds, number, secret, switch, text
from aioprod.config.share_consumer import SHARE_CONSUMER
from aioprod.serialization import JsonDeserializer, StringDeserializer
from aioprod.testing.jars import kafka_jars
from aioprod.testing.java import find_java

ROOT = Path(aioprod.__file__).parent.parent
PAGE = (ROOT / "docs" / "configuration.md").read_text()
TABLES: dict[str, SettingsTable] = {"producer": PRODUCER, "consumer": CONSUMER, "admin": ADMIN}
CLIENTS: dict[str, type] = {"producer": Producer, "consumer": Consumer, "admin": Admin}
JAVA_CLASSES = {
    "producer": "org.apache.kafka.clients.producer.ProducerConfig",
    "consumer": "org.apache.kafka.clients.consumer.ConsumerConfig",
    "admin": "org.apache.kafka.clients.admin.AdminClientConfig",
}
# Settings with another default than Java's; the page shows Java's.
OTHER_DEFAULTS = {
    "bootstrap.servers",
    "client.id",
    "sasl.mechanism",
    "send.buffer.bytes",
    "receive.buffer.bytes",
    "key.serializer",
    "value.serializer",
    "key.deserializer",
    "value.deserializer",
}
# Java writes the names of classes.
OTHER_TEXT = {"partition.assignment.strategy"}
IN_JAVA = {"None": "null", "True": "true", "False": "false", "()": '""', "": '""'}


def java_settings(kind: str) -> dict[str, str]:
    lines = Path(__file__).with_name(f"java_{kind}_config.txt").read_text().splitlines()
    return dict(line.partition(" ")[::2] for line in lines)


def rows(page: str) -> list[tuple[str, ...]]:
    """The rows of all tables: setting, default, values, meaning."""
    found = re.findall(r"^\| `([^`]+)` \| `([^`]*)` \| (.*?) \| (.+) \|$", page, re.MULTILINE)
    return [tuple(row) for row in found]


# -- Java ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TABLES)
def test_each_setting_of_java_is_declared_or_has_a_reason(kind: str) -> None:
    table, java = TABLES[kind], java_settings(kind)
    declared = {setting.dotted_name: setting for setting in table.settings.values()}
    assert java.keys() - declared.keys() == table.unsupported.keys()
    assert all(table.knows(name) for name in java)
    only_here = {name for name, setting in declared.items() if setting.kafka_name is None}
    # Java has it for producers only.
    also_here = set() if kind == "producer" else {"metadata.max.idle.ms"}
    assert declared.keys() - java.keys() == only_here | also_here


@pytest.mark.parametrize("kind", TABLES)
def test_defaults_are_those_of_java(kind: str) -> None:
    java = java_settings(kind)
    different = {
        setting.dotted_name
        for setting in TABLES[kind].settings.values()
        if setting.dotted_name in java
        and IN_JAVA.get(str(setting.default), str(setting.default)) != java[setting.dotted_name]
    }
    assert different <= OTHER_DEFAULTS | OTHER_TEXT


@pytest.mark.parametrize("name", sorted(OTHER_DEFAULTS - {"client.id"}))
def test_the_page_shows_another_default_in_java(name: str) -> None:
    (meaning,) = [row[3] for row in rows(PAGE) if row[0] == name]
    assert "Java has no default" in meaning or "The default of Java is" in meaning


@pytest.mark.kafka
@pytest.mark.parametrize("kind", TABLES)
def test_the_list_of_javas_settings_is_what_java_itself_prints(kind: str) -> None:
    command = [
        str(find_java()),
        "-cp",
        os.pathsep.join(str(jar) for jar in kafka_jars()),
        JAVA_CLASSES[kind],
    ]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    found = {}
    for block in printed.split('<h4><a id="')[1:]:
        default = re.search(r"<th>Default:</th><td>(.*?)</td>", block, re.DOTALL)
        assert default is not None
        # Long numbers come with an explanation: 540000 (9 minutes).
        found[block[: block.index('"')]] = html.unescape(re.sub(r" \(.*\)$", "", default[1]))
    assert found == java_settings(kind)


# -- configurations as values ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", TABLES)
def test_a_configuration_is_a_value(kind: str) -> None:
    own: dict[str, Any] = {"topic_compression": {"a": ("zstd", 9)}} if kind == "producer" else {}
    made = TABLES[kind].kind(client_id="a", **own)
    for twin in (copy.deepcopy(made), pickle.loads(pickle.dumps(made)), replace(made)):
        assert twin == made and hash(twin) == hash(made)
    assert asdict(made)["client_id"] == "a"
    assert "mappingproxy" not in repr(made)


@pytest.mark.parametrize("kind", TABLES)
def test_help_begins_with_the_settings(kind: str) -> None:
    table = TABLES[kind]
    assert inspect.signature(table.kind).parameters.keys() == table.settings.keys()
    shown = pydoc.plain(pydoc.render_doc(table.kind))
    assert f"{table.kind.__name__}(bootstrap_servers: " in shown


@pytest.mark.parametrize("given", ["consumer", "CONSUMER", "Consumer"])
def test_the_group_protocol_in_any_case_as_in_java(given: Any) -> None:
    assert ConsumerConfig(group_protocol=given).group_protocol == "consumer"


# -- generated parts -------------------------------------------------------------------------------


def test_the_generated_parts_are_up_to_date() -> None:
    assert generate_config.main(["--check"]) == 0


@pytest.mark.parametrize("kind", TABLES)
def test_fields_keywords_and_help_have_each_setting(kind: str) -> None:
    table = TABLES[kind]
    by_name = {field.name: field for field in fields(table.kind)}
    assert by_name.keys() == table.settings.keys()
    typed = getattr(aioprod.config, f"{kind.capitalize()}Settings")
    parameters = {name for name in table.settings if "serializer" in name} | {"bootstrap_servers"}
    assert typed.__optional_keys__ | parameters == table.settings.keys()
    assert parameters <= inspect.signature(CLIENTS[kind]).parameters.keys()
    assert not typed.__required_keys__
    shown = pydoc.plain(pydoc.render_doc(table.kind))
    for name, setting in table.settings.items():
        field = by_name[name]
        default = field.default if field.default_factory is MISSING else field.default_factory()
        assert default == setting.default and field.repr is not setting.hidden
        assert f" {name}: {setting.meaning.split()[0].replace('`', '``')}" in shown
        assert setting.kafka_name is None or f"Kafka: ``{setting.dotted_name}``" in shown


@pytest.mark.parametrize("kind", TABLES)
def test_a_setting_that_is_one_of_several_values_has_them_as_its_type(kind: str) -> None:
    hints = get_type_hints(TABLES[kind].kind)
    literals = 0
    for name, setting in TABLES[kind].settings.items():
        values = [value for part in parts_of(hints[name]) for value in values_of(part)]
        if not values:
            assert not setting.values.startswith("`"), f"{name} has fixed values; use Literal"
            continue
        literals += 1
        for value in values:
            setting.check(name, value)
        with pytest.raises(ConfigError, match=name):
            setting.check(name, "unheard-of")
    assert literals >= 6


def parts_of(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def values_of(part: Any) -> tuple[Any, ...]:
    return get_args(part) if get_origin(part) is Literal else ()


def test_the_page_has_each_setting_with_its_default() -> None:
    documented = {(row[0], ast.literal_eval(row[1])) for row in rows(PAGE) if row[1] != "{}"}
    declared = {
        (
            setting.name if setting.kafka_name is None else setting.dotted_name,
            ast.literal_eval(setting.shown_default) if setting.shown_default else setting.default,
        )
        for table in (*TABLES.values(), SHARE_CONSUMER)
        for setting in table.settings.values()
        if setting.default != {}
    }
    assert documented == declared
    for table in TABLES.values():
        for name, reason in table.unsupported.items():
            assert re.search(rf"^\|.*`{re.escape(name)}`.*\| {re.escape(reason)} \|$", PAGE, re.M)


EXPLAINED = [ClientConfig, ProducerConfig, ConsumerConfig, ShareConsumerConfig, AdminConfig]


def test_each_setting_is_explained_in_one_docstring_and_help_shows_all() -> None:
    written: Counter[str] = Counter()
    for kind in EXPLAINED:
        path = Path(kind.__post_init__.__code__.co_filename)
        (source,) = [
            node
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.ClassDef) and node.name == kind.__name__
        ]
        own = explained(ast.get_docstring(source) or "")
        written.update(own)
        if kind is not ClientConfig:
            assert sorted(own) == sorted(kind.__annotations__)
        shown = inspect.getdoc(kind) or ""
        assert sorted(explained(shown)) == sorted(each.name for each in fields(kind))
        assert not re.search("`{3,}", shown), "Markdown's single backticks become double ones"
    for setting in fields(ClientConfig):
        overriding = [kind for kind in EXPLAINED[1:] if setting.name in kind.__annotations__]
        assert written[setting.name] == 1 + len(overriding), setting.name


def explained(docstring: str) -> list[str]:
    return re.findall(r"^    (\w+): ", docstring.partition("Raises:")[0], re.MULTILINE)


def test_each_kind_of_setting_may_be_unknown_to_kafka() -> None:
    made = [
        milliseconds("a_ms", 0.5, 0, "A time.", kafka_name=None),
        number("a_number", 1, 0, "A number.", kafka_name=None),
        switch("a_switch", True, "A switch.", kafka_name=None),
        choice("a_choice", "x", ["x", "y"], "A choice.", kafka_name=None),
        secret("a_secret", "A secret.", kafka_name=None),
        text("a_text", "A text.", kafka_name=None),
    ]
    for each in made:
        assert each.kafka_name is None
        assert each.check(each.name, each.default) == each.default
    half: Any = 0.5
    assert Consumer(group_id="g", stall_timeout_ms=half).config.stall_timeout_ms == half


NEW_SETTING = '    number("new_limit", 7, 1, "Limits something."),\n'
USE_IT = """
from aioprod import ConfigError, Producer, ProducerConfig
from aioprod._tools.generate_config import main
import inspect

assert main(["--check"]) == 0
assert Producer().config.new_limit == 7
assert Producer.from_config({"new.limit": "9"}).config.new_limit == 9
for wrong in (0, "x", True):
    try:
        Producer(new_limit=wrong)
    except ConfigError as error:
        assert f"new_limit={wrong!r}: must be" in str(error)
    else:
        raise AssertionError(wrong)
assert "new_limit: Limits something." in inspect.getdoc(ProducerConfig)
"""


def test_a_new_setting_is_one_edit(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "aioprod", tmp_path / "aioprod", ignore=shutil.ignore_patterns("*.pyc"))
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "configuration.md").write_text(PAGE)
    declarations = tmp_path / "aioprod/config/settings/producer.py"
    declarations.write_text(
        declarations.read_text().replace(
            "SENDING = section(\n", f"SENDING = section(\n{NEW_SETTING}"
        )
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    for arguments in (["-m", "aioprod._tools.generate_config"], ["-c", USE_IT]):
        subprocess.run(
            [sys.executable, *arguments], env=environment, cwd=tmp_path, timeout=60, check=True
        )
    assert ("new.limit", "7", "at least 1", "Limits something.") in rows(
        (tmp_path / "docs" / "configuration.md").read_text()
    )
    assert "    new_limit: int\n" in (tmp_path / "aioprod/config/keywords/producer.py").read_text()


# -- from_config of consumers and admin clients ----------------------------------------------------


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
            {"metric.reporters": "org.example.Reporter"},
            "setting 'metric.reporters' of the Java consumer is not supported: it names Java",
        ),
        ({"max.poll.record": "5"}, "did you mean 'max.poll.records'"),
        ({"max.poll.records": "few"}, "max_poll_records='few': must be a whole number"),
        ({"check.crcs": "perhaps"}, "check_crcs='perhaps': must be true or false"),
        (
            {"partition.assignment.strategy": "org.apache.kafka.clients.consumer.MyAssignor"},
            "aioprod has no equivalent of this Java class",
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
