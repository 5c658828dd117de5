"""Replies that arrive in any pieces, and requests that get no reply in time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioprod.errors import BrokerConnectionError, KafkaError, ProtocolError, RequestTimedOutError
from aioprod.net.connection import Connection
from aioprod.protocol.framing import encode_response
from aioprod.protocol.message import Message
from aioprod.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseTopic,
)
from aioprod.testing.simulation import run

VERSION = MetadataRequest.MAX_VERSION


class SilentTransport(asyncio.Transport):
    """Discards what is written."""

    closed = False

    def __init__(self, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self.protocol = protocol

    def write(self, data: Any) -> None:
        pass

    def writelines(self, list_of_data: Any) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = True
        asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)


class Talk:
    """A connection that receives what a test says."""

    def __init__(self, request_timeout_ms: int = 1_000) -> None:
        self.connection = Connection(
            address="there:1", client_id="c", request_timeout_ms=request_timeout_ms
        )
        self.stream = self.connection._stream
        self.stream.connection_made(SilentTransport(self.stream))

    def ask(self, timeout_ms: float | None = None) -> asyncio.Future[Message]:
        return self.connection.send(
            [b"?"], MetadataRequest, VERSION, self.connection.next_correlation_id(), timeout_ms
        )

    async def say(self, data: bytes) -> None:
        while data and not self.connection.closed:
            buffer = self.stream.get_buffer(-1)
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            self.stream.buffer_updated(count)
            data = data[count:]
        await asyncio.sleep(0)


def reply(correlation_id: int, size: int = 0) -> bytes:
    topics = [MetadataResponseTopic(name="x" * size)] if size else []
    return encode_response(
        MetadataResponse(cluster_id=str(correlation_id), topics=topics), VERSION, correlation_id
    )


async def receive_in_pieces(sizes: Sequence[int], cuts: Sequence[int]) -> None:
    talk = Talk()
    asked = [talk.ask() for _ in sizes]
    data = b"".join(reply(number, size) for number, size in enumerate(sizes))
    places = [0, *sorted(cut % len(data) for cut in cuts), len(data)]
    for begin, end in pairwise(places):
        await talk.say(data[begin:end])
    for number, (future, size) in enumerate(zip(asked, sizes, strict=True)):
        answer = future.result()
        assert isinstance(answer, MetadataResponse)
        assert answer.cluster_id == str(number)
        assert [len(topic.name or "") for topic in answer.topics] == ([size] if size else [])
    await talk.connection.close()


@settings(max_examples=200)
@given(
    sizes=st.lists(
        st.sampled_from([0, 0, 0, 10, 3_900, 4_050, 4_096, 20_000]), min_size=1, max_size=6
    ),
    cuts=st.lists(st.integers(0, 100_000), max_size=8),
)
def test_replies_may_come_in_pieces_and_several_at_once(sizes: list[int], cuts: list[int]) -> None:
    run(receive_in_pieces(sizes, cuts), 1)


async def test_every_single_cut_of_two_replies() -> None:
    for cut in range(len(reply(0) + reply(1))):
        await receive_in_pieces([0, 0], [cut])


@pytest.mark.parametrize("kept", [1, 3, 4, 5, 20])
async def test_the_end_in_the_midst_of_a_reply(kept: int) -> None:
    talk = Talk()
    first, second = talk.ask(), talk.ask()
    await talk.say(reply(0) + reply(1)[:kept])
    talk.stream.eof_received()
    with pytest.raises(BrokerConnectionError, match="closed by the broker after 1 replies"):
        await second
    assert isinstance(first.result(), MetadataResponse)
    await talk.connection.close()


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"\0\0\0\3abc", "reply of 3 bytes"),
        (b"\x20\0\0\1", "reply of 536870913 bytes"),
        (b"\xff\xff\xff\xff", "reply of -1 bytes"),
        (reply(9), "correlation id 9, expected 1"),
    ],
)
async def test_nonsense_behind_a_reply(data: bytes, error: str) -> None:
    talk = Talk()
    first, second = talk.ask(), talk.ask()
    await talk.say(reply(0) + data)
    assert isinstance(first.result(), MetadataResponse)
    with pytest.raises(ProtocolError, match=error):
        await second
    await talk.connection.close()


async def test_a_reply_too_many() -> None:
    talk = Talk()
    asked = talk.ask()
    await talk.say(reply(0) + reply(1))
    assert isinstance(asked.result(), MetadataResponse)
    assert "no request is in flight" in str(talk.connection.error)
    await talk.connection.close()


async def end_of(future: asyncio.Future[Message]) -> tuple[float, KafkaError]:
    with pytest.raises(KafkaError) as caught:
        await future
    return asyncio.get_running_loop().time(), caught.value


async def each_request_has_a_time_of_its_own() -> None:
    talk, begin = Talk(), asyncio.get_running_loop().time()
    first = talk.ask()
    await asyncio.sleep(0.4)
    second = talk.ask()
    await asyncio.sleep(0.1)
    await talk.say(reply(0))
    assert first.done()
    ended_at, error = await end_of(second)
    assert isinstance(error, RequestTimedOutError)
    assert ended_at - begin == pytest.approx(1.4, abs=0.01)
    assert str(error) == "there:1: no reply to MetadataRequest within request_timeout_ms=1000"
    await talk.connection.close()


async def the_shortest_time_counts() -> None:
    talk, begin = Talk(10_000), asyncio.get_running_loop().time()
    first = talk.ask()
    await asyncio.sleep(1)
    second = talk.ask(500)
    ended_at, error = await end_of(second)
    assert isinstance(error, RequestTimedOutError)
    assert ended_at - begin == pytest.approx(1.5, abs=0.01)
    assert "request_timeout_ms=500" in str(error)
    assert (await end_of(first))[1] is error
    await talk.connection.close()


async def nothing_ends_a_connection_that_has_no_request_in_flight() -> None:
    talk = Talk()
    for number in range(3):
        asked = talk.ask()
        await talk.say(reply(number))
        assert asked.done()
        await asyncio.sleep(5)
    assert not talk.connection.closed
    begin = asyncio.get_running_loop().time()
    ended_at, error = await end_of(talk.ask())
    assert isinstance(error, RequestTimedOutError)
    assert ended_at - begin == pytest.approx(1, abs=0.01)
    await talk.connection.close()


async def what_is_kept_back_has_its_time_from_when_it_is_sent() -> None:
    talk, begin = Talk(), asyncio.get_running_loop().time()
    talk.connection.defer()
    asked = talk.ask()
    await asyncio.sleep(3)
    talk.connection.resume()
    ended_at, error = await end_of(asked)
    assert isinstance(error, RequestTimedOutError)
    assert ended_at - begin == pytest.approx(4, abs=0.01)
    await talk.connection.close()


@pytest.mark.parametrize(
    "story",
    [
        each_request_has_a_time_of_its_own,
        the_shortest_time_counts,
        nothing_ends_a_connection_that_has_no_request_in_flight,
        what_is_kept_back_has_its_time_from_when_it_is_sent,
    ],
)
def test_time_outs(story: Any) -> None:
    run(story(), 1)


# -- handlers --------------------------------------------------------------------------------------


class Handler:
    """Notes what it gets, and calls ``act`` with each reply."""

    def __init__(self, act: Callable[[], object] = lambda: None) -> None:
        self.got: list[Message | KafkaError] = []
        self._act = act

    def replied(self, reply: Message, now: float) -> None:
        self.got.append(reply)
        self._act()

    def failed(self, error: KafkaError) -> None:
        self.got.append(error)


def post(talk: Talk, handler: Handler) -> int:
    correlation_id = talk.connection.next_correlation_id()
    talk.connection.post([b"?"], MetadataRequest, VERSION, correlation_id, handler)
    return correlation_id


async def test_a_handler_gets_its_reply_while_the_connection_reads() -> None:
    talk, handler = Talk(), Handler()
    said = reply(post(talk, handler))
    buffer = talk.stream.get_buffer(-1)
    buffer[: len(said)] = said
    talk.stream.buffer_updated(len(said))
    assert [type(got) for got in handler.got] == [MetadataResponse]
    assert not talk.connection.in_flight


async def test_a_handler_may_end_the_connection() -> None:
    # A reply may name another address of the broker. The replies after it no longer count.
    talk = Talk()
    end = BrokerConnectionError("there:1: moved")
    first, second = Handler(lambda: talk.connection.abort(end)), Handler()
    numbers = [post(talk, first), post(talk, second)]
    last = talk.ask()
    await talk.say(b"".join(map(reply, [*numbers, 2])))
    assert [type(got) for got in first.got] == [MetadataResponse]
    assert second.got == [end] == [last.exception()]
    assert talk.connection.error is end


async def test_a_handler_posted_to_a_dead_connection_gets_its_error() -> None:
    talk, handler = Talk(), Handler()
    end = BrokerConnectionError("there:1: gone")
    talk.connection.abort(end)
    post(talk, handler)
    assert handler.got == [end]


async def test_a_handler_posted_to_a_closing_transport_gets_an_error() -> None:
    talk, handler = Talk(), Handler()
    talk.stream.transport.abort()
    post(talk, handler)
    assert [type(got) for got in handler.got] == [BrokerConnectionError]
