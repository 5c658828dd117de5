"""ApiVersions: the APIs that this broker supports, and their versions."""

from __future__ import annotations

import re

from aioprod.error_codes import ErrorCode
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from aioprod.testing.broker.handlers.registry import HANDLERS, handles
from aioprod.testing.broker.request_context import RequestContext

_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
_TRANSACTION_FEATURE = "transaction.version"  # 2: KIP-890
_NEWEST_TRANSACTION_VERSION = 2
_GROUP_FEATURE = "group.version"  # 1: KIP-848
_GROUP_VERSION = 1
_SHARE_FEATURE = "share.version"  # 1: KIP-932, 2: KIP-1191
_SHARE_VERSION = 2
_API_OF_FEATURE = {
    _TRANSACTION_FEATURE: ApiKey.END_TXN,
    _GROUP_FEATURE: ApiKey.CONSUMER_GROUP_HEARTBEAT,
    _SHARE_FEATURE: ApiKey.SHARE_GROUP_HEARTBEAT,
}
_ZERO_FROM = 4  # older clients can't decode a feature whose lowest version is 0
# Like Kafka, announce them only if there is a receiver of metrics.
_TELEMETRY = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)
_NAMED_FROM = 3  # in this version and newer ones, clients send their name (KIP-511)


@handles(ApiVersionsRequest)
async def handle(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    """Return all APIs and versions."""
    code = context.failure()
    if context.api_version >= _NAMED_FROM and not (
        _SOFTWARE_NAME.fullmatch(request.client_software_name)
        and _SOFTWARE_NAME.fullmatch(request.client_software_version)
    ):
        code = ErrorCode.INVALID_REQUEST
    if not code:
        code = _check_route(request, context)
    if code:
        return ApiVersionsResponse(error_code=code)
    level = context.store.transactions.version
    hidden = () if context.store.telemetry.is_announced else _TELEMETRY
    imitation, node_id = context.store.cluster.imitation, context.node.node_id
    announced = {
        key: versions
        for key, handler in sorted(HANDLERS.items())
        if key not in hidden
        and (versions := imitation.versions(key, handler.versions, node_id)) is not None
    }
    return ApiVersionsResponse(
        api_keys=[ApiVersion(key, *versions) for key, versions in announced.items()],
        supported_features=[
            SupportedFeatureKey(_GROUP_FEATURE, 0, _GROUP_VERSION),
            SupportedFeatureKey(_SHARE_FEATURE, 0, _SHARE_VERSION),
            SupportedFeatureKey(_TRANSACTION_FEATURE, 0, _NEWEST_TRANSACTION_VERSION),
        ]
        if context.api_version >= _ZERO_FROM
        else [],
        finalized_features_epoch=0,
        finalized_features=[
            FinalizedFeatureKey(name, finalized, finalized)
            for name, finalized in (
                (_GROUP_FEATURE, _GROUP_VERSION),
                (_SHARE_FEATURE, _SHARE_VERSION),
                (_TRANSACTION_FEATURE, level),
            )
            if finalized and _API_OF_FEATURE[name] in announced
        ],
    )


def _check_route(request: ApiVersionsRequest, context: RequestContext) -> ErrorCode:
    """Return an error if the client wanted to reach another cluster or node (KIP-1242)."""
    wanted = request.cluster_id, request.node_id
    if wanted in ((None, -1), (context.store.cluster.cluster_id, context.node.node_id)):
        return ErrorCode.NONE
    if request.cluster_id is None or request.node_id < 0:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.REBOOTSTRAP_REQUIRED


def unsupported_version(versions: tuple[int, int]) -> ApiVersionsResponse:
    """Return the response, in version 0, to an unsupported version of ApiVersions (KIP-511). The
    client retries with a version that the response contains.

    Args:
        versions: the lowest and highest supported version.
    """
    own = ApiVersion(ApiVersionsRequest.API_KEY, *versions)
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])
