"""Addresses of bootstrap servers as people have them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioprod import Admin, ConfigError, Consumer, Producer
from aioprod.compat.aiokafka.settings import servers as compat_servers
from aioprod.config.addresses import parse_servers, split_address
from aioprod.config.client import ClientConfig
from aioprod.testing import EmbeddedCluster


def config(servers: Any, **arguments: Any) -> ClientConfig:
    return ClientConfig(bootstrap_servers=servers, **arguments)


def login(protocol: str) -> dict[str, Any]:
    if "SASL" not in protocol:
        return {"security_protocol": protocol}
    return {
        "security_protocol": protocol,
        "sasl_mechanism": "PLAIN",
        "sasl_username": "u",
        "sasl_password": "p",
    }


@pytest.mark.parametrize(
    ("servers", "addresses"),
    [
        ("a:9092", ["a:9092"]),
        (" a:9092 , b:9093,, ", ["a:9092", "b:9093"]),
        ("a:9092\n,\tb:9093\r\n", ["a:9092", "b:9093"]),
        (["a:9092", "b:9093,c:9094"], ["a:9092", "b:9093", "c:9094"]),
        (iter(["a:9092"]), ["a:9092"]),
        ("PLAINTEXT://a:9092", ["a:9092"]),
        ("plaintext://a:9092,PLAINTEXT://b:9093", ["a:9092", "b:9093"]),
        ("EXTERNAL://a:9092", ["a:9092"]),
        ("PLAINTEXT_HOST://a:9092/", ["a:9092"]),
        ("tcp://10.0.0.1:9092", ["10.0.0.1:9092"]),
        ("kafka://a:9092", ["a:9092"]),
        ("[::1]:9092", ["[::1]:9092"]),
        ("PLAINTEXT://[::1]:9092", ["[::1]:9092"]),
        ("[fe80::1%eth0]:9092", ["[fe80::1%eth0]:9092"]),
        ("2001:db8:0:0:0:0:0:1:9092", ["[2001:db8:0:0:0:0:0:1]:9092"]),
        ("bücher.example:9092", ["bücher.example:9092"]),
        ("my_host-1.a:1", ["my_host-1.a:1"]),
        ("localhost", ["localhost:9092"]),
        ("a,PLAINTEXT://b/,10.0.0.1", ["a:9092", "b:9092", "10.0.0.1:9092"]),
        ("[::1]", ["[::1]:9092"]),
    ],
)
def test_understood(servers: Any, addresses: list[str]) -> None:
    found = config(servers).bootstrap_servers
    assert found == tuple(addresses)
    assert parse_servers(found) == found
    for address in found:
        host, port = split_address(address)
        assert address in (f"{host}:{port}", f"[{host}]:{port}")


@pytest.mark.parametrize(
    ("servers", "cure"),
    [
        ("9092", "such as localhost:9092"),
        ("PLAINTEXT://9092", "such as localhost:9092"),
        ("a:", "a port from 1 to 65535"),
        ("a:0", "a port from 1 to 65535"),
        ("a:65536", "a port from 1 to 65535"),
        ("a:" + "9" * 400, "a port from 1 to 65535"),
        ("a:9o92", "a port from 1 to 65535"),
        ("a:９０９２", "a port from 1 to 65535"),
        (":9092", "a port from 1 to 65535"),
        ("a:9092 b:9092", "separate addresses by commas"),
        ("a:9092;b:9092", "separate addresses by commas"),
        ("a : 9092", "must not contain spaces"),
        ('"a:9092"', "must be a host name or address"),
        ("a\u200b:9092", "must be a host name or address"),
        ("a\x00:9092", "must be a host name or address"),
        ("::1", r"in brackets, such as \[::1\]:9092"),
        ("::1:9092", r"in brackets, such as \[::1\]:9092"),
        ("a:9092:9093", r"must be host:port"),
        ("[::1", r"such as \[::1\]:9092"),
        ("[::1]9092", r"such as \[::1\]:9092"),
        ("[a:b]:9092", r"such as \[::1\]:9092"),
        ("a:9092/topic", "without a path"),
        ("kafka://a:9092/topic", "without a path"),
        ("PLAINTEXT://b://a:9092", "without a path"),
        ("http://a:8081", "an HTTP address.*give host:port of Kafka brokers"),
        ("https://a", "an HTTP address"),
        ("zookeeper://a:2181", "a ZooKeeper address"),
        ("", "is empty"),
        (" , ,", "is empty"),
        ([], "is empty"),
        (b"a:9092", "must be 'host:port,host:port'"),
        ([b"a:9092"], "each must be a string"),
        (9092, "must be 'host:port,host:port'"),
        (None, "must be 'host:port,host:port'"),
        ({"bootstrap.servers": "a", "sasl.password": "hunter2"}, r"not dict; .*from_config\("),
    ],
)
def test_refused_with_the_cure(servers: Any, cure: str) -> None:
    with pytest.raises(ConfigError, match=cure):
        config(servers)


def test_a_password_in_an_address_is_not_shown() -> None:
    for servers in ("kafka://u:hunter2@a:9092", "u:hunter2@a:9092", ["a:1", "SSL://u:hunter2@a:1"]):
        with pytest.raises(ConfigError, match=r"set sasl_username|set security_protocol") as caught:
            config(servers)
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("named", ["SSL", "SASL_PLAINTEXT", "SASL_SSL", "PLAINTEXT", "kafka+ssl"])
@pytest.mark.parametrize("used", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_an_address_promises_no_more_than_the_client_does(named: str, used: str) -> None:
    wanted = "SSL" if named == "kafka+ssl" else named
    promises = {word for word in ("SSL", "SASL") if word in wanted.replace("_", " ").split()}
    gives = {word for word in ("SSL", "SASL") if word in used.replace("_", " ").split()}
    for name in (named, named.lower()):
        servers = f"a:1,{name}://a:9093"
        if promises <= gives:
            found = config(servers, **login(used))
            assert found.bootstrap_servers == ("a:1", "a:9093")
            continue
        with pytest.raises(ConfigError, match=f"set security_protocol='{wanted}'"):
            config(servers, **login(used))


@given(st.text())
def test_any_text_is_addresses_or_an_error_with_a_cure(text: str) -> None:
    try:
        found = parse_servers(text)
    except ConfigError as error:
        assert str(error).isprintable()
    else:
        assert parse_servers(found) == found and found


async def test_all_clients_connect_with_a_protocol_in_the_address() -> None:
    async with EmbeddedCluster() as broker:
        servers = f"PLAINTEXT://{broker.bootstrap_servers}"
        async with Producer(servers) as producer:
            await producer.send_and_wait("t", b"x")
        async with Consumer(
            "t", bootstrap_servers=servers, auto_offset_reset="earliest"
        ) as consumer:
            assert (await consumer.getone()).value == b"x"
        async with Admin(servers) as admin:
            assert list(await admin.list_topics()) == ["t"]


@pytest.mark.parametrize(
    ("servers", "addresses"),
    [
        ("a", ["a:9092"]),
        ("a,b:1,", ["a:9092", "b:1"]),
        ("PLAINTEXT://a:9093", ["a:9093"]),
        ("PLAINTEXT://a", ["a:9092"]),
        ("::1", ["[::1]:9092"]),
        ("[::1]", ["[::1]:9092"]),
    ],
)
def test_the_port_may_be_omitted_where_aiokafka_has_a_default(
    servers: str, addresses: list[str]
) -> None:
    assert list(parse_servers(compat_servers(servers))) == addresses
