"""Formats of the command line: lines of JSON, patterns of `--format`, properties files."""

from __future__ import annotations

from typing import Any

from fuzz.running import instrumented, run

with instrumented(__name__):
    from aioprod.cli.formats import FormatError, json_lines, record_of_line
    from aioprod.cli.patterns import PatternError, pattern
    from aioprod.config.java_properties import parse_properties
    from aioprod.errors import ConfigError
    from aioprod.types import ConsumerRecord, ProducerRecord

_LINE, _PATTERN, _PROPERTIES = range(3)


def TestOneInput(data: bytes) -> None:
    """Choose what the bytes are by the first one."""
    if len(data) < 2:
        return
    form, body = data[0] % 3, data[1:]
    if form == _LINE:
        _line(body)
    elif form == _PATTERN:
        _pattern(body)
    else:
        try:
            for each in parse_properties(body.decode("latin-1")):
                assert isinstance(each.name, str)
        except (ValueError, ConfigError):
            pass


def _line(body: bytes) -> None:
    """A record that was read from a line is read from its own line as well."""
    try:
        record = record_of_line("topic", body)
    except FormatError:
        return
    shown = json_lines([_stored(record)])
    again = record_of_line("topic", shown)
    assert (again.key, again.value, tuple(again.headers)) == (
        record.key,
        record.value,
        tuple(record.headers),
    ), shown


def _pattern(body: bytes) -> None:
    text, _, value = body.decode("utf-8", "surrogateescape").partition("\0")
    stored = value.encode("utf-8", "surrogateescape")
    for for_terminal in (False, True):
        try:
            show = pattern(text, for_terminal=for_terminal)
        except PatternError:
            return
        shown = show([_stored(ProducerRecord("topic", stored, stored, headers=(("h", stored),)))])
        if for_terminal and "\\" not in text:
            assert b"\x1b" not in shown or "\x1b" in text


def _stored(record: ProducerRecord) -> Any:
    return ConsumerRecord(
        topic=record.topic,
        partition=0,
        offset=0,
        timestamp_type=0,
        timestamp=record.timestamp_ms or 0,
        key=record.key,
        value=record.value,
        headers=tuple(record.headers),
    )


def seeds() -> list[bytes]:
    """Return lines, patterns and properties."""
    return [
        b'\0{"key": "k", "value": {"a": [1, 2.5, null]}, "headers": {"h": "x", "n": null}}',
        b'\0{"key_base64": "AAE=", "value": "\\u00e9", "partition": 1, "timestamp": 5}',
        b'\0{"headers": [["h", {"base64": "/w=="}], [{"base64": "/w=="}, "x"]], "offset": 3}',
        b"\1%t %p %o %T %k %K %v %V %h %% \\n\\x41\\t\0value",
        b"\1%s\0\xff\x1b[31m\x7f\xc2\x85",
        b"\2bootstrap.servers = localhost:9092\n# comment\nkey\\u00e9: a\\\n   b\n",
        b'\2sasl.jaas.config=a.b.C required username=\\"a\\" password=x;',
    ]


if __name__ == "__main__":
    run(TestOneInput, seeds())
