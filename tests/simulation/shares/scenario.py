"""The scenario of a seed of a share group: topics, the group's settings, its members and what they
do, and the number of faults. Depends only on the seed.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any

from tests.simulation.history import summarize
from tests.simulation.member_plans import LifePlan, draw_backoffs, draw_lives

GROUP = "g"
TOPICS = ("t", "u")
_LOCK, _LIMIT = "share.record.lock.duration.ms", "share.delivery.count.limit"
_REPORTED_FIELDS = (
    *("kind", "topics", "pause", "slow_share", "refused_share", "resubscribe_share"),
    *("cancel_share", "after", "leaves_after", "dies", "close_timeout_ms"),
)


class Kind(StrEnum):
    """The mode in which a member reads and acknowledges."""

    ITERATES = "iterates"  # async for, implicit mode
    POLLS = "polls"  # getmany and commit, implicit mode
    EXPLICIT = "explicit"
    KEEPS = "keeps"  # explicit; the client renews the locks of records that it keeps


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePlan(LifePlan):
    """A member of the group and what it does.

    Attributes:
        pause: the mean time that a record takes, in seconds.
        slow_share: the share of records that take about as long as a lock.
        refused_share: the share of records that it releases or rejects (explicit mode).
        resubscribe_share: the share of steps before which it changes its topics for one step.
    """

    kind: Kind
    pause: float
    slow_share: float
    refused_share: float
    resubscribe_share: float

    def __str__(self) -> str:
        fields = {name: getattr(self, name) for name in _REPORTED_FIELDS}
        return f"{self.name}: {summarize(fields)} settings: {summarize(self.settings)}"


@dataclass(frozen=True, slots=True)
class ShareScenario:
    """Everything that is decided before a run begins.

    Attributes:
        partitions: the number of partitions of each topic.
        group: the group's settings.
        committed_only: whether the group skips aborted records (``share.isolation.level``).
        transactions: how many transactions are written before the first fault, and after the last.
        records: how many records are written while faults occur.
        faults: the number of faults.
        seconds: how long members come and go and faults occur.
    """

    seed: int
    nodes: int
    partitions: Mapping[str, int]
    group: Mapping[str, int]
    members: tuple[SharePlan, ...]
    committed_only: bool
    transactions: int
    records: int
    faults: int
    seconds: float

    @property
    def lock_s(self) -> float:
        """The time for which a record is locked."""
        return self.group[_LOCK] / 1000

    @property
    def delivery_limit(self) -> int:
        """The maximum number of deliveries of a record."""
        return self.group[_LIMIT]

    @property
    def late(self) -> SharePlan:
        """A member that starts after all faults, if no other reads all topics."""
        return replace(
            self.members[0],
            name="late",
            topics=TOPICS,
            after=0.0,
            leaves_after=None,
            dies=False,
            close_timeout_ms=5_000,
        )

    def __str__(self) -> str:
        names = ["nodes", "partitions", "committed_only", "transactions"]
        names += ["records", "faults", "seconds"]
        fields = {name: getattr(self, name) for name in names}
        lines = [f"seed {self.seed}: {summarize(fields)} {summarize(self.group)}"]
        return "\n  ".join([*lines, *map(str, self.members)])


def draw(seed: int) -> ShareScenario:
    """Return the scenario of a seed."""
    rng = random.Random(f"{seed} share scenario")
    seconds = rng.choice([4.0, 8.0, 15.0])
    members: list[SharePlan] = []
    for number in range(1, rng.choice([2, 3, 3, 4]) + 1):
        draw_one = partial(_draw_member, rng, rng.choice(list(Kind)), seconds)
        members += draw_lives(rng, f"m{number}", seconds, [0.0, 0.1, 2.0], draw_one)
    return ShareScenario(
        seed=seed,
        nodes=rng.choice([1, 3, 3, 3]),
        partitions={topic: rng.choice([1, 1, 2, 3]) for topic in TOPICS},
        group={
            # The client takes a lock of less than a second for one of a second.
            _LOCK: rng.choice([1_000, 1_500, 4_000]),
            _LIMIT: rng.choice([2, 3, 5, 10]),
            "share.heartbeat.interval.ms": rng.choice([100, 500]),
            "share.session.timeout.ms": rng.choice([1_500, 5_000]),
            "share.partition.max.record.locks": rng.choice([100, 2_000]),
        },
        members=tuple(members),
        committed_only=rng.random() < 0.5,
        transactions=rng.choice([0, 0, 3, 10]),
        records=rng.choice([40, 80, 160]),
        faults=rng.choice([0, 4, 8, 16]),
        seconds=seconds,
    )


def _draw_member(
    rng: random.Random, kind: Kind, seconds: float, name: str, after: float
) -> SharePlan:
    leaves = rng.random() < 0.5
    return SharePlan(
        name=name,
        kind=kind,
        settings=_draw_settings(rng, kind),
        topics=rng.choice([TOPICS, TOPICS, TOPICS, TOPICS[:1]]),
        pause=rng.choice([0.002, 0.02, 0.2]),
        slow_share=rng.choice([0.0, 0.05, 0.15]),
        refused_share=rng.choice([0.0, 0.1, 0.3]),
        resubscribe_share=rng.choice([0.0, 0.0, 0.05]),
        cancel_share=rng.choice([0.0, 0.1, 0.3]),
        after=after,
        leaves_after=rng.uniform(0.3, seconds) if leaves else None,
        dies=leaves and rng.random() < 0.4,
        close_timeout_ms=rng.choice([0, 500, 5_000]) if leaves else 5_000,
    )


def _draw_settings(rng: random.Random, kind: Kind) -> dict[str, Any]:
    settings = {
        "share_acquire_mode": rng.choice(["batch_optimized", "record_limit"]),
        "max_poll_records": rng.choice([1, 5, 500]),
        "max_poll_interval_ms": rng.choice([2_000, 60_000]),
        "fetch_max_wait_ms": rng.choice([50, 400]),
        "request_timeout_ms": rng.choice([800, 2_000]),
        "default_api_timeout_ms": rng.choice([3_000, 8_000]),
        "metadata_max_age_ms": rng.choice([200, 1_000]),
        **draw_backoffs(rng),
    }
    if kind in (Kind.EXPLICIT, Kind.KEEPS):
        settings["share_acknowledgement_mode"] = "explicit"
    if kind is Kind.KEEPS:
        settings["max_lock_renewal_ms"] = rng.choice([3_000, 30_000])
    if rng.random() < 0.2:
        settings["connections_max_idle_ms"] = rng.choice([200, 1_000])
    return settings
