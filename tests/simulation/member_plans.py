"""Plans when members of groups and of share groups join and leave."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar


@dataclass(frozen=True, slots=True, kw_only=True)
class LifePlan:
    """A member and its life.

    Attributes:
        settings: the settings of the consumer.
        topics: the topics that it subscribes to.
        cancel_share: the share of calls that are cancelled at a random time.
        after: seconds until it starts.
        leaves_after: seconds until it leaves; None for at the end.
        dies: whether it leaves without a word.
        close_timeout_ms: the argument of `close`.
    """

    name: str
    settings: dict[str, Any]
    topics: tuple[str, ...]
    cancel_share: float
    after: float
    leaves_after: float | None
    dies: bool
    close_timeout_ms: int


PlanT = TypeVar("PlanT", bound=LifePlan)


def draw_lives(
    rng: random.Random,
    name: str,
    seconds: float,
    gaps: Sequence[float],
    draw: Callable[[str, float], PlanT],
) -> Iterator[PlanT]:
    """Yield a member, and those that come back for it after it has left.

    Args:
        seconds: how long members come and go.
        gaps: the seconds after which one may come back.
        draw: returns the member of this name that starts after this many seconds.
    """
    after = rng.choice([0.0, 0.0, rng.uniform(0, seconds / 2)])
    while True:
        plan = draw(name, after)
        yield plan
        if plan.leaves_after is None or rng.random() < 0.3:
            return
        after = plan.after + plan.leaves_after + rng.choice(gaps)
        if after > seconds:
            return
        name += "+"


def draw_fetch_growth(name: str, settings: dict[str, Any]) -> None:
    """Sometimes let fetches grow while responses are full."""
    # A separate generator, so that growth does not change the rest of a seed's scenario.
    rng = random.Random(f"{name} {sorted(settings.items())} growth")
    size = settings["max_partition_fetch_bytes"]
    settings["largest_partition_fetch_bytes"] = size * rng.choice([1, 8])


def draw_backoffs(rng: random.Random) -> dict[str, Any]:
    """Return the settings of retries and connections."""
    return {
        "retry_backoff_ms": rng.choice([10, 50]),
        "retry_backoff_max_ms": rng.choice([100, 400]),
        "reconnect_backoff_ms": rng.choice([1, 10]),
        "reconnect_backoff_max_ms": rng.choice([20, 200]),
        "socket_connection_setup_timeout_ms": rng.choice([100, 500]),
        "socket_connection_setup_timeout_max_ms": 1_000,
    }
