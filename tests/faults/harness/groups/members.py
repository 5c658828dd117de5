"""The members of a group: processes that start, leave, are killed, frozen and made busy."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.faults.harness.child import Child
from tests.faults.harness.groups.ledger import Ledger
from tests.faults.harness.groups.member import Settings

_LEAVE_SECONDS = 20.0


class MemberProcess:
    """The process of a member.

    Attributes:
        name: the name of the member.
        left_seconds: how long it took to leave; None before that.
    """

    def __init__(self, name: str, settings: Settings) -> None:
        self.name = name
        self.left_seconds: float | None = None
        self._path = Path(settings.ledger)
        self._busy_seconds = settings.busy_seconds
        self._away: list[tuple[float, float]] = []
        self._frozen_at: float | None = None
        self._ended_at = float("inf")
        self._process = Child(
            "tests.faults.harness.groups.member",
            settings.to_json(),
            self._path.with_suffix(".log"),
        )

    @property
    def runs(self) -> bool:
        """True if the process runs, even frozen."""
        return self._process.runs

    def ledger(self) -> Ledger:
        """Return what it has noted so far."""
        ledger = Ledger.read(self.name, self._path, self._ended_at)
        ledger.away = list(self._away)
        if self._frozen_at is not None:
            ledger.away.append((self._frozen_at, float("inf")))
        return ledger

    def kill(self) -> None:
        """Kill it (SIGKILL) and wait until it has ended."""
        self._process.kill()
        self._ended()

    def freeze(self) -> None:
        """Freeze it (SIGSTOP)."""
        self._process.signal(signal.SIGSTOP)
        self._frozen_at = time.monotonic()

    def resume(self) -> None:
        """Let it continue (SIGCONT)."""
        self._process.signal(signal.SIGCONT)
        if self._frozen_at is not None:
            self._away.append((self._frozen_at, time.monotonic()))
            self._frozen_at = None

    def make_busy(self) -> None:
        """Make the handler of its next records take long."""
        now = time.monotonic()
        self._process.signal(signal.SIGUSR1)
        self._away.append((now, now + self._busy_seconds + 1))

    async def leave(self) -> None:
        """Let it leave in good order; kill it if it does not end in time."""
        began = time.monotonic()
        await self._process.terminate(_LEAVE_SECONDS)
        self.left_seconds = time.monotonic() - began
        self._ended()

    def _ended(self) -> None:
        self._ended_at = min(self._ended_at, time.monotonic())


@dataclass
class Group:
    """The members of one client in one protocol.

    Attributes:
        name: the client and the protocol.
        members: all members so far, in the order of their starts.
    """

    name: str
    settings: Settings
    directory: Path
    members: list[MemberProcess] = field(default_factory=list)

    @property
    def topic(self) -> str:
        """The topic that it reads."""
        return self.settings.topic

    def start_member(self) -> MemberProcess:
        """Start one more member."""
        name = f"{self.name}-{len(self.members) + 1}"
        path = self.directory / f"{name.replace(' ', '-')}.ledger"
        member = MemberProcess(name, replace(self.settings, ledger=str(path)))
        self.members.append(member)
        return member

    @property
    def running(self) -> list[MemberProcess]:
        """The members whose processes run."""
        return [member for member in self.members if member.runs]

    def oldest(self) -> MemberProcess:
        """Return the member that runs longest and owns partitions."""
        now = time.monotonic()
        owners = [member for member in self.running if member.ledger().owned_at(now)]
        return (owners or self.running)[0]

    def ledgers(self) -> list[Ledger]:
        """Return the ledgers of all members."""
        return [member.ledger() for member in self.members]
