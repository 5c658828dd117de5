"""What may be wrong with a simulated network for a while, and between whom."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from aioprod.testing.simulation.pipes import Conditions, Names

Place = str | Collection[str] | None


def names_place(place: Place, names: Names) -> bool:
    """Tell whether one end of a connection, known by these names, is meant; None means every
    one.
    """
    if place is None:
        return True
    return place in names if isinstance(place, str) else any(name in place for name in names)


@dataclass(slots=True, frozen=True)
class Effect:
    """What a fault does to a direction.

    Attributes:
        blocked: nothing gets through, and nothing is lost: it is repeated afterwards.
        refuses: no new connection is made.
        latency: seconds, in place of the network's.
        bytes_per_second: at most; 0 for no limit.
        resets: connections that there are when it ends are reset then: the machine has forgotten
            them.
        cut_share: connections break while bytes are sent; so great a share of these bytes is
            delivered before.
    """

    blocked: bool = False
    refuses: bool = False
    latency: tuple[float, float] | None = None
    bytes_per_second: float = 0.0
    resets: bool = False
    cut_share: Callable[[], float] | None = None


class NetworkFault:
    """Something that is wrong from the moment at which it was made until :meth:`heal`, or for the
    length of a ``with`` block.
    """

    def __init__(
        self,
        effect: Effect,
        sender: Place,
        receiver: Place,
        *,
        both_ways: bool,
        times: int | None,
        on_heal: Callable[[NetworkFault], None],
    ) -> None:
        self.effect = effect
        self._sender = sender
        self._receiver = receiver
        self._both_ways = both_ways
        self._left = times
        self._on_heal = on_heal

    def hits(self, sender: Names, receiver: Names) -> bool:
        """Tell whether it is about bytes from one end to the other."""
        if names_place(self._sender, sender) and names_place(self._receiver, receiver):
            return True
        return (
            self._both_ways
            and names_place(self._sender, receiver)
            and names_place(self._receiver, sender)
        )

    def apply(self, conditions: Conditions) -> Conditions:
        """The conditions of a direction that it hits."""
        effect = self.effect
        speeds = [
            speed for speed in (conditions.bytes_per_second, effect.bytes_per_second) if speed
        ]
        return replace(
            conditions,
            latency=effect.latency or conditions.latency,
            bytes_per_second=min(speeds, default=0.0),
            blocked=conditions.blocked or effect.blocked,
        )

    def use(self) -> None:
        """Count one use; after the last it heals."""
        if self._left is not None:
            self._left -= 1
            if self._left <= 0:
                self.heal()

    def heal(self) -> None:
        """End it. Once more does nothing."""
        self._on_heal(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.heal()
