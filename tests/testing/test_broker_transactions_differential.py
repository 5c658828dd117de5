"""The embedded broker answers transaction requests like a real Apache Kafka broker: the same
requests get the same errors, epochs and offsets.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from aioprod.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from aioprod.testing import EmbeddedCluster
from tests.testing.raw_client import RawClient, fetch_request
from tests.testing.raw_transactions import GROUP, TRANSACTION, V1, V2, Member, TransactionalClient

Conversation = Callable[[TransactionalClient], Coroutine[Any, Any, list[object]]]
PARTITIONS = 2
LAST_EPOCH = 32_766


async def begin(it: TransactionalClient, partition: int = 0) -> list[object]:
    """Send what the protocol needs before the first record."""
    return list(await it.add(partition)) if it.protocol is V1 else []


async def other(
    it: TransactionalClient, transactional_id: str | None = None
) -> TransactionalClient:
    """Make another producer on the same connection."""
    return TransactionalClient(
        it.client, transactional_id or it.transactional_id, it.topic, it.protocol
    )


async def commits_and_aborts(it: TransactionalClient) -> list[object]:
    answers: list[object] = [await it.init()]
    for commit in (True, False, True, False):
        answers += await begin(it)
        answers += [await it.produce(b"a", b"b"), await it.produce(b"c")]
        answers += [
            await it.read(committed=True),
            await it.read(committed=False),
            await it.end(commit=commit),
        ]
        await it.settle()
        answers += [await it.read(committed=True), await it.read(committed=False)]
    answers += [await it.read(committed=True, offset=offset) for offset in range(17)]
    answers += [await it.read(committed=True, offset=offset, max_bytes=1) for offset in range(17)]
    return answers


async def interleaved(it: TransactionalClient) -> list[object]:
    """Several producers in one partition: the last stable offset is that of the oldest open
    transaction.
    """
    producers = [await other(it, f"{it.transactional_id}-{number}") for number in range(3)]
    answers: list[object] = []
    for number, producer in enumerate(producers):
        answers += [
            await producer.init(),
            *await begin(producer),
            await producer.produce(b"%d" % number),
        ]
    for producer, commit in ((producers[1], False), (producers[0], True), (producers[2], False)):
        answers += [await producer.produce(b"last"), await producer.end(commit=commit)]
        end = len(producers) + 2 * (1 + answers.count("ended"))
        answers.append("ended")
        await it.wait_for_end(end)
        answers += [
            await it.read(committed=True),
            await it.list_offset(-1, committed=True),
            await it.list_offset(-1, committed=False),
        ]
    answers += [
        await it.list_offset(timestamp, committed=committed)
        for timestamp in (-2, 0, 1000, 2000)
        for committed in (True, False)
    ]
    return answers


async def open_transactions_and_timestamps(it: TransactionalClient) -> list[object]:
    answers: list[object] = [await it.init(), *await begin(it), await it.produce(b"a", b"b")]
    answers += [
        await it.list_offset(timestamp, committed=committed)
        for timestamp in (-1, -2, -3, 0, 1000, 1001)
        for committed in (True, False)
    ]
    answers.append(await it.end(commit=True))
    await it.settle()  # now the latest timestamp is the marker's
    return answers + [
        await it.list_offset(timestamp, committed=committed)
        for timestamp in (-1, -3)
        for committed in (True, False)
    ]


async def empty_transactions(it: TransactionalClient) -> list[object]:
    """EndTxn of an empty transaction, and EndTxn again."""
    answers: list[object] = [await it.init()]
    for commit in (True, False, True, True, False, False):
        answers.append((commit, await it.end(commit=commit)))
    answers += [*await begin(it), await it.produce(), await it.end(commit=True)]
    await it.settle()
    for commit in (True, False, False, True, True):
        answers.append((commit, await it.end(commit=commit)))
    return answers


async def retried_ends(it: TransactionalClient) -> list[object]:
    """EndTxn again with the same producer id and epoch, as after a lost response."""
    answers: list[object] = [await it.init()]
    for commit in (True, False):
        for again in (commit, not commit):
            answers += [
                *await begin(it),
                await it.produce(),
                await it.end(commit=commit, keep=False),
            ]
            await it.settle()
            answers += [
                await it.end(commit=again, keep=False),
                await it.end(commit=again, keep=False),
            ]
            answers.append(await it.init(patient=True))
    return answers


async def what_is_unknown(it: TransactionalClient) -> list[object]:
    answers: list[object] = []
    stranger = await other(it, it.transactional_id + "-unknown")
    stranger.producer_id, stranger.epoch = 7, 0
    for client in (stranger, it):
        answers += [
            await client.add(),
            await client.end(commit=True),
            await client.end(commit=False),
            await client.add_offsets("g"),
        ]
        answers += [
            await client.produce(),
            await client.produce(version=10),
            await client.commit_offset("g-" + it.topic, 1),
        ]
        if client is it:
            break
        await it.init()
        it.epoch += 1
    answers.append(await it.init())
    it.epoch -= 1
    answers += [
        await it.add(),
        await it.end(commit=True),
        await it.end(commit=False),
        await it.add_offsets("g"),
        await it.produce(),
    ]
    it.epoch += 1
    answers.append(await it.produce(named=False))
    it.producer_id += 1
    answers += [
        await it.add(),
        await it.end(commit=True),
        await it.end(commit=False),
        await it.add_offsets("g"),
        await it.produce(),
    ]
    nameless = await other(it, "")
    nameless.transactional_id = ""
    answers += [
        await nameless.add(),
        await nameless.end(commit=True),
        await nameless.add_offsets("g"),
        await nameless.init(),
    ]
    return answers


async def unknown_partitions(it: TransactionalClient) -> list[object]:
    answers: list[object] = [await it.init()]
    answers += [
        await it.add(0, 7),
        await it.add(0, topic=it.topic + "-unknown"),
        await it.add(0, 1),
        await it.add(1, 0, 1),
    ]
    for version in range(4):
        answers.append(await it.add(0, 1, version=version))
    return [*answers, await it.end(commit=True)]


async def verification(it: TransactionalClient) -> list[object]:
    """Records for partitions that were not added, by version of Produce; and AddPartitionsToTxn as
    brokers send it.
    """
    answers: list[object] = [await it.init()]
    for version in (9, 10, 11):
        answers.append(await it.produce(version=version))
    answers += [
        await it.add(0),
        await it.produce(version=9),
        await it.produce(version=11),
        await it.produce(partition=1, version=11),
    ]
    answers += [
        await it.add_batched(0, 1, verify_only=True),
        await it.add_batched(0, 7, verify_only=True),
    ]
    answers += [
        await it.add_batched(0, 1, verify_only=True, version=4),
        await it.add_batched(1),
        await it.produce(partition=1, version=11),
    ]
    answers.append(await it.produce(transactional=False))
    answers.append(await it.end(commit=True, version=4))
    await it.settle()
    answers += [
        await it.produce(version=10),
        await it.produce(version=11),
        await it.add_batched(0, verify_only=True),
    ]
    it.epoch += 5
    answers += [
        await it.add_batched(0, verify_only=True),
        await it.add_batched(0),
        await it.add_batched(0, verify_only=True, version=4),
    ]
    it.producer_id += 1
    answers += [await it.add_batched(0, verify_only=True), await it.add_batched(0)]
    return answers


async def fencing(it: TransactionalClient) -> list[object]:
    """A second producer takes over, while the first is idle and while it is in a transaction."""
    answers: list[object] = [await it.init()]
    second = await other(it)
    answers.append(await second.init())
    for version in range(4):
        answers.append(await it.add(0, version=version))
    for version in range(5):
        answers.append(await it.end(commit=True, version=version))
    answers += [await it.add_offsets("g", version=version) for version in range(5)]
    answers += [await it.produce(), await it.end(commit=True), await it.end(commit=False)]
    answers += [*await begin(second), await second.produce(b"open")]
    third = await other(it)
    answers += [await third.init(), await third.init(patient=True)]
    await it.settle()
    answers += [
        await it.read(committed=True),
        await second.produce(b"late"),
        await second.end(commit=True),
        await second.end(commit=False),
    ]
    answers += [*await begin(third), await third.produce(b"mine"), await third.end(commit=True)]
    await it.settle()
    return [*answers, await it.read(committed=True), await it.read(committed=False)]


async def epochs_asked_for(it: TransactionalClient) -> list[object]:
    """InitProducerId with the producer's id and epoch (KIP-360): retried, outdated and wrong."""
    answers: list[object] = []
    for version in (3, 4, 5):
        answers.append(await it.init(expected=(7, 3), version=version))
        mine = it.producer_id
        for expected in (
            (mine, it.epoch),
            (mine, it.epoch),
            (mine, it.epoch - 1),
            (mine, it.epoch),
            (mine + 1, 0),
            (mine, 99),
            (mine, -1),
            (-1, 0),
        ):
            answers.append(
                (
                    await it.init(expected=expected, version=version, keep=False),
                    it.producer_id == mine,
                )
            )
        answers.append(await it.init(expected=(mine, it.epoch + 1), version=version))
        answers += [
            *await begin(it),
            await it.produce(b"open"),
            await it.init(expected=(mine, it.epoch), version=version, keep=False),
        ]
        answers.append(
            await it.init(patient=True, expected=(mine, it.epoch), version=version, keep=False)
        )
        answers.append(await it.init(patient=True, version=version))
    return answers


