"""Connections share a TLS context only if all settings and files are equal."""

from __future__ import annotations

import itertools
import os
import ssl
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import trustme

from aioprod import AuthenticationError, ClientConfig, ConfigError, Producer
from aioprod.config.configuration import configuration
from aioprod.config.security import new_tls_context
from aioprod.net.tls import tls_context
from aioprod.testing import BrokerSecurity, EmbeddedCluster
from tests.net.certificates import Certificates, private_key
from tests.testing import leaks

#: The context itself is not changed.
OWN = "ssl_context"


@pytest.fixture
def both(certificates: Certificates) -> list[str]:
    """Two files, each with a private key, its certificate and the authority's."""
    paths = []
    for number in range(2):
        leaf = certificates.authority.issue_cert(f"client{number}@example.org")
        path = certificates.directory / f"both{number}.pem"
        chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
        path.write_bytes(private_key(leaf) + chain + certificates.authority.cert_pem.bytes())
        paths.append(str(path))
    return paths


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> trustme.CA:
    """The only authority that the system trusts."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "system.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "system.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "none"))
    return authority


def values(both: list[str]) -> dict[str, list[object]]:
    """The settings of a context, each with valid values; files in both roles."""
    return {
        "ssl_truststore_location": [None, *both],
        "ssl_keystore_location": [None, *both],
        "ssl_key_password": [None, "one", "another"],
        "ssl_endpoint_identification_algorithm": ["https", ""],
    }


def every_config(both: list[str]) -> Iterator[ClientConfig]:
    table = values(both)
    for chosen in itertools.product(*table.values()):
        settings: dict[str, Any] = dict(zip(table, chosen, strict=True))
        yield ClientConfig(security_protocol="SSL", **settings)


def identity(context: ssl.SSLContext) -> tuple[object, ...]:
    return (len(context.get_ca_certs()), context.check_hostname, context.verify_flags)


def test_every_setting_of_tls_has_values(both: list[str]) -> None:
    settings = {each.name for each in fields(ClientConfig) if each.name.startswith("ssl_")}
    assert settings - {OWN} == values(both).keys()


def test_no_two_different_settings_share_a_context(both: list[str], system: trustme.CA) -> None:
    configs = list(every_config(both))
    for order in (configs, configs[::-1]):
        contexts = [tls_context(config) for config in order]
        assert len({id(context) for context in contexts}) == len(configs) == 54
        for config, context in zip(order, contexts, strict=True):
            assert context is not None
            assert identity(context) == identity(new_tls_context(config))
            same = ClientConfig(
                **{each.name: getattr(config, each.name) for each in fields(config)}
            )
            assert tls_context(same) is context
        del contexts, context  # the next round makes new ones, in the other order


def test_a_context_is_made_of_nothing_but_settings_of_tls(both: list[str]) -> None:
    """Each setting that `new_tls_context` reads keeps contexts apart."""
    read: set[str] = set()

    class Watched(ClientConfig):
        def __getattribute__(self, name: str) -> Any:
            if name in {each.name for each in fields(ClientConfig)}:
                read.add(name)
            return super().__getattribute__(name)

    watched = Watched(security_protocol="SSL", ssl_keystore_location=both[0])
    read.clear()
    new_tls_context(watched)
    assert read and all(name.startswith("ssl_") for name in read)


def test_a_setting_that_is_added_keeps_contexts_apart(both: list[str]) -> None:
    @configuration(kw_only=True)
    class Extended(ClientConfig):
        ssl_new: str = ""
        ssl_new_location: str | Path | None = None

    settings: dict[str, Any] = {"security_protocol": "SSL", "ssl_truststore_location": both[0]}
    first = tls_context(Extended(**settings))
    assert tls_context(Extended(**settings)) is first
    assert tls_context(Extended(**settings, ssl_new="x")) is not first
    second = tls_context(Extended(**settings, ssl_new_location=both[1]))
    assert second is not first
    Path(both[1]).write_bytes(Path(both[1]).read_bytes() + b"\n")
    assert tls_context(Extended(**settings, ssl_new_location=both[1])) is not second


def test_a_file_that_was_replaced_is_read_again_also_with_its_old_size_and_time(
    both: list[str],
) -> None:
    path = Path(both[0])
    config = ClientConfig(security_protocol="SSL", ssl_truststore_location=path)
    context, before = tls_context(config), path.stat()
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b" ")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert tls_context(config) is not context


def test_other_certificates_of_the_system_are_read_again(
    system: trustme.CA, monkeypatch: pytest.MonkeyPatch, certificates: Certificates
) -> None:
    config = ClientConfig(security_protocol="SSL")
    context = tls_context(config)
    assert tls_context(config) is context
    monkeypatch.setenv("SSL_CERT_FILE", certificates.truststore)
    renewed = tls_context(config)
    assert renewed is not None and renewed is not context
    assert renewed.get_ca_certs() != context.get_ca_certs()  # type: ignore[union-attr]


@pytest.mark.parametrize("first", ["key store", "trust store"])
async def test_a_server_that_one_client_trusts_is_refused_by_another(
    both: list[str], system: trustme.CA, first: str
) -> None:
    """One file is the key store of a client that trusts the system, and another's trust store."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    system.issue_cert("127.0.0.1").configure_cert(server)
    async with EmbeddedCluster(security=BrokerSecurity(ssl_context=server)) as broker:
        shared: dict[str, Any] = {"security_protocol": "SSL", "request_timeout_ms": 5_000}
        trusting = Producer(broker.bootstrap_servers, **shared, ssl_keystore_location=both[0])
        strict = Producer(broker.bootstrap_servers, **shared, ssl_truststore_location=both[0])
        kept = None
        try:
            if first == "key store":
                await trusting.start()
            else:
                kept = tls_context(strict.config)
            with pytest.raises(AuthenticationError, match="certificate is not valid"):
                await strict.start()
            await trusting.start()
            await trusting.send_and_wait("t", b"x")
        finally:
            await strict.close()
            await trusting.close()
            del kept


def test_a_key_that_does_not_fit_any_more_is_in_no_frame_of_the_error(
    certificates: Certificates,
) -> None:
    path = Path(certificates.keystore())
    config = ClientConfig(security_protocol="SSL", ssl_keystore_location=path)
    key = private_key(certificates.authority.issue_cert("other@example.org"))
    chain = b"".join(line for line in path.read_bytes().partition(b"-----BEGIN CERT")[1:])
    path.write_bytes(key + chain)
    with pytest.raises(ConfigError, match="does not match its first certificate") as raised:
        tls_context(config)
    text = leaks.whole_text(raised.value, [__file__])
    assert key.splitlines()[1].decode() not in text and "new_tls_context" in text
