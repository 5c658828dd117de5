"""Coordinators that move, refuse and fence, against a script: what is tried again, what has to be
aborted, what ends the producer.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable

import pytest

from aioprod.error_codes import ErrorCode
from aioprod.errors import (
    AbortableTransactionError,
    AuthenticationError,
    BrokerError,
    DeliveryTimeoutError,
    FatalProducerError,
    KafkaError,
    ProducerFencedError,
    ProtocolError,
    TransactionAbortedError,
    TransactionStateError,
    UnsupportedVersionError,
)
from aioprod.producer.transactions.manager import TransactionManager
from aioprod.producer.transactions.states import TransactionState
from aioprod.protocol.messages.init_producer_id import InitProducerIdRequest
from aioprod.types import TopicPartition
from tests.producer.transactions.coordinator_script import (
    ADD,
    ADD_OFFSETS,
    END,
    INIT,
    OFFSETS,
    CoordinatorScript,
    FakeSender,
    broken,
)
from tests.waiting import until

S = TransactionState
E = ErrorCode
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
OFFSETS_OF_T = {T0: 5}

Made = Callable[..., tuple[FakeSender, TransactionManager]]
pytest_plugins = ["tests.producer.transactions.coordinator_fixtures"]


# -- coordinators in trouble -----------------------------------------------------------------------


@pytest.mark.parametrize("name", [INIT, ADD, ADD_OFFSETS, OFFSETS, END])
@pytest.mark.parametrize(
    "step",
    [
        E.NOT_COORDINATOR,
        E.COORDINATOR_NOT_AVAILABLE,
        E.COORDINATOR_LOAD_IN_PROGRESS,
        E.CONCURRENT_TRANSACTIONS,
        "broken",
        "garbage",
    ],
)
async def test_what_may_pass_is_tried_again(
    coordinators: CoordinatorScript, made: Made, name: str, step: ErrorCode | str
) -> None:
    trouble = (
        broken()
        if step == "broken"
        else ProtocolError("no such reply")
        if step == "garbage"
        else step
    )
    assert not isinstance(trouble, str)
    coordinators.on(name, trouble, trouble, trouble)
    sender, manager = made(coordinators)
    await manager.begin()
    sender.send(T0)
    await manager.send_offsets(OFFSETS_OF_T, "g")
    await manager.commit()
    assert coordinators.ended == [True]
    if step in (E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE) and name in coordinators.requests:
        assert coordinators.forgotten == ["group g" if name == OFFSETS else "transaction x"] * 3


async def test_trouble_is_logged_once_and_so_is_its_end(
    first: CoordinatorScript, made: Made, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    sender, manager = made(first)
    await manager.begin()
    sender.send(T0)
    first.on(END, *[E.NOT_COORDINATOR] * 4)
    first.on(ADD, *[E.CONCURRENT_TRANSACTIONS] * 4)  # the daily life of the first protocol
    caplog.clear()
    await manager.commit()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "EndTxn failed, retrying: " in caplog.messages[0]
    assert "EndTxn succeeded after 4 failed attempts" in caplog.messages[1]


async def test_repeated_refusals_leave_nothing_to_the_garbage_collector(
    coordinators: CoordinatorScript, made: Made
) -> None:
    _, manager = made(coordinators)
    coordinators.on(INIT, *[E.CONCURRENT_TRANSACTIONS] * 10)
    gc.collect()
    gc.disable()
    try:
        before = _broker_errors()
        await manager.init()
        assert _broker_errors() <= before + 1, "the last one is kept for the text of a timeout"
    finally:
        gc.enable()


def _broker_errors() -> int:
    return sum(isinstance(each, BrokerError) for each in gc.get_objects())


async def test_the_end_of_the_transaction_before_is_not_waited_for_with_long_pauses(
    first: CoordinatorScript, made: Made
) -> None:
    sender, manager = made(first, retry_backoff_ms=60_000, retry_backoff_max_ms=60_000)
    await manager.begin()
    first.on(ADD, *[E.CONCURRENT_TRANSACTIONS] * 5)
    sender.send(T0)
    await manager.commit()
    assert first.requests.count(ADD) == 6


async def test_the_search_for_a_coordinator_may_be_refused(
    coordinators: CoordinatorScript, made: Made
) -> None:
    sender, manager = made(coordinators)
    coordinators.on(INIT, BrokerError(E.COORDINATOR_NOT_AVAILABLE, "no coordinator"))
    await manager.begin()
    coordinators.on(
        OFFSETS, BrokerError(E.GROUP_AUTHORIZATION_FAILED, "no coordinator of group 'g'")
    )
    with pytest.raises(AbortableTransactionError, match="GROUP_AUTHORIZATION_FAILED"):
        await manager.send_offsets(OFFSETS_OF_T, "g")
    await manager.abort()
    await manager.begin()
    coordinators.on(OFFSETS, BrokerError(E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "no coordinator"))
    with pytest.raises(FatalProducerError):
        await manager.send_offsets(OFFSETS_OF_T, "g")
    await until(lambda: bool(sender.fatal))
    assert sender.fatal == [manager.error]


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code", [E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, E.CLUSTER_AUTHORIZATION_FAILED]
)
async def test_a_right_that_comes_later_is_not_too_late(
    coordinators: CoordinatorScript, made: Made, code: ErrorCode
) -> None:
    sender, manager = made(coordinators)
    coordinators.on(INIT, code, code)
    for call in (manager.init, manager.begin):
        with pytest.raises(BrokerError, match=code.name) as caught:
            await call()
        assert not isinstance(caught.value, FatalProducerError)
        assert manager.state is S.UNINITIALIZED
    await manager.begin()
    assert sender.fatal == []


async def test_refused_credentials_are_not_hammered(
    coordinators: CoordinatorScript, made: Made
) -> None:
    _, manager = made(coordinators)
    coordinators.on(INIT, AuthenticationError("the broker refuses user 'u'"))
    with pytest.raises(AuthenticationError):
        await manager.init()
    assert coordinators.requests == [INIT]
    assert manager.state is S.UNINITIALIZED


@pytest.mark.parametrize(
    "code",
    [
        E.INVALID_TRANSACTION_TIMEOUT,
        E.UNSUPPORTED_VERSION,
        E.INVALID_REQUEST,
        E.UNKNOWN_SERVER_ERROR,
    ],
)
async def test_init_refused_permanently(
    coordinators: CoordinatorScript, made: Made, code: ErrorCode
) -> None:
    sender, manager = made(coordinators)
    coordinators.on(INIT, code)
    with pytest.raises(FatalProducerError, match="close this producer") as caught:
        await manager.init()
    assert caught.value.code == code
    assert ("transaction.max.timeout.ms" in str(caught.value)) == (
        code == E.INVALID_TRANSACTION_TIMEOUT
    )
    await until(lambda: bool(sender.fatal))
    for call in (manager.init, manager.begin, manager.commit, manager.abort):
        with pytest.raises(FatalProducerError):
            await call()
    assert sender.fatal == [caught.value]


async def test_a_broker_without_transactions(coordinators: CoordinatorScript, made: Made) -> None:
    _, manager = made(coordinators)
    coordinators.on(
        INIT, UnsupportedVersionError("127.0.0.1:1 supports InitProducerIdRequest versions 0 to -1")
    )
    with pytest.raises(FatalProducerError, match="versions 0 to -1"):
        await manager.init()


@pytest.mark.parametrize("name", [ADD, ADD_OFFSETS, OFFSETS, END])
@pytest.mark.parametrize("code", [E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH])
async def test_fenced(first: CoordinatorScript, made: Made, name: str, code: ErrorCode) -> None:
    sender, manager = made(first)
    await manager.begin()
    first.on(name, code)
    sender.send(T0)
    with pytest.raises(
        ProducerFencedError, match=r"another producer.*transaction_timeout_ms=60000"
    ):
        await manager.send_offsets(OFFSETS_OF_T, "g")
        await manager.commit()
    await until(lambda: bool(sender.fatal))
    assert manager.state is S.FATAL_ERROR
    assert not manager.may_send(T0)
    with pytest.raises(ProducerFencedError):
        manager.check_may_send()
    with pytest.raises(ProducerFencedError):
        await manager.abort()


@pytest.mark.parametrize(
    "code",
    [
        E.TOPIC_AUTHORIZATION_FAILED,
        E.OPERATION_NOT_ATTEMPTED,
        E.TRANSACTION_ABORTABLE,
        E.UNKNOWN_SERVER_ERROR,
    ],
)
async def test_a_partition_that_can_not_be_added(
    first: CoordinatorScript, made: Made, code: ErrorCode
) -> None:
    sender, manager = made(first)
    await manager.begin()
    first.on(ADD, code)
    sender.send(T0)
    with pytest.raises(AbortableTransactionError, match=r"call abort_transaction\(\)") as caught:
        await manager.commit()
    assert caught.value.code == code
    assert manager.state is S.ABORTABLE_ERROR
    await until(lambda: bool(sender.dropped))
    assert sender.dropped == [caught.value], "records that wait for their partition fail at once"
    for call in (manager.begin, manager.commit, lambda: manager.send_offsets(OFFSETS_OF_T, "g")):
        with pytest.raises(AbortableTransactionError):
            await call()
    await manager.abort()
    await manager.begin()
    sender.send(T0)
    await manager.commit()
    assert first.ended[-1] is True


async def test_an_abort_after_nothing_was_added_needs_no_request(
    first: CoordinatorScript, made: Made
) -> None:
    sender, manager = made(first)
    await manager.begin()
    sender.send(T0)
    await manager.abort()  # before the task that adds has had a turn
    assert first.requests == [INIT]
    assert [type(error) for error in sender.dropped] == [TransactionAbortedError]


async def test_an_abort_after_a_lost_answer_asks_whether_it_began(
    first: CoordinatorScript, made: Made
) -> None:
    sender, manager = made(first, retry_backoff_ms=1_000, retry_backoff_max_ms=1_000)
    await manager.begin()
    first.on(ADD, broken())
    sender.send(T0)
    await until(lambda: ADD in first.requests)
    first.on(END, E.INVALID_TXN_STATE)  # it did not
    await manager.abort()
    await until(lambda: manager.state is S.READY)
    assert first.requests == [INIT, ADD, END, ADD, INIT], (
        "a new epoch keeps off a late copy of what had no answer"
    )


async def test_invalid_state_is_fatal_where_the_transaction_had_begun(
    first: CoordinatorScript, made: Made
) -> None:
    sender, manager = made(first)
    await manager.begin()
    sender.send(T0)
    await until(lambda: manager.may_send(T0))
    first.on(END, E.INVALID_TXN_STATE)
    with pytest.raises(FatalProducerError, match="INVALID_TXN_STATE"):
        await manager.abort()


@pytest.mark.parametrize(
    "code",
    [
        E.FENCED_INSTANCE_ID,
        E.UNKNOWN_MEMBER_ID,
        E.ILLEGAL_GENERATION,
        E.TRANSACTION_ABORTABLE,
        E.GROUP_AUTHORIZATION_FAILED,
    ],
)
async def test_offsets_of_a_member_that_was_replaced(
    coordinators: CoordinatorScript, made: Made, code: ErrorCode
) -> None:
    _, manager = made(coordinators)
    await manager.begin()
    coordinators.on(OFFSETS, code)
    with pytest.raises(AbortableTransactionError, match="TxnOffsetCommit of group 'g'"):
        await manager.send_offsets(OFFSETS_OF_T, "g")
    with pytest.raises(AbortableTransactionError):
        await manager.commit()
    await manager.abort()
    assert coordinators.ended == [False]


async def test_an_abort_that_shall_be_aborted_is_fatal(
    coordinators: CoordinatorScript, made: Made
) -> None:
    """KAFKA-19250: else the application would abort forever."""
    sender, manager = made(coordinators)
    await manager.begin()
    sender.send(T0)
    await until(lambda: manager.may_send(T0))
    sender.look()
    coordinators.on(END, E.TRANSACTION_ABORTABLE)
    with pytest.raises(
        FatalProducerError, match=r"the abort failed, close this producer.*TRANSACTION_ABORTABLE"
    ):
        await manager.abort()
    with pytest.raises(FatalProducerError):
        await manager.abort()
    assert coordinators.requests.count(END) == 1


async def test_a_transaction_that_the_coordinator_has_aborted_by_itself(
    second: CoordinatorScript, made: Made
) -> None:
    sender, manager = made(second)
    await manager.begin()
    sender.send(T0)
    second.on(END, E.INVALID_TXN_STATE)
    with pytest.raises(AbortableTransactionError, match="longer than transaction_timeout_ms=60000"):
        await manager.commit()
    await manager.abort()
    await manager.begin()
    assert sender.producer.identity == (1000, 1)


async def test_a_commit_that_shall_be_aborted(coordinators: CoordinatorScript, made: Made) -> None:
    sender, manager = made(coordinators)
    await manager.begin()
    sender.send(T0)
    coordinators.on(END, E.TRANSACTION_ABORTABLE)
    with pytest.raises(AbortableTransactionError):
        await manager.commit()
    assert manager.in_transaction
    await manager.abort()
    assert coordinators.ended == [False]


@pytest.mark.parametrize("end", [TransactionManager.commit, TransactionManager.abort])
async def test_a_producer_that_the_coordinator_has_forgotten_gets_a_new_epoch(
    coordinators: CoordinatorScript,
    made: Made,
    end: Callable[[TransactionManager], Awaitable[None]],
) -> None:
    """KIP-360."""
    sender, manager = made(coordinators)
    await manager.begin()
    sender.send(T0)
    await until(lambda: manager.may_send(T0))
    sender.look()
    coordinators.on(END, E.UNKNOWN_PRODUCER_ID)
    if end is TransactionManager.commit:
        with pytest.raises(AbortableTransactionError):
            await end(manager)
        coordinators.on(END, E.UNKNOWN_PRODUCER_ID)
    before = sender.producer.identity
    await manager.abort()
    await manager.begin()
    assert sender.producer.identity == (1000, 1)
    asked = coordinators.messages[-1]
    assert isinstance(asked, InitProducerIdRequest)
    assert (asked.producer_id, asked.producer_epoch) == before == (1000, 0)


async def test_a_fault_of_ours_hangs_no_caller(coordinators: CoordinatorScript, made: Made) -> None:
    def fault() -> None:
        raise ZeroDivisionError("a fault")

    sender, manager = made(coordinators)
    await manager.begin()
    sender.send(T0)
    coordinators.on(END, fault)
    with pytest.raises(KafkaError, match="a fault"):
        await manager.commit()
    assert manager.state is S.FATAL_ERROR


@pytest.mark.parametrize("name", [ADD, OFFSETS])
@pytest.mark.parametrize("answer", [E.NONE, E.COORDINATOR_LOAD_IN_PROGRESS])
async def test_an_abort_waits_for_the_request_on_its_way_but_not_for_its_repetition(
    first: CoordinatorScript, made: Made, name: str, answer: ErrorCode
) -> None:
    """Else it could arrive after the end, and open a transaction that no producer ends."""
    sender, manager = made(first)
    await manager.begin()
    gate = asyncio.Event()
    first.on(name, gate, *[E.COORDINATOR_LOAD_IN_PROGRESS] * 1_000)
    first.answers[name] = answer
    sender.send(T0)
    offsets = asyncio.create_task(manager.send_offsets(OFFSETS_OF_T, "g"))
    await until(lambda: name in first.requests)
    abort = asyncio.create_task(manager.abort())
    for _ in range(20):
        await asyncio.sleep(0)
    assert END not in first.requests
    gate.set()
    await abort
    assert first.requests.count(name) == 1
    assert first.requests[-1] == END
    await asyncio.wait([offsets])


async def test_errors_of_an_aborted_transaction_are_forgotten(
    coordinators: CoordinatorScript, made: Made
) -> None:
    _, manager = made(coordinators)
    await manager.begin()
    manager.record_refused(T0, DeliveryTimeoutError("late"))
    await manager.abort()
    assert manager.error is None
    with pytest.raises(TransactionStateError):
        await manager.commit()


async def test_a_new_epoch_is_asked_for_before_anybody_waits_for_it(
    first: CoordinatorScript, made: Made
) -> None:
    sender, manager = made(first)
    await manager.begin()
    sender.producer.bump()
    await manager.commit()
    await until(lambda: manager.state is S.READY)
    assert sender.producer.identity == (1000, 1)


async def test_offsets_that_were_killed_are_not_passed_by(
    coordinators: CoordinatorScript, made: Made
) -> None:
    _, manager = made(coordinators)
    await manager.begin()
    coordinators.on(OFFSETS, asyncio.Event())
    offsets = asyncio.create_task(manager.send_offsets(OFFSETS_OF_T, "g"))
    await until(lambda: OFFSETS in coordinators.requests)
    commit = asyncio.create_task(manager.commit())
    await until(lambda: manager.state is S.COMMITTING)
    [killed] = [
        task
        for task in asyncio.all_tasks()
        if task.get_name() == "aioprod-send_offsets_to_transaction"
    ]
    killed.cancel()
    for waiter in (offsets, commit):
        with pytest.raises(AbortableTransactionError, match="cancelled from outside"):
            await waiter


async def test_partitions_whose_task_was_killed_are_added_all_the_same(
    first: CoordinatorScript, made: Made
) -> None:
    sender, manager = made(first)
    await manager.begin()
    first.on(ADD, asyncio.Event())
    sender.send(T0)
    commit = asyncio.create_task(manager.commit())
    await until(lambda: ADD in first.requests)
    [killed] = [task for task in asyncio.all_tasks() if task.get_name() == "aioprod-add-partitions"]
    killed.cancel()
    await commit
    assert sender.written == [T0]
