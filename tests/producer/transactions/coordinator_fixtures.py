"""Fixtures of the tests with scripted coordinators; a module gets them by naming this one in
``pytest_plugins``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from aioprod.producer.transactions.manager import TransactionManager
from tests.producer.transactions.coordinator_script import CoordinatorScript, FakeSender


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
    """Managers that are closed at the end; then none of their tasks may be left (see conftest)."""
    managers: list[TransactionManager] = []
    yield managers
    for manager in managers:
        await manager.close()


@pytest.fixture
def made(closing: list[TransactionManager]) -> Callable[..., tuple[FakeSender, TransactionManager]]:
    def make(
        coordinators: CoordinatorScript, **settings: object
    ) -> tuple[FakeSender, TransactionManager]:
        sender = FakeSender(coordinators, **settings)
        closing.append(sender.manager)
        return sender, sender.manager

    return make
