"""The manager against scripted coordinators: what is asked of them, what state follows, what
callers get.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from aioprod.error_codes import ErrorCode
from aioprod.errors import (
    KafkaTimeoutError,
    SerializationError,
    TransactionAbortedError,
    TransactionStateError,
)
from aioprod.producer.transactions.manager import TransactionManager
from aioprod.producer.transactions.states import TransactionState
from aioprod.protocol.messages.end_txn import EndTxnRequest
from aioprod.types import ConsumerGroupMetadata, TopicPartition
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


# -- the straight way ------------------------------------------------------------------------------


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
    coordinators: CoordinatorScript,
    made: Made,
    end: Callable[[TransactionManager], Awaitable[None]],
) -> None:
    _, manager = made(coordinators)
    await manager.begin()
    await manager.send_offsets({}, "g")
    await end(manager)
    assert coordinators.requests == [INIT]
    assert manager.state is S.READY


async def test_partitions_opened_while_a_request_is_in_flight_go_into_the_next(
    first: CoordinatorScript, made: Made
) -> None:
    sender, manager = made(first)
    await manager.begin()
    gate = asyncio.Event()
    first.on(ADD, gate)
    sender.send(T0, T1)
    await until(lambda: ADD in first.requests)
    sender.send(T2)
    gate.set()
    await manager.commit()
    added = [
        [n for topic in m.v3_and_below_topics for n in topic.partitions]
        for m in first.messages
        if hasattr(m, "v3_and_below_topics")
    ]
    assert added == [[0, 1], [2]]
    assert sorted(sender.written) == [T0, T1, T2]


async def test_a_partition_is_added_once_per_transaction(
    first: CoordinatorScript, made: Made
) -> None:
    sender, manager = made(first)
    for _ in range(2):
        await manager.begin()
        for _ in range(3):
            sender.send(T0)
            await until(lambda: manager.may_send(T0))
            sender.look()
        await manager.commit()
    assert first.requests.count(ADD) == 2


async def test_the_members_of_a_group_are_reported(
    coordinators: CoordinatorScript, made: Made
) -> None:
    _, manager = made(coordinators)
    await manager.begin()
    await manager.send_offsets(OFFSETS_OF_T, ConsumerGroupMetadata("g", 3, "m"))
    reported = coordinators.messages[-1]
    assert (reported.generation_id_or_member_epoch, reported.member_id) == (3, "m")  # type: ignore[attr-defined]
    assert coordinators.keys[-1][1] == "g"
    await manager.commit()
    assert coordinators.ended == [True]


async def test_wrong_arguments_leave_the_transaction_as_it_is(
    coordinators: CoordinatorScript, made: Made
) -> None:
    _, manager = made(coordinators)
    await manager.begin()
    with pytest.raises(SerializationError, match="offset -5"):
        await manager.send_offsets({T0: -5}, "g")
    assert manager.state is S.IN_TRANSACTION


# -- calls out of place ----------------------------------------------------------------------------


async def test_calls_without_a_transaction_name_the_state_and_the_right_call(
    coordinators: CoordinatorScript, made: Made
) -> None:
    _, manager = made(coordinators)
    for state in ("uninitialized", "ready"):
        for call, name in (
            (manager.commit, "commit_transaction"),
            (manager.abort, "abort_transaction"),
            (lambda: manager.send_offsets({}, "g"), "send_offsets_to_transaction"),
        ):
            with pytest.raises(
                TransactionStateError,
                match=rf"{name}\(\) in state '{state}'.*begin_transaction\(\) first",
            ):
                await call()
        with pytest.raises(
            TransactionStateError,
            match=rf"send\(\) in state '{state}'.*begin_transaction\(\) first",
        ):
            manager.check_may_send()
        assert not manager.status.may_append
        await manager.init()


async def test_calls_inside_a_transaction(coordinators: CoordinatorScript, made: Made) -> None:
    _, manager = made(coordinators)
    await manager.begin()
    assert manager.status.may_append
    manager.check_may_send()
    for call in (manager.begin, manager.init):
        with pytest.raises(
            TransactionStateError,
            match=r"in state 'in transaction'.*commit_transaction\(\) or abort_transaction\(\)",
        ):
            await call()
    await manager.commit()
    with pytest.raises(TransactionStateError, match=r"begin_transaction\(\) first"):
        await manager.commit()


async def test_calls_while_a_commit_is_on_its_way(
    coordinators: CoordinatorScript, made: Made
) -> None:
    sender, manager = made(coordinators)
    await manager.begin()
    sender.send(T0)
    gate = asyncio.Event()
    coordinators.on(END, gate)
    commit = asyncio.create_task(manager.commit())
    await until(lambda: END in coordinators.requests)
    with pytest.raises(
        TransactionStateError, match=r"send\(\) in state 'committing': a commit is running"
    ):
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


# -- several tasks ---------------------------------------------------------------------------------


async def test_of_two_that_begin_one_is_refused(
    coordinators: CoordinatorScript, made: Made
) -> None:
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


async def test_begin_waits_for_the_commit_of_another_task(
    coordinators: CoordinatorScript, made: Made
) -> None:
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


async def test_offsets_of_two_tasks_go_one_after_the_other(
    coordinators: CoordinatorScript, made: Made
) -> None:
    _, manager = made(coordinators)
    await manager.begin()
    await asyncio.gather(
        manager.send_offsets({T0: 1}, "g"),
        manager.send_offsets({T0: 1}, "g"),
        manager.send_offsets({T1: 2}, "h"),
    )
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


async def test_an_abort_overtakes_a_commit_that_waits_for_records(
    coordinators: CoordinatorScript, made: Made
) -> None:
    sender, manager = made(coordinators)
    await manager.begin()
    sender.send(T0)
    sender.keep_answers = True
    commit = asyncio.create_task(manager.commit())
    await until(lambda: bool(sender.in_flight))
    abort = asyncio.create_task(manager.abort())
    with pytest.raises(
        TransactionAbortedError,
        match=r"abort_transaction\(\) was called before the commit was sent",
    ):
        await commit
    sender.keep_answers = False
    sender._changed.set()
    await abort
    assert coordinators.ended == [False]
    await manager.begin()


# -- time and versions -----------------------------------------------------------------------------


@pytest.mark.virtual_time
@pytest.mark.parametrize("call", ["init", "begin", "send_offsets", "commit", "abort"])
async def test_a_call_out_of_time_goes_on_and_can_be_joined(
    coordinators: CoordinatorScript, made: Made, call: str
) -> None:
    sender, manager = made(coordinators, max_block_ms=30)
    gate = asyncio.Event()
    coordinators.on({"init": INIT, "begin": INIT, "send_offsets": OFFSETS}.get(call, END), gate)
    if call not in ("init", "begin"):
        await manager.begin()
        sender.send(T0)
        await until(lambda: manager.may_send(T0))
        sender.look()

    async def again() -> None:
        await (
            manager.send_offsets(OFFSETS_OF_T, "g")
            if call == "send_offsets"
            else getattr(manager, call)()
        )

    for _ in range(2):
        with pytest.raises(
            KafkaTimeoutError,
            match=r"not done within max_block_ms=30.*continues, call \w+\(\) again",
        ):
            await again()
    requests = len(coordinators.requests)
    gate.set()
    await again()
    assert len(coordinators.requests) == requests, "joined, not repeated"
    assert manager.state is (S.IN_TRANSACTION if call in ("begin", "send_offsets") else S.READY)


@pytest.mark.virtual_time
@pytest.mark.parametrize("call", ["commit", "abort"])
async def test_who_comes_back_after_the_end_learns_of_it(
    coordinators: CoordinatorScript, made: Made, call: str
) -> None:
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


@pytest.mark.virtual_time
async def test_the_time_out_names_the_trouble(coordinators: CoordinatorScript, made: Made) -> None:
    _, manager = made(coordinators, max_block_ms=30)
    coordinators.on(INIT, *[broken() for _ in range(100)])
    with pytest.raises(
        KafkaTimeoutError, match=r"last error: 127\.0\.0\.1:1: connection closed by the broker"
    ):
        await manager.init()


async def test_a_cluster_that_goes_over_to_the_second_protocol(
    first: CoordinatorScript, made: Made
) -> None:
    sender, manager = made(first)
    await manager.begin()
    first.peer.finalized_features["transaction.version"] = 2
    sender.send(T0)
    await manager.commit()
    assert first.versions[-1] == (END, 4) or first.requests[-1] == INIT, (
        "what began in the first protocol ends in it"
    )
    await manager.begin()
    assert manager.produce_adds_partitions
    assert sender.producer.identity == (1000, 1), (
        "the second protocol starts with an epoch of its own"
    )
    sender.send(T0)
    await manager.commit()
    assert [m.committed for m in first.messages if isinstance(m, EndTxnRequest)] == [True, True]
    assert first.versions[-1] == (END, 5)


async def test_a_cluster_that_goes_back_to_the_first_protocol(
    second: CoordinatorScript, made: Made
) -> None:
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


async def test_a_new_producer_id_when_the_epochs_are_used_up(
    second: CoordinatorScript, made: Made
) -> None:
    sender, manager = made(second)
    await manager.begin()
    sender.send(T0)

    def wrap() -> None:
        second.producer_id, second.epoch = 1001, -1

    second.on(END, wrap)
    await manager.commit()
    assert sender.producer.identity == (1001, 0)
