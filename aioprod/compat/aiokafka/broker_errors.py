"""The exceptions of ``aiokafka.errors`` that have an error code in the protocol."""

from __future__ import annotations

from typing import Any as _Any

from aioprod.error_codes import ErrorCode as _ErrorCode
from aioprod.errors import restored as _restored


class KafkaError(RuntimeError):
    """Base class of the errors, except ConsumerStoppedError and IllegalOperation.

    Attributes:
        retriable: whether another attempt may succeed.
        invalid_metadata: whether the client's metadata is out of date.
    """

    retriable = False
    invalid_metadata = False

    def __str__(self) -> str:
        name = type(self).__name__
        return f"{name}: {super().__str__()}" if self.args else name

    def __reduce__(self) -> tuple[_Any, ...]:
        # The constructor of some adds its text to the arguments.
        return _restored, (type(self), self.args), self.__dict__


class BrokerResponseError(KafkaError):
    """A broker responded with an error code.

    Attributes:
        errno: the code.
        message: its name in the protocol.
        description: its meaning.
    """

    retriable: bool
    invalid_metadata: bool

    errno: int | None = None
    message: str | None = None
    description: str = ""

    def __init_subclass__(
        cls,
        *,
        errno: int | None = None,
        message: str | None = None,
        retriable: bool = False,
        invalid_metadata: bool = False,
    ) -> None:
        if errno is None:  # a subclass that a program defines
            return
        code = _ErrorCode(errno)
        cls.errno, cls.message = errno, message or code.name
        cls.description = code.description
        cls.retriable, cls.invalid_metadata = retriable, invalid_metadata

    def __str__(self) -> str:
        return f"[Error {self.errno}] {super().__str__()}"


class NoError(BrokerResponseError, errno=0, message="NO_ERROR"):
    pass


class UnknownError(BrokerResponseError, errno=-1, message="UNKNOWN"):
    pass


class OffsetOutOfRangeError(BrokerResponseError, errno=1):
    pass


class CorruptRecordException(BrokerResponseError, errno=2):
    pass


class UnknownTopicOrPartitionError(
    BrokerResponseError, errno=3, retriable=True, invalid_metadata=True
):
    pass


class InvalidFetchRequestError(BrokerResponseError, errno=4):
    pass


class LeaderNotAvailableError(BrokerResponseError, errno=5, retriable=True, invalid_metadata=True):
    pass


class NotLeaderForPartitionError(
    BrokerResponseError,
    errno=6,
    message="NOT_LEADER_FOR_PARTITION",
    retriable=True,
    invalid_metadata=True,
):
    pass


class RequestTimedOutError(BrokerResponseError, errno=7, retriable=True):
    pass


class BrokerNotAvailableError(BrokerResponseError, errno=8):
    pass


class ReplicaNotAvailableError(BrokerResponseError, errno=9):
    pass


class MessageSizeTooLargeError(BrokerResponseError, errno=10, message="MESSAGE_SIZE_TOO_LARGE"):
    pass


class StaleControllerEpochError(BrokerResponseError, errno=11):
    pass


class OffsetMetadataTooLargeError(BrokerResponseError, errno=12):
    pass


class StaleLeaderEpochCodeError(BrokerResponseError, errno=13, message="STALE_LEADER_EPOCH_CODE"):
    pass


class GroupLoadInProgressError(BrokerResponseError, errno=14, retriable=True):
    pass


class GroupCoordinatorNotAvailableError(BrokerResponseError, errno=15, retriable=True):
    pass


class NotCoordinatorForGroupError(BrokerResponseError, errno=16, retriable=True):
    pass


class InvalidTopicError(BrokerResponseError, errno=17, message="INVALID_TOPIC"):
    pass


class RecordListTooLargeError(BrokerResponseError, errno=18):
    pass


class NotEnoughReplicasError(BrokerResponseError, errno=19, retriable=True):
    pass


class NotEnoughReplicasAfterAppendError(BrokerResponseError, errno=20, retriable=True):
    pass


class InvalidRequiredAcksError(BrokerResponseError, errno=21):
    pass


class IllegalGenerationError(BrokerResponseError, errno=22):
    pass


class InconsistentGroupProtocolError(BrokerResponseError, errno=23):
    pass


class InvalidGroupIdError(BrokerResponseError, errno=24):
    pass


class UnknownMemberIdError(BrokerResponseError, errno=25):
    pass


class InvalidSessionTimeoutError(BrokerResponseError, errno=26):
    pass


