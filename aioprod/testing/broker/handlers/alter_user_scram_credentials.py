"""AlterUserScramCredentials (KIP-554): set and remove SCRAM users."""

from __future__ import annotations

from collections import Counter

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from aioprod.protocol.sasl.scram import MIN_ITERATIONS, ScramCredential
from aioprod.testing.broker.access.scram_users import MECHANISMS
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext

_MAX_ITERATIONS = 16_384  # Kafka's limit
_Change = ScramCredentialDeletion | ScramCredentialUpsertion


@handles(AlterUserScramCredentialsRequest)
async def handle(
    request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    """Apply the valid changes; each user has at most one change, and a separate result."""
    changes: list[_Change] = [*request.deletions, *request.upsertions]
    counts = Counter(change.name for change in changes)
    by_user = {change.name: change for change in changes}
    return AlterUserScramCredentialsResponse(
        results=[_alter(change, counts[name] > 1, context) for name, change in by_user.items()]
    )


def _alter(
    change: _Change, repeated: bool, context: RequestContext
) -> AlterUserScramCredentialsResult:
    try:
        if code := context.failure():
            raise RequestError(code, code.description)
        if repeated:
            raise RequestError(
                ErrorCode.DUPLICATE_RESOURCE,
                "A user credential cannot be altered twice in the same request",
            )
        _apply(change, _check(change), context)
    except RequestError as error:
        return AlterUserScramCredentialsResult(change.name, error.code, error.text)
    return AlterUserScramCredentialsResult(change.name, error_message=None)


def _check(change: _Change) -> str:
    """Return the mechanism; raise RequestError if the change is invalid."""
    if not change.name:
        raise RequestError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = MECHANISMS.get(change.mechanism)
    if mechanism is None:
        raise RequestError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, ScramCredentialUpsertion) and not (
        MIN_ITERATIONS <= change.iterations <= _MAX_ITERATIONS
    ):
        raise RequestError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"{change.iterations} iterations: must be {MIN_ITERATIONS} to {_MAX_ITERATIONS}",
        )
    return mechanism


def _apply(change: _Change, mechanism: str, context: RequestContext) -> None:
    users = context.store.scram_users
    if isinstance(change, ScramCredentialUpsertion):
        credential = ScramCredential.salted(
            mechanism, change.salted_password, change.salt, change.iterations
        )
        users.set(mechanism, change.name, credential)
    elif not users.remove(mechanism, change.name):
        raise RequestError(
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        )
