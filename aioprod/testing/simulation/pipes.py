"""Simulated connections: one pipe for each direction, with latency, partial reads and resets."""

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

# Represents the socket buffers of both ends. TCP's buffers grow with the latency, up to a limit.
_WINDOW_BYTES = 256 * 1024
_MOST_WINDOW_BYTES = 4 * 1024 * 1024
_WINDOW_LATENCY_S = 0.01
_MAX_PIECES = 4
_FRAME_HEADER_BYTES = 8  # splits within a frame's header find the most bugs
_SLOW_PIECES_PER_SECOND = 20

Names = tuple[str, ...]


class ControlPacket(Enum):
    """Packets without data."""

    SYN = "syn"
    FIN = "fin"
    RST = "rst"


@dataclass(slots=True)
class Conditions:
    """The current state of one direction of a connection.

    Attributes:
        latency: minimum and maximum seconds that a packet takes.
        bytes_per_second: the bandwidth; 0 for no limit.
        blocked: nothing gets through.
    """

    latency: tuple[float, float]
    bytes_per_second: float = 0.0
    blocked: bool = False


@dataclass(slots=True)
class NetworkState:
    """The state that all connections of a network share.

    Attributes:
        split_probability: the probability that a write arrives in several pieces.
        cut_share: if set, called for each write; a number breaks the connection after that share
            of the bytes.
    """

    loop: asyncio.AbstractEventLoop
    random: Random
    trace: Trace
    split_probability: float
    cut_share: Callable[[Names, Names], float | None] | None = field(default=None)


class PipeEnd(ABC):
    """The interface of a pipe to its sender and receiver.

    Attributes:
        context: the context in which received data is handled.
        lost: the end is closed.
    """

    context: Context
    lost: bool

    @property
    @abstractmethod
    def accepts_data(self) -> bool:
        """True if data may be delivered now."""

    @abstractmethod
    def data_received(self, data: bytes) -> None:
        """Handle received data."""

    @abstractmethod
    def control_packet_received(self, packet: ControlPacket) -> None:
        """Handle a new connection, the end of the stream, or a reset."""

    @abstractmethod
    def window_updated(self) -> None:
        """Continue: the pipe has accepted data that was waiting on this side."""


