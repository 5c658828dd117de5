"""Each error code in each response has an action, and the important ones have that of Kafka's
client.
"""

from __future__ import annotations

import pytest

from aioprod.error_codes import ErrorCode
from aioprod.errors import (
    AbortableTransactionError,
    BrokerError,
    DeliveryTimeoutError,
    FatalProducerError,
    KafkaError,
    ProducerFencedError,
    RecordTooLargeError,
    UnsupportedVersionError,
)
from aioprod.producer.transactions.reply_actions import (
    CoordinatorApi,
    ReplyAction,
    action_of_code,
    action_of_reply,
    batch_failure,
)

E = ErrorCode
V = ReplyAction

# By API the verdicts that differ from the rule "retriable: again; else: fatal". As Kafka 4.1's
# producer has them.
DIFFERENT: dict[CoordinatorApi, dict[ErrorCode, ReplyAction]] = {
    CoordinatorApi.FIND_COORDINATOR: {
        E.GROUP_AUTHORIZATION_FAILED: V.ABORTABLE,
        E.TRANSACTION_ABORTABLE: V.ABORTABLE,
    },
    CoordinatorApi.INIT_PRODUCER_ID: {
        E.NOT_COORDINATOR: V.NEW_COORDINATOR,
        E.COORDINATOR_NOT_AVAILABLE: V.NEW_COORDINATOR,
        E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: V.ABORTABLE,
        E.CLUSTER_AUTHORIZATION_FAILED: V.ABORTABLE,
        E.TRANSACTION_ABORTABLE: V.ABORTABLE,
        E.INVALID_PRODUCER_EPOCH: V.FENCED,
        E.PRODUCER_FENCED: V.FENCED,
    },
    CoordinatorApi.ADD_OFFSETS: {
        E.NOT_COORDINATOR: V.NEW_COORDINATOR,
        E.COORDINATOR_NOT_AVAILABLE: V.NEW_COORDINATOR,
        E.UNKNOWN_PRODUCER_ID: V.ABORTABLE,
        E.GROUP_AUTHORIZATION_FAILED: V.ABORTABLE,
        E.TRANSACTION_ABORTABLE: V.ABORTABLE,
        E.INVALID_PRODUCER_EPOCH: V.FENCED,
        E.PRODUCER_FENCED: V.FENCED,
    },
    CoordinatorApi.COMMIT_OFFSETS: {
        E.NOT_COORDINATOR: V.NEW_COORDINATOR,
        E.COORDINATOR_NOT_AVAILABLE: V.NEW_COORDINATOR,
        E.REQUEST_TIMED_OUT: V.NEW_COORDINATOR,
        E.GROUP_AUTHORIZATION_FAILED: V.ABORTABLE,
        E.TRANSACTION_ABORTABLE: V.ABORTABLE,
        E.FENCED_INSTANCE_ID: V.ABORTABLE,
        E.UNKNOWN_MEMBER_ID: V.ABORTABLE,
        E.ILLEGAL_GENERATION: V.ABORTABLE,
        E.INVALID_PRODUCER_EPOCH: V.FENCED,
        E.PRODUCER_FENCED: V.FENCED,
        # Milder than Java, on purpose.
        E.STALE_MEMBER_EPOCH: V.ABORTABLE,
        E.REBALANCE_IN_PROGRESS: V.ABORTABLE,
        E.TOPIC_AUTHORIZATION_FAILED: V.ABORTABLE,
        E.OFFSET_METADATA_TOO_LARGE: V.ABORTABLE,
        E.INVALID_COMMIT_OFFSET_SIZE: V.ABORTABLE,
        E.INVALID_GROUP_ID: V.ABORTABLE,
    },
    CoordinatorApi.END: {
        E.NOT_COORDINATOR: V.NEW_COORDINATOR,
        E.COORDINATOR_NOT_AVAILABLE: V.NEW_COORDINATOR,
        E.UNKNOWN_PRODUCER_ID: V.ABORTABLE,
        E.TRANSACTION_ABORTABLE: V.ABORTABLE,
        E.INVALID_PRODUCER_EPOCH: V.FENCED,
        E.PRODUCER_FENCED: V.FENCED,
    },
}
ADD_PARTITIONS = {
    E.NOT_COORDINATOR: V.NEW_COORDINATOR,
    E.COORDINATOR_NOT_AVAILABLE: V.NEW_COORDINATOR,
    E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: V.FATAL,
    E.INVALID_TXN_STATE: V.FATAL,
    E.INVALID_PRODUCER_ID_MAPPING: V.FATAL,
    E.INVALID_PRODUCER_EPOCH: V.FENCED,
    E.PRODUCER_FENCED: V.FENCED,
}


