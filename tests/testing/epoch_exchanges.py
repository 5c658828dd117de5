"""Exchanges about producer epochs, for any broker."""

from __future__ import annotations

from tests.testing.raw_transactions import (
    TransactionalClient,
    begin,
    other,
)

LAST_EPOCH = 32_766


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
    await it.until_idle()
    answers += [
        await it.read(committed=True),
        await second.produce(b"late"),
        await second.end(commit=True),
        await second.end(commit=False),
    ]
    answers += [*await begin(third), await third.produce(b"mine"), await third.end(commit=True)]
    await it.until_idle()
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
    await it.until_idle()
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
        await it.until_idle()
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
        await it.until_idle()
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
                await it.until_idle()
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
