"""What connections are made of: a pipe each way, which takes its time, cuts bytes into pieces and
may break.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, field
from enum import Enum
from random import Random

from aioprod.testing.simulation.trace import Trace

# what a connection takes from a sender before the receiver has read it, as the buffers of sockets
# do
_WINDOW_BYTES = 256 * 1024
_MOST_PIECES = 4
_FRAME_HEAD_BYTES = 8  # where cuts hurt most
_PIECES_A_SECOND = 20  # of a slow connection

Names = tuple[str, ...]


class Mark(Enum):
    """What is on its way besides bytes."""

    HELLO = "hello"
    END = "end"
    RESET = "reset"


@dataclass(slots=True)
class Conditions:
    """How one direction of a connection fares at the moment.

    Attributes:
        latency: least and greatest seconds that a piece is on its way.
        bytes_per_second: 0 for as fast as it comes.
        blocked: nothing gets through.
    """

    latency: tuple[float, float]
    bytes_per_second: float = 0.0
    blocked: bool = False


@dataclass(slots=True)
class Surroundings:
    """What all connections of a network share.

    Attributes:
        split_probability: of each write, to arrive in several pieces.
        cut_share: where set, asked at each write; a number says that the connection breaks now,
            after that share of the bytes.
    """

    loop: asyncio.AbstractEventLoop
    random: Random
    trace: Trace
    split_probability: float
    cut_share: Callable[[Names, Names], float | None] | None = field(default=None)


class End(ABC):
    """What a pipe knows of its ends.

    Attributes:
        context: in which what arrives is handled.
        lost: it takes nothing any more.
    """

    context: Context
    lost: bool

    @property
    @abstractmethod
    def reads(self) -> bool:
        """Whether bytes may arrive now."""

    @abstractmethod
    def data_arrived(self, data: bytes) -> None:
        """Bytes are there."""

    @abstractmethod
    def mark_arrived(self, mark: Mark) -> None:
        """The other end has connected or closed, or the connection was reset."""

    @abstractmethod
    def look(self) -> None:
        """Something was sent: there is room for more."""


class Pipe:
    """One direction of a connection: bytes come out in the order in which they went in.

    Attributes:
        conditions: replaced where they change.
        sender, receiver: its ends.
        unsent_bytes: what did not fit into the window, and waits on the sender's side.
    """

    sender: End
    receiver: End

    def __init__(
        self, around: Surroundings, link: Link, direction: int, conditions: Conditions
    ) -> None:
        self.conditions = conditions
        self.unsent_bytes = 0
        self._around = around
        self._link = link
        self._direction = direction
        self._unsent: deque[bytes] = deque()
        self._on_way: deque[tuple[float, bytes | Mark]] = deque()
        self._on_way_bytes = 0
        self._newest_arrival = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._ended = self._was_reset = False  # that is on its way, or has arrived

    # -- the sender's side -------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Put bytes in."""
        if self._ended:
            return
        if self._unsent or len(data) > _WINDOW_BYTES - self._on_way_bytes:
            self._unsent.append(data)
            self.unsent_bytes += len(data)
            self._fill_window()
        else:
            self._launch(data)

    def greet(self) -> None:
        """Tell the receiver of the connection."""
        self._put(Mark.HELLO)

    def end(self) -> None:
        """Send the end behind what is on its way."""
        if not self._ended:
            self._ended = True
            self._put(Mark.END)

    def reset(self) -> None:
        """Send a reset behind what is on its way."""
        self.drop_unsent()
        if not self._was_reset:
            self._ended = self._was_reset = True
            self._put(Mark.RESET)

    def drop_unsent(self) -> None:
        """Forget what waits on the sender's side."""
        self._unsent.clear()
        self.unsent_bytes = 0

    def break_off(self, share: float) -> None:
        """Lose what is on its way, but for a share of it, and then bring a reset."""
        kept = int(len(self._on_way) * share + 0.5)
        while len(self._on_way) > kept:
            piece = self._on_way.pop()[1]
            self._on_way_bytes -= 0 if isinstance(piece, Mark) else len(piece)
        if not self._on_way:
            self._stop_timer()
        self._was_reset = False
        self.reset()

    def _fill_window(self) -> None:
        while self._unsent and self._on_way_bytes < _WINDOW_BYTES:
            data = self._unsent.popleft()
            room = _WINDOW_BYTES - self._on_way_bytes
            if len(data) > room:
                self._unsent.appendleft(data[room:])
                data = data[:room]
            self.unsent_bytes -= len(data)
            self._launch(data)

    def _launch(self, data: bytes) -> None:
        around = self._around
        if around.cut_share is not None:
            names = self._link.names
            share = around.cut_share(names[self._direction], names[1 - self._direction])
            if share is not None:
                self._break_in(data, share)
                return
        if self.conditions.bytes_per_second:
            self._put_slowly(data)
        elif len(data) > 1 and around.random.random() < around.split_probability:
            self._put_in_pieces(data)
        else:
            self._put(data)

    def _break_in(self, data: bytes, share: float) -> None:
        kept = data[: int(len(data) * share)]
        if kept:
            self._put(kept)
        self._link.cut({self._direction: 1.0})

    def _put_slowly(self, data: bytes) -> None:
        size = max(1, int(self.conditions.bytes_per_second / _PIECES_A_SECOND))
        for start in range(0, len(data), size):
            self._put(data[start : start + size])

    def _put_in_pieces(self, data: bytes) -> None:
        random = self._around.random
        reach = len(data) if random.random() < 0.5 else min(len(data), _FRAME_HEAD_BYTES)
        ends = (
            {random.randrange(1, reach) for _ in range(random.randrange(1, _MOST_PIECES))}
            if reach > 1
            else set()
        )
        start = 0
        for end in (*sorted(ends), len(data)):
            self._put(data[start:end])
            start = end

    def _put(self, piece: bytes | Mark) -> None:
        around, conditions = self._around, self.conditions
        low, high = conditions.latency
        arrival = around.loop.time() + low + (high - low) * around.random.random()
        if arrival < self._newest_arrival:
            arrival = self._newest_arrival
        if not isinstance(piece, Mark):
            self._on_way_bytes += len(piece)
            if conditions.bytes_per_second:
                arrival += len(piece) / conditions.bytes_per_second
        self._newest_arrival = arrival
        self._on_way.append((arrival, piece))
        self.look()

    # -- the receiver's side -----------------------------------------------------------------------

    @property
    def on_way_bytes(self) -> int:
        """What was sent and has not arrived."""
        return self._on_way_bytes

    def look(self) -> None:
        """See to it that what is on its way arrives in time, if it may now."""
        if self._timer is None and self._on_way and not self.conditions.blocked:
            self._timer = self._around.loop.call_at(
                self._on_way[0][0], self._arrive, context=self.receiver.context
            )

    def send_again(self, seconds: float) -> None:
        """What is on its way arrives in so many seconds at the earliest: it was lost, and is
        repeated.
        """
        if not self._on_way:
            return
        earliest = self._around.loop.time() + seconds
        self._newest_arrival = max(earliest, self._newest_arrival)
        self._on_way = deque((max(arrival, earliest), piece) for arrival, piece in self._on_way)
        self._stop_timer()
        self.look()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arrive(self) -> None:
        self._timer = None
        receiver, piece = self.receiver, self._on_way[0][1]
        at_once = receiver.reads or receiver.lost or piece in (Mark.HELLO, Mark.RESET)
        if self.conditions.blocked or not at_once:
            return  # looks again when that changes
        self._on_way.popleft()
        if isinstance(piece, Mark):
            self._around.trace.data(
                self._around.loop.time(), self._link.number, self._direction, piece.value.encode()
            )
            receiver.mark_arrived(piece)
        else:
            self._deliver(piece)
        if self._unsent:
            self._fill_window()
        self.sender.look()
        self.look()

    def _deliver(self, piece: bytes) -> None:
        around, on_way = self._around, self._on_way
        now = around.loop.time()
        pieces = [piece]
        while on_way and on_way[0][0] <= now and not isinstance(on_way[0][1], Mark):
            pieces.append(on_way.popleft()[1])  # type: ignore[arg-type]
        data = b"".join(pieces) if len(pieces) > 1 else piece
        self._on_way_bytes -= len(data)
        around.trace.data(now, self._link.number, self._direction, data)
        if self.receiver.lost:
            self._link.pipes[
                1 - self._direction
            ].reset()  # a machine answers so to what comes for a closed socket
        else:
            self.receiver.data_arrived(data)