async def epoch_after_an_abort_by_init(it: TransactionalClient) -> list[object]:
    answers: list[object] = [await it.init()]
    for _ in range(2):
        answers += [*await begin(it), await it.produce(b"open")]
        identity = it.identity
        for _ in range(2):
            answers.append(await it.init(patient=True, expected=identity, keep=False))
        answers.append(await it.init(patient=True))
    return answers


async def an_outdated_epoch_asks(it: TransactionalClient) -> list[object]:
    """A producer asks for its next epoch while the one that took over is in a transaction."""
    answers: list[object] = [await it.init()]
    second = await other(it)
    answers += [await second.init(), *await begin(second), await second.produce(b"open")]
    answers += [
        await it.init(expected=it.identity, keep=False),
        await it.init(patient=True, expected=it.identity, keep=False),
    ]
    answers += [
        await second.end(commit=True, keep=False),
        await second.init(patient=True, expected=second.identity, keep=False),
    ]
    await it.settle()
    return [*answers, await it.read(committed=True)]


async def opened_behind_its_end(it: TransactionalClient) -> list[object]:
    """AddPartitionsToTxn arrives again after the end of its transaction; then the next epoch is
    requested, at once and after an abort.
    """
    answers: list[object] = [await it.init()]
    for commit in (True, False):
        answers += [
            *await begin(it),
            await it.produce(b"x"),
            await it.end(commit=commit, keep=False),
        ]
        await it.settle()
        identity = it.identity
        answers += [
            await it.add(),
            await it.init(expected=identity, keep=False),
            await it.init(patient=True, expected=identity, keep=False),
        ]
        answers += [
            await it.add(),
            await it.end(commit=False, keep=False),
            await it.init(patient=True),
        ]
        answers += [
            await it.add(),
            await it.end(commit=False, keep=False),
            await it.init(patient=True, expected=it.identity),
        ]
        answers += [
            await it.end(commit=False, keep=False),
            await it.init(patient=True, expected=it.identity),
        ]
        answers += [
            *await begin(it),
            await it.produce(b"y"),
            await it.end(commit=commit, keep=False),
        ]
        await it.settle()
        answers += [
            await it.end(commit=False, keep=False),
            await it.init(patient=True, expected=it.identity),
        ]
    return answers


