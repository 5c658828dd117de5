"""An error is printed once, whatever the clients log about it."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter

import pytest

from aioprod import Producer
from aioprod.cli.command_log import CommandLog
from aioprod.error_codes import ErrorCode
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import ThreadedCluster, fail
from tests.cli.conftest import Run
from tests.waiting import LIMIT_S, until

PRODUCE = ("produce", "orders")
CONSUME = ("consume", "orders", "--exit")
MEMBER = ("consume", "orders", "--group", "billing", "--count", "1")
COPY = ("copy", "orders", "--to-topic", "archive", "--once")
CASES = [
    *(
        (command, ApiKey.PRODUCE, code)
        for command in (PRODUCE, COPY)
        for code in (
            ErrorCode.INVALID_RECORD,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        )
    ),
    *((command, ApiKey.FETCH, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for command in (CONSUME, COPY)),
    (MEMBER, ApiKey.JOIN_GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    (MEMBER, ApiKey.OFFSET_COMMIT, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    (MEMBER, ApiKey.OFFSET_FETCH, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    (CONSUME, ApiKey.LIST_OFFSETS, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    (PRODUCE, ApiKey.INIT_PRODUCER_ID, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
]


@pytest.mark.parametrize(
    ("command", "key", "code"), CASES, ids=lambda part: getattr(part, "name", None) or part[0]
)
def test_a_failure_is_one_line(
    run: Run,
    threaded_broker: ThreadedCluster,
    command: tuple[str, ...],
    key: ApiKey,
    code: ErrorCode,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A machine that stalls ends the command later than a quarter of a second after the log line.
    monkeypatch.setattr("aioprod.cli.command_log._PRINT_AFTER_S", LIMIT_S)
    threaded_broker.create_topic("orders", 1)
    asyncio.run(_fill(threaded_broker))
    threaded_broker.on(key, fail(code), times=None)
    status, _, errors = run(*command, given=b"a\nb\n")
    assert status == 1
    named = Counter(re.findall(r"[A-Z_]+ \(-?\d+\)", errors))
    assert named == {f"{code.name} ({int(code)})": 1}, errors
    assert len(errors.splitlines()) == 2, "the number of records, and the error"


async def _fill(broker: ThreadedCluster) -> None:

    async with Producer(broker.bootstrap_servers) as producer:
        await producer.send_and_wait("orders", b"x")


async def test_other_lines_are_printed_soon_and_in_order(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = logging.Logger("aioprod")
    handler = CommandLog("aioprod consume")
    log.addHandler(handler)
    log.warning("one: INVALID_RECORD (87): no")
    log.warning("two\x1b[2J")
    assert capsys.readouterr().err == ""
    await until(lambda: handler.pending == 0)
    assert capsys.readouterr().err == (
        "aioprod consume: one: INVALID_RECORD (87): no\naioprod consume: two\\x1b[2J\n"
    )
    log.warning("three: INVALID_RECORD (87): no")
    log.warning("four")
    handler.print("line 1: INVALID_RECORD (87): no, really")
    assert capsys.readouterr().err == "aioprod consume: four\n"
    handler.print()
    assert capsys.readouterr().err == ""
