"""The functions of ``aiokafka.helpers``."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from os import PathLike

Path = str | bytes | PathLike[str] | PathLike[bytes]


def create_ssl_context(
    *,
    cafile: Path | None = None,
    capath: Path | None = None,
    cadata: str | bytes | None = None,
    certfile: Path | None = None,
    keyfile: Path | None = None,
    password: Callable[[], str | bytes | bytearray] | str | bytes | bytearray | None = None,
) -> ssl.SSLContext:
    """Return a context for ``ssl_context`` that verifies the broker's certificate and host name.

    Args:
        cafile, capath, cadata: the trusted certificate authorities; the system's by default.
        certfile, keyfile, password: the client's certificate, its key, and the key's password.
    """
    context = ssl.create_default_context(
        ssl.Purpose.SERVER_AUTH, cafile=cafile, capath=capath, cadata=cadata
    )
    if certfile is not None:
        context.load_cert_chain(certfile, keyfile, password)
    return context
