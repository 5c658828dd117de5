"""The version in which each broker is asked for its versions (ApiVersions).

A broker that does not know a version of ApiVersions answers UNSUPPORTED_VERSION (KIP-511). Some
services end the connection instead: Azure Event Hubs at version 4 and newer, others at the fields
that version 5 has for the cluster and node id. The client then connects once more for each older
step, and remembers for a while which one the address accepted.
"""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerConnectionError, BrokerError, KafkaError, ProtocolError
from aioprod.logs import get_logger
from aioprod.net.failures import address_of
from aioprod.protocol.frame_reader import FrameSizeError
from aioprod.protocol.messages.api_versions import ApiVersionsRequest

log = get_logger(__name__)

#: The steps: the newest; the last before features with level 0 and ids, with the client's name
#: (KIP-511); the first, which has no fields.
STEPS = (ApiVersionsRequest.MAX_VERSION, 3, 0)
#: The first version that names the cluster and node that the client expects (KIP-1242).
ROUTED_FROM = 5
#: The first version whose answer has the features of the cluster, such as its protocol of
#: transactions.
FEATURES_FROM = 3
#: Seconds for which an older version is remembered.
REMEMBERED_S = 600.0
#: The same for a broker that announces the version at which it ended the connection: perhaps it
#: only restarted, and must not lose features for longer.
DOUBTED_S = 60.0
_MOST_REMEMBERED = 1_000
# How services answer a request that they can't read.
_UNREADABLE = (
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)


class AcceptedVersions:
    """The addresses that accept only an older version of ApiVersions, each with that version."""

    def __init__(self) -> None:
        self._older: dict[tuple[str, int], tuple[int, float]] = {}

    def first(self, host: str, port: int, now: float) -> int:
        """Return the version to begin with."""
        version, until = self._older.get((host, port), (STEPS[0], now))
        return version if now < until else STEPS[0]

    def note(
        self, host: str, port: int, version: int, announced: tuple[int, int], now: float
    ) -> None:
        """Note that a broker has answered a request that began with this version.

        Args:
            announced: the versions of ApiVersions that the answer names.
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
                "%s does not answer ApiVersions %d: asking in version %d for %.0f s",
                address_of(host, port),
                refused,
                version,
                remembered_s,
            )

    def _forget(self, now: float) -> None:
        kept = [(address, each) for address, each in self._older.items() if now < each[1]]
        self._older = dict(kept[-_MOST_REMEMBERED + 1 :])


def older(version: int, error: KafkaError) -> int | None:
    """Return the version to try on another connection after this error, if any."""
    if isinstance(error, BrokerConnectionError):
        unreadable = error.was_open
    elif isinstance(error, BrokerError):
        unreadable = error.code in _UNREADABLE
    else:
        # A server that is not Kafka also sends sizes out of range.
        unreadable = isinstance(error, ProtocolError) and not isinstance(
            error.__cause__, FrameSizeError
        )
    return next((each for each in STEPS if each < version), None) if unreadable else None
