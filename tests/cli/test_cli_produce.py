"""``aioprod produce``: lines become records, and errors name invalid lines."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from aioprod.cli.formats import FormatError, json_lines, record_of_line
from aioprod.cli.patterns import PatternError, keys_and_values, pattern
from aioprod.error_codes import ErrorCode
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, ThreadedCluster, fail
from aioprod.testing.broker.security import BrokerSecurity
from aioprod.types import ConsumerRecord
from tests.selection import needs_posix

Run = Callable[..., tuple[int, str, str]]


def test_each_line_is_a_value(run_process: Run, threaded_broker: ThreadedCluster) -> None:
    given = b"two apples\n\nno end \xff"
    assert run_process("produce", "orders", given=given) == (0, "", "sent 3 records to orders\n")
    assert [record.value for record in threaded_broker.records("orders")] == [
        b"two apples",
        b"",
        b"no end \xff",
    ]
    assert all(record.key is None for record in threaded_broker.records("orders"))
    assert run_process("produce", "orders", "--quiet") == (0, "", "")


def test_keys_headers_and_partitions(run: Run, threaded_broker: ThreadedCluster) -> None:
    threaded_broker.create_topic("orders", 3)
    given = b"anna\tapples\tand pears\nbob\t\n"
    status, _, errors = run(
        "produce", "orders", "-K", "\\t", "-H", "from=here", "-H", "n=2", "-p", "1", given=given
    )
    assert (status, errors) == (0, "sent 2 records to orders\n")
    assert [
        (record.key, record.value, tuple(record.headers))
        for record in threaded_broker.records("orders", 1)
    ] == [
        (b"anna", b"apples\tand pears", (("from", b"here"), ("n", b"2"))),
        (b"bob", b"", (("from", b"here"), ("n", b"2"))),
    ]


def test_lines_of_json(run: Run, threaded_broker: ThreadedCluster) -> None:
    threaded_broker.create_topic("orders", 3)
    lines: list[dict[str, object]] = [
        {
            "key": "anna",
            "value": "apples",
            "partition": 2,
            "timestamp": 1_700_000_000_000,
            "headers": {"a": "1"},
        },
        {
            "value": {"fruit": "pears", "count": 3},
            "partition": 2,
            "headers": [["a", "1"], ["a", None], ["b", {"base64": "/w=="}]],
        },
        {"key_base64": "/w==", "value": None, "partition": 2},
    ]
    status, _, errors = run(
        "produce", "orders", "--format", "json", given="\n".join(map(json.dumps, lines)).encode()
    )
    assert (status, errors) == (0, "sent 3 records to orders\n")
    first, second, third = threaded_broker.records("orders", 2)
    assert (first.key, first.value, first.timestamp, tuple(first.headers)) == (
        b"anna",
        b"apples",
        1_700_000_000_000,
        (("a", b"1"),),
    )
    assert (json.loads(second.value or b""), tuple(second.headers)) == (
        lines[1]["value"],
        (("a", b"1"), ("a", None), ("b", b"\xff")),
    )
    assert (third.key, third.value) == (b"\xff", None)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("{", "not JSON"),
        ('{"value": ' + "[" * 9_000, "not JSON: a line is nested deeper than 500 levels"),
        ("[1]", "not a JSON object such as"),
        ('{"values": 1}', "unknown name 'values'"),
        ('{"key": "a", "key_base64": "YQ=="}', "key and key_base64 are both given"),
        ('{"value_base64": "?"}', "value_base64 is not base64"),
        ('{"value_base64": 5}', "value_base64 is not base64"),
        ('{"partition": -1}', "partition=-1: must be a whole number of at least 0"),
        ('{"timestamp": true}', "timestamp=True: must be a whole number"),
        ('{"headers": [["a"]]}', "headers must be"),
        ('{"headers": "a"}', "headers must be"),
        ('{"headers": {"a": 1}}', "header a: must be text, null or"),
    ],
)
def test_a_line_that_is_not_a_record_says_why(line: str, text: str) -> None:
    with pytest.raises(FormatError) as raised:
        record_of_line("orders", line.encode())
    assert text in str(raised.value)


def test_the_first_bad_line_ends_it_and_what_was_before_is_sent(
    run: Run, threaded_broker: ThreadedCluster
) -> None:
    status, output, errors = run("produce", "orders", "-K", ":", given=b"a:1\nb:2\nc\nd:4\n")
    assert (status, output) == (1, "")
    assert errors.splitlines() == [
        "sent 2 records to orders",
        "aioprod produce: line 3: key separator ':' not found; give --key for lines without one, "
        "or --skip-bad",
    ]
    assert [record.value for record in threaded_broker.records("orders")] == [b"1", b"2"]


def test_a_key_for_all_records(run: Run, threaded_broker: ThreadedCluster) -> None:
    threaded_broker.create_topic("orders", 1)
    for arguments, given in (
        (["--key", "anna"], b"1\n"),
        (["-k", "anna", "-K", ":"], b"bob:2\n3\n"),
        (["-k", ""], b"4\n"),
        (["-k", "anna", "--format", "json"], b'{"value": "5"}\n{"key": "bob", "value": "6"}\n'),
    ):
        assert run("produce", "orders", "-q", *arguments, given=given) == (0, "", "")
    assert [(record.key, record.value) for record in threaded_broker.records("orders")] == [
        (b"anna", b"1"), (b"bob", b"2"), (b"anna", b"3"), (b"", b"4"), (b"anna", b"5"),
        (b"bob", b"6"),
    ]  # fmt: skip


def test_bad_lines_are_skipped_on_demand(run: Run, threaded_broker: ThreadedCluster) -> None:
    threaded_broker.create_topic("orders", 1)
    given = b'{"value": "1"}\nnot json\n{"value": "2"}\n{"value": "3", "partition": 7}\n'
    given += b'{"value": "' + b"x" * 2_000_000 + b'"}\n{"value": "4"}\n'
    status, output, errors = run("produce", "orders", "--format", "json", "--skip-bad", given=given)
    assert (status, output) == (0, "")
    lines = sorted(errors.splitlines())
    assert [line.split(": ")[1] for line in lines[:3]] == [
        "line 2 skipped", "line 4 skipped", "line 5 skipped",
    ]  # fmt: skip
    assert lines[3:] == ["sent 3 records to orders, skipped 3 lines"]
    assert [record.value for record in threaded_broker.records("orders")] == [b"1", b"2", b"4"]


def test_what_the_broker_refuses_is_not_a_bad_line(
    run: Run, threaded_broker: ThreadedCluster
) -> None:
    threaded_broker.create_topic("orders", 1)
    threaded_broker.on(ApiKey.PRODUCE, fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED), times=None)
    status, _, errors = run("produce", "orders", "--skip-bad", given=b"a\nb\n")
    assert status == 1 and "sent 0 records to orders, 2 not" in errors


def test_what_the_broker_refuses_is_named_by_its_line(
    run: Run, threaded_broker: ThreadedCluster
) -> None:
    threaded_broker.create_topic("orders", 1)
    threaded_broker.on(ApiKey.PRODUCE, fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED), times=None)
    status, _, errors = run("produce", "orders", given=b"a\nb\n")
    assert status == 1
    sent, failed = errors.splitlines()
    assert sent == "sent 0 records to orders, 2 not"
    assert failed.startswith("aioprod produce: line 1: ") and "TOPIC_AUTHORIZATION_FAILED" in failed


def test_many_lines_of_a_pipe_arrive_in_order(
    run_process: Run, threaded_broker: ThreadedCluster
) -> None:
    given = b"".join(b"%d\n" % number for number in range(50_000))
    assert run_process("produce", "orders", "-p", "0", given=given)[0] == 0
    assert (
        b"".join(
            record.value + b"\n" for record in threaded_broker.records("orders") if record.value
        )
        == given
    )


@needs_posix
def test_lines_are_sent_as_they_come_and_ctrl_c_ends_it(threaded_broker: ThreadedCluster) -> None:
    threaded_broker.create_topic("orders", 1)
    command = [
        sys.executable,
        "-m",
        "aioprod",
        "produce",
        "orders",
        "-b",
        threaded_broker.bootstrap_servers,
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write(b"first\nhalf a li")
        process.stdin.flush()
        threaded_broker.wait_for_records("orders", 1)
        pressed = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(30) == 130
        assert time.monotonic() - pressed < 5
        assert process.stderr.read() == b"sent 1 record to orders\n"


@pytest.mark.parametrize("where", ["options", "file"])
def test_security_settings_pass_through(where: str, tmp_path: Path, run: Run) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    settings = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alice",
        "sasl.password": "pencil = 7",
    }
    with EmbeddedCluster.in_thread(
        security=BrokerSecurity(ssl_context=context, users={"alice": "pencil = 7"})
    ) as cluster:
        if where == "file":
            lines = [
                f"{name} = {value}"
                for name, value in {
                    **settings,
                    "bootstrap.servers": cluster.bootstrap_servers,
                }.items()
            ]
            (tmp_path / "client.properties").write_text(
                "\n".join(["# mine", "", "acks=all", *lines])
            )
            options = ["--config-file", str(tmp_path / "client.properties")]
        else:
            options = [
                "-b",
                cluster.bootstrap_servers,
                *(part for name, value in settings.items() for part in ("-X", f"{name}={value}")),
            ]
        status, _, errors = run("produce", "orders", *options, given=b"tea\n")
        assert status == 0, errors
        assert run("topics", "list", *options)[:2] == (0, "orders\n")


def test_a_bad_line_of_a_file_is_not_shown(run: Run, tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text("client.id=me\npencil-7\n")
    status, output, errors = run(
        "topics", "list", "--config-file", str(tmp_path / "client.properties")
    )
    assert (
        (status, output) == (2, "")
        and "line 2 of --config-file" in errors
        and "pencil" not in errors
    )
    (tmp_path / "client.properties").write_text("client.idd=me\n")
    assert (
        "did you mean 'client.id'"
        in run("topics", "list", "--config-file", str(tmp_path / "client.properties"))[2]
    )


RECORD = ConsumerRecord[bytes | None, bytes | None](
    "orders", 2, 17, 1_700_000_000_000, 0, b"anna", b"two \xc3\xa4pples", (("a", b"1"), ("b", None))
)


def test_records_as_json_come_back_as_they_were() -> None:
    assert json.loads(json_lines([RECORD])) == {
        "topic": "orders", "partition": 2, "offset": 17, "timestamp": 1_700_000_000_000,
        "key": "anna", "value": "two äpples", "headers": [["a", "1"], ["b", None]],
    }  # fmt: skip
    for record in (
        RECORD,
        RECORD._replace(key=None, value=b"\xff\x00", headers=()),
        RECORD._replace(value=None, headers=(("h", b"\xfe"),)),
    ):
        back = record_of_line("orders", json_lines([record]))
        assert (back.key, back.value, back.headers, back.partition, back.timestamp_ms) == (
            record.key, record.value, record.headers, record.partition, record.timestamp
        )  # fmt: skip


def test_patterns() -> None:
    assert pattern(r"%t-%p@%o %T %k(%K)=%v(%V) %s %S %h 100%%\n\t\x41\q")([RECORD]) == (
        "orders-2@17 1700000000000 anna(4)=two äpples(11) "
        "two äpples 11 a=1,b=NULL 100%\n\tA\\q".encode()
    )
    assert (
        pattern("%k|%K|%v|%V|%h")([RECORD._replace(key=None, value=None, headers=())])
        == b"|-1||-1|"
    )
    for wrong, text in (("%x", "unknown field %x"), ("100%", "a % at the end")):
        with pytest.raises(PatternError, match=text):
            pattern(wrong)


def test_a_pattern_with_constants_only_is_printed_for_each_record() -> None:
    assert pattern(r"100%%\n")([RECORD, RECORD]) == b"100%\n100%\n"
    assert pattern("%R")([RECORD, RECORD._replace(value=None)]) == b"\0\0\0\x0b\xff\xff\xff\xff"


@pytest.mark.parametrize("separator", [":", "%", "%v", "\\", "\\n", "\t", "=>"])
def test_any_separator_of_keys(separator: str) -> None:
    printed = keys_and_values(separator)([RECORD, RECORD._replace(key=None, value=None)])
    mark = separator.encode()
    assert printed == b"anna" + mark + (RECORD.value or b"") + b"\n" + mark + b"\n"


def test_lines_of_json_are_those_of_the_standard_library() -> None:
    """Each character, in keys, values and topics, one record or many."""
    texts = ["", "plain", '"\\/', "ä€😀", "\x00\x1f\x7f\x85\u2028\u202e", "\x1b[2J", "a\nb\r\t"]
    texts += [chr(number) for number in range(0x120)]
    records = [
        ConsumerRecord("t", 1, number, -1, 0, text.encode(), text.encode(), (), 5)
        for number, text in enumerate(texts)
    ]
    printed = json_lines(records)
    assert printed == b"".join(json_lines([record]) for record in records)
    assert printed.decode().replace("\n", "").isprintable()
    for line, text in zip(printed.decode().split("\n"), texts, strict=False):
        found = json.loads(line)
        assert (found["key"], found["value"], found["timestamp"]) == (text, text, -1)
    assert json_lines([]) == b""
