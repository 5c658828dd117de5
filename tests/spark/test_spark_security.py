"""Logins through Spark's options: tokens by an import path, and secrets that show nowhere."""

from __future__ import annotations

import asyncio
import base64
import importlib
import io
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from aioprod import AuthenticationError, ConfigError
from aioprod.config.client import ClientConfig
from aioprod.errors import KafkaError
from aioprod.oauth import ClientCredentials
from aioprod.spark.exactly_once.driver import commit_batch
from aioprod.spark.exactly_once.ids import Sink, short_run
from aioprod.spark.exactly_once.reports import TaskAttempt, TaskReport
from aioprod.spark.offsets import OffsetRange
from aioprod.spark.readers import KafkaReader, KafkaStreamReader, RangePartition
from aioprod.spark.reading import read_ranges
from aioprod.spark.sink_options import SinkOptions, parse_sink_options
from aioprod.spark.source import KafkaDataSource
from aioprod.spark.source_options import client_config, parse_source_options
from aioprod.spark.writing import write_batches
from aioprod.testing import BrokerSecurity, EmbeddedCluster, ThreadedCluster
from tests.spark.exactly_once.job import write_alone
from tests.testing import leaks

SECRET = "hunter2-hunter2"
SHORT = "hunter2"
OAUTH = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "OAUTHBEARER",
    "kafka.sasl.oauth.token.provider": "tokens_of_mine.fetch",
}
MODULE = f"""
from aioprod import OAuthToken

calls = 0

async def fetch():
    global calls
    calls += 1
    return OAuthToken("{SECRET}", {{"cluster": "lkc"}})

class Provider:
    def __init__(self):
        self.secret = "{SECRET}"

    async def __call__(self):
        return await fetch()

provider = Provider()

def synchronous():
    return OAuthToken("{SECRET}")

no_function = "{SECRET}"
"""


def is_right(token: str, extensions: Mapping[str, str]) -> str | None:
    return "alice" if token == SECRET and extensions == {"cluster": "lkc"} else None


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A user's module of token providers, which driver and tasks can import."""
    (tmp_path / "tokens_of_mine.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "tokens_of_mine", raising=False)
    yield importlib.import_module("tokens_of_mine")
    del sys.modules["tokens_of_mine"]


@pytest.fixture
def broker() -> Iterator[ThreadedCluster]:
    """A broker that takes that token only."""
    with EmbeddedCluster.in_thread(security=BrokerSecurity(token_validator=is_right)) as running:
        running.create_topic("t", 2)
        yield running


@pytest.fixture
def everything_logged() -> Iterator[io.StringIO]:
    """Collect the lines of all loggers at their lowest level, including tracebacks."""
    with leaks.everything_logged() as stream:
        yield stream


def write_once(options: SinkOptions) -> None:
    """A micro-batch as driver and one task write it, exactly once."""
    attempt = TaskAttempt(Sink(options.transactional_id_prefix, "query"), short_run("run"), 0, 0, 0)

    async def write() -> None:
        report = await write_alone(options, attempt, iter([pa.record_batch({"value": ["1", "2"]})]))
        await commit_batch(options, [report], 0)

    asyncio.run(write())


def as_in_a_task(options: Any) -> Any:
    """A copy as Spark sends it to tasks."""
    sent = cloudpickle.dumps(options)  # type: ignore[no-untyped-call]
    assert SHORT.encode() not in sent
    return pickle.loads(sent)


@pytest.mark.parametrize("path", ["tokens_of_mine.fetch", " tokens_of_mine.provider "])
def test_driver_and_tasks_log_in_with_tokens(
    module: Any, broker: ThreadedCluster, path: str
) -> None:
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers} | OAUTH
    given["kafka.sasl.oauth.token.provider"] = path
    write_once(as_in_a_task(parse_sink_options(given | {"topic": "t"})))
    at_least_once = parse_sink_options(given | {"topic": "t", "delivery": "at-least-once"})
    write_batches(as_in_a_task(at_least_once), iter([pa.record_batch({"value": ["3"]})]))
    source = given | {"subscribe": "t", "startingOffsets": "earliest"}
    reading = parse_source_options(source, streaming=False)
    ranges = [
        item
        for each in KafkaReader(reading).partitions()
        if isinstance(each, RangePartition)
        for item in each.items
    ]
    task = as_in_a_task(reading)
    rows = [
        value
        for item in ranges
        for batch in read_ranges(task, [item])
        for value in batch["value"].to_pylist()
    ]
    assert sorted(rows) == [b"1", b"2", b"3"]
    stream = KafkaStreamReader(parse_source_options(source, streaming=True))
    assert sum(stream.latestOffset()["t"].values()) >= 3
    stream.stop()
    assert module.calls >= 5


