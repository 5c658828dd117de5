"""docs/configuration.md, the code and Java's ProducerConfig name the same settings with the same
defaults.
"""

from __future__ import annotations

import ast
import html
import os
import re
import subprocess
from collections import Counter
from dataclasses import MISSING, fields
from pathlib import Path
from typing import NamedTuple

import pytest

from aioprod.config.producer import ABSENT, RENAMED, ProducerConfig, ProducerSettings
from aioprod.testing.jars import kafka_jars
from aioprod.testing.java import find_java

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"
JAVAS = Path(__file__).with_name("java_producer_config.txt")
# Those whose default in Java is another one; the page says so.
OTHER_DEFAULTS = {
    "bootstrap.servers",
    "client.id",
    "key.serializer",
    "value.serializer",
    "sasl.mechanism",
    "send.buffer.bytes",
    "receive.buffer.bytes",
}
IN_JAVAS_WORDS = {"None": "null", "True": "true", "False": "false", "()": '""'}


class Row(NamedTuple):
    setting: str
    default: str
    meaning: str


def rows_of(text: str) -> list[Row]:
    return [
        Row(*match)
        for match in re.findall(r"^\| `([^`]+)` \| `([^`]*)` \| (.+) \|$", text, re.MULTILINE)
    ]


def defaults() -> dict[str, object]:
    return {
        field.name: field.default if field.default_factory is MISSING else field.default_factory()
        for field in fields(ProducerConfig)
    }


HERE, NOT_HERE = PAGE.read_text().split("\n## Not here\n")
PRESENT = rows_of(HERE)
LEFT_OUT = rows_of(NOT_HERE)
JAVA = dict(line.partition(" ")[::2] for line in JAVAS.read_text().splitlines())


def python_name(setting: str) -> str:
    return RENAMED.get(setting, setting.replace(".", "_"))


def test_no_row_is_lost_by_this_test_and_none_comes_twice() -> None:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert len(lines) == len(PRESENT) + len(LEFT_OUT)
    assert [
        name
        for name, count in Counter(row.setting for row in (*PRESENT, *LEFT_OUT)).items()
        if count > 1
    ] == []


def test_the_page_has_exactly_the_settings_of_the_code() -> None:
    assert {python_name(row.setting) for row in PRESENT} == set(defaults())


def test_the_keyword_arguments_are_exactly_the_settings() -> None:
    assert ProducerSettings.__optional_keys__ | {"bootstrap_servers"} == set(defaults())
    assert not ProducerSettings.__required_keys__


@pytest.mark.parametrize("row", PRESENT, ids=[row.setting for row in PRESENT])
def test_the_default_on_the_page_is_the_codes(row: Row) -> None:
    if row.setting == "client.id":
        assert row.default == '"aioprod-producer-N"'  # made by the producer, see test_producer.py
        return
    assert ast.literal_eval(row.default) == defaults()[python_name(row.setting)]


def test_what_java_does_not_have_is_marked_as_ours() -> None:
    for row in PRESENT:
        assert row.meaning.startswith("ours") == (row.setting not in JAVA), row
        if row.setting in RENAMED:
            assert row.meaning.startswith(f"`{RENAMED[row.setting]}`: "), row


def test_every_setting_of_java_is_on_the_page() -> None:
    listed = {row.setting for row in (*PRESENT, *LEFT_OUT)}
    assert set(JAVA) - listed == set()
    assert {row.setting for row in LEFT_OUT} - set(JAVA) == set()


def test_what_is_left_out_is_what_the_code_refuses_with_the_same_reason() -> None:
    assert {row.setting: row.meaning for row in LEFT_OUT} == dict(ABSENT)
    assert {row.setting: row.default for row in LEFT_OUT} == {name: JAVA[name] for name in ABSENT}
    assert not {python_name(name) for name in ABSENT} & set(defaults())


def test_defaults_are_javas() -> None:
    different = set()
    for row in PRESENT:
        if row.setting in JAVA:
            default = str(defaults()[python_name(row.setting)])
            if IN_JAVAS_WORDS.get(default, default) != JAVA[row.setting]:
                different.add(row.setting)
    assert different == OTHER_DEFAULTS


@pytest.mark.kafka
def test_the_list_of_javas_settings_is_what_java_itself_prints() -> None:
    command = [
        str(find_java()),
        "-cp",
        os.pathsep.join(str(jar) for jar in kafka_jars("4.1.0")),
        "org.apache.kafka.clients.producer.ProducerConfig",
    ]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    found = {}
    for block in printed.split('<h4><a id="')[1:]:
        default = re.search(r"<th>Default:</th><td>(.*?)</td>", block, re.DOTALL)
        assert default is not None
        # Long numbers come with an explanation: 540000 (9 minutes).
        found[block[: block.index('"')]] = html.unescape(re.sub(r" \(.*\)$", "", default[1]))
    assert found == JAVA
