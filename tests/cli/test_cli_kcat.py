"""kcat and aioprod print and send the same with the same options."""

from __future__ import annotations

import asyncio
import shutil
import subprocess

import pytest

from aioprod import Producer
from aioprod.testing import ThreadedCluster
from tests.cli.conftest import Run

LIMIT_S = 60

pytestmark = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")


def kcat(broker: ThreadedCluster, *arguments: str, given: bytes = b"") -> str:
    done = subprocess.run(
        ["kcat", "-b", broker.bootstrap_servers, *arguments],
        input=given,
        capture_output=True,
        timeout=LIMIT_S,
        check=True,
    )
    return done.stdout.decode(errors="replace")


def test_lines_of_records(run: Run, threaded_broker: ThreadedCluster) -> None:
    async def fill() -> None:
        async with Producer(threaded_broker.bootstrap_servers) as producer:
            await producer.send("orders", b"tea", b"anna", headers=[("a", b"1"), ("b", None)])
            await producer.send("orders", None, b"bob", timestamp_ms=17)
            await producer.send("orders", "grüner tee".encode())

    threaded_broker.create_topic("orders", 1)
    asyncio.run(fill())
    read = ("consume", "orders", "--exit", "--quiet")
    for same in (r"%t [%p] %o %T: %k (%K) %s (%S) %h\n", r"%%%k\x41\t%s\n", "%R%s"):
        theirs = kcat(threaded_broker, "-Ceqt", "orders", "-f", same)
        assert run(*read, "--format", same).output == theirs, same
    for separator in (":", "\\t", "=>", "\\x1f"):
        theirs = kcat(threaded_broker, "-Ceqt", "orders", "-K", separator)
        assert run(*read, "-K", separator).output == theirs, separator


@pytest.mark.parametrize(
    "arguments",
    [["-k", "all"], ["-K", ":", "-k", "all"], ["-K", "\\t"], ["-K", "=>"], ["-K", ":"]],
    ids=" ".join,
)
def test_keys_of_lines(run: Run, threaded_broker: ThreadedCluster, arguments: list[str]) -> None:
    given = {"\\t": b"anna\tone\n\ttwo\nbob\t\n", "=>": b"anna=>one\n=>\nbob=>a=>b\n"}.get(
        arguments[1], b"anna:one\nbob:a:b\n:two\n"
    )
    given += b"three\n" if "-k" in arguments else b""
    for topic in ("theirs", "ours"):
        threaded_broker.create_topic(topic, 1)
    kcat(threaded_broker, "-Pt", "theirs", *arguments, given=given)
    assert run("produce", "ours", *arguments, given=given).status == 0
    theirs, ours = (
        [(record.key, record.value) for record in threaded_broker.records(topic)]
        for topic in ("theirs", "ours")
    )
    assert ours == theirs