def test_a_session_logs_in_with_tokens(
    session: SparkSession, broker: ThreadedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The module is sent to Spark as users do it: with addPyFile."""
    (tmp_path / "tokens_of_session.py").write_text(MODULE)
    session.sparkContext.addPyFile(str(tmp_path / "tokens_of_session.py"))
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers} | OAUTH
    given["kafka.sasl.oauth.token.provider"] = "tokens_of_session.fetch"
    frame = session.range(4).selectExpr("CAST(id AS STRING) AS value")
    frame.write.format("aioprod").mode("append").options(**given, topic="t").save()
    read = session.read.format("aioprod").options(**given, subscribe="t").load()
    assert sorted(row.value for row in read.select("value").collect()) == [b"0", b"1", b"2", b"3"]


def parsers() -> dict[str, Callable[[Mapping[str, str]], object]]:
    def source(streaming: bool) -> Callable[[Mapping[str, str]], object]:
        return lambda options: parse_source_options(
            {"subscribe": "t", **options}, streaming=streaming
        )

    return {
        "batch read": source(False),
        "stream read": source(True),
        "load": lambda options: KafkaDataSource({"subscribe": "t", **options}).schema(),
        "write": lambda options: parse_sink_options({"topic": "t", **options}),
    }


WRONG = {
    "right": SECRET,
    "not ASCII": SECRET + "ü€",
    "a byte that is not UTF-8": SECRET + "\udcfc",
    "NUL": SECRET + "\0",
    "long": SECRET * 200,
    "path": f"os.{SECRET}",
    "path of names": f"{SHORT}.token.of.mine",
    "existing module": f"os.{SHORT}",
    "no function": "tokens_of_mine.no_function",
    "not asynchronous": "tokens_of_mine.synchronous",
    "class": "tokens_of_mine.Provider",
    "relative": f".{SHORT}.x",
    "empty": "",
    "PEM": f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----",
}
MODULES = "org.apache.kafka.common.security"
JAAS = f'{MODULES}.scram.ScramLoginModule required username="alice" password="{SECRET}";'
SASL = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.username": "alice",
}
SECRET_OPTIONS: dict[str, dict[str, str]] = {
    "kafka.sasl.password": SASL,
    "kafka.sasl.jaas.config": {**SASL, "kafka.sasl.username": ""},
    "kafka.sasl.oauth.token.provider": {**OAUTH, "kafka.security.protocol": "SASL_SSL"},
    "kafka.ssl.key.password": {"kafka.security.protocol": "SSL"},
    "kafka.ssl.keystore.location": {"kafka.security.protocol": "SSL"},
    "kafka.ssl.context": {"kafka.security.protocol": "SSL"},
    "kafka.ssl.keystore.key": {"kafka.security.protocol": "SSL"},
    "kafka.ssl.keystore.password": {"kafka.security.protocol": "SSL"},
    "kafka.sasl.oauthbearer.client.credentials.client.secret": OAUTH,
    "kafka.sasl.login.callback.handler.class": OAUTH,
}


@pytest.mark.parametrize("way", parsers())
@pytest.mark.parametrize("option", SECRET_OPTIONS)
def test_a_wrong_secret_is_refused_and_shown_nowhere(
    module: Any, everything_logged: io.StringIO, option: str, way: str
) -> None:
    parse = parsers()[way]
    refused = 0
    for name, value in WRONG.items():
        if option == "kafka.ssl.keystore.location" and name != "PEM":
            continue  # paths are shown
        for fault in (
            {},
            {"kafka.request.timeout.ms": "soon"},
            {"nonsense": "1"},
            {"includeHeaders": "maybe"},
        ):
            options = {
                "kafka.bootstrap.servers": "h:1",
                **SECRET_OPTIONS[option],
                option: value,
                **fault,
            }
            options = {name: text for name, text in options.items() if text or name == option}
            try:
                made = parse(options)
            except ConfigError as error:
                refused += 1
                assert SHORT not in leaks.whole_text(error, [__file__])
            else:
                assert SHORT not in repr(made)
    assert refused >= 4 if option == "kafka.ssl.keystore.location" else refused > len(WRONG)
    assert SHORT not in everything_logged.getvalue()


@settings(max_examples=150)
@given(st.data())
def test_a_malformed_login_module_shows_nothing(data: st.DataObject) -> None:
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(JAAS))] * 2)))
    # A blank would cut the secret in pieces that are no secret any more.
    text = JAAS[:start] + data.draw(st.text("\"';=\\ \udcfc\n#/*", max_size=4)) + JAAS[end:]
    try:
        parse_sink_options(
            {"kafka.bootstrap.servers": "h:1", **SASL, "kafka.sasl.jaas.config": text}
        )
    except ConfigError as error:
        assert SHORT not in leaks.whole_text(error, [__file__])


@pytest.mark.parametrize(
    "option",
    ["kafka.sasl.login.callback.handler.class", "kafka.sasl.oauthbearer.jwks.endpoint.url"],
)
def test_what_is_for_javas_tokens_says_what_to_use(option: str) -> None:
    instead = r"kafka\.sasl\.oauth\.token\.provider takes the import path"
    expected = rf"^option {option} is not supported: .* {instead}"
    for parse in parsers().values():
        with pytest.raises(ConfigError, match=expected):
            parse({"kafka.bootstrap.servers": "h:1", **OAUTH, option: "x"})


def test_the_driver_and_tasks_request_tokens_with_client_credentials() -> None:
    given = {
        "kafka.bootstrap.servers": "h:1",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.oauthbearer.token.endpoint.url": "https://login.example.com/token",
    }
    jaas = f'{MODULES}.oauthbearer.OAuthBearerLoginModule required clientId="a" clientSecret="b";'
    credentials = "kafka.sasl.oauthbearer.client.credentials.client"
    for login in (
        {"kafka.sasl.jaas.config": jaas},
        {f"{credentials}.id": "a", f"{credentials}.secret": "b"},
    ):
        source = parse_source_options({**given, **login, "subscribe": "t"}, streaming=False)
        for options in (source, as_in_a_task(source)):
            provider = ClientConfig(**client_config(options.client)).sasl_oauth_token_provider
            assert isinstance(provider, ClientCredentials)


MSK_IAM = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "AWS_MSK_IAM",
    "kafka.sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
    "kafka.sasl.client.callback.handler.class": (
        "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
    ),
}


def test_the_options_of_msk_with_iam_log_in_with_its_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (("ACCESS_KEY_ID", "AKIA"), ("SECRET_ACCESS_KEY", SECRET)):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")

    def user_of(token: str, extensions: Mapping[str, str]) -> str | None:
        url = base64.urlsafe_b64decode(token + "==").decode()
        return "aws" if url.startswith("https://kafka.eu-west-1.amazonaws.com/") else None

    with EmbeddedCluster.in_thread(security=BrokerSecurity(token_validator=user_of)) as broker:
        broker.create_topic("t", 1)
        given = {"kafka.bootstrap.servers": broker.bootstrap_servers, **MSK_IAM}
        sink = parse_sink_options({**given, "topic": "t", "delivery": "at-least-once"})
        write_batches(as_in_a_task(sink), iter([pa.record_batch({"value": ["1"]})]))
        source = as_in_a_task(parse_source_options({**given, "subscribe": "t"}, streaming=False))
        assert [rows.num_rows for rows in read_ranges(source, [OffsetRange("t", 0, 0, 1)])] == [1]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        (
            "kafka.sasl.jaas.config",
            'software.amazon.msk.auth.iam.IAMLoginModule required awsProfileName="hunter2";',
        ),
        ("kafka.sasl.client.callback.handler.class", "com.example.Handler"),
    ],
)
def test_what_tokens_of_msk_cannot_do_is_named(option: str, value: str) -> None:
    for parse in parsers().values():
        with pytest.raises(ConfigError, match=rf"^option {option} .*AwsTokens") as caught:
            parse({"kafka.bootstrap.servers": "h:1", **MSK_IAM, option: value})
        assert SHORT not in str(caught.value)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
def test_a_refused_login_shows_none_on_the_driver_and_in_tasks(
    module: Any, everything_logged: io.StringIO, mechanism: str
) -> None:
    security = BrokerSecurity(users={"alice": "other"}, token_validator=lambda token, _: None)
    with EmbeddedCluster.in_thread(security=security) as refusing:
        given = {
            "kafka.bootstrap.servers": refusing.bootstrap_servers,
            "kafka.max.block.ms": "500",
        } | OAUTH
        if mechanism != "OAUTHBEARER":
            del given["kafka.sasl.oauth.token.provider"]
            given |= {"kafka.sasl.username": "alice", "kafka.sasl.password": SECRET}
        given["kafka.sasl.mechanism"] = mechanism
        sink = parse_sink_options(given | {"topic": "t"})
        del given["kafka.max.block.ms"]
        source = parse_source_options(given | {"subscribe": "t"}, streaming=False)
        rows = pa.record_batch({"value": ["1"]})
        attempt = TaskAttempt(Sink("p", "query"), short_run("run"), 0, 0, 0)
        works: list[Callable[[], object]] = [
            lambda: write_once(sink),
            lambda: write_batches(sink, iter([rows])),
            lambda: asyncio.run(commit_batch(sink, [TaskReport(attempt, rows=1, digest=1)], 0)),
            lambda: KafkaReader(source).partitions(),
            lambda: list(read_ranges(source, [OffsetRange("t", 0, 0, 1)])),
        ]
        for work in works:
            with pytest.raises(KafkaError) as raised:
                work()
            assert isinstance(raised.value, AuthenticationError)
            assert SHORT not in leaks.whole_text(raised.value, [__file__])
    assert SHORT not in everything_logged.getvalue()
