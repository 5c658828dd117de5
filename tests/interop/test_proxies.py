"""The registry's client and a token provider through squid, with a password; on demand."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from aioprod import KafkaError
from aioprod.oauth import ClientCredentials
from aioprod.schema_registry import Schema, SchemaRegistry
from aioprod.testing.registry import EmbeddedSchemaRegistry
from tests.oauth.identity_provider import IdentityProvider

SQUID = shutil.which("squid", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
PASSWORDS = Path("/usr/lib/squid/basic_ncsa_auth")
pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(
        SQUID is None or not PASSWORDS.exists() or shutil.which("openssl") is None,
        reason="needs squid and openssl",
    ),
]


@pytest.fixture
def squid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a squid that accepts the user me with the password sesame."""
    folder = tmp_path_factory.mktemp("squid")
    for each in (folder, *folder.parents[:2]):
        each.chmod(0o755)
    folder.chmod(0o777)  # squid changes its user
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    coded = subprocess.check_output(["openssl", "passwd", "-apr1", "sesame"], text=True)
    (folder / "passwords").write_text(f"me:{coded}")
    (folder / "squid.conf").write_text(
        f"http_port 127.0.0.1:{port}\n"
        f"auth_param basic program {PASSWORDS} {folder}/passwords\n"
        "acl known proxy_auth REQUIRED\nhttp_access allow known\nhttp_access deny all\n"
        f"pid_filename {folder}/pid\ncache_log {folder}/cache.log\n"
        f"access_log stdio:{folder}/access.log\ncache deny all\ncoredump_dir {folder}\n"
        "shutdown_lifetime 0 seconds\n"
    )
    assert SQUID is not None
    process = subprocess.Popen([SQUID, "-N", "-f", folder / "squid.conf"])
    try:
        yield port
    finally:
        process.terminate()
        process.wait(30)


async def listens(port: int) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return
            except ConnectionError:
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("by_environment", [True, False])
@pytest.mark.parametrize("over_tls", [True, False])
async def test_both_clients_use_a_proxy(
    squid: int, over_tls: bool, by_environment: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await listens(squid)
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if over_tls else None
    client = ssl.create_default_context() if over_tls else None
    if server is not None and client is not None:
        authority.issue_cert("127.0.0.1").configure_cert(server)
        authority.configure_trust(client)
    for password, is_right in (("sesame", True), ("hunter2", False)):
        options: dict[str, Any] = {"ssl_context": client, "timeout_ms": 20_000}
        proxy = f"http://me:{password}@127.0.0.1:{squid}"
        if by_environment:
            monkeypatch.setenv("HTTP_PROXY", proxy)
            monkeypatch.setenv("HTTPS_PROXY", proxy)
        else:
            options["proxy"] = proxy
        async with (
            EmbeddedSchemaRegistry(ssl_context=server) as registry,
            IdentityProvider().running(server) as provider,
        ):
            tokens = ClientCredentials(
                provider.url, provider.client_id, provider.client_secret, **options
            )
            async with SchemaRegistry(registry.url, **options) as known:
                if is_right:
                    await known.register("s", Schema('"string"'))
                    assert await known.subjects() == ["s"]
                    assert (await tokens()).value
                    continue
                for ask in (known.subjects, tokens):
                    with pytest.raises(KafkaError, match=r"407:? Proxy") as caught:
                        await ask()
                    assert "hunter2" not in str(caught.value)
