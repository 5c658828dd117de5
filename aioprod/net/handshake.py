"""What is said first on a new connection: which versions of which requests the broker has (ApiVersions)."""

from __future__ import annotations

from aioprod.config import ClientConfig
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError
from aioprod.net.connection import Connection
from aioprod.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse


async def connect(host: str, port: int, config: ClientConfig) -> Connection:
    """Open a connection that is ready for requests.

    Raises:
        BrokerConnectionError, RequestTimedOutError: no connection, or no answer.
        BrokerError: the broker refused.
    """
    connection = await Connection.open(
        host,
        port,
        client_id=config.client_id,
        request_timeout_ms=config.request_timeout_ms,
        setup_timeout_ms=config.socket_connection_setup_timeout_ms,
    )
    try:
        connection.versions = await _ask_versions(connection, config.socket_connection_setup_timeout_ms)
    except BaseException:
        await connection.close()
        raise
    return connection


async def _ask_versions(connection: Connection, timeout_ms: int) -> dict[int, tuple[int, int]]:
    reply = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    # A broker that does not know the newest version answers in version 0; 3 is the first that carries our name.
    for version in (ApiVersionsRequest.MAX_VERSION, 0):
        request = ApiVersionsRequest(client_software_name="aioprod", client_software_version="0.1.0")
        reply = await connection.request(request, version=version, timeout_ms=timeout_ms)
        if reply.error_code != ErrorCode.UNSUPPORTED_VERSION:
            break
    if reply.error_code:
        raise BrokerError(ErrorCode.of(reply.error_code), f"{connection.address}: ApiVersions")
    return {api.api_key: (api.min_version, api.max_version) for api in reply.api_keys}