class Link:
    """A connection.

    Attributes:
        number: its place among the connections of the network.
        names: by what its ends are known: the one that connected, then the one that listened.
        pipes: from the one that connected, and to it.
    """

    def __init__(
        self,
        around: Surroundings,
        number: int,
        names: tuple[Names, Names],
        conditions: tuple[Conditions, Conditions],
    ) -> None:
        self.number = number
        self.names = names
        self.pipes = (Pipe(around, self, 0, conditions[0]), Pipe(around, self, 1, conditions[1]))
        self._random = around.random

    def cut(self, shares: dict[int, float] | None = None) -> None:
        """Break it: both ends get a reset. Of what is on its way in a direction a share still gets
        through, by chance where none is given.
        """
        for direction, pipe in enumerate(self.pipes):
            share = (shares or {}).get(direction)
            pipe.break_off(
                self._random.choice((0.0, 1.0, self._random.random())) if share is None else share
            )

    def change(self, direction: int, conditions: Conditions, repeat_seconds: float) -> None:
        """Let one direction fare otherwise from now on; what was held up by a block is repeated
        after so many seconds.
        """
        pipe = self.pipes[direction]
        was_blocked = pipe.conditions.blocked
        pipe.conditions = conditions
        if was_blocked and not conditions.blocked:
            pipe.send_again(repeat_seconds)

    @property
    def over(self) -> bool:
        """Whether both ends are closed."""
        return all(pipe.receiver.lost for pipe in self.pipes)
