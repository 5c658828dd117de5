"""docs/migrating-*.md: each name and default is that of the installed clients, and of aioprod."""

from __future__ import annotations

import ast
import ctypes
import functools
import importlib.metadata
import inspect
import re
import warnings
from collections.abc import Iterator
from dataclasses import MISSING, fields
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import aiokafka
import confluent_kafka
import pytest

import aioprod
from aioprod.config.client import ClientConfig
from aioprod.config.consumer import CONSUMER, ConsumerConfig
from aioprod.config.producer import PRODUCER, ProducerConfig
from aioprod.errors import ConfigError
from aioprod.testing import EmbeddedCluster
from tests.public_names import PUBLIC_NAMES
from tests.testing.doc_blocks import python_blocks, table_rows

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it reads its schemas by a function that is deprecated
    kafka = import_module("kafka")

DOCS = Path(__file__).parent.parent / "docs"
CLIENTS = ("aiokafka", "confluent-kafka", "kafka-python")
PAGES = {client: (DOCS / f"migrating-{client}.md").read_text() for client in CLIENTS}
PACKAGES = {"aiokafka": aiokafka, "confluent-kafka": confluent_kafka, "kafka-python": kafka}
OURS: dict[str, type[ClientConfig]] = {"producer": ProducerConfig, "consumer": ConsumerConfig}
NO_PLAIN_VALUE = "—"
OF_CONFLUENT_KAFKA = ("oauth_cb",)  # settings that librdkafka does not have
_UNKNOWN = -2  # RD_KAFKA_CONF_UNKNOWN


class Setting(NamedTuple):
    client: str
    kind: str
    theirs: str
    their_default: str
    ours: str
    our_default: str


class Name(NamedTuple):
    client: str
    theirs: str
    ours: tuple[str, ...]


def sections() -> Iterator[tuple[str, str, str]]:
    """Client, title and text of each section with a table."""
    for client, page in PAGES.items():
        for section in page.split("\n## ")[1:]:
            title, _, body = section.partition("\n")
            if rows_of(body):
                yield client, title, body


def names_in(cell: str) -> tuple[str, ...]:
    return tuple(re.findall(r"`([^`]+)`", cell))


def rows_of(body: str) -> list[list[str]]:
    return [row for row in table_rows(body) if row[0].startswith("`")]


def all_settings() -> list[Setting]:
    found = []
    for client, title, body in sections():
        if not title.startswith("Settings"):
            continue
        kind = title.removeprefix("Settings of the ")
        for theirs, their_default, ours, our_default, *_ in rows_of(body):
            (name,) = names_in(theirs)
            found.append(Setting(client, kind, name, their_default, ours.strip("`"), our_default))
        (same,) = re.findall(r"Same name, same default:\s(.+?)\.\n\n", body, re.DOTALL)
        for name in names_in(same):
            found.append(Setting(client, kind, name, "same", name.replace(".", "_"), "same"))
    return found


def all_names() -> list[Name]:
    found = []
    for client, title, body in sections():
        if not title.startswith("Settings"):
            for theirs, ours, *_ in rows_of(body):
                (name,) = names_in(theirs)
                found.append(Name(client, name, names_in(ours)))
    return found


@functools.cache
def librdkafka() -> ctypes.CDLL:
    """The library that the wheel of confluent-kafka brings."""
    files = importlib.metadata.files("confluent-kafka") or []
    pattern = re.compile(r"librdkafka[^/]*\.(so|dylib|dll)")
    (path,) = [file for file in files if pattern.match(file.name)]
    library = ctypes.CDLL(str(path.locate()))
    for kind in ("conf", "topic_conf"):
        getattr(library, f"rd_kafka_{kind}_new").restype = ctypes.c_void_p
        getter = getattr(library, f"rd_kafka_{kind}_get")
        size = ctypes.POINTER(ctypes.c_size_t)
        getter.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, size]
        setter = getattr(library, f"rd_kafka_{kind}_set")
        name, text = ctypes.c_char_p, ctypes.c_char_p
        setter.argtypes = [ctypes.c_void_p, name, text, ctypes.c_char_p, ctypes.c_size_t]
        getattr(library, f"rd_kafka_{kind}_destroy").argtypes = [ctypes.c_void_p]
    return library


def librdkafka_default(setting: str) -> str | None:
    """A default as text; None if there is none.

    Raises:
        KeyError: librdkafka does not know the setting.
    """
    library = librdkafka()
    buffer, size = ctypes.create_string_buffer(512), ctypes.c_size_t(512)
    known = setting in OF_CONFLUENT_KAFKA
    for kind in ("conf", "topic_conf"):
        new, get, change, destroy = (
            getattr(library, f"rd_kafka_{kind}_{call}") for call in ("new", "get", "set", "destroy")
        )
        conf = new()
        found = get(conf, setting.encode(), buffer, ctypes.byref(size)) == 0
        # Without a default "get" knows no setting; "set" does, and may refuse the value.
        known = known or change(conf, setting.encode(), b"1", None, 0) != _UNKNOWN
        destroy(conf)
        if found:
            return buffer.value.decode()
    if not known:
        raise KeyError(setting)
    return None


@functools.cache
def their_defaults(client: str, kind: str) -> dict[str, Any]:
    if client == "aiokafka":
        made = {"producer": aiokafka.AIOKafkaProducer, "consumer": aiokafka.AIOKafkaConsumer}[kind]
        parameters = inspect.signature(made.__init__).parameters
        return {name: each.default for name, each in parameters.items()}
    if client == "kafka-python":
        made = {"producer": kafka.KafkaProducer, "consumer": kafka.KafkaConsumer}[kind]
        return dict(made.DEFAULT_CONFIG)
    names = [row.theirs for row in all_settings() if (row.client, row.kind) == (client, kind)]
    return {name: librdkafka_default(name) for name in names}