class Pipe:
    """One direction of a connection. Delivers bytes in the order in which they were sent.

    Attributes:
        conditions: the current conditions; replaced when they change.
        sender, receiver: the two ends.
        unsent_bytes: bytes that wait on the sender's side because the window is full.
    """

    sender: PipeEnd
    receiver: PipeEnd

    def __init__(
        self, network: NetworkState, link: Link, direction: int, conditions: Conditions
    ) -> None:
        self.conditions = conditions
        self.unsent_bytes: int = 0
        self._network = network
        self._link = link
        self._direction = direction
        self._unsent: deque[bytes] = deque()
        self._in_flight: deque[tuple[float, bytes | ControlPacket]] = deque()
        self._in_flight_bytes = 0
        self._last_arrival = 0.0
        self._timer: asyncio.Handle | None = None
        self._fin_sent = self._rst_sent = False

    # -- the sender's side -------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Send bytes."""
        if self._fin_sent:
            return
        if self._unsent or len(data) > self._window_bytes - self._in_flight_bytes:
            self._unsent.append(data)
            self.unsent_bytes += len(data)
            self._fill_window()
        else:
            self._transmit(data)

    def send_syn(self) -> None:
        """Announce the connection to the receiver."""
        self._put(ControlPacket.SYN)

    def send_fin(self) -> None:
        """End the stream after the data in flight."""
        if not self._fin_sent:
            self._fin_sent = True
            self._put(ControlPacket.FIN)

    def reset(self) -> None:
        """Send a reset after the data in flight."""
        self.drop_unsent()
        if not self._rst_sent:
            self._fin_sent = self._rst_sent = True
            self._put(ControlPacket.RST)

    def drop_unsent(self) -> None:
        """Drop the data that waits on the sender's side."""
        self._unsent.clear()
        self.unsent_bytes = 0

    def reset_after(self, share: float) -> None:
        """Deliver a share of the packets in flight, drop the others, then deliver a reset."""
        kept = int(len(self._in_flight) * share + 0.5)
        while len(self._in_flight) > kept:
            packet = self._in_flight.pop()[1]
            self._in_flight_bytes -= 0 if isinstance(packet, ControlPacket) else len(packet)
        if not self._in_flight:
            self._stop_timer()
        self._rst_sent = False
        self.reset()

    @property
    def _window_bytes(self) -> int:
        distance = self.conditions.latency[0] / _WINDOW_LATENCY_S
        return min(int(_WINDOW_BYTES * max(1.0, distance)), _MOST_WINDOW_BYTES)

    def _fill_window(self) -> None:
        window_bytes = self._window_bytes
        while self._unsent and self._in_flight_bytes < window_bytes:
            data = self._unsent.popleft()
            room = window_bytes - self._in_flight_bytes
            if len(data) > room:
                self._unsent.appendleft(data[room:])
                data = data[:room]
            self.unsent_bytes -= len(data)
            self._transmit(data)

    def _transmit(self, data: bytes) -> None:
        network = self._network
        if network.cut_share is not None:
            names = self._link.names
            share = network.cut_share(names[self._direction], names[1 - self._direction])
            if share is not None:
                self._cut_within(data, share)
                return
        if self.conditions.bytes_per_second:
            self._put_slowly(data)
        elif len(data) > 1 and network.random.random() < network.split_probability:
            self._put_in_pieces(data)
        else:
            self._put(data)

    def _cut_within(self, data: bytes, share: float) -> None:
        kept = data[: int(len(data) * share)]
        if kept:
            self._put(kept)
        self._link.cut({self._direction: 1.0})

    def _put_slowly(self, data: bytes) -> None:
        size = max(1, int(self.conditions.bytes_per_second / _SLOW_PIECES_PER_SECOND))
        for start in range(0, len(data), size):
            self._put(data[start : start + size])

    def _put_in_pieces(self, data: bytes) -> None:
        random = self._network.random
        limit = len(data) if random.random() < 0.5 else min(len(data), _FRAME_HEADER_BYTES)
        ends = (
            {random.randrange(1, limit) for _ in range(random.randrange(1, _MAX_PIECES))}
            if limit > 1
            else set()
        )
        start = 0
        for end in (*sorted(ends), len(data)):
            self._put(data[start:end])
            start = end

    def _put(self, packet: bytes | ControlPacket) -> None:
        network, conditions = self._network, self.conditions
        low, high = conditions.latency
        arrival = network.loop.time() + low + (high - low) * network.random.random()
        if arrival < self._last_arrival:
            arrival = self._last_arrival
        if not isinstance(packet, ControlPacket):
            self._in_flight_bytes += len(packet)
            if conditions.bytes_per_second:
                arrival += len(packet) / conditions.bytes_per_second
        self._last_arrival = arrival
        self._in_flight.append((arrival, packet))
        self.schedule_delivery()

    # -- the receiver's side -----------------------------------------------------------------------

    def put_back(self, data: bytes) -> None:
        """Deliver data again that the receiver could not accept, before all other data."""
        self._in_flight.appendleft((self._network.loop.time(), data))
        self._in_flight_bytes += len(data)

    def schedule_delivery(self) -> None:
        """Schedule the delivery of the first packet, unless the direction is blocked."""
        if self._timer is None and self._in_flight and not self.conditions.blocked:
            self._timer = self._network.loop.call_at(
                self._in_flight[0][0], self._deliver, context=self.receiver.context
            )

    def retransmit(self, seconds: float) -> None:
        """Deliver the packets in flight after ``seconds`` at the earliest, like lost packets that
        TCP sends again.
        """
        if not self._in_flight:
            return
        earliest = self._network.loop.time() + seconds
        self._last_arrival = max(earliest, self._last_arrival)
        self._in_flight = deque(
            (max(arrival, earliest), packet) for arrival, packet in self._in_flight
        )
        self._stop_timer()
        self.schedule_delivery()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _deliver(self) -> None:
        self._timer = None
        receiver, packet = self.receiver, self._in_flight[0][1]
        is_urgent = packet in (ControlPacket.SYN, ControlPacket.RST)
        if self.conditions.blocked or not (receiver.accepts_data or receiver.lost or is_urgent):
            return  # scheduled again when that changes
        self._in_flight.popleft()
        if isinstance(packet, ControlPacket):
            self._network.trace.data(
                self._network.loop.time(), self._link.number, self._direction, packet.value.encode()
            )
            receiver.control_packet_received(packet)
        else:
            self._deliver_data(packet)
        if self._unsent:
            self._fill_window()
        self.sender.window_updated()
        self.schedule_delivery()

    def _deliver_data(self, first: bytes) -> None:
        """Deliver a packet together with all packets that have arrived after it."""
        network, in_flight = self._network, self._in_flight
        now = network.loop.time()
        packets = [first]
        while (
            in_flight and in_flight[0][0] <= now and not isinstance(in_flight[0][1], ControlPacket)
        ):
            packets.append(in_flight.popleft()[1])  # type: ignore[arg-type]
        data = b"".join(packets) if len(packets) > 1 else first
        self._in_flight_bytes -= len(data)
        network.trace.data(now, self._link.number, self._direction, data)
        if self.receiver.lost:
            # TCP answers data for a closed socket with a reset.
            self._link.pipes[1 - self._direction].reset()
        else:
            self.receiver.data_received(data)


class Link:
    """A connection: two pipes.

    Attributes:
        number: the number of the connection within the network.
        names: the names of both ends: first the client's, then the server's.
        pipes: from the client to the server, and back.
    """

    def __init__(
        self,
        network: NetworkState,
        number: int,
        names: tuple[Names, Names],
        conditions: tuple[Conditions, Conditions],
    ) -> None:
        self.number = number
        self.names = names
        self.pipes: tuple[Pipe, Pipe] = (
            Pipe(network, self, 0, conditions[0]),
            Pipe(network, self, 1, conditions[1]),
        )
        self._random = network.random

    def cut(self, shares: dict[int, float] | None = None) -> None:
        """Reset both ends.

        Args:
            shares: for each direction, the share of the packets in flight that is still delivered;
                random if not given.
        """
        for direction, pipe in enumerate(self.pipes):
            share = (shares or {}).get(direction)
            pipe.reset_after(
                self._random.choice((0.0, 1.0, self._random.random())) if share is None else share
            )

    def set_conditions(
        self, direction: int, conditions: Conditions, retransmit_seconds: float
    ) -> None:
        """Change the conditions of one direction. After a block, retransmit."""
        pipe = self.pipes[direction]
        was_blocked = pipe.conditions.blocked
        pipe.conditions = conditions
        if was_blocked and not conditions.blocked:
            pipe.retransmit(retransmit_seconds)

    @property
    def closed(self) -> bool:
        """True if both ends are closed."""
        return all(pipe.receiver.lost for pipe in self.pipes)
