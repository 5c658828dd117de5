"""Certificates made for one test run: an authority, a broker's and a client's."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

KEY_PASSWORD = "opens the key"


@dataclass(frozen=True)
class Certificates:
    """Files and contexts of one authority."""

    authority: trustme.CA
    directory: Path

    def server_context(self, name: str = "127.0.0.1", *, mutual: bool = False) -> ssl.SSLContext:
        """Return a broker's context; if ``mutual``, it requires certificates of this authority."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.authority.issue_cert(name).configure_cert(context)
        if mutual:
            self.authority.configure_trust(context)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    @property
    def truststore(self) -> str:
        """PEM file with the authority's certificate."""
        path = self.directory / "trusted.pem"
        self.authority.cert_pem.write_to_path(str(path))
        return str(path)

    def keystore(self, password: str | None = None) -> str:
        """PEM file with a client's private key and certificate chain."""
        certificate = self.authority.issue_cert("client@example.org")
        path = self.directory / f"client-{'sealed' if password else 'open'}.pem"
        path.write_bytes(
            private_key(certificate, password)
            + b"".join(blob.bytes() for blob in certificate.cert_chain_pems)
        )
        return str(path)


def private_key(certificate: trustme.LeafCert, password: str | None = None) -> bytes:
    """Return the private key in PKCS #8, as Kafka requires, encrypted if a password is given."""
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
    encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
