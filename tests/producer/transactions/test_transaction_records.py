"""Records that fail, and producers that close, while a transaction is open, against scripted
coordinators.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from aioprod.error_codes import ErrorCode
from aioprod.errors import (
    AbortableTransactionError,
    BrokerError,
    DeliveryTimeoutError,
    FatalProducerError,
    KafkaError,
    ProducerClosedError,
    ProducerFencedError,
)
from aioprod.producer.transactions.manager import TransactionManager
from aioprod.producer.transactions.states import TransactionState
from aioprod.protocol.messages.init_producer_id import InitProducerIdRequest
from aioprod.types import TopicPartition
from tests.producer.transactions.coordinator_script import (
    END,
    INIT,
    OFFSETS,
    CoordinatorScript,
    FakeSender,
)
from tests.waiting import until

S = TransactionState
E = ErrorCode
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
OFFSETS_OF_T = {T0: 5}

Made = Callable[..., tuple[FakeSender, TransactionManager]]
pytest_plugins = ["tests.producer.transactions.coordinator_fixtures"]


# -- records that fail -----------------------------------------------------------------------------


async def test_a_record_that_failed_stops_the_commit(
    coordinators: CoordinatorScript, made: Made
) -> None:
    sender, manager = made(coordinators)
    await manager.begin()
    sender.keep_answers = True
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
    asks = [
        message for message in coordinators.messages if isinstance(message, InitProducerIdRequest)
    ]
    assert len(asks) == (1 if manager.produce_adds_partitions else 2)


async def test_a_commit_does_not_wait_for_the_rest_when_one_record_failed(
    coordinators: CoordinatorScript, made: Made
) -> None:
    """franz-go once waited until the transaction timed out."""
    sender, manager = made(coordinators)
    await manager.begin()
    sender.keep_answers = True
    sender.send(T0, T1)
    commit = asyncio.create_task(manager.commit())
    await until(lambda: len(sender.in_flight) == 2)
    sender.lose(BrokerError(E.INVALID_RECORD, "1 record to t-0"), [T0])
    with pytest.raises(AbortableTransactionError, match="INVALID_RECORD"):
        await commit
    abort = asyncio.create_task(manager.abort())
    await asyncio.sleep(0.01)
    assert not abort.done(), (
        "what is in flight has to be waited for, or it could be written after the end"
    )
    sender.keep_answers = False
    sender._changed.set()
    await abort


async def test_the_first_error_is_the_one_that_is_reported(
    coordinators: CoordinatorScript, made: Made, caplog: pytest.LogCaptureFixture
) -> None:
    sender, manager = made(coordinators)
    await manager.begin()
    sender.keep_answers = True
    sender.send(T0, T1)
    await until(lambda: manager.may_send(T0) and manager.may_send(T1))
    sender.look()
    caplog.clear()
    sender.lose(BrokerError(E.INVALID_RECORD, "1 record"), [T0])
    sender.lose(BrokerError(E.CORRUPT_MESSAGE, "1 record"), [T1])
    with pytest.raises(AbortableTransactionError, match="INVALID_RECORD"):
        manager.check_may_send()
    assert len(caplog.records) == 1


async def test_a_failure_while_aborting_is_nobodys_business(
    coordinators: CoordinatorScript, made: Made
) -> None:
    sender, manager = made(coordinators)
    await manager.begin()
    sender.keep_answers = True
    sender.send(T0)
    await until(lambda: manager.may_send(T0))
    sender.look()
    abort = asyncio.create_task(manager.abort())
    await until(lambda: manager.state is S.ABORTING)
    sender.lose(DeliveryTimeoutError("late"))
    await abort
    await manager.begin()


@pytest.mark.parametrize("calling", ["nothing", "commit", "abort"])
async def test_a_record_that_fails_permanently_ends_the_producer(
    coordinators: CoordinatorScript, made: Made, calling: str
) -> None:
    sender, manager = made(coordinators)
    await manager.begin()
    sender.keep_answers = True
    sender.send(T0)
    await until(lambda: manager.may_send(T0))
    sender.look()
    waiter = None if calling == "nothing" else asyncio.create_task(getattr(manager, calling)())
    await asyncio.sleep(0)
    sender.lose(BrokerError(E.PRODUCER_FENCED, "1 record to t-0"))
    if waiter is not None:
        with pytest.raises(ProducerFencedError):
            await waiter
    with pytest.raises(ProducerFencedError, match="close this producer"):
        manager.check_may_send()
    await until(lambda: len(sender.fatal) == 1)
    assert END not in coordinators.requests


async def test_a_sender_that_is_gone_commits_nothing(
    coordinators: CoordinatorScript, made: Made
) -> None:
    sender, manager = made(coordinators)
    await manager.begin()
    sender.keep_answers = True
    sender.send(T0)
    commit = asyncio.create_task(manager.commit())
    await until(lambda: bool(sender.in_flight))
    error = KafkaError("the producer's sender task was cancelled from outside")
    manager.fail(error)
    with pytest.raises(KafkaError) as caught:
        await commit
    assert caught.value is error
    assert END not in coordinators.requests


async def test_errors_that_are_raised_often_do_not_grow(
    coordinators: CoordinatorScript, made: Made
) -> None:
    sender, manager = made(coordinators)
    await manager.begin()
    sender.manager.record_refused(T0, DeliveryTimeoutError("late"))
    for _ in range(100):
        with pytest.raises(AbortableTransactionError) as caught:
            manager.check_may_send()
    assert frames(caught.value) < 10


async def test_an_error_that_many_wait_for_does_not_grow(
    coordinators: CoordinatorScript, made: Made
) -> None:
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


# -- closing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [INIT, OFFSETS, END])
async def test_close_ends_what_is_in_progress(
    coordinators: CoordinatorScript, made: Made, name: str
) -> None:
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
    sender.keep_answers = True
    sender.send(T0)
    commit = asyncio.create_task(manager.commit())
    await until(lambda: bool(sender.in_flight))
    manager.stop()
    sender.abort(ProducerClosedError("closed"))  # all batches end, and waiting tasks wake
    with pytest.raises(ProducerClosedError):
        await commit
    await manager.close()
    assert END not in coordinators.requests


@pytest.mark.virtual_time
@pytest.mark.parametrize("state", ["nothing", "open", "committing", "aborting", "failed"])
async def test_finish_leaves_no_transaction_open(
    coordinators: CoordinatorScript, made: Made, state: str
) -> None:
    sender, manager = made(coordinators, max_block_ms=200)
    gate = asyncio.Event()
    left = None
    if state != "nothing":
        await manager.begin()
        sender.send(T0)
        await until(lambda: manager.may_send(T0))
        sender.look()
    if state == "failed":
        manager.record_refused(T0, DeliveryTimeoutError("late"))
    if state in ("committing", "aborting"):
        coordinators.on(END, gate)
        left = asyncio.create_task(manager.commit() if state == "committing" else manager.abort())
        await until(lambda: END in coordinators.requests)
        left.cancel()
        await asyncio.wait([left])
    ended = asyncio.create_task(manager.end_transaction())
    gate.set()
    await ended
    assert coordinators.ended == ([] if state == "nothing" else [state == "committing"])
