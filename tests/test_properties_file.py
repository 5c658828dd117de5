"""Files of settings: what Java's own ``java.util.Properties`` reads, and what is refused."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from aioprod import ConfigError
from aioprod.config.java_properties import PropertiesError, decode_properties, parse_properties
from aioprod.config.properties_file import read_settings
from aioprod.testing.java import find_java

PROGRAM = Path(__file__).parent / "interop" / "programs" / "PropertiesReader.java"

FILES = [
    b"a=b",
    b"a = b ",
    b"a:b\na : c",
    b"a b\nc\td\ne\x0cf",
    b"a  =  = b",
    b"a==b\nc::d\ne=:f\ng :=h",
    b"# a=b\n! c=d\n  # e=f\n\t!g=h\ni=#j\nk=!l",
    b"# a comment is not continued \\\na=b",
    b"a=b\\\n  c\\\r\n\td\\\r e",
    b"a=b\\\\\nc=d\\\\\\\ne",
    b"a=b\\\n\nc=d",
    b"a=b\\\n   \n   c=d",
    b"a=b\\\n# no comment",
    b"\\\n# a comment\na=b",
    b"a\\\nb=c",
    b"a\\\n =b",
    b"a=b\\",
    b"\\",
    b'a=\\t\\n\\r\\f\\q\\\\\\=\\:\\#\\!\\ \\"',
    b"a\\=b\\:c\\ d\\\\e=f",
    b"a=\\u00e9\\u20AC\\uD83D\\uDE00\nb\\u0020c=d",
    b"a=\\u0022\\u005c\\u0",
    b"a=\\u00g0",
    b"a=\\u",
    b"a=\\u004\n1",
    b"a=\\u00\\\n41",
    b"=a\n:b\n c",
    b"\r\r\n\n\x0c a=b\r\rc=d\r\n",
    b"a=b\x00c\x1a\nd=e\x85f\xa0g",
    b"a=\xe9\xff",
    b"a=b\na=c\na d",
    b"a\nb=\nc:",
    b"sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\\n"
    b'    username="alice" \\\n    password="alice\\\\-secret";\nacks all\n',
]


def read(data: bytes) -> dict[str, str] | None:
    """The properties of a file that we take for ISO 8859-1, as Java does; None: it is invalid."""
    try:
        return {each.name: each.value for each in parse_properties(data.decode("latin-1"))}
    except PropertiesError:
        return None


def read_by_java(files: list[bytes]) -> list[dict[str, str] | None]:
    given = struct.pack(">i", len(files))
    given += b"".join(struct.pack(">i", len(data)) + data for data in files)
    done = subprocess.run(
        [find_java(), "-Xshare:auto", "-XX:TieredStopAtLevel=1", PROGRAM],
        input=given,
        capture_output=True,
        check=True,
        timeout=100,
    )
    return [_parsed(line) for line in done.stdout.decode().split("\n")[:-1]]


def _parsed(line: str) -> dict[str, str] | None:
    if line == "invalid":
        return None
    pairs = [pair.split(" ") for pair in line.split(";")[:-1]]
    return {_text(name): _text(value) for name, value in pairs}


def _text(units: str) -> str:
    return bytes.fromhex(units[1:]).decode("utf-16-be", "surrogatepass")


pieces = st.sampled_from(
    [
        *("a", "b", "é", "=", ":", " ", "\t", "\f", "\n", "\r", "\r\n", "#", "!", "\\", "\\\\"),
        *("\\\n", "\\\r\n", "\\u0041", "\\u00e9", "\\ud83d\\ude00", "\\u12", "\\t", "\\=", "u"),
        *("\x00", "\x85", "\xa0", '"', "name=value", "\\\n  "),
    ]
)


def has_half_pair(text: str) -> bool:
    return any(0xD800 <= ord(char) <= 0xDFFF for char in text)


@pytest.mark.skipif(shutil.which("javac") is None, reason="needs a JDK")
def test_all_files_are_read_as_java_reads_them() -> None:
    found: list[bytes] = list(FILES)

    # Hypothesis makes the files, and one Java reads them all.
    @settings(
        max_examples=1_500,
        phases=[Phase.generate],
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(pieces, max_size=25))
    def make(parts: list[str]) -> None:
        found.append("".join(parts).encode("latin-1"))

    make()
    for data, right in zip(found, read_by_java(found), strict=True):
        if data.rstrip(b"\r\n").endswith(b"\\") and right is not None and right.get("") == "":
            continue  # for Java a backslash at the end of a file may be a property without a name
        if right is not None and any(has_half_pair("".join(pair)) for pair in right.items()):
            assert read(data) is None, "half of a surrogate pair is no text"
        else:
            assert read(data) == right, data


def settings_of(tmp_path: Path, data: bytes) -> dict[str, str]:
    file = tmp_path / "client.properties"
    file.write_bytes(data)
    return read_settings(file, "--config-file")


def test_a_file_of_kafkas_documentation(tmp_path: Path) -> None:
    assert settings_of(tmp_path, FILES[-1]) == {
        "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="alice" password="alice\\-secret";',
        "acks": "all",
    }


@pytest.mark.parametrize(
    "data",
    [
        "a=Grüße €".encode(),
        b"\xef\xbb\xbfa=Gr\xc3\xbc\xc3\x9fe \\u20ac",
        "a=Grüße \\u20ac".encode("latin-1"),
    ],
)
def test_texts_are_utf_8_or_iso_8859_1(tmp_path: Path, data: bytes) -> None:
    assert settings_of(tmp_path, data) == {"a": "Grüße €"}


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"a=b\n\nhunter2", "line 3 of --config-file"),
        (b"a=b\nHunter 2", "line 2 of"),
        (b"a=b\n=hunter2", "line 2 of"),
        (b"a=b\nhunter2:hunter2;", None),
        (b"a=hunter2\\u00", "line 1 of .*four hexadecimal digits"),
        (b"a=b\nb=\\ud800 hunter2", "line 2 of .*surrogate"),
        ("a=hunter2".encode("utf-16"), "UTF-16; save it as UTF-8"),
    ],
)
def test_what_is_no_setting_is_not_shown(tmp_path: Path, data: bytes, problem: str | None) -> None:
    if problem is None:
        assert settings_of(tmp_path, data) == {"a": "b", "hunter2": "hunter2;"}
        return
    with pytest.raises(ConfigError, match=problem) as caught:
        settings_of(tmp_path, data)
    assert "unter" not in str(caught.value)
    assert caught.value.__context__ is None or "unter" not in repr(caught.value.__context__)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"can't read --config-file .*: No such file"):
        read_settings(tmp_path / "none", "--config-file")


@settings(max_examples=200)
@given(st.binary(max_size=200))
def test_any_bytes_are_properties_or_an_error(data: bytes) -> None:
    try:
        for each in parse_properties(decode_properties(data)):
            (each.name + each.value).encode()
    except PropertiesError as error:
        assert error.line >= 1
