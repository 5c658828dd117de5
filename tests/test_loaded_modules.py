"""A program loads only the modules that it uses, and none while its records are sent."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from aioprod import Producer
from aioprod.testing import BrokerSecurity, EmbeddedCluster, ThreadedCluster
from tests.selection import by_default_each

LIMIT_S = 60

# Each takes milliseconds, and most programs need none of them.
SELDOM_USED = (
    "aioprod.admin",
    "aioprod.cluster.telemetry_push",
    "aioprod.config.java_serializers",
    "aioprod.config.kafka_properties",
    "aioprod.config.keywords.client",
    "aioprod.decoding_limits",
    "aioprod.metrics.telemetry",
    "aioprod.net.authentication",
    "aioprod.net.kerberos",
    "aioprod.processing",
    "aioprod.protocol.api_keys",
    "aioprod.protocol.sasl",
    "aioprod.schema_registry",
    "aioprod.serialization",
    "aioprod.testing",
    "anyio",
    "argparse",
    "compression",
    "concurrent.futures.thread",
    "cramjam",
    "crc32c",
    "datetime",
    "difflib",
    "email",
    "hashlib",
    "http",
    "importlib.metadata",
    "importlib.util",
    "ipaddress",
    "json",
    "logging.config",
    "lz4",
    "numpy",
    "pathlib",
    "pyarrow",
    "secrets",
    "shutil",
    "urllib",
    "zstandard",
)
OF_ALL_CONSUMERS = (
    "aioprod.config.offset_reset",
    "aioprod.config.settings.consumer",
    "aioprod.metrics.consumer_observers",
    "aioprod.metrics.reading",
)
OF_CONSUMERS = (
    "aioprod.config.consumer",
    "aioprod.config.keywords.consumer",
    "aioprod.consumer.consumer",
    "aioprod.consumer.graph",
)
OF_SHARE_CONSUMERS = (
    "aioprod.config.keywords.share_consumer",
    "aioprod.config.share_consumer",
    "aioprod.consumer.share",
    "aioprod.metrics.share_consumer",
    "aioprod.metrics.share_consumer_observers",
)
OF_PRODUCERS = (
    "aioprod.config.keywords.producer",
    "aioprod.config.producer",
    "aioprod.metrics.producer",
    "aioprod.metrics.producer_observers",
    "aioprod.producer.producer",
)
OF_ADMINS = (
    "aioprod.config.admin",
    "aioprod.config.keywords.admin",
    "aioprod.metrics.admin",
    "aioprod.metrics.admin_observers",
)
#: What reads or compresses batches.
OF_BATCHES = (
    "aioprod.protocol.codecs",
    "aioprod.protocol.compression",
    "aioprod.protocol.record_reader",
    "zlib",
)
OF_TRANSACTIONS = (
    "aioprod.producer.transactions.manager",
    "aioprod.protocol.messages.end_txn",
    "aioprod.protocol.messages.txn_offset_commit",
)
#: More than are imported now: new files are no fault, another package is.
MOST_MODULES = 140
#: Pieces of code, and characters in all of them, that dataclasses, named tuples and annotations
#: compile during the import of a client, which bytecode caches do not have: a little more than now.
MOST_COMPILED = {
    "Producer": (60, 7_500),
    "Consumer": (140, 26_000),
    "ShareConsumer": (165, 29_000),
    "Admin": (340, 66_000),
}

SHOW = "import sys; print(*sys.modules)"


def printed(program: str, *arguments: str) -> str:
    """The last line that a program prints."""
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    return done.stdout.splitlines()[-1]


def loaded(program: str, *arguments: str) -> set[str]:
    """The modules that a program has loaded when it ends, besides its own output."""
    return set(printed(f"{program}\n{SHOW}", *arguments).split())


def among(modules: Iterable[str], packages: Iterable[str]) -> list[str]:
    """Return the modules that belong to these packages."""
    return sorted(
        module
        for module in modules
        if any(f"{module}.".startswith(f"{package}.") for package in packages)
    )


def test_a_producer_loads_only_what_every_producer_needs() -> None:
    modules = loaded("from aioprod import Producer")
    of_others = (*OF_ALL_CONSUMERS, *OF_CONSUMERS, *OF_SHARE_CONSUMERS, *OF_ADMINS)
    assert among(modules, (*SELDOM_USED, *of_others, *OF_TRANSACTIONS, *OF_BATCHES)) == []
    assert len(among(modules, ["aioprod"])) <= MOST_MODULES


@pytest.mark.parametrize(
    ("name", "unused"),
    [
        ("Consumer", (*OF_SHARE_CONSUMERS, *OF_PRODUCERS, *OF_TRANSACTIONS, *OF_ADMINS)),
        ("ShareConsumer", (*OF_PRODUCERS, *OF_TRANSACTIONS, *OF_ADMINS)),
        ("Admin", (*OF_ALL_CONSUMERS, *OF_CONSUMERS, *OF_SHARE_CONSUMERS, *OF_PRODUCERS)),
    ],
)
def test_a_client_loads_none_of_another(name: str, unused: tuple[str, ...]) -> None:
    own = {"aioprod.admin", "json"} if name == "Admin" else {"datetime"}  # auto_offset_reset
    seldom = set(SELDOM_USED) - own
    assert among(loaded(f"from aioprod import {name}"), (*seldom, *unused)) == []


COUNT_COMPILED = """
import asyncio, builtins
sizes = []

