"""Credentials of SCRAM users (KIP-554). Brokers never get the password itself."""

import asyncio
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from aioprod.admin.answers import check, outcome
from aioprod.admin.attempts import Attempt
from aioprod.admin.driver import AdminDriver
from aioprod.admin.results import Results
from aioprod.arguments import check_names
from aioprod.config.checks import check_secret_text, check_string, in_range
from aioprod.config.redaction import HidesArguments
from aioprod.errors import ConfigError, KafkaError
from aioprod.foreign_text import shown
from aioprod.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from aioprod.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)

_check_iterations = in_range(4_096, 16_384)  # Kafka's limits
_SALT_BYTES = 24


class ScramMechanism(IntEnum):
    """The SCRAM mechanisms, with Kafka's numbers."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


class ScramCredentialInfo(NamedTuple):
    """A credential, as a broker describes it.

    Attributes:
        mechanism: the mechanism that it is for.
        iterations: number of iterations of the hash.
    """

    mechanism: ScramMechanism
    iterations: int


@dataclass(frozen=True, slots=True)
class ScramPassword(metaclass=HidesArguments):
    """A new password of a user. Brokers get a salted hash of it.

    Attributes:
        user: the name.
        password: the password.
        mechanism: the mechanism that it is for; each mechanism has a separate credential.
        iterations: number of iterations of the hash, from 4,096 to 16,384; a higher number makes a
            stolen credential harder to use.

    Raises:
        ConfigError: if a value is invalid.
    """

    user: str
    password: str = field(repr=False)
    mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_512
    iterations: int = 8_192

    def __post_init__(self) -> None:
        check_string("user", self.user)
        if not check_secret_text(f"password of {self.user!r}", self.password):
            raise ConfigError(f"password of {self.user!r}: must not be empty")
        _check_iterations("iterations", self.iterations)
        _check_mechanism(self.mechanism)


@dataclass(frozen=True, slots=True)
class ScramRemoval:
    """The removal of a user's credential.

    Attributes:
        user: the name.
        mechanism: the mechanism of the credential.
    """

    user: str
    mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_512

    def __post_init__(self) -> None:
        check_string("user", self.user)
        _check_mechanism(self.mechanism)


class UserCalls:
    """Calls of :class:`aioprod.Admin`."""

    _driver: AdminDriver

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None, *, timeout_ms: float | None = None
    ) -> Results[str, tuple[ScramCredentialInfo, ...]]:
        """Return the credentials of users (brokers since 2.7).

        Args:
            users: the names; all users if None.
            timeout_ms: limit on the whole call.

        Raises:
            BrokerError: if the broker returns an error, such as CLUSTER_AUTHORIZATION_FAILED;
                RESOURCE_NOT_FOUND, raised by ``results[user]``, if the user does not exist.
        """
        call = "describe_user_scram_credentials"

        async def ask_all(
            attempt: Attempt[str],
        ) -> Mapping[str, tuple[ScramCredentialInfo, ...] | KafkaError]:
            # Both an empty list and null mean all, but Kafka 4.4 never responds to null from a
            # client that is not authorized.
            request = DescribeUserScramCredentialsRequest(users=[])
            return _described(await self._driver.from_any(request))

        async def ask(
            attempt: Attempt[str],
        ) -> Mapping[str, tuple[ScramCredentialInfo, ...] | KafkaError]:
            names = [UserName(user) for user in attempt.items]
            return _described(
                await self._driver.from_any(DescribeUserScramCredentialsRequest(users=names))
            )

        if users is None:
            return Results(call, await self._driver.once(call, ask_all, timeout_ms))
        return await self._driver.each(call, check_names("users", users), ask, timeout_ms)

    async def alter_user_scram_credentials(
        self, changes: Iterable[ScramPassword | ScramRemoval], *, timeout_ms: float | None = None
    ) -> Results[str, None]:
        """Set passwords and remove credentials (brokers since 2.7).

        Args:
            changes: passwords to set and credentials to remove; at most one change for each user,
                as in Kafka.
            timeout_ms: limit on the whole call.

        Raises:
            ConfigError: if a user has several changes.
            BrokerError: if the broker returns an error, such as RESOURCE_NOT_FOUND for a credential
                that can't be removed; from ``results[user]`` or ``results.check()``.
        """
        by_user: dict[str, ScramCredentialDeletion | ScramCredentialUpsertion] = {}
        what: dict[str, str] = {}
        for change in _checked(changes):
            if change.user in by_user:
                raise ConfigError(
                    f"alter_user_scram_credentials: several changes of user {change.user!r}; make "
                    "a separate call for each"
                )
            verb = "remove" if isinstance(change, ScramRemoval) else "set"
            what[change.user] = f"{verb} {change.mechanism.name} credentials of User:{change.user}"
            by_user[change.user] = (
                ScramCredentialDeletion(change.user, change.mechanism)
                if isinstance(change, ScramRemoval)
                else await asyncio.to_thread(_salted, change)  # hashing takes 2 to 10 ms
            )

        async def ask(attempt: Attempt[str]) -> Mapping[str, KafkaError | None]:
            connection = await self._driver.controller()
            parts = [by_user[user] for user in attempt.items]
            reply = await connection.request(
                AlterUserScramCredentialsRequest(
                    [part for part in parts if isinstance(part, ScramCredentialDeletion)],
                    [part for part in parts if isinstance(part, ScramCredentialUpsertion)],
                )
            )
            return {
                answer.user: outcome(
                    answer.error_code, what[answer.user], answer.error_message, None
                )
                for answer in reply.results
            }

        return await self._driver.each("alter_user_scram_credentials", by_user, ask, timeout_ms)


def _checked(changes: object) -> list[ScramPassword | ScramRemoval]:
    checked = []
    for change in changes if isinstance(changes, Iterable) else [None]:
        if not isinstance(change, ScramPassword | ScramRemoval):
            # Not shown: it may be a password.
            raise ConfigError("changes: must be a list of ScramPassword and ScramRemoval")
        checked.append(change)
    return checked


def _described(
    reply: DescribeUserScramCredentialsResponse,
) -> dict[str, tuple[ScramCredentialInfo, ...] | KafkaError]:
    check(reply.error_code, "describe_user_scram_credentials", reply.error_message)
    return {
        answer.user: outcome(
            answer.error_code,
            f"user {answer.user}",
            answer.error_message,
            tuple(
                ScramCredentialInfo(_mechanism(info.mechanism), info.iterations)
                for info in answer.credential_infos
            ),
        )
        for answer in reply.results
    }


def _mechanism(number: int) -> ScramMechanism:
    """Return the mechanism; UNKNOWN for a number that only newer brokers have."""
    return ScramMechanism(number) if number in tuple(ScramMechanism) else ScramMechanism.UNKNOWN


def _check_mechanism(mechanism: ScramMechanism) -> None:
    if mechanism not in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        raise ConfigError(f"mechanism={shown(mechanism)}: must be SCRAM_SHA_256 or SCRAM_SHA_512")


def _salted(change: ScramPassword) -> ScramCredentialUpsertion:
    from hashlib import pbkdf2_hmac  # takes milliseconds to import

    name = "sha256" if change.mechanism is ScramMechanism.SCRAM_SHA_256 else "sha512"
    salt = os.urandom(_SALT_BYTES)
    hashed = pbkdf2_hmac(name, change.password.encode(), salt, change.iterations)
    return ScramCredentialUpsertion(change.user, change.mechanism, change.iterations, salt, hashed)
