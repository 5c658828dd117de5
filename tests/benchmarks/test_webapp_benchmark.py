"""The web application of the benchmark counts its requests. The tests do not check durations."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from benchmarks import broker, webapp
from benchmarks.measures import Numbers
from benchmarks.real_broker import record_count, topic
from benchmarks.webapp_server import FRAMEWORKS, NO_KAFKA, PATH, WAITING

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with broker.broker_process({}) as address:
        yield address


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_an_application_sends_a_record_for_each_request(framework: str, servers: str) -> None:
    with topic(servers) as name:
        async with (
            webapp.server(framework, "aioprod", servers, name, linger_ms=0) as application,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{application.port}") as client,
        ):
            for _ in range(3):
                response = await client.post(PATH, content=b"two apples")
                assert response.json() == {"accepted": True}
            cpu_s, finished = await application.idle()
            assert finished == 3 and cpu_s > 0
            assert framework in application.versions and "uvloop" in application.versions
            await client.post(PATH, content=b"a pear")  # as one that wrk has left in a buffer
        assert record_count(servers, [name], [0]) == application.finished == 4


async def test_an_application_that_does_not_start_is_an_error(servers: str) -> None:
    with pytest.raises(webapp.RequestsFailedError, match="ended with status 1"):
        async with webapp.server("aiohttp", "aioprod", "127.0.0.1:1", "t", linger_ms=0):
            pass


@pytest.mark.benchmarks
@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
def test_each_application_is_loaded(
    servers: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    written = tmp_path / "webapp.json"
    clients = ["aioprod", webapp.AIOKAFKA]
    sizes = ["--connections", "16", "--seconds", "1", "--repetitions", "1"]
    chosen = ["--bootstrap", servers, "--clients", ",".join(clients)]
    webapp.main([*chosen, *sizes, "--json", str(written)])
    rounds = json.loads(written.read_text())["rounds"]
    assert list(rounds) == [webapp.case_of(framework, 16) for framework in FRAMEWORKS]
    for found in rounds.values():
        assert list(found) == [NO_KAFKA, WAITING, *clients]
        (empty,), (numbers,) = found[NO_KAFKA], found["aioprod"]
        assert numbers["empty_cpu_us"] == webapp.cpu_us(empty) > 0
        assert numbers["handled"] >= numbers["requests"] > 0
    assert "aioprod: client's share, us | at most 0.5 times aiokafka" in capsys.readouterr().out


def test_the_share_of_a_client_is_what_the_application_without_kafka_does_not_use() -> None:
    numbers: Numbers = {"cpu_s": 0.9, "handled": 10_000, "empty_cpu_us": 60.0}
    assert webapp.SHARE.value(numbers) == pytest.approx(30.0)


def test_without_wrk_the_benchmark_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit, match="apt-get install wrk"):
        webapp.main([])