def by_rule(other: ReplyAction) -> dict[ErrorCode, ReplyAction]:
    return {code: V.DONE if code == E.NONE else V.RETRY if code.retriable else other for code in E}


@pytest.mark.parametrize("api", DIFFERENT)
def test_every_code_of_every_api(api: CoordinatorApi) -> None:
    assert {code: action_of_code(api, code) for code in E} == {**by_rule(V.FATAL), **DIFFERENT[api]}


def test_what_a_partition_can_not_have_costs_the_transaction_only() -> None:
    assert {code: action_of_code(CoordinatorApi.ADD_PARTITIONS, code) for code in E} == {
        **by_rule(V.ABORTABLE),
        **ADD_PARTITIONS,
    }


def test_no_api_is_left_out() -> None:
    assert {*DIFFERENT, CoordinatorApi.ADD_PARTITIONS} == set(CoordinatorApi)


@pytest.mark.parametrize("number", [-2, 134, 999])
@pytest.mark.parametrize("api", CoordinatorApi)
def test_an_unknown_code_kills_nothing_without_a_log_line(api: CoordinatorApi, number: int) -> None:
    assert action_of_code(api, ErrorCode.of(number)) in (V.FATAL, V.ABORTABLE)


@pytest.mark.parametrize(
    ("codes", "action", "code"),
    [
        ([], V.DONE, E.NONE),
        ([E.NONE, E.NONE], V.DONE, E.NONE),
        ([E.NONE, E.NOT_COORDINATOR], V.NEW_COORDINATOR, E.NOT_COORDINATOR),
        (
            [E.UNKNOWN_TOPIC_OR_PARTITION, E.TOPIC_AUTHORIZATION_FAILED],
            V.ABORTABLE,
            E.TOPIC_AUTHORIZATION_FAILED,
        ),
        ([E.TOPIC_AUTHORIZATION_FAILED, E.PRODUCER_FENCED, E.NONE], V.FENCED, E.PRODUCER_FENCED),
        # A partition that was not attempted says nothing where another has a reason.
        (
            [E.OPERATION_NOT_ATTEMPTED, E.UNKNOWN_TOPIC_OR_PARTITION],
            V.RETRY,
            E.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        ([E.OPERATION_NOT_ATTEMPTED], V.ABORTABLE, E.OPERATION_NOT_ATTEMPTED),
    ],
)
def test_of_several_codes_the_gravest_counts(
    codes: list[ErrorCode], action: ReplyAction, code: ErrorCode
) -> None:
    assert action_of_reply(CoordinatorApi.ADD_PARTITIONS, codes) == (action, code)


FATAL_FOR_A_BATCH = {
    E.CLUSTER_AUTHORIZATION_FAILED,
    E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    E.PRODUCER_FENCED,
    E.UNSUPPORTED_VERSION,
    E.INVALID_PRODUCER_ID_MAPPING,
}


def test_every_failure_of_a_batch() -> None:
    for code in set(E) - {E.NONE}:
        error = BrokerError(code, "3 records to t-0")
        failure = batch_failure("transactional_id='x': t-0", error)
        assert failure.code == code
        assert failure.__cause__ is error
        assert isinstance(failure, FatalProducerError) == (code in FATAL_FOR_A_BATCH)
        assert isinstance(failure, ProducerFencedError) == (code == E.PRODUCER_FENCED)
        assert (
            "close this producer" if code in FATAL_FOR_A_BATCH else "abort_transaction()"
        ) in str(failure)


@pytest.mark.parametrize(
    "error",
    [
        DeliveryTimeoutError("not acknowledged"),
        RecordTooLargeError("too large"),
        KafkaError("what else"),
    ],
)
def test_a_failure_without_a_code_has_to_be_aborted(error: KafkaError) -> None:
    failure = batch_failure("transactional_id='x': t-0", error)
    assert isinstance(failure, AbortableTransactionError)
    assert failure.code == E.TRANSACTION_ABORTABLE
    assert failure.__cause__ is error
    assert str(error) in str(failure)


def test_a_broker_too_old_is_fatal() -> None:
    failure = batch_failure("t-0", UnsupportedVersionError("no version in common"))
    assert isinstance(failure, FatalProducerError)
    assert failure.code == E.UNSUPPORTED_VERSION


def test_a_fatal_error_stays_the_one_it_is() -> None:
    error = ProducerFencedError(E.PRODUCER_FENCED, "gone")
    assert batch_failure("t-0", error) is error
