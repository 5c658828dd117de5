"""Names the cure where Python's own error has none: methods and arguments of other clients, and
``with`` and ``for`` without ``async``.

None of it is visible to type checkers, which report such calls themselves, and calls that are right
pay nothing on the way of a record.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from typing import Any, NoReturn, TypeVar

from aioprod.foreign_text import nearest

C = TypeVar("C", bound=type)
_NAMED = "_aioprod_named"

_ARGUMENTS = {
    "timeout": "timeout_ms, in milliseconds",
    "timeout_s": "timeout_ms, in milliseconds",
    "timeout_secs": "timeout_ms, in milliseconds",
    "request_timeout": "timeout_ms, in milliseconds",
    "timestamp": "timestamp_ms, in milliseconds since 1970",
    "callback": "the returned object: await it, or add_done_callback",
    "on_delivery": "the returned object: await it, or add_done_callback",
    "on_commit": "await commit(), whose errors are raised",
    "asynchronous": "commit_async()",
    "message": "offsets={TopicPartition(topic, partition): offset + 1}",
    "on_assign": "listener=RebalanceListener()",
    "on_revoke": "listener=RebalanceListener()",
    "on_lost": "listener=RebalanceListener()",
    "num_messages": "max_records",
    "max_poll_records": "max_records",
    "new_topics": "topics",
    "autocommit": "enable_auto_commit of the constructor",
}

_RECONNECTS = "nothing: clients connect and reconnect by themselves"
_TOKENS = "sasl_oauth_token_provider, or a new client with the new password"
_ADMIN_TOPICS = "aioprod.Admin.describe_topics() or list_topics()"
_ADMIN_CLUSTER = "aioprod.Admin.describe_cluster()"
_DELIVERED = "'await delivery', which returns RecordMetadata or raises the error"
_CALLBACK = "delivery.add_done_callback(function)"

#: Methods that the producers of other clients have.
PRODUCER_OF_OTHERS = {
    "produce": "'delivery = await producer.send(topic, value, key=...)'",
    "produce_batch": "await producer.send_many(topic, values)",
    "create_batch": "await producer.send_many(topic, values), which fills batches",
    "send_batch": "await producer.send_many(topic, values), which fills batches",
    "poll": "nothing: callbacks run in the event loop without it",
    "purge": "await producer.close(timeout_ms=0)",
    "list_topics": _ADMIN_TOPICS,
    "cluster_id": _ADMIN_CLUSTER,
    "set_sasl_credentials": _TOKENS,
    "bootstrap_connected": _RECONNECTS,
    "max_usable_produce_magic": "nothing: versions are negotiated",
}

#: Methods that the consumers of other clients have.
CONSUMER_OF_OTHERS = {
    "poll": "await consumer.getone(timeout_ms=1000), or getmany(timeout_ms=1000)",
    "consume": "await consumer.getmany(max_records, timeout_ms=1000)",
    "last_poll_timestamp": "consumer.state",
    "consumer_group_metadata": "consumer.group_metadata()",
    "get_watermark_offsets": "consumer.highwater(partition), or await beginning_offsets([...])",
    "incremental_assign": "consumer.assign(partitions) with all partitions; positions are kept",
    "incremental_unassign": "consumer.assign(partitions) with those that remain",
    "unassign": "await consumer.unsubscribe()",
    "store_offsets": "await consumer.commit({partition: offset}), with enable_auto_commit=False",
    "memberid": "consumer.group_metadata().member_id",
    "list_topics": "await consumer.topics()",
    "cluster_id": _ADMIN_CLUSTER,
    "set_sasl_credentials": _TOKENS,
    "bootstrap": _RECONNECTS,
    "bootstrap_connected": _RECONNECTS,
}

_ONE_GROUP = "aioprod.Consumer: the broker of a share group decides which records a member gets"

#: Methods that the share consumers and consumers of other clients have.
SHARE_CONSUMER_OF_OTHERS = {
    "stop": "await consumer.close()",
    "poll": "await consumer.getmany(timeout_ms=1000)",
    "getone": "await consumer.getmany(max_records=1)",
    "consume": "await consumer.getmany(max_records, timeout_ms=1000)",
    "acknowledge_offset": "consumer.acknowledge(record, AcknowledgeType.ACCEPT)",
    "commit_async": "await consumer.commit()",
    "commit_sync": "await consumer.commit()",
    "bootstrap": _RECONNECTS,
    "bootstrap_connected": _RECONNECTS,
    "set_acknowledgement_commit_callback": "acknowledgement_commit_callback of the constructor",
    "set_sasl_credentials": _TOKENS,
    **dict.fromkeys(
        (
            *("assign", "assignment", "beginning_offsets", "committed", "end_offsets", "highwater"),
            *("last_stable_offset", "offsets_for_times", "partitions_for_topic", "pause", "paused"),
            *("position", "resume", "seek", "seek_to_beginning", "seek_to_committed"),
            *("seek_to_end", "topics", "last_poll_timestamp", "group_metadata"),
        ),
        _ONE_GROUP,
    ),
}

#: Methods that the admin clients of other clients have.
ADMIN_OF_OTHERS = {
    "alter_configs": "await admin.incremental_alter_configs(changes)",
    "reset_configs": "await admin.incremental_alter_configs(changes), with None for a default",
    "list_consumer_groups": "await admin.list_groups()",
    "describe_groups": "await admin.describe_consumer_groups(group_ids)",
    "delete_groups": "await admin.delete_consumer_groups(group_ids)",
    "list_group_offsets": "await admin.list_consumer_group_offsets(group_id)",
    "alter_group_offsets": "await admin.alter_consumer_group_offsets(group_id, offsets)",
    "reset_group_offsets": "await admin.alter_consumer_group_offsets(group_id, offsets)",
    "delete_group_offsets": "await admin.delete_consumer_group_offsets(group_id, partitions)",
    "remove_group_members": "await admin.remove_members_from_consumer_group(group_id, ids)",
    "list_partition_offsets": "await admin.list_offsets(specs)",
    "describe_topic_partitions": "await admin.describe_topics(topics)",
    "wait_for_topics": "await admin.describe_topics(topics)",
    "cluster_id": "await admin.describe_cluster()",
    "api_versions": "nothing: versions are negotiated",
    "get_broker_version_data": "nothing: versions are negotiated",
    "poll": "'await' with each call",
    "set_sasl_credentials": _TOKENS,
    **dict.fromkeys(
        (
            *("abort_transaction", "alter_replica_log_dirs", "describe_features"),
            *("describe_metadata_quorum", "find_hanging_transactions", "list_config_resources"),
            "update_features",
        ),
        "Kafka's own tools: aioprod has no such call",
    ),
}

#: Methods of futures of other clients.
DELIVERY_OF_OTHERS = {
    "get": _DELIVERED,
    "succeeded": "delivery.done() and delivery.exception() is None",
    "success": _CALLBACK,
    "failed": "delivery.done() and delivery.exception() is not None",
    "failure": _CALLBACK,
    "is_done": "delivery.done()",
    "value": "delivery.result()",
    "retriable": "nothing: retries have ended",
    "add_callback": _CALLBACK,
    "add_errback": _CALLBACK,
    "add_both": _CALLBACK,
    "chain": _CALLBACK,
    "rebind": "a new call of send()",
}

#: Of dicts that other clients return in place of records.
RECORDS_OF_OTHERS = dict.fromkeys(
    ("items", "keys", "values"),
    "'for record in records', whose topic and partition each record has",
)


class Instead:
    """A name that other clients have. Access raises AttributeError, which names the cure.

    Args:
        name: the name.
        cure: the right code.
    """

    def __init__(self, name: str, cure: str) -> None:
        self._name = name
        self._cure = cure

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise AttributeError(f"{owner.__name__} has no {self._name!r}: use {self._cure}")


def names_others(others: Mapping[str, str]) -> Callable[[C], C]:
    """Make a class name the cure for names that other clients have; ``others`` has the cures."""

    def change(kind: C) -> C:
        for name, cure in others.items():
            setattr(kind, name, Instead(name, cure))
        if others:
            _set(kind, "__dir__", lambda self: sorted({*object.__dir__(self)} - {*others}))
        return kind

    return change


def names_cures(
    others: Mapping[str, str] | None = None, unchecked: Collection[str] = (), shown: str = ""
) -> Callable[[C], C]:
    """Make a client name the cure for names and arguments of other clients, and for ``with`` and
    ``for`` without ``async``.

    Args:
        others: cures by the names of other clients.
        unchecked: methods whose arguments Python alone checks, as a record must not wait for it.
        shown: the class that errors name; this class by default. Python's own errors would name
            the base class that has the method, which is on no page.
    """

    def change(kind: C) -> C:
        names_others(others or {})(kind)
        for name, function in inspect.getmembers(kind, inspect.isfunction):
            if name.startswith("_"):
                continue
            if hasattr(function, _NAMED):
                continue  # a base class has named it
            for each in {function, inspect.unwrap(function)}:
                each.__qualname__ = f"{shown or kind.__name__}.{name}"
            checked = function if name in unchecked else _checked(function)
            if checked is not function:
                checked.__module__ = kind.__module__  # where pickle looks for it
            setattr(checked, _NAMED, True)
            setattr(kind, name, checked)
        if hasattr(kind, "__aenter__") and not hasattr(kind, "__enter__"):
            _set(kind, "__enter__", _no_with)
            _set(kind, "__exit__", _no_with)
        if hasattr(kind, "__aiter__") and not hasattr(kind, "__iter__"):
            _set(kind, "__iter__", _no_for)
        return kind

    return change


def refused_argument(function: Callable[..., Any], name: str) -> TypeError:
    """Return the error for an argument that a method does not have."""
    known = [each for each in inspect.signature(function).parameters if each != "self"]
    cure = _ARGUMENTS.get(name) or nearest(name, known)
    if cure.startswith("timeout_ms") and "timeout_ms" not in known:
        cure = "asyncio.timeout(seconds) around the call"
    return TypeError(
        f"{function.__qualname__}() has no argument {name!r}: "
        + (f"use {cure}" if cure else f"it has {', '.join(known) or 'none'}")
    )


def _set(kind: type, name: str, function: Callable[..., Any]) -> None:
    setattr(kind, name, function)


def _no_with(self: object, *_error: object) -> NoReturn:
    raise TypeError(f"{type(self).__name__}: use 'async with', in a coroutine")


def _no_for(self: object) -> NoReturn:
    raise TypeError(f"{type(self).__name__}: use 'async for', in a coroutine")


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    code = inspect.unwrap(function).__code__  # in a tenth of the time of inspect.signature
    if code.co_flags & inspect.CO_VARKEYWORDS:
        return function
    known = frozenset(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])

    def check(named: Collection[str]) -> None:
        for name in named:
            if name not in known:
                raise refused_argument(function, name)

    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def call(*arguments: Any, **named: Any) -> Any:
            if named:
                check(named.keys())
            running = function(*arguments, **named)
            # Tracebacks show what is left: no arguments, which may be secrets.
            del arguments, named
            return await running

        return call

    @wraps(function)
    def call_at_once(*arguments: Any, **named: Any) -> Any:
        if named:
            check(named.keys())
        return function(*arguments, **named)

    return call_at_once
