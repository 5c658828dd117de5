"""``send`` of the accelerator looks like a coroutine function, and what it returns does what the
coroutine would do.
"""

from __future__ import annotations

import asyncio
import collections.abc
import copy
import functools
import gc
import inspect
import pickle
import pydoc
import sys
import types
import typing
import warnings
import weakref
from collections.abc import Awaitable, Callable, Generator
from typing import Any, cast
from unittest import mock

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioprod import Producer, ProducerRecord
from aioprod.errors import ProducerClosedError, WrongEventLoopError
from aioprod.producer.delivery import Delivery
from aioprod.testing import EmbeddedCluster
from tests.protocol.test_native import accelerator, assert_no_leak, needs_native

# mypy: disable-error-code="no-any-return"

_IN_PYTHON = inspect.unwrap(Producer.send)
InPython = cast("type[Producer]", type("InPython", (Producer,), {"send": _IN_PYTHON}))
both = pytest.mark.parametrize("kind", [Producer, InPython])


# -- without a fast path: what the coroutine does -------------------------------------------------


@types.coroutine
def pause(yielded: object) -> Generator[object, object, object]:
    return (yield yielded)


async def slow_send(
    self: Any,
    topic: Any,
    value: Any = None,
    key: Any = None,
    partition: Any = None,
    timestamp_ms: Any = None,
    headers: Any = (),
    partition_key: Any = None,
) -> Any:
    """Waits some times, and survives a ValueError."""
    seen: list[object] = [topic, value, key, partition, timestamp_ms, headers, partition_key]
    for number in range(2):
        try:
            seen.append(await pause(number))
        except ValueError as error:
            seen.append(repr(error))
    if value == b"bad":
        raise KeyError(topic)
    return seen


class Sends:
    """A producer whose records always have to wait."""

    _fast_path = None
    send: Callable[..., Any]


def outcome(call: Callable[[], object]) -> tuple[object, ...]:
    try:
        return "returned", call()
    except StopIteration as stop:
        return "stopped", stop.value
    except BaseException as error:
        return type(error).__name__, str(error)


_STEPS = st.sampled_from(["send", "send 1", "throw ValueError", "throw OSError", "close", "next"])


def take(call: Any, step: str) -> tuple[object, ...]:
    match step.split():
        case ["send"]:
            return outcome(lambda: call.send(None))
        case ["send", _]:
            return outcome(lambda: call.send(1))
        case ["throw", "ValueError"]:
            return outcome(lambda: call.throw(ValueError("some")))
        case ["throw", _]:
            return outcome(lambda: call.throw(OSError("other")))
        case ["close"]:
            return outcome(call.close)
    return outcome(lambda: next(call.__await__()))


@needs_native
@given(st.lists(_STEPS, max_size=7), st.sampled_from([b"good", b"bad"]))
def test_any_steps_have_the_outcomes_of_the_coroutine(steps: list[str], value: bytes) -> None:
    method = accelerator().SendMethod(slow_send)
    of_coroutine, of_call = slow_send(Sends(), "t", value), method(Sends(), "t", value)
    expected = [take(of_coroutine, step) for step in steps]
    assert [take(of_call, step) for step in steps] == expected
    of_coroutine.close()
    of_call.close()


@needs_native
def test_it_is_not_entered_twice() -> None:
    calls: list[Any] = []

    async def send(self: Any, topic: str) -> str:
        return str(outcome(lambda: calls[0].send(None)))

    calls.append(accelerator().SendMethod(send)(Sends(), "t"))
    assert "already executing" in str(outcome(lambda: calls[0].send(None)))


_GIVEN = st.lists(st.sampled_from([None, b"v", "t", 7]), max_size=9)
_NAMED = st.dictionaries(
    st.sampled_from(
        ["topic", "value", "key", "partition", "timestamp_ms", "headers", "partition_key", "other"]
    ),
    st.sampled_from([None, b"v", 3]),
    max_size=4,
)


