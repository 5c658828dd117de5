"""The scenario of a seed of groups: the protocol, topics, the group's settings, its members and
what they do, and the number of faults. Depends only on the seed.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tests.simulation.history import summarize
from tests.simulation.member_plans import LifePlan, draw_backoffs, draw_fetch_growth, draw_lives

GROUP = "g"
TOPICS = ("t", "u")
CLASSIC, CONSUMER = PROTOCOLS = ("classic", "consumer")  # group.protocol
#: How a member subscribes: by names, a pattern of its own, or one that the broker evaluates.
NAMES, PATTERN, BROKER_PATTERN = ("names", "pattern", "broker pattern")

# Cooperative groups by two settings: on its own, and in the middle of a rolling upgrade.
_STRATEGIES: list[tuple[str, ...]] = [
    ("cooperative-sticky",),
    ("cooperative-sticky",),
    ("cooperative-sticky",),
    ("range",),
    ("sticky",),
    ("roundrobin",),
    ("range", "cooperative-sticky"),
]
# The assignors that members ask the broker for (None: its default), the same or not.
_REMOTE_ASSIGNORS: list[tuple[str | None, ...]] = [
    (None,),
    ("uniform",),
    ("range",),
    (None, "uniform", "range"),
]
_OF_CLASSIC_GROUPS = (
    "partition_assignment_strategy",
    "session_timeout_ms",
    "heartbeat_interval_ms",
)
_REPORTED_FIELDS = (
    "topics",
    "subscribes",
    "commits",
    "polls",
    "poll_timeout_ms",
    "pause",
    "busy_share",
    "cancel_share",
    "trick_share",
    "after",
    "leaves_after",
    "dies",
    "close_timeout_ms",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPlan(LifePlan):
    """A member of the group and what it does.

    Attributes:
        commits: ``auto``, ``sync`` or ``async``.
        polls: ``getmany``, ``getone`` or ``iterate``.
        pause: the longest pause between two polls, in seconds.
        busy_share: the share of pauses that are longer than max.poll.interval.ms.
        trick_share: the share of polls before which it seeks, pauses a partition, changes its
            subscription, or asks for positions.
        subscribes: ``NAMES``, ``PATTERN`` or ``BROKER_PATTERN``.
    """

    commits: str
    polls: str
    poll_timeout_ms: int
    pause: float
    busy_share: float
    trick_share: float
    subscribes: str = NAMES

    @property
    def instance(self) -> str | None:
        """The name of a static member."""
        instance: str | None = self.settings.get("group_instance_id")
        return instance

    @property
    def is_cooperative(self) -> bool:
        """True if it keeps its partitions during a rebalance."""
        strategies = self.settings.get("partition_assignment_strategy")
        return strategies in (None, ("cooperative-sticky",))  # None: the consumer protocol

    def __str__(self) -> str:
        fields = {name: getattr(self, name) for name in _REPORTED_FIELDS}
        return f"{self.name}: {summarize(fields)} settings: {summarize(self.settings)}"


@dataclass(frozen=True, slots=True)
class GroupScenario:
    """Everything that is decided before a run begins.

    Attributes:
        protocol: ``CLASSIC``, or ``CONSUMER`` (KIP-848).
        partitions: the number of partitions of each topic.
        added: topics and when they get a further partition, in seconds.
        session_ms: the session timeout of the members.
        heartbeat_ms: how often they send heartbeats.
        records: how many records are written while faults occur.
        faults: the number of faults.
        loses_responses: whether responses to handled requests may get lost.
        seconds: how long members come and go and faults occur.
    """

    seed: int
    protocol: str
    nodes: int
    partitions: Mapping[str, int]
    added: tuple[tuple[float, str], ...]
    initial_delay_ms: int
    session_ms: int
    heartbeat_ms: int
    members: tuple[MemberPlan, ...]
    records: int
    faults: int
    loses_responses: bool
    seconds: float

    @property
    def session_s(self) -> float:
        """The session timeout of the members."""
        return self.session_ms / 1000

    @property
    def max_poll_s(self) -> float:
        """The longest time between two polls."""
        return float(self.members[0].settings["max_poll_interval_ms"]) / 1000

    @property
    def late(self) -> MemberPlan:
        """A member that starts after all faults, if no other is left."""
        first = self.members[0]
        settings = dict(first.settings)
        settings.pop("group_instance_id", None)
        return replace(
            first,
            name="late",
            settings=settings,
            topics=TOPICS,
            after=0.0,
            leaves_after=None,
            dies=False,
        )

    @property
    def peaceful(self) -> bool:
        """True if no member has a reason to lose its partitions, so that no record is read twice:
        members only come and go, and give their partitions back; no static member takes over the
        name of another.
        """
        instances = [plan.instance for plan in self.members if plan.instance is not None]
        return (
            not self.faults
            and len(instances) == len(set(instances))
            and all(
                not (plan.dies or plan.busy_share or plan.cancel_share or plan.trick_share)
                and plan.close_timeout_ms > 1_000
                for plan in self.members
            )
        )

    def __str__(self) -> str:
        names = ["protocol", "nodes", "partitions", "added", "initial_delay_ms", "session_ms"]
        names += ["heartbeat_ms", "records", "faults", "loses_responses", "seconds"]
        lines = [f"seed {self.seed}: {summarize({name: getattr(self, name) for name in names})}"]
        return "\n  ".join([*lines, *map(str, self.members)])


def draw(seed: int, protocol: str | None = None) -> GroupScenario:
    """Return the scenario of a seed.

    Args:
        protocol: ``CLASSIC`` or ``CONSUMER``; None: the seed decides.
    """
    protocol = protocol or random.Random(f"{seed} group protocol").choice(PROTOCOLS)
    rng = random.Random(f"{seed} group scenario")
    seconds = rng.choice([5.0, 10.0, 20.0])
    partitions = {topic: rng.choice([1, 2, 3, 5]) for topic in TOPICS}
    peaceful = rng.random() < 0.15
    added = [(rng.uniform(0, seconds), rng.choice(TOPICS)) for _ in range(rng.choice([0, 0, 1, 2]))]
    nodes, initial_delay_ms = rng.choice([1, 3, 3, 3]), rng.choice([0, 0, 200])
    members = _draw_members(rng, seconds, peaceful)
    shared = members[0].settings
    return GroupScenario(
        seed=seed,
        protocol=protocol,
        nodes=nodes,
        partitions=partitions,
        added=tuple(sorted(added)),
        initial_delay_ms=initial_delay_ms,
        session_ms=shared["session_timeout_ms"],
        heartbeat_ms=shared["heartbeat_interval_ms"],
        members=members if protocol == CLASSIC else _of_consumer_protocol(seed, members),
        records=rng.choice([50, 150, 300]),
        faults=0 if peaceful else rng.choice([0, 5, 10, 20]),
        loses_responses=rng.random() < 0.65,
        seconds=seconds,
    )


def _of_consumer_protocol(seed: int, plans: tuple[MemberPlan, ...]) -> tuple[MemberPlan, ...]:
    """Return the members of a classic group as members of one of KIP-848."""
    rng = random.Random(f"{seed} group of the consumer protocol")
    assignors = rng.choice(_REMOTE_ASSIGNORS)
    return tuple(
        replace(
            plan,
            settings={
                **{k: v for k, v in plan.settings.items() if k not in _OF_CLASSIC_GROUPS},
                "group_protocol": CONSUMER,
                "group_remote_assignor": rng.choice(assignors),
            },
            subscribes=rng.choice([NAMES, NAMES, PATTERN, BROKER_PATTERN, BROKER_PATTERN]),
        )
        for plan in plans
    )


def _draw_members(rng: random.Random, seconds: float, peaceful: bool) -> tuple[MemberPlan, ...]:
    session_ms = rng.choice([800, 2_000, 6_000])
    shared: dict[str, Any] = {
        "partition_assignment_strategy": rng.choice(_STRATEGIES),
        "session_timeout_ms": session_ms,
        "heartbeat_interval_ms": session_ms // rng.choice([3, 5, 10]),
        "max_poll_interval_ms": 20_000 if peaceful else rng.choice([1_000, 3_000, 10_000]),
        "metadata_max_age_ms": rng.choice([200, 1_000]),
    }
    topics = rng.choice([("t",), TOPICS, TOPICS])
    is_static = rng.random() < 0.25
    plans: list[MemberPlan] = []
    for number in range(1, rng.choice([1, 2, 3, 4]) + 1):
        name = f"m{number}"
        settings = dict(shared)
        if is_static and rng.random() < 0.7:
            settings["group_instance_id"] = f"instance-{number}"
        draw = partial(_draw_member, rng, settings, topics, seconds, peaceful)
        # It comes back before its session times out, or later.
        plans += draw_lives(rng, name, seconds, [0.0, 0.1, 1.0, 8.0], draw)
    return tuple(plans)


def _draw_member(
    rng: random.Random,
    shared: dict[str, Any],
    topics: tuple[str, ...],
    seconds: float,
    peaceful: bool,
    name: str,
    after: float,
) -> MemberPlan:
    commits = rng.choice(["auto", "sync", "sync", "async"])
    settings = {
        **shared,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": commits == "auto",
        "auto_commit_interval_ms": rng.choice([50, 500, 2_000]),
        "max_poll_records": rng.choice([1, 5, 500]),
        "fetch_max_wait_ms": rng.choice([50, 400]),
        "max_partition_fetch_bytes": rng.choice([200, 1_048_576]),
        "request_timeout_ms": rng.choice([500, 2_000]),
        "default_api_timeout_ms": rng.choice([2_000, 8_000]),
        **draw_backoffs(rng),
        "stall_timeout_ms": 3_000,
    }
    draw_fetch_growth(name, settings)
    if rng.random() < 0.2:
        settings["connections_max_idle_ms"] = rng.choice([50, 500])
    troubled = not peaceful
    leaves = rng.random() < 0.5
    return MemberPlan(
        name=name,
        settings=settings,
        topics=topics if rng.random() < 0.8 else rng.choice([("t",), ("u",), TOPICS]),
        commits=commits,
        polls=rng.choice(["getmany", "getmany", "getone", "iterate"]),
        poll_timeout_ms=rng.choice([0, 20, 200, 1_000]),
        # A loop without any pause would let no virtual time pass.
        pause=rng.choice([0.005, 0.01, 0.1, 0.4]),
        busy_share=rng.choice([0.0, 0.0, 0.02]) * troubled,
        cancel_share=rng.choice([0.0, 0.0, 0.05, 0.2]) * troubled,
        trick_share=rng.choice([0.0, 0.0, 0.05, 0.2]) * troubled,
        after=after,
        leaves_after=rng.uniform(0.2, seconds) if leaves else None,
        dies=troubled and leaves and rng.random() < 0.5,
        close_timeout_ms=5_000 if peaceful else rng.choice([0, 300, 5_000, 30_000]),
    )