def counting(function):
    def count(source, *rest, **named):
        if isinstance(source, str):
            sizes.append(len(source))
        return function(source, *rest, **named)
    return count

for name in ("compile", "eval", "exec"):
    setattr(builtins, name, counting(getattr(builtins, name)))
"""


@pytest.mark.parametrize("name", MOST_COMPILED)
def test_an_import_compiles_little(name: str) -> None:
    """It is what makes imports slow: a dataclass of 50 fields is 10,000 characters of code."""
    program = f"{COUNT_COMPILED}\nfrom aioprod import {name}\nprint(len(sizes), sum(sizes))"
    pieces, characters = map(int, printed(program).split())
    most_pieces, most_characters = MOST_COMPILED[name]
    assert pieces <= most_pieces and characters <= most_characters


FUTURE = "from __future__ import annotations"


def test_named_tuples_have_no_annotations_to_compile() -> None:
    """``NamedTuple`` compiles each annotation that ``from __future__ import annotations`` keeps as
    text.
    """
    for module in among(loaded(f"from aioprod import {', '.join(MOST_COMPILED)}"), ["aioprod"]):
        spec = importlib.util.find_spec(module)
        assert spec is not None
        source = Path(spec.origin or "")
        if source.suffix == ".py":
            text = source.read_text(encoding="utf-8")
            assert "(NamedTuple" not in text or f"\n{FUTURE}\n" not in text, module


def test_the_checksum_is_that_of_the_package_if_its_file_is_not_found() -> None:
    """A program that is one file has no directory with extension modules."""
    code = "from aioprod.protocol.checksum import crc32c; assert crc32c(b'123456789') == 0xE3069283"
    hidden = """
from importlib.machinery import PathFinder
find_spec = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if rest == () else find_spec(name, *rest)
"""
    assert "crc32c" not in loaded(code)
    assert "crc32c" in loaded(hidden + code)


# -- while records are on their way ----------------------------------------------------------------

WATCH = """
import asyncio, json, sys
seen, phases = set(), {}

def phase(name):
    new = {each for each in set(sys.modules) - seen if not each.startswith("encodings.")}
    phases[name] = sorted(phases.get(name, []) + sorted(new))
    seen.update(sys.modules)

async def watched(client, **calls):
    phase("constructor")
    await client.start()
    phase("start")
    for name, call in calls.items():
        await call()
        phase(name)
    await client.close()
    phase("close")

servers, settings = sys.argv[1], json.loads(sys.argv[2])
"""
PRODUCER = """
from aioprod import Producer
phase("import")
producer = Producer(servers, **settings)

async def send():
    if "transactional_id" not in settings:
        await producer.send_and_wait("t", b"v", b"k", headers=[("h", b"v")])
        await producer.send_many("t", [b"v"] * 10)
        return
    async with producer.transaction():
        await producer.send_and_wait("t", b"v" * 1000)
    await producer.begin_transaction()
    await producer.send("t", b"v" * 1000)
    await producer.abort_transaction()

async def main():
    await watched(producer, send=send, flush=producer.flush)

asyncio.run(main())
"""
CONSUMER = """
from aioprod import Consumer
phase("import")
consumer = Consumer("t", bootstrap_servers=servers, auto_offset_reset="earliest", **settings)

async def commit():
    if "group_id" in settings:
        await consumer.commit()

async def main():
    await watched(consumer, getone=consumer.getone, getmany=consumer.getmany, commit=commit)

asyncio.run(main())
"""
ADMIN = """
from aioprod import Admin
phase("import")
admin = Admin(servers, **settings)

async def describe():
    await admin.describe_topics(["t"])
    await admin.list_groups()

async def main():
    await watched(admin, describe=describe)