@needs_native
@given(_GIVEN, _NAMED)
def test_arguments_arrive_or_are_refused_as_in_python(
    given: list[Any], named: dict[str, Any]
) -> None:
    method = accelerator().SendMethod(slow_send)
    found = []
    for function in (slow_send, method, functools.partial(method)):
        try:
            call = function(Sends(), *given, **named)
        except TypeError as error:
            found.append(str(error))
            continue
        call.send(None)
        call.send(None)
        with pytest.raises(StopIteration) as stop:
            call.send(None)
        found.append(stop.value.value)
    assert found[0] == found[1] == found[2]


@needs_native
def test_a_call_that_waits_is_freed_with_its_cycle() -> None:
    class Value:
        call: Any = None

    value = Value()
    gone = weakref.ref(value)
    value.call = accelerator().SendMethod(slow_send)(Sends(), "t", value)
    value.call.send(None)
    del value
    gc.collect()
    assert gone() is None


@needs_native
@pytest.mark.parametrize("begun", [False, True])
def test_calls_leave_no_blocks(begun: bool) -> None:
    method = accelerator().SendMethod(slow_send)

    def call() -> None:
        some = method(Sends(), "t", b"v" * 100, headers=[("a", b"b" * 50)])
        other = method(Sends(), "t", value=b"v" * 100)
        if begun:
            some.send(None)
        some.close()
        other.close()
        outcome(lambda: method(Sends(), "t", b"v" * 100, unknown=1))

    assert_no_leak(call, times=2_000)


@needs_native
def test_an_ended_call_keeps_no_result() -> None:
    """It may be awaited in any way; a delivery leads to its batch."""

    class Result:
        pass

    async def send(self: Any, topic: Any) -> Any:
        return Result()

    def list_of(call: Any) -> Any:
        ended = []

        def wait() -> Generator[object, None, None]:
            ended.append((yield from call.__await__()))

        list(wait())
        return ended.pop()

    method = accelerator().SendMethod(send)
    for end in (
        lambda call: call.send(None),
        list_of,
        asyncio.run,
    ):
        result = outcome(functools.partial(end, method(Sends(), "t")))[1]
        assert isinstance(result, Result)
        gone = weakref.ref(result)
        del result
        gc.collect()
        assert gone() is None


@needs_native
def test_a_kept_stop_keeps_its_own_result() -> None:
    async def send(self: Any, topic: Any) -> Any:
        return topic

    method, kept = accelerator().SendMethod(send), []
    for topic in ("a", "b", "c"):
        with pytest.raises(StopIteration) as stop:
            next(method(Sends(), topic))
        kept.append(stop.value)
    assert [stop.value for stop in kept] == ["a", "b", "c"]


@needs_native
def test_results_that_are_tuples_or_errors_are_results() -> None:
    async def send(self: Any, topic: Any) -> Any:
        return topic

    method = accelerator().SendMethod(send)
    for result in ((), (1, 2), ValueError("not raised"), StopIteration(3), None):
        for end in (next, lambda call: call.send(None), lambda call: next(call.__await__())):
            ended = outcome(functools.partial(end, method(Sends(), result)))
            assert ended == ("stopped", result)


@needs_native
def test_other_objects_are_refused() -> None:
    call = accelerator().SendMethod(slow_send)(None, "t")
    with pytest.raises(AttributeError, match="_fast_path"):
        call.send(None)


def is_coroutine(found: object) -> bool:
    return isinstance(found, collections.abc.Coroutine)


# -- what a producer's send is ---------------------------------------------------------------------


@both
def test_it_looks_like_a_coroutine_function(kind: type[Producer]) -> None:
    producer = kind()
    for send in (kind.send, producer.send, functools.partial(producer.send, "t")):
        assert inspect.iscoroutinefunction(send)
    assert inspect.isfunction(kind.send) and inspect.ismethod(producer.send)
    assert ("send", kind.send) in inspect.getmembers(kind, inspect.isfunction)
    assert inspect.signature(kind.send) == inspect.signature(_IN_PYTHON)
    assert next(iter(inspect.signature(producer.send).parameters)) == "topic"
    assert typing.get_type_hints(kind.send)["return"] is Delivery
    for name in ("__doc__", "__name__", "__qualname__", "__module__", "__defaults__"):
        assert getattr(kind.send, name) == getattr(_IN_PYTHON, name)
    assert inspect.getsource(kind.send) == inspect.getsource(_IN_PYTHON)
    assert "max_block_ms" in pydoc.render_doc(kind.send)
    assert not hasattr(kind.send, "unknown")


