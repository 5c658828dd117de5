"""An identity provider on 127.0.0.1: a token endpoint, and the keys to check its tokens."""

from __future__ import annotations

import base64
import json
import ssl
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

ISSUER, AUDIENCE = "https://login.example.com", "kafka"
KEY_ID = "key-1"


@dataclass
class IdentityProvider:
    """Issues tokens to one client.

    Attributes:
        url: URL of the token endpoint, once it runs.
        lifetime_s: lifetime of its tokens.
        answers: other responses to the next requests: status and JSON.
        requests: the forms it got.
        assertion_key: PEM of the public key that assertions must be signed with.
        shows_lifetime: whether responses have ``expires_in``.
    """

    client_id: str = "orders-service"
    client_secret: str = "s3cret+:%/ü"
    lifetime_s: int = 300
    answers: list[tuple[int, Any]] = field(default_factory=list)
    requests: list[Mapping[str, str]] = field(default_factory=list)
    authorizations: list[str] = field(default_factory=list)
    assertion_key: str = ""
    shows_lifetime: bool = True
    url: str = ""

    def __post_init__(self) -> None:
        self._key = rsa.generate_private_key(65537, 2048)

    @property
    def jwks_url(self) -> str:
        return self.url.replace("/token", "/keys")

    def token(self, **claims: Any) -> str:
        """Return a signed token."""
        now = int(time.time())
        return jwt.encode(
            {
                "iss": ISSUER,
                "aud": AUDIENCE,
                "sub": self.client_id,
                "scope": "kafka",
                "iat": now,
                "exp": now + self.lifetime_s,
                "jti": str(uuid.uuid4()),
                **claims,
            },
            self._key,
            "RS256",
            headers={"kid": KEY_ID},
        )

    def user_of(self, token: str, extensions: Mapping[str, str] | None = None) -> str | None:
        """Return whose token it is, None if it is not valid."""
        try:
            claims = jwt.decode(token, self._public_pem, ["RS256"], audience=AUDIENCE)
        except jwt.PyJWTError:
            return None
        return str(claims["sub"])

    @property
    def _public_pem(self) -> bytes:
        return self._key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    @asynccontextmanager
    async def running(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[IdentityProvider]:
        """Serve on a free port of 127.0.0.1."""
        app = web.Application()
        app.router.add_post("/token", self._give_token)
        app.router.add_get("/keys", self._show_keys)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
            await site.start()
            host, port = runner.addresses[0][:2]
            self.url = f"http{'s' if tls else ''}://{host}:{port}/token"
            yield self
        finally:
            await runner.cleanup()

    async def _give_token(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.requests.append(form)
        self.authorizations.append(request.headers.get("Authorization", ""))
        if self.answers:
            status, answer = self.answers.pop(0)
            text = answer if isinstance(answer, str) else json.dumps(answer)
            return web.Response(status=status, text=text)
        if not self._is_known(form, self.authorizations[-1]):
            return web.json_response(
                {"error": "invalid_client", "error_description": "Unknown client."}, status=401
            )
        answer = {"access_token": self.token(), "token_type": "Bearer"}
        return web.json_response(
            answer | ({"expires_in": self.lifetime_s} if self.shows_lifetime else {})
        )

    def _is_known(self, form: Mapping[str, str], authorization: str) -> bool:
        if form["grant_type"] == "client_credentials":
            expected = f"{self.client_id}:{self.client_secret}".encode()
            return authorization == f"Basic {base64.b64encode(expected).decode()}"
        if form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer":
            try:
                jwt.decode(
                    form["assertion"],
                    self.assertion_key,
                    ["RS256", "ES256"],
                    audience=ISSUER,
                    issuer=self.client_id,
                )
            except jwt.PyJWTError:
                return False
            return True
        return False

    async def _show_keys(self, request: web.Request) -> web.Response:
        key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key()))
        return web.json_response({"keys": [key | {"kid": KEY_ID, "use": "sig", "alg": "RS256"}]})