asyncio.run(main())
"""


async def fill(servers: str) -> None:
    async with Producer(servers) as producer:
        await (await producer.send_many("t", [b"v"] * 3))


def phases(program: str, servers: str, settings: dict[str, object]) -> dict[str, list[str]]:
    """The modules that a program has loaded in each phase of a client's life."""
    code = f"{WATCH}{program}\nprint(json.dumps(phases))"
    command = [sys.executable, "-c", code, servers, json.dumps(settings)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    ("program", "settings"),
    [
        pytest.param(PRODUCER, {}, id="producer"),
        pytest.param(PRODUCER, {"transactional_id": "t"}, id="transactions"),
        *(
            pytest.param(
                PRODUCER, {"compression_type": codec}, id=codec, marks=by_default_each(2, place)
            )
            for place, codec in enumerate(("gzip", "snappy", "lz4", "zstd"))
        ),
        pytest.param(PRODUCER, {"topic_compression": {"t": "zstd"}}, id="topic_compression"),
        pytest.param(CONSUMER, {}, id="consumer"),
        pytest.param(CONSUMER, {"group_id": "g"}, id="group"),
        pytest.param(CONSUMER, {"group_id": "h", "group_protocol": "consumer"}, id="KIP-848"),
        pytest.param(ADMIN, {}, id="admin"),
    ],
)
def test_nothing_is_loaded_between_start_and_end(
    program: str, settings: dict[str, object], threaded_broker: ThreadedCluster
) -> None:
    """An import blocks the event loop: for the first record, a rebalance, or the close."""
    threaded_broker.create_topic("t", 1)
    asyncio.run(fill(threaded_broker.bootstrap_servers))
    found = phases(program, threaded_broker.bootstrap_servers, settings)
    assert found.pop("import")
    found.pop("constructor")
    assert {name: modules for name, modules in found.items() if modules} == {}


def test_the_login_is_loaded_by_start() -> None:
    login = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_username": "alice",
        "sasl_password": "secret",
    }
    security = BrokerSecurity(users={"alice": "secret"})
    with EmbeddedCluster.in_thread(security=security) as broker:
        broker.create_topic("t", 1)
        found = phases(PRODUCER, broker.bootstrap_servers, dict(login))
    assert "aioprod.net.authentication" in found.pop("start")
    assert found.pop("import")
    found.pop("constructor")
    assert {name: modules for name, modules in found.items() if modules} == {}


# -- the command line ------------------------------------------------------------------------------

OF_CLIENTS = ("asyncio", "aioprod.admin", "aioprod.producer", "aioprod.consumer", "ssl")


def of_command(*arguments: str) -> set[str]:
    """The modules that a call of the command line has loaded when it ends."""
    code = """
import atexit, sys
def show():
    print()
    print(*sys.modules)
atexit.register(show)
from aioprod.cli import main
sys.exit(main())
"""
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(
        command, input="v\n", capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def commands_of(modules: Iterable[str]) -> set[str]:
    from aioprod.cli.command_line import _COMMANDS

    return {name for name in _COMMANDS if f"aioprod.cli.{name}" in modules}


def test_help_loads_no_command() -> None:
    modules = of_command("--help")
    assert commands_of(modules) == set()
    seldom = set(SELDOM_USED) - {"json"}  # commands may print it
    assert among(modules, (*seldom, *OF_CLIENTS)) == ["argparse", "shutil"]


@pytest.mark.parametrize("name", ["topics", "groups", "produce", "consume"])
def test_help_of_a_command_loads_no_client(name: str) -> None:
    modules = of_command(name, "--help")
    assert name in commands_of(modules)
    assert among(modules, ("aioprod.admin", "aioprod.producer", "aioprod.testing")) == []


def test_help_of_topics_loads_no_event_loop() -> None:
    assert among(of_command("topics", "--help"), OF_CLIENTS) == []


@pytest.mark.parametrize(
    ("words", "unused"),
    [
        (("topics", "list"), ("aioprod.producer.producer", "aioprod.consumer.consumer")),
        (("produce", "t"), ("aioprod.admin", "aioprod.consumer.consumer")),
        (("consume", "t", "--exit"), ("aioprod.admin", "aioprod.producer.producer")),
    ],
)
def test_a_command_loads_its_client_only(
    words: tuple[str, ...], unused: tuple[str, ...], threaded_broker: ThreadedCluster
) -> None:
    threaded_broker.create_topic("t", 1)
    modules = of_command(*words, "-b", threaded_broker.bootstrap_servers)
    rare = ("aioprod.testing", "aioprod.spark", "aioprod.schema_registry")
    slow = ("hashlib", "importlib.metadata", "pathlib", "secrets", "shutil", "urllib")
    assert among(modules, (*unused, *rare, *slow)) == []
    assert words[0] in commands_of(modules)