@both
def test_what_it_returns_looks_like_a_coroutine(kind: type[Producer]) -> None:
    call = cast("Any", kind().send("t", b"x"))
    with pytest.raises(TypeError, match="not iterable"):
        iter(call)
    assert all(is_it(call) for is_it in (inspect.isawaitable, asyncio.iscoroutine, is_coroutine))
    assert repr(call).startswith("<coroutine object Producer.send at 0x")
    assert call.__name__ == "send" and call.__qualname__ == "Producer.send"
    assert call.cr_code is _IN_PYTHON.__code__
    assert not call.cr_running and call.cr_await is None and call.cr_origin is None
    call.close()


@both
def test_a_call_that_is_never_awaited_is_reported(kind: type[Producer]) -> None:
    with pytest.warns(RuntimeWarning, match=r"'Producer\.send' was never awaited"):
        _ = kind().send("t", b"x")
        del _
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kind().send("t", b"x").close()


@both
def test_the_warning_may_run_the_garbage_collector(
    kind: type[Producer], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def show(message: object, *_: object, **__: object) -> None:
        seen.append(str(message))
        gc.collect()

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", show)
        for _ in range(20):
            call = kind().send("t", [b"x"] * 3)  # type: ignore[arg-type]
            del call
            gc.collect()
    assert len(seen) == 20 and "never awaited" in seen[0]


@both
def test_a_warning_that_is_an_error_goes_to_the_hook(
    kind: type[Producer], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: seen.append(raised.exc_value))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            raise OSError("is kept")
        except OSError:
            _ = kind().send("t", b"x")
            del _
    assert len(seen) == 1 and "never awaited" in str(seen[0])


@both
async def test_nothing_is_sent_before_it_is_awaited(
    kind: type[Producer], broker: EmbeddedCluster
) -> None:
    async with kind(broker.bootstrap_servers, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"first")
        later = producer.send("t", b"later")
        cancelled = asyncio.ensure_future(producer.send("t", b"never"))
        cancelled.cancel()
        await asyncio.wait([cancelled])
        await producer.send_and_wait("t", b"second")
        await producer.flush()
        assert [record.value for record in broker.records("t")] == [b"first", b"second"]
        await (await later)
        with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
            await later
        assert [record.value for record in broker.records("t")][2:] == [b"later"]


@both
async def test_every_way_to_await_it(kind: type[Producer], broker: EmbeddedCluster) -> None:
    async with kind(broker.bootstrap_servers) as producer:
        arguments: tuple[Any, ...] = ("t", b"9")
        named: dict[str, Any] = {"key": b"k"}
        sends: list[Awaitable[Any]] = [
            producer.send("t", b"0"),
            asyncio.create_task(producer.send("t", value=b"1", key=b"k")),
            asyncio.ensure_future(producer.send("t", b"2", headers=[("h", b"v")])),
            asyncio.wait_for(producer.send("t", b"3", timestamp_ms=5), 60),
            asyncio.shield(producer.send("t", b"4", partition=0)),
            kind.send(producer, "t", b"5"),
            functools.partial(producer.send, "t")(b"6"),
            producer.send(ProducerRecord("t", b"7")),
            producer.send(topic="t", value=b"8", partition_key=b"p"),
            producer.send(*arguments, **named),
        ]
        deliveries = await asyncio.gather(*sends)
        async with asyncio.TaskGroup() as tasks, anyio.create_task_group() as group:
            deliveries.append(await tasks.create_task(producer.send("t", b"10")))
            group.start_soon(producer.send, "t", b"11")
        assert all(isinstance(each, Delivery) for each in deliveries)
        await producer.flush()
        stored = {record.value: record for record in broker.records("t")}
        assert sorted(stored, key=lambda value: int(value or 0)) == [
            b"%d" % number for number in range(12)
        ]
        assert stored[b"1"].key == stored[b"9"].key == b"k" and stored[b"3"].timestamp == 5
        assert stored[b"2"].headers == (("h", b"v"),)


@both
async def test_a_task_that_waits_shows_where(kind: type[Producer], broker: EmbeddedCluster) -> None:
    async with kind(broker.bootstrap_servers) as producer:
        task = asyncio.create_task(producer.send("unknown-yet", b"x"))
        await asyncio.sleep(0)
        assert "coro=<Producer.send() running at" in repr(task)
        assert [frame.f_code.co_name for frame in task.get_stack()] == ["send"]
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()


@both
async def test_errors_come_from_await(kind: type[Producer], broker: EmbeddedCluster) -> None:
    producer = kind(broker.bootstrap_servers)
    async with producer:
        await producer.send_and_wait("t", b"x")
        call = producer.send("t", b"x", timestamp_ms=5)
        with pytest.raises(WrongEventLoopError):
            await asyncio.to_thread(asyncio.run, call)
        unknown = producer.send("t", b"x", key="text")  # type: ignore[arg-type]
        with pytest.raises(Exception, match="key_serializer"):
            await unknown
    with pytest.raises(ProducerClosedError):
        await producer.send("t", b"x")


def doubles(kind: type[Producer]) -> list[Any]:
    return [
        mock.create_autospec(kind, instance=True),
        mock.create_autospec(kind)(),
        mock.create_autospec(kind()),
        mock.AsyncMock(spec=kind),
        mock.MagicMock(spec=kind),
        mock.Mock(spec_set=kind()),
    ]


@needs_native
async def test_mocks_of_it_check_the_same() -> None:
    for ours, plain in zip(doubles(Producer), doubles(InPython), strict=True):
        found = []
        for double in (ours, plain):
            double.send.return_value = "sent"
            assert await double.send("t", b"x") == "sent"
            double.send.assert_awaited_once_with("t", b"x")
            try:
                found.append([type(double.send).__name__, await double.send()])
            except TypeError as error:
                found.append([type(double.send).__name__, str(error)])
        assert found[0] == found[1]


@both
async def test_a_patched_class_gets_the_producer(kind: type[Producer]) -> None:
    producer = kind()
    with mock.patch.object(kind, "send", autospec=True, return_value="sent") as patched:
        assert cast("object", await producer.send("t", b"x")) == "sent"
        patched.assert_awaited_once_with(producer, "t", b"x")
        with pytest.raises(TypeError, match="unexpected keyword argument 'unknown'"):
            await cast("Any", producer).send("t", unknown=1)
    producer.send("t").close()


@needs_native
def test_it_takes_attributes_as_functions_do() -> None:
    async def send(self: Any, topic: Any) -> None: ...

    method = accelerator().SendMethod(send)
    method.note = 1
    assert method.note == send.note == 1  # type: ignore[attr-defined]
    del method.note
    assert not hasattr(send, "note")
    with pytest.raises(TypeError, match="__code__"):
        method.__code__ = 1


def test_it_is_copied_and_pickled_by_name() -> None:
    assert copy.deepcopy(Producer.send) is Producer.send
    assert pickle.loads(pickle.dumps(Producer.send)) is Producer.send


async def test_a_class_may_replace_it(broker: EmbeddedCluster) -> None:
    class Counting(Producer[bytes, bytes]):
        sent = 0

        async def send(self, *args: Any, **named: Any) -> Delivery:
            self.sent += 1
            return await super().send(*args, **named)

    async with Counting(broker.bootstrap_servers) as producer:
        await (await producer.send("t", b"x"))
        with mock.patch.object(Producer, "send", mock.AsyncMock(return_value="patched")):
            assert cast("object", await producer.send("t", b"x")) == "patched"
        await (await producer.send("t", b"x"))
        assert producer.sent == 3 and len(broker.records("t")) == 2


@needs_native
async def test_sent_records_leave_no_references(broker: EmbeddedCluster) -> None:
    async with Producer(broker.bootstrap_servers) as producer:
        await producer.send_and_wait("t", b"x")
        value, headers = b"v" * 100, [("name", b"value")]
        before = sys.getrefcount(value), sys.getrefcount(headers), sys.getrefcount(producer)
        for _ in range(100):
            await producer.send("t", value, headers=headers)
            producer.send("t", value, headers=headers).close()
        await producer.flush()
        after = sys.getrefcount(value), sys.getrefcount(headers), sys.getrefcount(producer)
        assert max(map(int.__sub__, after, before)) < 10
