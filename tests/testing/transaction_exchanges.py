"""Exchanges of transactional producers with any broker."""

from __future__ import annotations

from tests.testing.raw_transactions import (
    V1,
    Member,
    TransactionalClient,
    begin,
    other,
)

PARTITIONS = 2


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
        await it.until_idle()
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
    await it.until_idle()  # now the latest timestamp is the marker's
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
    await it.until_idle()
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
            await it.until_idle()
            answers += [
                await it.end(commit=again, keep=False),
                await it.end(commit=again, keep=False),
            ]
            answers.append(await it.init(patient=True))
    return answers


async def what_is_unknown(it: TransactionalClient) -> list[object]:
    answers: list[object] = []
    stranger = await other(it, it.transactional_id + "-unknown")
    # Far from those that the broker has given to other tests.
    stranger.producer_id, stranger.epoch = 7_000_000, 0
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
    it.producer_id += 1_000_000
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
    await it.until_idle()
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


async def expiry(it: TransactionalClient) -> list[object]:
    """A transaction takes longer than its timeout: it is aborted and its producer is fenced."""
    answers: list[object] = []
    for commit in (True, False):
        answers += [
            await it.init(patient=True, timeout_ms=500),
            *await begin(it),
            await it.produce(b"slow"),
        ]
        await it.until_idle()
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
        await it.until_idle()
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
        await it.finish_offsets(group)
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
        await it.finish_offsets(group)
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
    await it.until_idle()
    answers += [
        *await begin(it),
        await it.produce(sequence=1),
        await it.produce(sequence=0),
        await it.produce(sequence=5),
    ]
    answers.append(await it.end(commit=False))
    await it.until_idle()
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
        await it.until_idle()
        answers += [
            await it.produce(b"late"),
            await it.produce(b"a", sequence=0),
            await it.init(patient=True),
        ]
    await it.until_idle()
    return [*answers, await it.read(committed=False)]
