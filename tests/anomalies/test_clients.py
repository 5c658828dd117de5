"""The clients behind the interface keep its limits, and the program of franz-go is small."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest

from aioprod import TopicPartition
from tests.anomalies.clients import CLIENTS, interface
from tests.anomalies.clients.aiokafka_client import AiokafkaMember
from tests.anomalies.clients.aioprod_client import AioprodMember
from tests.anomalies.clients.confluent_client import producer_settings
from tests.anomalies.clients.franz_go_client import SOURCE
from tests.anomalies.clients.interface import LIMIT_S, Budget
from tests.anomalies.clients.kafka_python_client import KafkaPythonMember
from tests.anomalies.workload import TRANSACTION_MS

PARTITIONS = 6
SHORT_S = 0.4


class SlowConsumer:
    """A consumer whose calls take three quarters of the limit that they are given, as one that
    looks up the positions of partitions of several unreachable leaders.

    Attributes:
        took_s: the time of all calls.
    """

    def __init__(self, clock: Callable[[float], None]) -> None:
        self.took_s = 0.0
        self._advance = clock

    def assignment(self) -> set[TopicPartition]:
        return {TopicPartition("t", number) for number in range(PARTITIONS)}

    def position(self, partition: TopicPartition, timeout_ms: float) -> int:
        self._take(timeout_ms)
        return 7

    def commit(self, offsets: Any, timeout_ms: float) -> None:
        assert len(offsets) == PARTITIONS
        self._take(timeout_ms)

    def _take(self, timeout_ms: float) -> None:
        seconds = timeout_ms / 1000 * 0.75
        self.took_s += seconds
        self._advance(seconds)


class AsyncSlowConsumer(SlowConsumer):
    async def position(self, *arguments: Any, **more: Any) -> int:  # type: ignore[override]
        return super().position(*arguments, **more)

    async def commit(self, *arguments: Any, **more: Any) -> None:  # type: ignore[override]
        super().commit(*arguments, **more)


@pytest.mark.parametrize(
    ("member", "module", "consumer"),
    [
        (AioprodMember, "aioprod_client", AsyncSlowConsumer),
        (KafkaPythonMember, "kafka_python_client", SlowConsumer),
    ],
)
async def test_a_commit_of_several_partitions_has_one_limit(
    member: type[AioprodMember | KafkaPythonMember],
    module: str,
    consumer: type[SlowConsumer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0

    def advance(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(f"tests.anomalies.clients.{module}.Budget", lambda: Budget(lambda: now))
    slow = consumer(advance)
    tested = member.__new__(member)
    tested._consumer = slow
    assert await tested.commit() == dict.fromkeys(range(PARTITIONS), 7)
    assert slow.took_s < LIMIT_S


async def test_a_commit_without_a_limit_of_its_own_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.anomalies.clients.aiokafka_client.DELIVERY_S", SHORT_S)

    class Silent(AsyncSlowConsumer):
        async def position(self, *arguments: Any, **more: Any) -> int:  # type: ignore[override]
            await asyncio.sleep(SHORT_S * 0.75)
            return 7

    member = AiokafkaMember.__new__(AiokafkaMember)
    member._consumer = Silent(lambda _: None)
    async with asyncio.timeout(SHORT_S * 4):
        with pytest.raises(TimeoutError):
            await member.commit()


def test_a_budget_that_is_spent_is_not_without_limit() -> None:
    moments = iter([0.0, 10.0, 99.0])
    budget = Budget(lambda: next(moments))
    assert budget.rest_s == pytest.approx(interface.DELIVERY_S - 10)
    assert budget.rest_ms == 1


def test_a_client_that_needs_more_than_packages_runs_on_demand() -> None:
    assert [name for name, client in CLIENTS.items() if client.on_demand] == ["franz-go"]
    assert CLIENTS["franz-go"].version.count(".") == 2


@pytest.mark.parametrize("language", ["go", "py"])
def test_a_client_has_at_most_200_lines(language: str) -> None:
    directory = SOURCE if language == "go" else SOURCE.with_name("clients")
    for path in directory.glob(f"*.{language}"):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 200, path.name


@pytest.mark.parametrize("transaction_ms", [None, TRANSACTION_MS])
def test_librdkafka_accepts_the_limits_of_transactions(transaction_ms: int | None) -> None:
    settings = producer_settings("127.0.0.1:1", "id", transaction_ms)
    confluent_kafka.Producer(settings).close()
