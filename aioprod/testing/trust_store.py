"""Writes this machine's certificate authorities to a file that Java reads.

A Java runtime from a wheel has its own list of authorities. It lacks those that a company or a test
machine has added to the system's list.
"""

from __future__ import annotations

import hashlib
import ssl
import struct
from pathlib import Path

_MAGIC = 0xFEEDFEED
_VERSION = 2
_TRUSTED_CERTIFICATE = 2
PASSWORD = "changeit"
"""Java's default. The file contains no secrets; the password is only used for its checksum."""


def machine_certificates() -> list[bytes]:
    """Return the DER-encoded certificates of the authorities that Python trusts on this machine,
    including those in SSL_CERT_FILE.
    """
    return ssl.create_default_context().get_ca_certs(binary_form=True)


def write_trust_store(path: Path, certificates: list[bytes]) -> None:
    """Write DER certificates to ``path`` as a Java key store of type JKS."""
    parts = [struct.pack(">III", _MAGIC, _VERSION, len(certificates))]
    for number, certificate in enumerate(certificates):
        parts.append(
            struct.pack(">I", _TRUSTED_CERTIFICATE) + _utf(f"ca{number}") + bytes(8) + _utf("X.509")
        )
        parts.append(struct.pack(">I", len(certificate)) + certificate)
    body = b"".join(parts)
    # The format's checksum covers the password in UTF-16, a fixed salt and the content.
    digest = hashlib.sha1(
        PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body, usedforsecurity=False
    ).digest()
    path.write_bytes(body + digest)


def _utf(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">H", len(data)) + data