async def last_epochs(it: TransactionalClient) -> list[object]:
    """The epochs of a producer id run out."""
    answers: list[object] = [await it.init()]
    first = it.producer_id
    await it.use_up_epochs(LAST_EPOCH - 3)
    for commit in (True, False, True, False, True):
        for again in (True, False):
            answers += [
                *await begin(it),
                await it.produce(b"x"),
                await it.end(commit=commit, keep=not again),
            ]
            if again:
                await it.settle()
                answers.append(await it.end(commit=commit))
        answers += [it.producer_id == first, it.epoch]
    answers += [await it.init(patient=True), it.producer_id == first]
    return answers


async def last_epochs_by_init(it: TransactionalClient) -> list[object]:
    answers: list[object] = [await it.init()]
    first = it.producer_id
    await it.use_up_epochs(LAST_EPOCH - 1)
    answers += [
        await it.init(expected=(first, it.epoch)),
        it.epoch,
        await it.init(expected=(first, it.epoch - 1), keep=False),
    ]
    for epoch in (it.epoch, LAST_EPOCH):
        answers += [await it.init(expected=(first, epoch)), it.producer_id == first]
    return [
        *answers,
        await it.init(expected=(first, LAST_EPOCH - 1)),
        await it.init(),
        it.producer_id == first,
    ]


async def last_epoch_is_fenced(it: TransactionalClient) -> list[object]:
    answers: list[object] = [await it.init()]
    first = it.producer_id
    await it.use_up_epochs(LAST_EPOCH)
    answers += [*await begin(it), await it.produce(b"x")]
    second = await other(it)
    answers += [
        await second.init(),
        await second.init(patient=True),
        second.producer_id == first,
        await it.end(commit=True),
        await it.produce(),
    ]
    answers += [
        await it.produce(partition=1),
        await it.add(1),
        await it.end(commit=False, version=4),
    ]
    return answers


