"""Faults of the simulated network: their effects, and the connections that they affect."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from aioprod.testing.simulation.pipes import Conditions, Names

Place = str | Collection[str] | None


def matches(place: Place, names: Names) -> bool:
    """Return whether ``place`` includes the end of a connection that has these names.

    None includes all.
    """
    if place is None:
        return True
    return place in names if isinstance(place, str) else any(name in place for name in names)


@dataclass(slots=True, frozen=True)
class Effect:
    """The effect of a fault on one direction of a connection.

    Attributes:
        blocked: nothing gets through; when the fault ends, TCP retransmits it.
        refuses: new connections are refused.
        latency: minimum and maximum seconds, instead of the network's.
        bytes_per_second: the bandwidth; 0 for no limit.
        resets: open connections are reset when the fault ends, because the machine has lost their
            state.
        cut_share: if set, writes break their connection; returns the share of the bytes that is
            delivered first.
    """

    blocked: bool = False
    refuses: bool = False
    latency: tuple[float, float] | None = None
    bytes_per_second: float = 0.0
    resets: bool = False
    cut_share: Callable[[], float] | None = None


class NetworkFault:
    """A fault, active until :meth:`heal` or until the end of a ``with`` block."""

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
        self._uses_left = times
        self._on_heal = on_heal

    def affects(self, sender: Names, receiver: Names) -> bool:
        """Return whether the fault affects bytes from one end to the other."""
        if matches(self._sender, sender) and matches(self._receiver, receiver):
            return True
        return (
            self._both_ways and matches(self._sender, receiver) and matches(self._receiver, sender)
        )

    def apply(self, conditions: Conditions) -> Conditions:
        """Return the conditions of an affected direction."""
        effect = self.effect
        limits = [
            limit for limit in (conditions.bytes_per_second, effect.bytes_per_second) if limit
        ]
        return replace(
            conditions,
            latency=effect.latency or conditions.latency,
            bytes_per_second=min(limits, default=0.0),
            blocked=conditions.blocked or effect.blocked,
        )

    def use(self) -> None:
        """Count one use; heal after the last."""
        if self._uses_left is not None:
            self._uses_left -= 1
            if self._uses_left <= 0:
                self.heal()

    def heal(self) -> None:
        """End the fault. Further calls do nothing."""
        self._on_heal(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.heal()


class ActiveFaults:
    """The active faults of a network."""

    def __init__(self) -> None:
        self._faults: list[NetworkFault] = []

    def __iter__(self) -> Iterator[NetworkFault]:
        return iter(self._faults)

    def add(self, fault: NetworkFault) -> None:
        """Activate a fault."""
        self._faults.append(fault)

    def remove(self, fault: NetworkFault) -> None:
        """End a fault."""
        self._faults.remove(fault)

    def clear(self) -> None:
        """End all faults."""
        self._faults.clear()

    def apply(self, normal: Conditions, sender: Names, receiver: Names) -> Conditions:
        """Return the conditions from one end of a connection to the other."""
        conditions = normal
        for fault in self._faults:
            if fault.affects(sender, receiver):
                conditions = fault.apply(conditions)
        return conditions

    def refuse(self, client: Names, server: Names) -> bool:
        """Return whether a new connection is refused."""
        return any(fault.effect.refuses and fault.affects(client, server) for fault in self._faults)

    @property
    def cut_writes(self) -> bool:
        """True if a fault breaks connections while data is written."""
        return any(fault.effect.cut_share for fault in self._faults)

    def cut_share(self, sender: Names, receiver: Names) -> float | None:
        """Return the share of a write that is delivered before its connection breaks, or None if it
        does not break.
        """
        for fault in self._faults:
            if fault.effect.cut_share is not None and fault.affects(sender, receiver):
                share = fault.effect.cut_share()
                fault.use()
                return share
        return None