class RebalanceInProgressError(BrokerResponseError, errno=27):
    pass


class InvalidCommitOffsetSizeError(BrokerResponseError, errno=28):
    pass


class TopicAuthorizationFailedError(BrokerResponseError, errno=29):
    pass


class GroupAuthorizationFailedError(BrokerResponseError, errno=30):
    pass


class ClusterAuthorizationFailedError(BrokerResponseError, errno=31):
    pass


class InvalidTimestampError(BrokerResponseError, errno=32):
    pass


class UnsupportedSaslMechanismError(BrokerResponseError, errno=33):
    pass


class IllegalSaslStateError(BrokerResponseError, errno=34):
    pass


class UnsupportedVersionError(BrokerResponseError, errno=35):
    pass


class TopicAlreadyExistsError(BrokerResponseError, errno=36):
    pass


class InvalidPartitionsError(BrokerResponseError, errno=37):
    pass


class InvalidReplicationFactorError(BrokerResponseError, errno=38):
    pass


class InvalidReplicationAssignmentError(
    BrokerResponseError, errno=39, message="INVALID_REPLICATION_ASSIGNMENT"
):
    pass


class InvalidConfigurationError(BrokerResponseError, errno=40):
    pass


class NotControllerError(BrokerResponseError, errno=41, retriable=True):
    pass


class InvalidRequestError(BrokerResponseError, errno=42):
    pass


class UnsupportedForMessageFormatError(BrokerResponseError, errno=43):
    pass


class PolicyViolationError(BrokerResponseError, errno=44):
    pass


class OutOfOrderSequenceNumber(BrokerResponseError, errno=45):
    pass


class DuplicateSequenceNumber(BrokerResponseError, errno=46):
    pass


class InvalidProducerEpoch(BrokerResponseError, errno=47):
    pass


class InvalidTxnState(BrokerResponseError, errno=48):
    pass


class InvalidProducerIdMapping(BrokerResponseError, errno=49):
    pass


class InvalidTransactionTimeout(BrokerResponseError, errno=50):
    pass


class ConcurrentTransactions(BrokerResponseError, errno=51):
    pass


class TransactionCoordinatorFenced(BrokerResponseError, errno=52):
    pass


class TransactionalIdAuthorizationFailed(BrokerResponseError, errno=53):
    pass


class SecurityDisabled(BrokerResponseError, errno=54):
    pass


class OperationNotAttempted(BrokerResponseError, errno=55):
    pass


class KafkaStorageError(BrokerResponseError, errno=56, retriable=True, invalid_metadata=True):
    pass


class LogDirNotFound(BrokerResponseError, errno=57):
    pass


class SaslAuthenticationFailed(BrokerResponseError, errno=58):
    pass


class UnknownProducerId(BrokerResponseError, errno=59):
    pass


class ReassignmentInProgress(BrokerResponseError, errno=60):
    pass


class DelegationTokenAuthDisabled(BrokerResponseError, errno=61):
    pass


class DelegationTokenNotFound(BrokerResponseError, errno=62):
    pass


class DelegationTokenOwnerMismatch(BrokerResponseError, errno=63):
    pass


class DelegationTokenRequestNotAllowed(BrokerResponseError, errno=64):
    pass


class DelegationTokenAuthorizationFailed(BrokerResponseError, errno=65):
    pass


class DelegationTokenExpired(BrokerResponseError, errno=66):
    pass


class InvalidPrincipalType(BrokerResponseError, errno=67):
    pass


class NonEmptyGroup(BrokerResponseError, errno=68):
    pass


class GroupIdNotFound(BrokerResponseError, errno=69):
    pass


class FetchSessionIdNotFound(BrokerResponseError, errno=70):
    pass


class InvalidFetchSessionEpoch(BrokerResponseError, errno=71):
    pass


class ListenerNotFound(BrokerResponseError, errno=72):
    pass


class MemberIdRequired(BrokerResponseError, errno=79):
    pass


InvalidMessageError = CorruptRecordException
CoordinatorLoadInProgressError = GroupLoadInProgressError
CoordinatorNotAvailableError = GroupCoordinatorNotAvailableError
NotCoordinatorError = NotCoordinatorForGroupError
kafka_errors: dict[int, type[BrokerResponseError]] = {
    kind.errno: kind for kind in BrokerResponseError.__subclasses__() if kind.errno is not None
}


def for_code(error_code: int) -> type[BrokerResponseError]:
    """Return the exception of an error code; UnknownError if there is none."""
    return kafka_errors.get(error_code, UnknownError)