async def expiry(it: TransactionalClient) -> list[object]:
    """A transaction takes longer than its timeout: it is aborted and its producer is fenced."""
    answers: list[object] = []
    for commit in (True, False):
        answers += [
            await it.init(patient=True, timeout_ms=500),
            *await begin(it),
            await it.produce(b"slow"),
        ]
        await it.settle()
        answers += [
            await it.add(patient=False),
            await it.produce(b"late"),
            await it.add_offsets("g"),
            await it.commit_offset(it.topic, 1),
        ]
        answers += [
            await it.end(commit=commit, version=version, keep=False) for version in (1, 4, 5)
        ]
        answers += [
            await it.end(commit=not commit, version=version, keep=False) for version in (1, 4, 5)
        ]
        answers += [
            await it.init(expected=it.identity),
            *await begin(it),
            await it.produce(b"on"),
            await it.end(commit=commit),
        ]
        await it.settle()
    return [*answers, await it.read(committed=True)]


async def timeouts(it: TransactionalClient) -> list[object]:
    return [await it.init(timeout_ms=timeout_ms) for timeout_ms in (0, -1, 1, 900_000, 900_001)]


async def offsets_in_transactions(it: TransactionalClient) -> list[object]:
    group = it.topic
    answers: list[object] = [
        await it.init(),
        await it.committed(group),
        await it.committed(group, stable=True, all_topics=True),
    ]
    for number, commit in enumerate((True, False, True)):
        if it.protocol is V1:
            answers += [await it.commit_offset(group, 1, version=version) for version in (3, 4)]
            answers.append(await it.add_offsets(group))
        answers += [
            await it.commit_offset(group, 10 * number + 5, note="n"),
            await it.commit_offset(group, 1, topic=it.topic + "-unknown"),
        ]
        answers += [
            await it.commit_offset(group, 1, note="x" * 5000),
            await it.commit_offset(group, 1, partition=7),
        ]
        answers += [await it.committed(group, version=version) for version in (1, 2, 5, 7, 8)]
        answers += [
            await it.committed(group, stable=True, version=version) for version in (7, 8, 9)
        ]
        answers += [
            await it.committed(group, all_topics=True, stable=stable, version=version)
            for stable in (True, False)
            for version in (7, 8)
        ]
        answers.append(await it.end(commit=commit))
        await it.settle_offsets(group)
        answers += [
            await it.committed(group, stable=True),
            await it.committed(group, all_topics=True),
        ]
    return answers


async def plain_commits_meet_transactions(it: TransactionalClient) -> list[object]:
    """The later commit wins, not the later end of a transaction."""
    group = it.topic
    answers: list[object] = [await it.init()]
    for commit in (True, False):
        if it.protocol is V1:
            answers.append(await it.add_offsets(group))
        answers += [
            await it.commit_offset_plainly(group, 1),
            await it.commit_offset(group, 2),
            await it.committed(group),
        ]
        answers += [
            await it.commit_offset_plainly(group, 3),
            await it.committed(group),
            await it.committed(group, stable=True),
        ]
        answers.append(await it.end(commit=commit))
        await it.settle_offsets(group)
        answers.append(await it.committed(group, stable=True))
    return answers


async def members(it: TransactionalClient) -> list[object]:
    """Groups that do not exist, and groups without members."""
    answers: list[object] = [await it.init()]
    some = [
        Member(),
        Member(3),
        Member(3, "m"),
        Member(-1, "m"),
        Member(-1, "", "i"),
        Member(3, "m", "i"),
        Member(0),
    ]
    for number, member in enumerate(some):
        group = f"{it.topic}-{number}"
        if it.protocol is V1:
            answers.append(await it.add_offsets(group))
        answers += [
            (
                member,
                await it.commit_offset(group, 1, member=member),
                await it.commit_offset_plainly(group, 1, member=member),
            )
        ]
        answers += [
            await it.commit_offset_plainly(group + "-other", 1, member=member, version=version)
            for version in (2, 5, 8, 9)
        ]
    for member in some:
        answers.append((member, await it.commit_offset(f"{it.topic}-0", 1, member=member)))
        answers += [
            await it.commit_offset_plainly(f"{it.topic}-0", 1, member=member, version=version)
            for version in (8, 9)
        ]
    answers.append(await it.commit_offset_plainly(it.topic, 1, topic=it.topic + "-unknown"))
    answers.append(await it.commit_offset_plainly(it.topic, 1, note="x" * 5000))
    answers += [await it.commit_offset_plainly("", 1), await it.commit_offset("", 1)]
    return [*answers, await it.end(commit=False)]