def our_default(kind: str, name: str) -> Any:
    (field,) = [each for each in fields(OURS[kind]) if each.name == name]
    return field.default if field.default_factory is MISSING else field.default_factory()


def is_plain(value: object) -> bool:
    """Return whether a default can be written as a literal that keeps for each release."""
    if isinstance(value, str):
        return not re.search(r"\d+\.\d+\.\d+$", value)
    return value is None or isinstance(value, bool | int)


def test_each_client_has_its_sections() -> None:
    titles = ["Settings of the producer", "Settings of the consumer", "Methods", "Errors", "Fields"]
    found = [(client, title) for client, title, _ in sections()]
    assert found == [(client, title) for client in CLIENTS for title in titles]
    assert len(all_settings()) > 150 and len(all_names()) > 150


@pytest.mark.parametrize("client", CLIENTS)
def test_no_name_comes_twice(client: str) -> None:
    settings = [(row.kind, row.theirs) for row in all_settings() if row.client == client]
    names = [row.theirs for row in all_names() if row.client == client]
    assert len(set(settings)) == len(settings)
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("row", all_settings(), ids=lambda row: "-".join(row[:3]))
def test_a_setting_and_its_defaults(row: Setting) -> None:
    theirs = their_defaults(row.client, row.kind)
    assert row.theirs in theirs
    value = theirs[row.theirs]
    if row.their_default == "same":
        ours = our_default(row.kind, row.ours)
        if row.client == "confluent-kafka":
            assert value is not None
            assert value.lower() == str(ours).lower()
        else:
            assert (type(value), value) == (type(ours), ours)
        return
    if row.their_default == NO_PLAIN_VALUE:
        assert value is None if row.client == "confluent-kafka" else not is_plain(value)
    else:
        assert ast.literal_eval(row.their_default.strip("`")) == value
    if row.ours == "no":
        assert row.our_default == ""
    else:
        expected = ast.literal_eval(row.our_default.strip("`"))
        assert expected == our_default(row.kind, row.ours)


TABLES = {"producer": PRODUCER, "consumer": CONSUMER}
CLASSES: dict[str, Any] = {"producer": aioprod.Producer, "consumer": aioprod.Consumer}


@pytest.mark.parametrize(
    "row",
    [
        row
        for row in all_settings()
        if TABLES[row.kind].python_name(row.theirs) not in TABLES[row.kind].settings
        and row.theirs.replace("_", ".") not in TABLES[row.kind].unsupported
    ],
    ids=lambda row: "-".join(row[:3]),
)
def test_a_setting_of_theirs_names_the_cure(row: Setting) -> None:
    """People keep the names that they know, as an argument and in a dictionary."""
    client, names = CLASSES[row.kind], (row.theirs, row.theirs.replace(".", "_"))
    for make in (
        *(partial(client.from_config, {name: "1"}) for name in names),
        partial(client, **{names[1]: "1"}),
    ):
        with pytest.raises(ConfigError, match=r"^unknown setting '[\w.]+': ") as caught:
            make()
        _, _, cure = str(caught.value).partition("': ")
        if row.ours == "no":
            assert not cure.startswith("did you mean")
        else:
            assert row.ours in cure.replace(".", "_")


@pytest.mark.parametrize(("kind", "other"), [("producer", "consumer"), ("consumer", "producer")])
def test_a_setting_of_the_other_client_says_whose_it_is(kind: str, other: str) -> None:
    own, theirs = TABLES[kind].settings, TABLES[other].settings
    for name in theirs.keys() - own.keys():
        dotted = theirs[name].dotted_name
        if TABLES[kind].knows(dotted):
            continue
        for make in (
            partial(CLASSES[kind], **{name: "1"}),
            partial(CLASSES[kind].from_config, {dotted: "1"}),
        ):
            with pytest.raises(ConfigError, match=f"'{name}|{dotted}': ") as caught:
                make()
            assert "did you mean" not in str(caught.value)


def resolve(root: Any, path: str) -> None:
    """Follow a dotted name through modules, classes and fields, or fail."""
    found = root
    for part in path.split("."):
        if inspect.ismodule(found) and not hasattr(found, part):
            found = import_module(f"{found.__name__}.{part}")
        elif isinstance(found, type) and part in attributes_of_instances(found):
            return
        else:
            found = getattr(found, part)


def attributes_of_instances(kind: type) -> set[str]:
    return {*getattr(kind, "__dataclass_fields__", {}), *inspect.get_annotations(kind)}


@pytest.mark.parametrize("row", all_names(), ids=lambda row: f"{row.client}-{row.theirs}")
def test_a_name_is_there(row: Name) -> None:
    resolve(PACKAGES[row.client], row.theirs)
    for name in row.ours:
        assert name.partition(".")[0] in PUBLIC_NAMES
        resolve(aioprod, name)


def test_a_name_that_is_not_there_would_be_found() -> None:
    for root, path in ((kafka, "errors.NoSuchError"), (aioprod, "Producer.produce")):
        with pytest.raises((AttributeError, ModuleNotFoundError)):
            resolve(root, path)
    with pytest.raises(KeyError):
        librdkafka_default("no.such.setting")


async def test_the_blocks_send(broker: EmbeddedCluster) -> None:
    blocks = [block for page in PAGES.values() for block in python_blocks(page)]
    assert len(blocks) == len(CLIENTS)
    for block in blocks:
        namespace: dict[str, Any] = {"__name__": "migrating"}
        exec(block.replace("localhost:9092", broker.bootstrap_servers), namespace)
        await namespace["main"]()
    assert len(broker.records("orders")) == len(CLIENTS)
