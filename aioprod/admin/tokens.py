"""Delegation tokens (KIP-48, KIP-373): credentials with a limited lifetime, which a user gives to
programs.

The HMAC of a token is its password. It is not in any repr, nor in a stack frame of an error's
traceback.
"""

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from aioprod.admin.answers import check
from aioprod.admin.attempts import Attempt
from aioprod.admin.driver import AdminDriver
from aioprod.arguments import check_names
from aioprod.errors import ConfigError
from aioprod.foreign_text import shown
from aioprod.protocol.message import Request
from aioprod.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from aioprod.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from aioprod.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from aioprod.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

_BROKERS_CHOICE = -1
_ChangedT = TypeVar("_ChangedT", RenewDelegationTokenResponse, ExpireDelegationTokenResponse)


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A delegation token. Its repr does not show the HMAC.

    Attributes:
        token_id: the user name for SCRAM.
        hmac: the secret of the token.
        owner: the principal of clients that log in with it, such as ``User:alice``.
        requester: the principal that created it; empty for brokers before 3.3.
        renewers: the principals that may renew it, in addition to the owner.
        issue_timestamp_ms: time of its creation, in milliseconds since 1970.
        expiry_timestamp_ms: time at which it expires unless it is renewed.
        max_timestamp_ms: time up to which it can be renewed.
    """

    token_id: str
    hmac: bytes = field(repr=False)
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int

    @property
    def hmac_base64(self) -> str:
        """The HMAC as text: the password for SCRAM."""
        return base64.b64encode(self.hmac).decode()


class TokenCalls:
    """Calls of :class:`aioprod.Admin`."""

    _driver: AdminDriver

    async def create_delegation_token(
        self,
        *,
        renewers: Iterable[str] = (),
        max_lifetime_ms: int | None = None,
        owner: str | None = None,
        timeout_ms: float | None = None,
    ) -> DelegationToken:
        """Create a token with which programs log in as its owner (KIP-48).

        The programs use SCRAM, with ``sasl_username=token.token_id``,
        ``sasl_password=token.hmac_base64`` and ``sasl_delegation_token=True``. The token reaches
        all brokers within moments; until then they refuse logins with it. This client must be
        authenticated, but not with a delegation token.

        Args:
            renewers: principals that may renew it in addition to the owner, such as
                ``["User:bob"]``.
            max_lifetime_ms: time for which it can be renewed, in milliseconds. Maximum and default:
                the broker's ``delegation.token.max.lifetime.ms``.
            owner: another user (KIP-373, brokers since 3.3); by default the user of this client.
            timeout_ms: limit on the whole call. A call that is retried because the response was
                lost may create a second token.

        Raises:
            ConfigError: if a principal or the lifetime is invalid.
            ProtocolError: if ``owner`` is given, and the broker is older than 3.3.
            BrokerError: such as DELEGATION_TOKEN_AUTH_DISABLED,
                DELEGATION_TOKEN_REQUEST_NOT_ALLOWED (the connection is not authenticated, or with a
                delegation token), or DELEGATION_TOKEN_AUTHORIZATION_FAILED (CREATE_TOKENS on the
                owner).
        """
        call = "create_delegation_token"
        given = [
            _Principal.of(call, "renewers", each) for each in check_names("renewers", renewers)
        ]
        other = None if owner is None else _Principal.of(call, "owner", owner)
        request = CreateDelegationTokenRequest(
            *(other or ("", "")),  # older versions have these fields, too
            [CreatableRenewers(*each) for each in given],
            _milliseconds(call, "max_lifetime_ms", max_lifetime_ms, 1),
        )

        async def ask(attempt: Attempt[str]) -> DelegationToken:
            reply = await (await self._driver.controller()).request(request)
            check(reply.error_code, call if other is None else f"{call} for {other}")
            return DelegationToken(
                reply.token_id,
                reply.hmac,
                str(_Principal(reply.principal_type, reply.principal_name)),
                _named(reply.token_requester_principal_type, reply.token_requester_principal_name),
                tuple(map(str, given)),
                reply.issue_timestamp_ms,
                reply.expiry_timestamp_ms,
                reply.max_timestamp_ms,
            )

        return await self._driver.once(call, ask, timeout_ms)

    async def renew_delegation_token(
        self,
        token: DelegationToken | bytes | str,
        *,
        renew_period_ms: int | None = None,
        timeout_ms: float | None = None,
    ) -> int:
        """Extend the lifetime of a token. Return when it expires, in milliseconds since 1970.

        Args:
            token: the token, or its HMAC, as bytes or in base64.
            renew_period_ms: time from now on for which it is valid, in milliseconds. Maximum and
                default: the broker's ``delegation.token.expiry.time.ms``, but not beyond
                ``max_timestamp_ms`` of the token.
            timeout_ms: limit on the whole call.

        Raises:
            ConfigError: if an argument is invalid.
            BrokerError: such as DELEGATION_TOKEN_NOT_FOUND, DELEGATION_TOKEN_EXPIRED, or
                DELEGATION_TOKEN_OWNER_MISMATCH (neither the owner nor a renewer).
        """
        call = "renew_delegation_token"
        secret = _Secret.of(token)
        del token
        period_ms = _milliseconds(call, "renew_period_ms", renew_period_ms)
        request = RenewDelegationTokenRequest(secret.checked(call), period_ms)
        return await self._change(call, request, timeout_ms)

    async def expire_delegation_token(
        self,
        token: DelegationToken | bytes | str,
        *,
        expiry_period_ms: int | None = None,
        timeout_ms: float | None = None,
    ) -> int:
        """Shorten the lifetime of a token; by default, it expires at once. Return when it expires,
        in milliseconds since 1970.

        Args:
            token: the token, or its HMAC, as bytes or in base64.
            expiry_period_ms: time from now on for which it remains valid, in milliseconds.
            timeout_ms: limit on the whole call.

        Raises:
            ConfigError, BrokerError: as in :meth:`renew_delegation_token`.
        """
        call = "expire_delegation_token"
        secret = _Secret.of(token)
        del token
        period_ms = _milliseconds(call, "expiry_period_ms", expiry_period_ms)
        request = ExpireDelegationTokenRequest(secret.checked(call), period_ms)
        return await self._change(call, request, timeout_ms)

    async def describe_delegation_tokens(
        self, owners: Iterable[str] | None = None, *, timeout_ms: float | None = None
    ) -> list[DelegationToken]:
        """Return the tokens that the user of this client owns, or is authorized to renew or
        describe.

        Args:
            owners: only tokens that these principals own or may renew, such as ``["User:alice"]``.
            timeout_ms: limit on the whole call.

        Raises:
            ConfigError: if a principal is invalid.
            BrokerError: such as DELEGATION_TOKEN_AUTH_DISABLED.
        """
        call = "describe_delegation_tokens"
        request = DescribeDelegationTokenRequest(
            None
            if owners is None
            else [
                DescribeDelegationTokenOwner(*_Principal.of(call, "owners", each))
                for each in check_names("owners", owners)
            ]
        )

        async def ask(attempt: Attempt[str]) -> list[DelegationToken]:
            reply = await self._driver.from_any(request)
            check(reply.error_code, call)
            return [
                DelegationToken(
                    answer.token_id,
                    answer.hmac,
                    str(_Principal(answer.principal_type, answer.principal_name)),
                    _named(
                        answer.token_requester_principal_type, answer.token_requester_principal_name
                    ),
                    tuple(
                        str(_Principal(each.principal_type, each.principal_name))
                        for each in answer.renewers
                    ),
                    answer.issue_timestamp,
                    answer.expiry_timestamp,
                    answer.max_timestamp,
                )
                for answer in reply.tokens
            ]

        return await self._driver.once(call, ask, timeout_ms)

    async def _change(
        self, call: str, request: Request[_ChangedT], timeout_ms: float | None
    ) -> int:
        async def ask(attempt: Attempt[str]) -> int:
            reply = await (await self._driver.controller()).request(request)
            check(reply.error_code, call)
            return reply.expiry_timestamp_ms

        return await self._driver.once(call, ask, timeout_ms)


class _Principal(NamedTuple):
    kind: str
    name: str

    @classmethod
    def of(cls, call: str, argument: str, text: object) -> "_Principal":
        kind, colon, name = text.partition(":") if isinstance(text, str) else ("", "", "")
        if not (kind and colon and name):
            raise ConfigError(
                f"{call}: {argument}: {shown(text)} must be TYPE:NAME, such as 'User:alice'"
            )
        return cls(kind, name)

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


def _named(kind: str, name: str) -> str:
    return str(_Principal(kind, name)) if kind or name else ""


def _milliseconds(call: str, name: str, value: int | None, least: int = 0) -> int:
    if value is None:
        return _BROKERS_CHOICE
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 1 << 63:
        raise ConfigError(
            f"{call}: {name}={shown(value)}: must be a whole number from {least} to {(1 << 63) - 1}"
        )
    return value


@dataclass(frozen=True, slots=True)
class _Secret:
    """An HMAC, which the repr does not show; None if the argument is not an HMAC."""

    hmac: bytes | None = field(repr=False)

    @classmethod
    def of(cls, token: object) -> "_Secret":
        """Convert the argument. Raises no error, as its frame would contain the HMAC."""
        if isinstance(token, DelegationToken):
            return cls(token.hmac)
        if isinstance(token, bytes):
            return cls(token or None)
        try:
            text = token if isinstance(token, str) else ""
            return cls(base64.b64decode(text, validate=True) or None)
        except ValueError:
            return cls(None)

    def checked(self, call: str) -> bytes:
        if self.hmac is None:
            raise ConfigError(
                f"{call}: token: must be a DelegationToken, or its HMAC as bytes or in base64"
            )
        return self.hmac