async def sequences(it: TransactionalClient) -> list[object]:
    """Sequence numbers across the transactions of one epoch and of several."""
    answers: list[object] = [await it.init(), *await begin(it)]
    answers += [
        await it.produce(sequence=1),
        await it.produce(sequence=0),
        await it.produce(sequence=0),
        await it.produce(sequence=2),
    ]
    answers.append(await it.end(commit=True))
    await it.settle()
    answers += [
        *await begin(it),
        await it.produce(sequence=1),
        await it.produce(sequence=0),
        await it.produce(sequence=5),
    ]
    answers.append(await it.end(commit=False))
    await it.settle()
    answers += [await it.init(patient=True, expected=it.identity), *await begin(it)]
    answers += [await it.produce(sequence=3), await it.produce(sequence=0)]
    answers += [
        await begin(it, 1),
        await it.produce(partition=1, sequence=4),
        await it.produce(partition=1, sequence=0),
    ]
    return [*answers, await it.end(commit=True)]


async def late_records(it: TransactionalClient) -> list[object]:
    """A batch arrives after the end of its transaction."""
    answers: list[object] = [await it.init()]
    for commit in (True, False):
        answers += [
            *await begin(it),
            await it.produce(b"a", sequence=None),
            await it.end(commit=commit, keep=False),
        ]
        await it.settle()
        answers += [
            await it.produce(b"late"),
            await it.produce(b"a", sequence=0),
            await it.init(patient=True),
        ]
    await it.settle()
    return [*answers, await it.read(committed=False)]


CONVERSATIONS: list[Conversation] = [
    commits_and_aborts,
    interleaved,
    open_transactions_and_timestamps,
    empty_transactions,
    retried_ends,
    what_is_unknown,
    unknown_partitions,
    verification,
    fencing,
    epochs_asked_for,
    epoch_after_an_abort_by_init,
    an_outdated_epoch_asks,
    opened_behind_its_end,
    expiry,
    timeouts,
    offsets_in_transactions,
    plain_commits_meet_transactions,
    members,
    sequences,
    late_records,
]


# Using up a producer id takes ten seconds, so each of these runs for one protocol only, and on
# demand.
LONG_CONVERSATIONS = [(last_epochs, V2), (last_epochs_by_init, V1), (last_epoch_is_fenced, V2)]
PARAMETERS = [
    (conversation, protocol) for conversation in CONVERSATIONS for protocol in (V1, V2)
] + LONG_CONVERSATIONS


@pytest.fixture
async def addresses(kafka: str) -> AsyncIterator[tuple[str, str]]:
    async with EmbeddedCluster() as embedded:
        yield kafka, embedded.bootstrap_servers


@pytest.mark.parametrize(
    ("conversation", "protocol"),
    [
        pytest.param(
            conversation,
            protocol,
            id=f"{conversation.__name__}-v{1 if protocol is V1 else 2}",
            marks=[pytest.mark.judges] if (conversation, protocol) in LONG_CONVERSATIONS else [],
        )
        for conversation, protocol in PARAMETERS
    ],
)
async def test_both_brokers_say_the_same(
    addresses: tuple[str, str], conversation: Conversation, protocol: dict[str, int]
) -> None:
    name = f"{conversation.__name__}-{uuid.uuid4().hex}"
    real, embedded = [await hold(conversation, address, name, protocol) for address in addresses]
    assert embedded == real


async def hold(
    conversation: Conversation, address: str, name: str, protocol: dict[str, int]
) -> list[object]:
    """Return the responses of one broker, with a topic and a transactional id of that name."""
    async with RawClient(address) as client:
        created = await client.call(
            CreateTopicsRequest(topics=[CreatableTopic(name, PARTITIONS, 1)]), 7
        )
        assert created.topics[0].error_code == 0
        it = TransactionalClient(client, name, name, protocol)
        await it.find(TRANSACTION, name)
        await it.find(GROUP, name)
        await wait_for_leaders(client, name)
        return await conversation(it)


async def wait_for_leaders(client: RawClient, topic: str) -> None:
    """Wait until the real broker leads new partitions."""
    async with asyncio.timeout(10):
        while True:
            answer = await client.call(fetch_request(topic, *[0] * PARTITIONS, max_wait_ms=20), 12)
            if not any(partition.error_code for partition in answer.responses[0].partitions):
                return
