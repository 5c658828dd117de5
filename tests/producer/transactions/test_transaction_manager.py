"""The manager against scripted coordinators: what is asked of them, what state follows, what callers get."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from coordinator_script import ADD, ADD_OFFSETS, END, INIT, OFFSETS, CoordinatorScript, FakeSender, broken

from aioprod.error_codes import ErrorCode
from aioprod.errors import (
    AbortableTransactionError,
    AuthenticationError,
    BrokerError,
    DeliveryTimeoutError,
    FatalProducerError,
    KafkaError,
    KafkaTimeoutError,
    ProducerClosedError,
    ProducerFencedError,
    ProtocolError,
    SerializationError,
    TransactionAbortedError,
    TransactionStateError,
    UnsupportedVersionError,
)
from aioprod.producer.transactions import TransactionManager, TransactionState
from aioprod.protocol.messages.end_txn import EndTxnRequest
from aioprod.protocol.messages.init_producer_id import InitProducerIdRequest
from aioprod.types import ConsumerGroupMetadata, TopicPartition

S = TransactionState
E = ErrorCode
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
OFFSETS_OF_T = {T0: 5}


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def coordinators(request: pytest.FixtureRequest) -> CoordinatorScript:
    """Coordinators of the first protocol, then of the second."""
    return CoordinatorScript(level=request.param)


@pytest.fixture
def first() -> CoordinatorScript:
    return CoordinatorScript(level=1)


@pytest.fixture
def second() -> CoordinatorScript:
    return CoordinatorScript(level=2)


@pytest.fixture
async def closing() -> AsyncIterator[list[TransactionManager]]:
    """Managers to close at the end; nothing of theirs may be left then (see conftest)."""
    managers: list[TransactionManager] = []
    yield managers
    for manager in managers:
        await manager.close()


@pytest.fixture
def made(closing: list[TransactionManager]) -> Callable[..., tuple[FakeSender, TransactionManager]]:
    def make(coordinators: CoordinatorScript, **settings: object) -> tuple[FakeSender, TransactionManager]:
        sender = FakeSender(coordinators, **settings)
        closing.append(sender.manager)
        return sender, sender.manager

    return make


Made = Callable[..., tuple[FakeSender, TransactionManager]]


async def until(condition: Callable[[], bool]) -> None:
    """Give the others turns until it holds."""
    async with asyncio.timeout(2):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


# -- the straight way ----------------------------------------------------------------------------------------------------


async def test_a_transaction_of_the_first_protocol(first: CoordinatorScript, made: Made) -> None:
    sender, manager = made(first)
    await manager.init()
    assert sender.producer.identity == (1000, 0)
    await manager.begin()
    assert first.requests == [INIT], "begin() needs no request of its own"
    sender.send(T0, T1)
    assert not manager.may_send(T0), "not before the coordinator has the partition"
    await manager.send_offsets(OFFSETS_OF_T, "g")
    await manager.commit()
    assert manager.state is S.READY
    assert sorted(first.requests) == sorted([INIT, ADD, ADD_OFFSETS, OFFSETS, END])
    assert first.ended == [True]
    assert sorted(sender.written) == [T0, T1]
    assert sender.producer.identity == (1000, 0), "the epoch stays"
    assert dict(first.versions)[END] == 4
    assert dict(first.versions)[OFFSETS] == 4


async def test_a_transaction_of_the_second_protocol(second: CoordinatorScript, made: Made) -> None:
    sender, manager = made(second)
    await manager.begin()
    assert manager.produce_adds_partitions
    sender.send(T0, T1)
    assert manager.may_send(T0)
    await manager.send_offsets(OFFSETS_OF_T, "g")
    await manager.commit()
    assert second.requests == [INIT, OFFSETS, END]
    assert dict(second.versions) == {INIT: 5, OFFSETS: 5, END: 5}
    assert sender.producer.identity == (1000, 1), "the answer to EndTxn brings the next epoch"
    await manager.begin()
    sender.send(T0)
    await manager.commit()
    assert sender.producer.identity == (1000, 2)


async def test_abort(coordinators: CoordinatorScript, made: Made) -> None:
    sender, manager = made(coordinators)
    await manager.begin()
    sender.send(T0)
    await until(lambda: manager.may_send(T0))
    sender.look()
    sender.send(T1)
    await manager.abort()
    assert coordinators.ended == [False]
    assert sender.written == [T0]
    assert [type(error) for error in sender.dropped] == [TransactionAbortedError]
    assert manager.state is S.READY
    await manager.begin()


@pytest.mark.parametrize("end", [TransactionManager.commit, TransactionManager.abort])
async def test_an_empty_transaction_needs_no_request(
    coordinators: CoordinatorScript, made: Made, end: Callable[[TransactionManager], Awaitable[None]]
) -> None:
    _, manager = made(coordinators)
    await manager.begin()
    await manager.send_offsets({}, "g")
    await end(manager)
    assert coordinators.requests == [INIT]
    assert manager.state is S.READY


async def test_partitions_opened_while_a_request_is_under_way_go_into_the_next(first: CoordinatorScript, made: Made) -> None:
    sender, manager = made(first)
    await manager.begin()
    gate = asyncio.Event()
    first.on(ADD, gate)
    sender.send(T0, T1)
    await until(lambda: ADD in first.requests)
    sender.send(T2)
    gate.set()
    await manager.commit()
    added = [[n for topic in m.v3_and_below_topics for n in topic.partitions] for m in first.messages if hasattr(m, "v3_and_below_topics")]
    assert added == [[0, 1], [2]]
    assert sorted(sender.written) == [T0, T1, T2]


async def test_a_partition_is_added_once_per_transaction(first: CoordinatorScript, made: Made) -> None:
    sender, manager = made(first)
    for _ in range(2):
        await manager.begin()
        for _ in range(3):
            sender.send(T0)
            await until(lambda: manager.may_send(T0))
            sender.look()
        await manager.commit()
    assert first.requests.count(ADD) == 2


async def test_the_members_of_a_group_are_told(coordinators: CoordinatorScript, made: Made) -> None:
    _, manager = made(coordinators)
    await manager.begin()
    await manager.send_offsets(OFFSETS_OF_T, ConsumerGroupMetadata("g", 3, "m"))
    told = coordinators.messages[-1]
    assert (told.generation_id, told.member_id) == (3, "m")  # type: ignore[attr-defined]
    assert coordinators.keys[-1][1] == "g"
    await manager.commit()
    assert coordinators.ended == [True]


async def test_wrong_arguments_leave_the_transaction_as_it_is(coordinators: CoordinatorScript, made: Made) -> None:
    _, manager = made(coordinators)
    await manager.begin()
    with pytest.raises(SerializationError, match="offset -5"):
        await manager.send_offsets({T0: -5}, "g")
    assert manager.state is S.IN_TRANSACTION


# -- calls out of place --------------------------------------------------------------------------------------------------


async def test_calls_without_a_transaction_name_the_state_and_the_right_call(coordinators: CoordinatorScript, made: Made) -> None:
    _, manager = made(coordinators)
    for state in ("uninitialized", "ready"):
        for call, name in (
            (manager.commit, "commit_transaction"),
            (manager.abort, "abort_transaction"),
            (lambda: manager.send_offsets({}, "g"), "send_offsets_to_transaction"),
        ):
            with pytest.raises(TransactionStateError, match=rf"{name}\(\) in state '{state}'.*begin_transaction\(\) first"):
                await call()
        with pytest.raises(TransactionStateError, match=rf"send\(\) in state '{state}'.*begin_transaction\(\) first"):
            manager.check_may_send()
        assert not manager.may_append
        await manager.init()


async def test_calls_inside_a_transaction(coordinators: CoordinatorScript, made: Made) -> None:
    _, manager = made(coordinators)
    await manager.begin()
    assert manager.may_append
    manager.check_may_send()
    for call in (manager.begin, manager.init):
        with pytest.raises(TransactionStateError, match=r"in state 'in transaction'.*commit_transaction\(\) or abort_transaction\(\)"):
            await call()
    await manager.commit()
    with pytest.raises(TransactionStateError, match=r"begin_transaction\(\) first"):
        await manager.commit()


async def test_calls_while_a_commit_is_on_its_way(coordinators: CoordinatorScript, made: Made) -> None:
    sender, manager = made(coordinators)
    await manager.begin()
    sender.send(T0)
    gate = asyncio.Event()
    coordinators.on(END, gate)
    commit = asyncio.create_task(manager.commit())
    await until(lambda: END in coordinators.requests)
    with pytest.raises(TransactionStateError, match=r"send\(\) in state 'committing': a commit is under way"):
        manager.check_may_send()
    for call in (manager.abort, lambda: manager.send_offsets(OFFSETS_OF_T, "g"), manager.init):
        with pytest.raises(TransactionStateError, match=r"call commit_transaction\(\) again"):
            await call()
    gate.set()
    await commit


async def test_init_twice_is_fine(coordinators: CoordinatorScript, made: Made) -> None:
    _, manager = made(coordinators)
    await asyncio.gather(manager.init(), manager.init())
    await manager.init()
    assert coordinators.requests == [INIT]


# -- several tasks -------------------------------------------------------------------------------------------------------


async def test_of_two_that_begin_one_is_told_off(coordinators: CoordinatorScript, made: Made) -> None:
    _, manager = made(coordinators)
    first, second = await asyncio.gather(manager.begin(), manager.begin(), return_exceptions=True)
    assert first is None
    assert isinstance(second, TransactionStateError)
    assert coordinators.requests == [INIT]


async def test_two_that_commit_share_it(coordinators: CoordinatorScript, made: Made) -> None:
    sender, manager = made(coordinators)
    await manager.begin()
    sender.send(T0)
    await asyncio.gather(manager.commit(), manager.commit())
    assert coordinators.ended == [True]


async def test_begin_waits_for_the_commit_of_another_task(coordinators: CoordinatorScript, made: Made) -> None:
    sender, manager = made(coordinators)
    await manager.begin()
    sender.send(T0)
    gate = asyncio.Event()
    coordinators.on(END, gate)
    commit = asyncio.create_task(manager.commit())
    await until(lambda: END in coordinators.requests)
    begin = asyncio.create_task(manager.begin())
    gate.set()
    await asyncio.gather(commit, begin)
    assert manager.state is S.IN_TRANSACTION


async def test_offsets_of_two_tasks_go_one_after_the_other(coordinators: CoordinatorScript, made: Made) -> None:
    _, manager = made(coordinators)
    await manager.begin()
    await asyncio.gather(manager.send_offsets({T0: 1}, "g"), manager.send_offsets({T0: 1}, "g"), manager.send_offsets({T1: 2}, "h"))
    assert coordinators.requests.count(OFFSETS) == 2
    await manager.commit()


async def test_a_commit_waits_for_the_offsets(coordinators: CoordinatorScript, made: Made) -> None:
    _, manager = made(coordinators)
    await manager.begin()
    coordinators.on(OFFSETS, *[E.COORDINATOR_LOAD_IN_PROGRESS] * 3)
    offsets = asyncio.create_task(manager.send_offsets(OFFSETS_OF_T, "g"))
    await until(lambda: OFFSETS in coordinators.requests)
    await manager.commit()
    await offsets
    assert coordinators.requests[-2:] == [OFFSETS, END]


async def test_an_abort_overtakes_a_commit_that_waits_for_records(coordinators: CoordinatorScript, made: Made) -> None:
    sender, manager = made(coordinators)
    await manager.begin()
    sender.send(T0)
    sender.hold_answers = True
    commit = asyncio.create_task(manager.commit())
    await until(lambda: bool(sender.in_flight))
    abort = asyncio.create_task(manager.abort())
    with pytest.raises(TransactionAbortedError, match=r"abort_transaction\(\) was called before the commit was sent"):
        await commit
    sender.hold_answers = False
    sender._changed.set()
    await abort
    assert coordinators.ended == [False]
    await manager.begin()


# -- coordinators in trouble ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [INIT, ADD, ADD_OFFSETS, OFFSETS, END])
@pytest.mark.parametrize(
    "step", [E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_LOAD_IN_PROGRESS, E.CONCURRENT_TRANSACTIONS, "broken", "garbage"]
)
async def test_what_may_pass_is_tried_again(coordinators: CoordinatorScript, made: Made, name: str, step: ErrorCode | str) -> None:
    trouble = broken() if step == "broken" else ProtocolError("no such reply") if step == "garbage" else step
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


async def test_trouble_is_logged_once_and_so_is_its_end(first: CoordinatorScript, made: Made, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    sender, manager = made(first)
    await manager.begin()
    sender.send(T0)
    first.on(END, *[E.NOT_COORDINATOR] * 4)
    first.on(ADD, *[E.CONCURRENT_TRANSACTIONS] * 4)  # the daily life of the first protocol
    caplog.clear()
    await manager.commit()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "EndTxn failed, trying on: " in caplog.messages[0]
    assert "EndTxn got through after 4 failed tries" in caplog.messages[1]


async def test_the_search_for_a_coordinator_may_be_refused(coordinators: CoordinatorScript, made: Made) -> None:
    sender, manager = made(coordinators)
    coordinators.on(INIT, BrokerError(E.COORDINATOR_NOT_AVAILABLE, "no coordinator"))
    await manager.begin()
    coordinators.on(OFFSETS, BrokerError(E.GROUP_AUTHORIZATION_FAILED, "no coordinator of group 'g'"))
    with pytest.raises(AbortableTransactionError, match="GROUP_AUTHORIZATION_FAILED"):
        await manager.send_offsets(OFFSETS_OF_T, "g")
    await manager.abort()
    await manager.begin()
    coordinators.on(OFFSETS, BrokerError(E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "no coordinator"))
    with pytest.raises(FatalProducerError):
        await manager.send_offsets(OFFSETS_OF_T, "g")
    await until(lambda: bool(sender.fatal))
    assert sender.fatal == [manager.error]


# -- errors --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, E.CLUSTER_AUTHORIZATION_FAILED])
async def test_a_right_that_comes_later_is_not_too_late(coordinators: CoordinatorScript, made: Made, code: ErrorCode) -> None:
    sender, manager = made(coordinators)
    coordinators.on(INIT, code, code)
    for call in (manager.init, manager.begin):
        with pytest.raises(BrokerError, match=code.name) as caught:
            await call()
        assert not isinstance(caught.value, FatalProducerError)
        assert manager.state is S.UNINITIALIZED
    await manager.begin()
    assert sender.fatal == []


async def test_refused_credentials_are_not_hammered(coordinators: CoordinatorScript, made: Made) -> None:
    _, manager = made(coordinators)
    coordinators.on(INIT, AuthenticationError("the broker refuses user 'u'"))
    with pytest.raises(AuthenticationError):
        await manager.init()
    assert coordinators.requests == [INIT]
    assert manager.state is S.UNINITIALIZED


@pytest.mark.parametrize("code", [E.INVALID_TRANSACTION_TIMEOUT, E.UNSUPPORTED_VERSION, E.INVALID_REQUEST, E.UNKNOWN_SERVER_ERROR])
async def test_init_refused_for_good(coordinators: CoordinatorScript, made: Made, code: ErrorCode) -> None:
    sender, manager = made(coordinators)
    coordinators.on(INIT, code)
    with pytest.raises(FatalProducerError, match="close this producer") as caught:
        await manager.init()
    assert caught.value.code == code
    assert ("transaction.max.timeout.ms" in str(caught.value)) == (code == E.INVALID_TRANSACTION_TIMEOUT)
    await until(lambda: bool(sender.fatal))
    for call in (manager.init, manager.begin, manager.commit, manager.abort):
        with pytest.raises(FatalProducerError):
            await call()
    assert sender.fatal == [caught.value]


async def test_a_broker_without_transactions(coordinators: CoordinatorScript, made: Made) -> None:
    _, manager = made(coordinators)
    coordinators.on(INIT, UnsupportedVersionError("127.0.0.1:1 has InitProducerIdRequest versions 0 to -1"))
    with pytest.raises(FatalProducerError, match="versions 0 to -1"):
        await manager.init()


@pytest.mark.parametrize("name", [ADD, ADD_OFFSETS, OFFSETS, END])
@pytest.mark.parametrize("code", [E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH])
async def test_fenced(first: CoordinatorScript, made: Made, name: str, code: ErrorCode) -> None:
    sender, manager = made(first)
    await manager.begin()
    first.on(name, code)
    sender.send(T0)
    with pytest.raises(ProducerFencedError, match=r"another producer.*transaction_timeout_ms=60000"):
        await manager.send_offsets(OFFSETS_OF_T, "g")
        await manager.commit()
    await until(lambda: bool(sender.fatal))
    assert manager.state is S.FATAL_ERROR
    assert not manager.may_send(T0)
    with pytest.raises(ProducerFencedError):
        manager.check_may_send()
    with pytest.raises(ProducerFencedError):
        await manager.abort()


@pytest.mark.parametrize("code", [E.TOPIC_AUTHORIZATION_FAILED, E.OPERATION_NOT_ATTEMPTED, E.TRANSACTION_ABORTABLE, E.UNKNOWN_SERVER_ERROR])
async def test_a_partition_that_can_not_be_added(first: CoordinatorScript, made: Made, code: ErrorCode) -> None:
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


async def test_an_abort_after_nothing_was_added_needs_no_request(first: CoordinatorScript, made: Made) -> None:
    sender, manager = made(first)
    await manager.begin()
    sender.send(T0)
    await manager.abort()  # before the task that adds has had a turn
    assert first.requests == [INIT]
    assert [type(error) for error in sender.dropped] == [TransactionAbortedError]


async def test_an_abort_after_a_lost_answer_asks_whether_it_began(first: CoordinatorScript, made: Made) -> None:
    sender, manager = made(first, retry_backoff_ms=1_000, retry_backoff_max_ms=1_000)
    await manager.begin()
    first.on(ADD, broken())
    sender.send(T0)
    await until(lambda: ADD in first.requests)
    first.on(END, E.INVALID_TXN_STATE)  # it did not
    await manager.abort()
    assert first.requests == [INIT, ADD, END]
    assert manager.state is S.READY


async def test_invalid_state_is_fatal_where_the_transaction_had_begun(first: CoordinatorScript, made: Made) -> None:
    sender, manager = made(first)
    await manager.begin()
    sender.send(T0)
    await until(lambda: manager.may_send(T0))
    first.on(END, E.INVALID_TXN_STATE)
    with pytest.raises(FatalProducerError, match="INVALID_TXN_STATE"):
        await manager.abort()


@pytest.mark.parametrize(
    "code", [E.FENCED_INSTANCE_ID, E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION, E.TRANSACTION_ABORTABLE, E.GROUP_AUTHORIZATION_FAILED]
)
async def test_offsets_of_a_member_that_was_replaced(coordinators: CoordinatorScript, made: Made, code: ErrorCode) -> None:
    _, manager = made(coordinators)
    await manager.begin()
    coordinators.on(OFFSETS, code)
    with pytest.raises(AbortableTransactionError, match="TxnOffsetCommit of group 'g'"):
        await manager.send_offsets(OFFSETS_OF_T, "g")
    with pytest.raises(AbortableTransactionError):
        await manager.commit()
    await manager.abort()
    assert coordinators.ended == [False]


async def test_an_abort_that_shall_be_aborted_is_fatal(coordinators: CoordinatorScript, made: Made) -> None:
    """KAFKA-19250: else the application would abort for ever."""
    sender, manager = made(coordinators)
    await manager.begin()
    sender.send(T0)
    await until(lambda: manager.may_send(T0))
    sender.look()
    coordinators.on(END, E.TRANSACTION_ABORTABLE)
    with pytest.raises(FatalProducerError, match=r"the abort failed, close this producer.*TRANSACTION_ABORTABLE"):
        await manager.abort()
    with pytest.raises(FatalProducerError):
        await manager.abort()
    assert coordinators.requests.count(END) == 1


async def test_a_transaction_that_the_coordinator_has_aborted_by_itself(second: CoordinatorScript, made: Made) -> None:
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
    coordinators: CoordinatorScript, made: Made, end: Callable[[TransactionManager], Awaitable[None]]
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
    await manager.abort()
    before = sender.producer.identity
    await manager.begin()
    assert sender.producer.identity == (1000, 1)
    asked = coordinators.messages[-1]
    assert isinstance(asked, InitProducerIdRequest)
    assert (asked.producer_id, asked.producer_epoch) == before == (1000, 0)


async def test_a_fault_of_ours_hangs_nobody(coordinators: CoordinatorScript, made: Made) -> None:
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
    """Else it could arrive after the end, and open a transaction that nobody ends."""
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


async def test_errors_of_an_aborted_transaction_are_forgotten(coordinators: CoordinatorScript, made: Made) -> None:
    _, manager = made(coordinators)
    await manager.begin()
    manager.batch_failed(T0, DeliveryTimeoutError("late"))
    await manager.abort()
    assert manager.error is None
    with pytest.raises(TransactionStateError):
        await manager.commit()


async def test_a_new_epoch_is_asked_for_before_anybody_waits_for_it(first: CoordinatorScript, made: Made) -> None:
    sender, manager = made(first)
    await manager.begin()
    sender.producer.bump()
    await manager.commit()
    await until(lambda: manager.state is S.READY)
    assert sender.producer.identity == (1000, 1)


async def test_offsets_that_were_killed_are_not_passed_by(coordinators: CoordinatorScript, made: Made) -> None:
    _, manager = made(coordinators)
    await manager.begin()
    coordinators.on(OFFSETS, asyncio.Event())
    offsets = asyncio.create_task(manager.send_offsets(OFFSETS_OF_T, "g"))
    await until(lambda: OFFSETS in coordinators.requests)
    commit = asyncio.create_task(manager.commit())
    await until(lambda: manager.state is S.COMMITTING)
    [killed] = [task for task in asyncio.all_tasks() if task.get_name() == "aioprod-send_offsets_to_transaction"]
    killed.cancel()
    for waiter in (offsets, commit):
        with pytest.raises(AbortableTransactionError, match="cancelled from outside"):
            await waiter


async def test_partitions_whose_task_was_killed_are_added_all_the_same(first: CoordinatorScript, made: Made) -> None:
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


# -- records that fail ---------------------------------------------------------------------------------------------------


async def test_a_record_that_failed_stops_the_commit(coordinators: CoordinatorScript, made: Made) -> None:
    sender, manager = made(coordinators)
    await manager.begin()
    sender.hold_answers = True
    sender.send(T0)
    commit = asyncio.create_task(manager.commit())
    await until(lambda: bool(sender.in_flight))
    error = DeliveryTimeoutError("not acknowledged after 120000 ms")
    sender.lose(error)
    with pytest.raises(AbortableTransactionError, match="t-0: a record was not written") as caught:
        await commit
    assert caught.value.__cause__ is error
    assert END not in coordinators.requests
    await manager.abort()
    assert coordinators.ended == [False]
    await manager.begin()
    assert sender.producer.identity == (1000, 1), "a lost sequence costs the epoch"
    asks = [message for message in coordinators.messages if isinstance(message, InitProducerIdRequest)]
    assert len(asks) == (1 if manager.produce_adds_partitions else 2)


async def test_a_commit_does_not_wait_for_the_rest_when_one_record_failed(coordinators: CoordinatorScript, made: Made) -> None:
    """franz-go once waited until the transaction timed out."""
    sender, manager = made(coordinators)
    await manager.begin()
    sender.hold_answers = True
    sender.send(T0, T1)
    commit = asyncio.create_task(manager.commit())
    await until(lambda: len(sender.in_flight) == 2)
    sender.lose(BrokerError(E.INVALID_RECORD, "1 records to t-0"), [T0])
    with pytest.raises(AbortableTransactionError, match="INVALID_RECORD"):
        await commit
    abort = asyncio.create_task(manager.abort())
    await asyncio.sleep(0.01)
    assert not abort.done(), "what is in flight has to be waited for, or it could be written after the end"
    sender.hold_answers = False
    sender._changed.set()
    await abort


async def test_the_first_error_is_the_one_that_is_told(coordinators: CoordinatorScript, made: Made, caplog: pytest.LogCaptureFixture) -> None:
    sender, manager = made(coordinators)
    await manager.begin()
    sender.hold_answers = True
    sender.send(T0, T1)
    await until(lambda: manager.may_send(T0) and manager.may_send(T1))
    sender.look()
    caplog.clear()
    sender.lose(BrokerError(E.INVALID_RECORD, "1 records"), [T0])
    sender.lose(BrokerError(E.CORRUPT_MESSAGE, "1 records"), [T1])
    with pytest.raises(AbortableTransactionError, match="INVALID_RECORD"):
        manager.check_may_send()
    assert len(caplog.records) == 1


async def test_a_failure_while_aborting_is_nobodys_business(coordinators: CoordinatorScript, made: Made) -> None:
    sender, manager = made(coordinators)
    await manager.begin()
    sender.hold_answers = True
    sender.send(T0)
    await until(lambda: manager.may_send(T0))
    sender.look()
    abort = asyncio.create_task(manager.abort())
    await until(lambda: manager.state is S.ABORTING)
    sender.lose(DeliveryTimeoutError("late"))
    await abort
    await manager.begin()


@pytest.mark.parametrize("calling", ["nothing", "commit", "abort"])
async def test_a_record_that_fails_for_good_ends_the_producer(coordinators: CoordinatorScript, made: Made, calling: str) -> None:
    sender, manager = made(coordinators)
    await manager.begin()
    sender.hold_answers = True
    sender.send(T0)
    await until(lambda: manager.may_send(T0))
    sender.look()
    waiter = None if calling == "nothing" else asyncio.create_task(getattr(manager, calling)())
    await asyncio.sleep(0)
    sender.lose(BrokerError(E.PRODUCER_FENCED, "1 records to t-0"))
    if waiter is not None:
        with pytest.raises(ProducerFencedError):
            await waiter
    with pytest.raises(ProducerFencedError, match="close this producer"):
        manager.check_may_send()
    await until(lambda: len(sender.fatal) == 1)
    assert END not in coordinators.requests


async def test_a_sender_that_is_gone_commits_nothing(coordinators: CoordinatorScript, made: Made) -> None:
    sender, manager = made(coordinators)
    await manager.begin()
    sender.hold_answers = True
    sender.send(T0)
    commit = asyncio.create_task(manager.commit())
    await until(lambda: bool(sender.in_flight))
    error = KafkaError("the producer's sender task was cancelled from outside")
    manager.fail(error)
    with pytest.raises(KafkaError) as caught:
        await commit
    assert caught.value is error
    assert END not in coordinators.requests


async def test_errors_that_are_raised_often_do_not_grow(coordinators: CoordinatorScript, made: Made) -> None:
    sender, manager = made(coordinators)
    await manager.begin()
    sender.manager.batch_failed(T0, DeliveryTimeoutError("late"))
    for _ in range(100):
        with pytest.raises(AbortableTransactionError) as caught:
            manager.check_may_send()
    assert frames(caught.value) < 10


async def test_an_error_that_many_wait_for_does_not_grow(coordinators: CoordinatorScript, made: Made) -> None:
    sender, manager = made(coordinators)
    await manager.begin()
    sender.send(T0)
    coordinators.on(END, E.INVALID_REQUEST)
    errors = await asyncio.gather(*(manager.commit() for _ in range(100)), return_exceptions=True)
    assert len(set(errors)) == 1
    assert isinstance(errors[0], FatalProducerError)
    assert frames(errors[0]) < 10


def frames(error: BaseException) -> int:
    count, traceback = 0, error.__traceback__
    while traceback is not None:
        count, traceback = count + 1, traceback.tb_next
    return count


# -- time and versions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["init", "begin", "send_offsets", "commit", "abort"])
async def test_a_call_out_of_time_goes_on_and_can_be_joined(coordinators: CoordinatorScript, made: Made, call: str) -> None:
    sender, manager = made(coordinators, max_block_ms=30)
    gate = asyncio.Event()
    coordinators.on({"init": INIT, "begin": INIT, "send_offsets": OFFSETS}.get(call, END), gate)
    if call not in ("init", "begin"):
        await manager.begin()
        sender.send(T0)
        await until(lambda: manager.may_send(T0))
        sender.look()

    async def again() -> None:
        await (manager.send_offsets(OFFSETS_OF_T, "g") if call == "send_offsets" else getattr(manager, call)())

    for _ in range(2):
        with pytest.raises(KafkaTimeoutError, match=r"not done within max_block_ms=30.*goes on, call \w+\(\) again"):
            await again()
    requests = len(coordinators.requests)
    gate.set()
    await again()
    assert len(coordinators.requests) == requests, "joined, not repeated"
    assert manager.state is (S.IN_TRANSACTION if call in ("begin", "send_offsets") else S.READY)


@pytest.mark.parametrize("call", ["commit", "abort"])
async def test_who_comes_back_after_the_end_hears_of_it(coordinators: CoordinatorScript, made: Made, call: str) -> None:
    sender, manager = made(coordinators, max_block_ms=20)
    await manager.begin()
    sender.send(T0)
    gate = asyncio.Event()
    coordinators.on(END, gate)
    await until(lambda: manager.may_send(T0))
    sender.look()
    with pytest.raises(KafkaTimeoutError):
        await getattr(manager, call)()
    gate.set()
    await until(lambda: manager.state is S.READY)
    other = manager.abort if call == "commit" else manager.commit
    with pytest.raises(TransactionStateError):
        await other()
    await getattr(manager, call)()
    with pytest.raises(TransactionStateError):
        await getattr(manager, call)()


async def test_the_time_out_names_the_trouble(coordinators: CoordinatorScript, made: Made) -> None:
    _, manager = made(coordinators, max_block_ms=30)
    coordinators.on(INIT, *[broken() for _ in range(100)])
    with pytest.raises(KafkaTimeoutError, match=r"last trouble: 127\.0\.0\.1:1: connection closed by the broker"):
        await manager.init()


async def test_a_cluster_that_goes_over_to_the_second_protocol(first: CoordinatorScript, made: Made) -> None:
    sender, manager = made(first)
    await manager.begin()
    first.peer.finalized_features["transaction.version"] = 2
    sender.send(T0)
    await manager.commit()
    assert first.versions[-1] == (END, 4) or first.requests[-1] == INIT, "what began in the first protocol ends in it"
    await manager.begin()
    assert manager.produce_adds_partitions
    assert sender.producer.identity == (1000, 1), "the second protocol starts with an epoch of its own"
    sender.send(T0)
    await manager.commit()
    assert [m.committed for m in first.messages if isinstance(m, EndTxnRequest)] == [True, True]
    assert first.versions[-1] == (END, 5)


async def test_a_cluster_that_goes_back_to_the_first_protocol(second: CoordinatorScript, made: Made) -> None:
    sender, manager = made(second)
    await manager.begin()
    second.peer.finalized_features["transaction.version"] = 1
    sender.send(T0)
    await manager.commit()
    assert second.versions[-1] == (END, 5)
    await manager.begin()
    assert not manager.produce_adds_partitions
    sender.send(T0)
    await manager.commit()
    assert second.requests == [INIT, END, ADD, END]
    assert second.versions[-1] == (END, 4)


async def test_a_new_producer_id_when_the_epochs_are_used_up(second: CoordinatorScript, made: Made) -> None:
    sender, manager = made(second)
    await manager.begin()
    sender.send(T0)

    def wrap() -> None:
        second.producer_id, second.epoch = 1001, -1

    second.on(END, wrap)
    await manager.commit()
    assert sender.producer.identity == (1001, 0)


# -- closing -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [INIT, OFFSETS, END])
async def test_close_ends_what_is_under_way(coordinators: CoordinatorScript, made: Made, name: str) -> None:
    sender, manager = made(coordinators)
    coordinators.on(name, asyncio.Event())

    async def all_of_it() -> None:
        await manager.begin()
        sender.send(T0)
        await manager.send_offsets(OFFSETS_OF_T, "g")
        await manager.commit()

    waiter = asyncio.create_task(all_of_it())
    await until(lambda: name in coordinators.requests)
    await manager.close()
    with pytest.raises(ProducerClosedError):
        await waiter
    for call in (manager.init, manager.begin, manager.commit, manager.abort):
        with pytest.raises(ProducerClosedError):
            await call()
    with pytest.raises(ProducerClosedError):
        manager.check_may_send()
    await manager.close()


async def test_stop_comes_before_records_fail(coordinators: CoordinatorScript, made: Made) -> None:
    """A producer that closes fails what is left: no commit may take that for success."""
    sender, manager = made(coordinators)
    await manager.begin()
    sender.hold_answers = True
    sender.send(T0)
    commit = asyncio.create_task(manager.commit())
    await until(lambda: bool(sender.in_flight))
    manager.stop()
    sender._fatal(ProducerClosedError("closed"))  # all batches end, and whoever waits for them wakes
    with pytest.raises(ProducerClosedError):
        await commit
    await manager.close()
    assert END not in coordinators.requests


@pytest.mark.parametrize("state", ["nothing", "open", "committing", "aborting", "failed"])
async def test_settle_leaves_no_transaction_open(coordinators: CoordinatorScript, made: Made, state: str) -> None:
    sender, manager = made(coordinators, max_block_ms=200)
    gate = asyncio.Event()
    left = None
    if state != "nothing":
        await manager.begin()
        sender.send(T0)
        await until(lambda: manager.may_send(T0))
        sender.look()
    if state == "failed":
        manager.batch_failed(T0, DeliveryTimeoutError("late"))
    if state in ("committing", "aborting"):
        coordinators.on(END, gate)
        left = asyncio.create_task(manager.commit() if state == "committing" else manager.abort())
        await until(lambda: END in coordinators.requests)
        left.cancel()
        await asyncio.wait([left])
    settled = asyncio.create_task(manager.settle())
    gate.set()
    await settled
    assert coordinators.ended == ([] if state == "nothing" else [state == "committing"])
