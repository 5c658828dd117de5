"""DescribeUserScramCredentials (KIP-554): the users that requests have created."""

from __future__ import annotations

from collections import Counter

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from aioprod.testing.broker.access.scram_users import MECHANISMS
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext


@handles(DescribeUserScramCredentialsRequest)
async def handle(
    request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    """Describe the users in the request, or all users if it has none."""
    if code := context.failure():
        # As in Kafka, the code is also in a result without a user.
        return DescribeUserScramCredentialsResponse(
            error_code=code,
            error_message=code.description,
            results=[DescribeUserScramCredentialsResult("", code, code.description)],
        )
    counts = Counter(user.name for user in request.users or ())
    return DescribeUserScramCredentialsResponse(
        error_message=None,
        results=[
            _describe(name, counts[name] > 1, context)
            for name in list(counts or context.store.scram_users.names)
        ],
    )


def _describe(
    name: str, repeated: bool, context: RequestContext
) -> DescribeUserScramCredentialsResult:
    own = context.store.scram_users.of(name)
    if repeated:
        text = f"Cannot describe SCRAM credentials for the same user twice in a request: {name}"
        return DescribeUserScramCredentialsResult(name, ErrorCode.DUPLICATE_RESOURCE, text)
    if not own:
        text = f"Attempt to describe a user credential that does not exist: {name}"
        return DescribeUserScramCredentialsResult(name, ErrorCode.RESOURCE_NOT_FOUND, text)
    return DescribeUserScramCredentialsResult(
        name,
        error_message=None,
        credential_infos=[
            CredentialInfo(number, own[mechanism].iterations)
            for number, mechanism in MECHANISMS.items()
            if mechanism in own
        ],
    )
