"""Tokens in exchange for a signed assertion (RFC 7523, KIP-1139)."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Unpack

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from aioprod.config.checks import check_name, check_secret_text, one_of
from aioprod.config.redaction import HidesArguments
from aioprod.config.settings.security import ASSERTION_ALGORITHMS
from aioprod.errors import ConfigError
from aioprod.oauth.cache import Token
from aioprod.oauth.endpoint import Grant
from aioprod.oauth.errors import TokenRequestError
from aioprod.oauth.provider import EndpointTokens, Options

_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_MAX_ASSERTION_BYTES = 64 * 1024
_check_algorithm = one_of(ASSERTION_ALGORITHMS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assertion(metaclass=HidesArguments):
    """The claims of an assertion, and the key that signs it.

    Attributes:
        private_key_file: PEM file of the key; read for each assertion, so that it may be replaced.
            Kafka: ``sasl.oauthbearer.assertion.private.key.file``.
        private_key_passphrase: passphrase of an encrypted key. Kafka:
            ``sasl.oauthbearer.assertion.private.key.passphrase``.
        algorithm: ``RS256`` or ``ES256``. Kafka: ``sasl.oauthbearer.assertion.algorithm``.
        issuer: the claim ``iss``. Kafka: ``sasl.oauthbearer.assertion.claim.iss``.
        subject: the claim ``sub``. Kafka: ``sasl.oauthbearer.assertion.claim.sub``.
        audience: the claim ``aud``. Kafka: ``sasl.oauthbearer.assertion.claim.aud``.
        lifetime_s: seconds until it expires. Kafka:
            ``sasl.oauthbearer.assertion.claim.exp.seconds``.
        not_before_s: seconds before its creation from which on it is valid, as clocks differ.
            Kafka: ``sasl.oauthbearer.assertion.claim.nbf.seconds``.
        with_id: add a unique claim ``jti``. Kafka:
            ``sasl.oauthbearer.assertion.claim.jti.include``.
        claims: further claims. In Kafka part of ``sasl.oauthbearer.assertion.template.file``.
        headers: further headers, such as ``kid``. In Kafka part of the same file.

    Raises:
        ConfigError: if a value is invalid. A missing key file is reported by the first request for
            a token.
    """

    private_key_file: str | Path
    private_key_passphrase: str | None = field(default=None, repr=False)
    algorithm: Literal["RS256", "ES256"] = "RS256"
    issuer: str | None = None
    subject: str | None = None
    audience: str | None = None
    lifetime_s: int = 300
    not_before_s: int = 60
    with_id: bool = False
    claims: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_algorithm("algorithm", self.algorithm)
        if not isinstance(self.private_key_file, str | Path):
            raise ConfigError(f"private_key_file={self.private_key_file!r}: must be a path")
        check_secret_text("private_key_passphrase", self.private_key_passphrase)
        for name in ("issuer", "subject", "audience"):
            check_name(name, getattr(self, name))
        for name in ("claims", "headers"):
            _check_json(name, getattr(self, name))
        for name in ("lifetime_s", "not_before_s"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ConfigError(f"{name}={value!r}: must be a whole number of at least 0")

    def signed(self, now: float) -> str:
        """Return the assertion, valid from ``now`` on, in seconds since 1970.

        Raises:
            TokenRequestError: if the key can't be read or does not fit the algorithm.
        """
        claims: dict[str, Any] = {
            **self.claims,
            "iat": int(now),
            "nbf": int(now) - self.not_before_s,
            "exp": int(now) + self.lifetime_s,
        }
        named = (("iss", self.issuer), ("sub", self.subject), ("aud", self.audience))
        claims |= {name: value for name, value in named if value is not None}
        if self.with_id:
            claims["jti"] = str(uuid.uuid4())
        key = self._key()
        try:
            return jwt.encode(claims, key, self.algorithm, headers=dict(self.headers))
        except jwt.InvalidTokenError as error:
            fault = f"headers: {error}"
        except (TypeError, ValueError, jwt.PyJWTError):
            fault = f"the private key is not one for {self.algorithm}"
        finally:
            del key
        raise self._fault(fault)  # here, without the frames that contain the key

    def _key(self) -> Any:
        secret = self.private_key_passphrase
        try:
            pem = Path(self.private_key_file).read_bytes()
        except OSError as error:
            raise self._fault(error.strerror or type(error).__name__) from None
        try:
            return load_pem_private_key(pem, None if secret is None else secret.encode())
        except TypeError:
            fault = "private_key_passphrase is set, but the key is not encrypted"
            if secret is None:
                fault = "the key is encrypted, but private_key_passphrase is not set"
        except (ValueError, UnsupportedAlgorithm):
            fault = "it contains no private key in PEM, or private_key_passphrase is wrong"
        finally:
            del pem, secret
        raise self._fault(fault)

    def _fault(self, text: str) -> TokenRequestError:
        return TokenRequestError(f"private_key_file={str(self.private_key_file)!r}: {text}", 0)


def _check_json(name: str, value: object) -> None:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{name}={value!r}: must be a mapping")
    try:
        json.dumps(dict(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{name}: must be serializable as JSON: {error}") from None


class JwtBearer(EndpointTokens, metaclass=HidesArguments):
    """A token provider that exchanges an assertion for a token. It signs the assertion itself, or
    reads one that another program writes to a file. Tokens are cached, as by
    :class:`ClientCredentials`.

    Args:
        token_endpoint_url: URL at the identity provider. Kafka:
            ``sasl.oauthbearer.token.endpoint.url``.
        assertion: the claims to sign, or the path of a file with an assertion, which is read for
            each request. Kafka: ``sasl.oauthbearer.assertion.file``.
        options: see :class:`~aioprod.oauth.provider.Options`.

    Raises:
        ConfigError: if an argument is invalid.
    """

    def __init__(
        self,
        token_endpoint_url: str,
        assertion: Assertion | str | Path,
        **options: Unpack[Options],
    ) -> None:
        if not isinstance(assertion, Assertion | str | Path):
            raise ConfigError(
                f"assertion: must be an Assertion or a path, not {type(assertion).__name__}"
            )
        super().__init__(token_endpoint_url, _GRANT, options)
        self._assertion = assertion

    async def _fetch(self) -> Token:
        # Reading a file and signing take milliseconds: not in the event loop.
        text = await asyncio.to_thread(_text_of, self._assertion)
        return await self._endpoint.request(Grant({**self._form, "assertion": text}))


def _text_of(assertion: Assertion | str | Path) -> str:
    if isinstance(assertion, Assertion):
        return assertion.signed(time.time())
    shown = f"assertion={str(assertion)!r}"
    try:
        with open(assertion, "rb") as file:
            content = file.read(_MAX_ASSERTION_BYTES + 1)
    except OSError as error:
        raise TokenRequestError(f"{shown}: {error.strerror}", 0) from None
    text = content.decode("ascii", "replace").strip()
    if len(content) > _MAX_ASSERTION_BYTES or text.count(".") != 2:
        raise TokenRequestError(f"{shown}: contains no JSON Web Token", 0)
    return text
