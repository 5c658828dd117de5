"""Files of settings: what Java's own ``java.util.Properties`` reads, and what is refused."""

from __future__ import annotations

import argparse
import re
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from aioprod import Admin, ConfigError, Consumer, Producer
from aioprod.cli.client import client_settings
from aioprod.config.admin import ADMIN
from aioprod.config.consumer import CONSUMER
from aioprod.config.java_properties import PropertiesError, decode_properties, parse_properties
from aioprod.config.producer import PRODUCER
from aioprod.config.properties_file import read_settings
from aioprod.oauth import AwsTokens
from aioprod.oauth.aws import token
from aioprod.testing.java import find_java

PROGRAM = Path(__file__).parent / "interop" / "programs" / "PropertiesReader.java"

FILES = [
    b"a=\\\\ud83d\\ude00\na=b",
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


def has_escaped_half_pair(data: bytes) -> bool:
    """Return whether escapes in a file, at any place, are half of a surrogate pair."""
    text = re.sub(
        r"\\(?:u([0-9a-f]{4})|.)",
        lambda escape: chr(int(escape[1], 16)) if escape[1] else "",
        data.decode("latin-1"),
        flags=re.DOTALL,
    )
    return has_half_pair(
        text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")
    )


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
            assert read(data) is None, "half of a surrogate pair is not text"
        else:
            ours = read(data)
            # Java does not show a property that another one of the same name has replaced.
            assert ours == right or (ours is None and has_escaped_half_pair(data)), data


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
def test_a_line_without_a_setting_is_not_shown(
    tmp_path: Path, data: bytes, problem: str | None
) -> None:
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


# Files as vendors show them for Kafka's tools and Java's clients, with the settings that they give.
PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
OF_VENDORS: dict[str, tuple[str, dict[str, Any]]] = {
    "Confluent Cloud": (
        f"""\
# Required connection configs for Kafka producer, consumer, and admin
bootstrap.servers=pkc-12345.eu-west-1.aws.confluent.cloud:9092
security.protocol=SASL_SSL
sasl.jaas.config={PLAIN_LOGIN} username='KEY' password='SECRET';
sasl.mechanism=PLAIN
# Required for correctness in Apache Kafka clients prior to 2.6
client.dns.lookup=use_all_dns_ips

# Best practice for higher availability in Apache Kafka clients prior to 3.0
session.timeout.ms=45000

# Best practice for Kafka producer to prevent data loss
acks=all

client.id=ccloud-java-client

# Required connection configs for Confluent Cloud Schema Registry
schema.registry.url=https://psrc-12345.eu-west-1.aws.confluent.cloud
basic.auth.credentials.source=USER_INFO
basic.auth.user.info=KEY:SECRET
""",
        {"sasl_mechanism": "PLAIN", "sasl_username": "KEY", "client_id": "ccloud-java-client"},
    ),
    "Amazon MSK with IAM": (
        """\
security.protocol=SASL_SSL
sasl.mechanism=AWS_MSK_IAM
sasl.jaas.config=software.amazon.msk.auth.iam.IAMLoginModule required;
sasl.client.callback.handler.class=software.amazon.msk.auth.iam.IAMClientCallbackHandler
""",
        {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": token},
    ),
    "Azure Event Hubs": (
        f"""\
bootstrap.servers=orders.servicebus.windows.net:9093
security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.jaas.config={PLAIN_LOGIN} username="$ConnectionString" \\
    password="Endpoint=sb://orders.servicebus.windows.net/;SharedAccessKey=abc=";
""",
        {
            "sasl_username": "$ConnectionString",
            "sasl_password": "Endpoint=sb://orders.servicebus.windows.net/;SharedAccessKey=abc=",
        },
    ),
    "the consumer.properties of Kafka": (
        """\
# list of brokers used for bootstrapping knowledge about the rest of the cluster
# format: host1:port1,host2:port2 ...
bootstrap.servers=localhost:9092

# consumer group id
group.id=test-consumer-group

# What to do when there is no initial offset in Kafka or if the current
# offset does not exist any more on the server: latest, earliest, none
#auto.offset.reset=
""",
        {"bootstrap_servers": ("localhost:9092",)},
    ),
    "the producer.properties of Kafka": (
        """\
bootstrap.servers=localhost:9092
# specify the compression codec for all data generated: none, gzip, snappy, lz4, zstd
compression.type=none
#linger.ms=
""",
        {"bootstrap_servers": ("localhost:9092",)},
    ),
}


@pytest.mark.parametrize("vendor", OF_VENDORS)
async def test_files_as_vendors_show_them(vendor: str, tmp_path: Path) -> None:
    text, expected = OF_VENDORS[vendor]
    file = tmp_path / "client.properties"
    file.write_text(text)
    options = argparse.Namespace(
        config=[], config_file=file, profile=None, bootstrap_servers="localhost:9092"
    )
    if "bootstrap.servers" in text:
        options.bootstrap_servers = None
    clients: list[Any] = [
        Producer.from_config(client_settings(options, PRODUCER)),
        Consumer.from_config(client_settings(options, CONSUMER)),
        Admin.from_config(client_settings(options, ADMIN)),
    ]
    for client in clients:
        assert {name: getattr(client.config, name) for name in expected} == expected
        await client.close()


async def test_the_file_of_msk_is_also_a_dictionary() -> None:
    text, expected = OF_VENDORS["Amazon MSK with IAM"]
    given = dict(line.split("=", 1) for line in text.splitlines())
    for settings_ in (given, {name.replace(".", "_"): value for name, value in given.items()}):
        client = Producer.from_config(settings_)
        assert {name: getattr(client.config, name) for name in expected} == expected
        await client.close()
    own = AwsTokens("eu-west-1")
    client = Producer.from_config({**given, "sasl.oauth.token.provider": own})
    assert client.config.sasl_oauth_token_provider is own
    await client.close()
    role = 'software.amazon.msk.auth.iam.IAMLoginModule required awsRoleArn="arn:hunter2";'
    with pytest.raises(ConfigError, match=r"^sasl\.jaas\.config .*AwsTokens with") as caught:
        Producer.from_config({**given, "sasl.jaas.config": role})
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"sasl_oauth_token_provider=aioprod\.oauth\.AwsTokens"):
        make: Any = Producer
        make(security_protocol="SASL_SSL", sasl_mechanism="AWS_MSK_IAM")
