"""The version of ApiVersions that is sent to each broker.

A broker that does not support a version of ApiVersions responds with UNSUPPORTED_VERSION (KIP-511).
Some services close the connection instead: Azure Event Hubs for version 4 and newer, others for the
fields that version 5 has for the cluster and node id. Others may drop the request without a
response. The client then connects again for each of the older versions below, and remembers for
some time which one the address accepted.
"""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.errors import (
    BrokerConnectionError,
    BrokerError,
    KafkaError,
    ProtocolError,
    RequestTimedOutError,
)
from aioprod.logs import Logger, get_logger
from aioprod.net.failures import address_of
from aioprod.protocol.frame_reader import FrameSizeError
from aioprod.protocol.messages.api_versions import ApiVersionsRequest

log: Logger = get_logger(__name__)

#: The versions to try: the newest; the last one before the fields for the cluster and node id,
#: which has the client's name (KIP-511); the first one, which has no fields.
STEPS = (ApiVersionsRequest.MAX_VERSION, 3, 0)
#: The first version with the cluster and node that the client expects (KIP-1242).
ROUTED_FROM = 5
#: The first version whose response contains the features of the cluster, such as the version of its
#: transaction protocol.
FEATURES_FROM = 3
#: Seconds for which an older version is remembered.
REMEMBERED_S = 600.0
#: The same, if the broker announces the version for which it closed the connection: perhaps it only
#: restarted, so its features should be used again soon.
DOUBTED_S = 60.0
_MOST_REMEMBERED = 1_000
# Errors if a service can't decode a request.
_UNREADABLE = (
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)


class AcceptedVersions:
    """The addresses that only accept an older version of ApiVersions, with that version."""

    def __init__(self) -> None:
        self._older: dict[tuple[str, int], tuple[int, float]] = {}

    def first(self, host: str, port: int, now: float) -> int:
        """Return the version to begin with."""
        version, until = self._older.get((host, port), (STEPS[0], now))
        return version if now < until else STEPS[0]

    def note(
        self, host: str, port: int, version: int, announced: tuple[int, int], now: float
    ) -> None:
        """Record that a broker has responded to this version.

        Args:
            announced: the versions of ApiVersions in the response.
        """
        known = self._older.get((host, port))
        if version == STEPS[0]:
            self._older.pop((host, port), None)
        elif known is None or known[0] != version or known[1] <= now:
            self._forget(now)
            refused = min(step for step in STEPS if step > version)
            remembered_s = DOUBTED_S if refused <= announced[1] else REMEMBERED_S
            self._older[host, port] = version, now + remembered_s
            log.info(
                "%s does not respond to ApiVersions version %d; using version %d for %.0f s",
                address_of(host, port),
                refused,
                version,
                remembered_s,
            )

    def _forget(self, now: float) -> None:
        kept = [(address, each) for address, each in self._older.items() if now < each[1]]
        self._older = dict(kept[-_MOST_REMEMBERED + 1 :])


def older(version: int, error: KafkaError) -> int | None:
    """Return the version to try on a new connection after this error, or None."""
    if isinstance(error, BrokerConnectionError):
        unreadable = error.was_open
    elif isinstance(error, BrokerError):
        unreadable = error.code in _UNREADABLE
    elif isinstance(error, RequestTimedOutError):
        unreadable = True
    else:
        # Servers other than Kafka brokers also send sizes out of range.
        unreadable = isinstance(error, ProtocolError) and not isinstance(
            error.__cause__, FrameSizeError
        )
    return next((each for each in STEPS if each < version), None) if unreadable else None


def response_timeout_ms(version: int, remaining_ms: float) -> float:
    """Return how long to wait for the response in this version: half of the remaining time, and
    all of it in the oldest version.
    """
    return remaining_ms if version == STEPS[-1] else remaining_ms / 2
