"""Every public coroutine of producer, consumers and admin client, against each kind of bad server,
ends within the limit in its docstring.

A test fails for a coroutine without a row.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from aioprod import Admin, Consumer, Producer, ShareConsumer, TopicPartition, native
from aioprod.admin import (
    AclBinding,
    AclFilter,
    AclOperation,
    ClientQuotaEntity,
    ConfigResource,
    ElectionType,
    NewTopic,
    OffsetSpec,
    ResourceType,
    ScramRemoval,
)
from aioprod.errors import UnsupportedVersionError
from aioprod.producer.deliveries import Deliveries
from aioprod.producer.delivery import Delivery
from aioprod.testing import EmbeddedCluster
from tests.selection import shares_by_default
from tests.testing.bad_servers import GRACE_S, KINDS, ORDERS, Row, time_of

TP = TopicPartition(ORDERS, 0)
BLOCK_MS, REQUEST_MS, DELIVERY_MS, API_MS, CLOSE_MS = 7_000, 3_000, 11_000, 9_000, 30_000


def producer(cluster: EmbeddedCluster) -> Producer:
    return Producer(
        cluster.bootstrap_servers,
        max_block_ms=BLOCK_MS,
        request_timeout_ms=REQUEST_MS,
        delivery_timeout_ms=DELIVERY_MS,
        linger_ms=0,
    )


def transactional(cluster: EmbeddedCluster) -> Producer:
    return Producer(
        cluster.bootstrap_servers,
        max_block_ms=BLOCK_MS,
        request_timeout_ms=REQUEST_MS,
        delivery_timeout_ms=DELIVERY_MS,
        transactional_id="t",
    )


def consumer(cluster: EmbeddedCluster) -> Consumer:
    return Consumer(
        ORDERS,
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="g",
        request_timeout_ms=REQUEST_MS,
        default_api_timeout_ms=API_MS,
        auto_offset_reset="earliest",
    )


def share_consumer(cluster: EmbeddedCluster) -> ShareConsumer:
    return ShareConsumer(
        cluster.bootstrap_servers,
        group_id="g",
        topics=[ORDERS],
        request_timeout_ms=REQUEST_MS,
        default_api_timeout_ms=API_MS,
    )


def admin(cluster: EmbeddedCluster) -> Admin:
    return Admin(
        cluster.bootstrap_servers,
        request_timeout_ms=REQUEST_MS,
        default_api_timeout_ms=API_MS,
        enable_metrics_push=True,
    )


# -- producer --------------------------------------------------------------------------------------


async def _delivered(producer: Producer) -> None:
    await (await producer.send(ORDERS, b"x"))


async def _all_delivered(producer: Producer) -> None:
    await (await producer.send_many(ORDERS, [b"x", b"y"]))


async def _waited(producer: Producer) -> None:
    await (await producer.send_many(ORDERS, [b"x", b"y"])).wait()


async def _in_flight(producer: Producer) -> None:
    await producer.send(ORDERS, b"x")


async def _flush(producer: Producer) -> None:
    await producer.send(ORDERS, b"x")
    await producer.flush()


async def _begun(producer: Producer) -> None:
    await producer.begin_transaction()
    await producer.send_and_wait(ORDERS, b"x")


async def _send_and_prepare(producer: Producer) -> None:
    await producer.send(ORDERS, b"x")
    await producer.prepare_transaction()


async def _whole_transaction(producer: Producer) -> None:
    async with producer.transaction():
        await producer.send(ORDERS, b"x")


async def _enter_and_leave(client: Any) -> None:
    async with client:
        pass


PRODUCER: dict[str, Row] = {
    "start": Row(
        lambda it: it.start(), BLOCK_MS, ("max_block_ms", "request_timeout_ms"), ready=False
    ),
    "__aenter__": Row(_enter_and_leave, BLOCK_MS, ("start",), ready=False),
    "__aexit__": Row(lambda it: it.__aexit__(), DELIVERY_MS, ("close",), _delivered),
    "stop": Row(lambda it: it.stop(), DELIVERY_MS, ("delivery_timeout_ms",), _delivered),
    "close": Row(lambda it: it.close(), DELIVERY_MS, ("delivery_timeout_ms",), _in_flight),
    "send": Row(lambda it: it.send("unknown", b"x"), BLOCK_MS, ("max_block_ms",)),
    "send_and_wait": Row(
        lambda it: it.send_and_wait(ORDERS, b"x"),
        BLOCK_MS + DELIVERY_MS,
        ("max_block_ms", "delivery_timeout_ms"),
        _delivered,
    ),
    "send_many": Row(
        lambda it: it.send_many("unknown", [b"x", b"y", b"z"]), BLOCK_MS, ("max_block_ms",)
    ),
    "send_arrow": Row(
        lambda it: it.send_arrow("unknown", pa.table({"value": [b"x", b"y", b"z"]})),
        BLOCK_MS,
        ("max_block_ms",),
    ),
    "flush": Row(_flush, DELIVERY_MS, ("timeout_ms", "delivery_timeout_ms"), _delivered),
    "partitions_for": Row(lambda it: it.partitions_for("unknown"), BLOCK_MS, ("max_block_ms",)),
    "client_instance_id": Row(
        lambda it: it.client_instance_id(), REQUEST_MS, ("request_timeout_ms",)
    ),
}
TRANSACTIONS: dict[str, Row] = {
    "start": Row(lambda it: it.start(), 2 * BLOCK_MS, ("max_block_ms",), ready=False),
    "init_transactions": Row(lambda it: it.init_transactions(), BLOCK_MS, ("max_block_ms",)),
    "begin_transaction": Row(lambda it: it.begin_transaction(), BLOCK_MS, ("max_block_ms",)),
    "send_offsets_to_transaction": Row(
        lambda it: it.send_offsets_to_transaction({TP: 1}, "g"), BLOCK_MS, ("max_block_ms",), _begun
    ),
    "prepare_transaction": Row(_send_and_prepare, 2 * BLOCK_MS, ("max_block_ms",), _begun),
    "commit_transaction": Row(
        lambda it: it.commit_transaction(), BLOCK_MS, ("max_block_ms",), _begun
    ),
    "abort_transaction": Row(
        lambda it: it.abort_transaction(), BLOCK_MS, ("max_block_ms",), _begun
    ),
    "transaction": Row(_whole_transaction, 3 * BLOCK_MS, ("max_block_ms",)),
    "close": Row(lambda it: it.close(), DELIVERY_MS, ("delivery_timeout_ms",), _begun),
}
DELIVERY: dict[str, Row] = {
    "__await__": Row(_delivered, DELIVERY_MS, ("delivery_timeout_ms",), _delivered)
}
DELIVERIES: dict[str, Row] = {
    "__await__": Row(_all_delivered, DELIVERY_MS, ("delivery_timeout_ms",), _delivered),
    "wait": Row(_waited, DELIVERY_MS, ("delivery_timeout_ms",), _delivered),
}

# -- consumer --------------------------------------------------------------------------------------


async def _reading(consumer: Consumer) -> None:
    while not consumer.assignment():
        await consumer.getmany(timeout_ms=100)


async def _next(consumer: Consumer) -> None:
    await consumer.__anext__()


NAMED = ("default_api_timeout_ms",)
CONSUMER: dict[str, Row | str] = {
    "start": Row(lambda it: it.start(), API_MS, NAMED, ready=False),
    "__aenter__": Row(_enter_and_leave, API_MS, ("start",), ready=False),
    "__aexit__": Row(lambda it: it.__aexit__(), CLOSE_MS, ("close",), _reading),
    "stop": Row(lambda it: it.stop(), CLOSE_MS, ("close",), _reading),
    "close": Row(lambda it: it.close(), CLOSE_MS, ("timeout_ms",), _reading),
    "__anext__": "waits forever for a record: that is what `async for` is",
    "getone": Row(
        lambda it: it.getone(timeout_ms=5_000), 5_000, ("timeout_ms", "forever"), _reading
    ),
    "getmany": Row(
        lambda it: it.getmany(timeout_ms=5_000), 5_000, ("timeout_ms", "forever"), _reading
    ),
    "getarrow": Row(
        lambda it: it.getarrow(timeout_ms=5_000), 5_000, ("timeout_ms", "forever"), _reading
    ),
    "commit": Row(lambda it: it.commit({TP: 1}), API_MS, NAMED, _reading),
    "commit_async": Row(lambda it: it.commit_async({TP: 1}), API_MS, NAMED, _reading),
    "committed": Row(lambda it: it.committed(TP), API_MS, NAMED, _reading),
    "position": Row(lambda it: it.position(TP), API_MS, NAMED, _reading),
    "seek_to_beginning": Row(lambda it: it.seek_to_beginning(), API_MS, NAMED, _reading),
    "seek_to_end": Row(lambda it: it.seek_to_end(), API_MS, NAMED, _reading),
    "seek_to_committed": Row(lambda it: it.seek_to_committed(), API_MS, NAMED, _reading),
    "unsubscribe": Row(lambda it: it.unsubscribe(), API_MS, NAMED, _reading),
    "offsets_for_times": Row(lambda it: it.offsets_for_times({TP: 1}), API_MS, NAMED),
    "beginning_offsets": Row(lambda it: it.beginning_offsets([TP]), API_MS, NAMED),
    "end_offsets": Row(lambda it: it.end_offsets([TP]), API_MS, NAMED),
    "partitions_for_topic": Row(lambda it: it.partitions_for_topic(ORDERS), API_MS, NAMED),
    "topics": Row(lambda it: it.topics(), API_MS, NAMED),
    "client_instance_id": Row(
        lambda it: it.client_instance_id(), REQUEST_MS, ("request_timeout_ms",)
    ),
}

# -- share consumer --------------------------------------------------------------------------------


async def _joining(consumer: ShareConsumer) -> None:
    """The embedded broker has no share groups: this is as far as a member comes."""
    with contextlib.suppress(UnsupportedVersionError):
        await consumer.getmany(timeout_ms=500)


SHARE_CONSUMER: dict[str, Row | str] = {
    "start": Row(lambda it: it.start(), API_MS, NAMED, ready=False),
    "__aenter__": Row(_enter_and_leave, API_MS, ("start",), ready=False),
    "__aexit__": Row(lambda it: it.__aexit__(), CLOSE_MS, ("close",), _joining),
    "close": Row(lambda it: it.close(), CLOSE_MS, ("timeout_ms",), _joining),
    "__anext__": "waits forever for a record: that is what `async for` is",
    "getmany": Row(lambda it: it.getmany(timeout_ms=5_000), 5_000, ("timeout_ms", "forever")),
    "commit": Row(lambda it: it.commit(), API_MS, NAMED, _joining),
    "unsubscribe": Row(lambda it: it.unsubscribe(), 5_000, ("5 seconds",), _joining),
    "client_instance_id": Row(
        lambda it: it.client_instance_id(), REQUEST_MS, ("request_timeout_ms",)
    ),
}

# -- admin client ----------------------------------------------------------------------------------

_RESOURCE = ConfigResource.topic(ORDERS)
_ACL = AclBinding(ResourceType.TOPIC, ORDERS, "User:u", AclOperation.READ)
_CALLS: dict[str, Callable[[Admin], Awaitable[Any]]] = {
    "alter_client_quotas": lambda it: it.alter_client_quotas(
        {ClientQuotaEntity(user="u"): {"producer_byte_rate": 1.0}}
    ),
    "alter_consumer_group_offsets": lambda it: it.alter_consumer_group_offsets("g", {TP: 1}),
    "alter_share_group_offsets": lambda it: it.alter_share_group_offsets("g", {TP: 0}),
    "alter_user_scram_credentials": lambda it: it.alter_user_scram_credentials([ScramRemoval("u")]),
    "create_acls": lambda it: it.create_acls([_ACL]),
    "delete_acls": lambda it: it.delete_acls([AclFilter()]),
    "create_delegation_token": lambda it: it.create_delegation_token(),
    "describe_acls": lambda it: it.describe_acls(),
    "describe_delegation_tokens": lambda it: it.describe_delegation_tokens(),
    "expire_delegation_token": lambda it: it.expire_delegation_token(b"hmac"),
    "renew_delegation_token": lambda it: it.renew_delegation_token(b"hmac"),
    "describe_user_scram_credentials": lambda it: it.describe_user_scram_credentials(["u"]),
    "alter_partition_reassignments": lambda it: it.alter_partition_reassignments({TP: [1]}),
    "create_partitions": lambda it: it.create_partitions({ORDERS: 3}),
    "create_topics": lambda it: it.create_topics([NewTopic("new", 1)]),
    "delete_consumer_group_offsets": lambda it: it.delete_consumer_group_offsets("g", [TP]),
    "delete_consumer_groups": lambda it: it.delete_consumer_groups(["g"]),
    "delete_records": lambda it: it.delete_records({TP: -1}),
    "delete_share_group_offsets": lambda it: it.delete_share_group_offsets("g", [ORDERS]),
    "delete_topics": lambda it: it.delete_topics([ORDERS]),
    "describe_client_quotas": lambda it: it.describe_client_quotas(),
    "describe_cluster": lambda it: it.describe_cluster(),
    "describe_configs": lambda it: it.describe_configs([_RESOURCE]),
    "describe_consumer_groups": lambda it: it.describe_consumer_groups(["g"]),
    "describe_log_dirs": lambda it: it.describe_log_dirs([1]),
    "describe_producers": lambda it: it.describe_producers([TP]),
    "describe_share_groups": lambda it: it.describe_share_groups(["g"]),
    "describe_topics": lambda it: it.describe_topics([ORDERS]),
    "describe_transactions": lambda it: it.describe_transactions(["t"]),
    "elect_leaders": lambda it: it.elect_leaders(ElectionType.PREFERRED, [TP]),
    "fence_producers": lambda it: it.fence_producers(["t"]),
    "find_coordinator": lambda it: it.find_coordinator("g"),
    "incremental_alter_configs": lambda it: it.incremental_alter_configs(
        {_RESOURCE: {"retention.ms": 1000}}
    ),
    "list_consumer_group_offsets": lambda it: it.list_consumer_group_offsets("g"),
    "list_groups": lambda it: it.list_groups(),
    "list_offsets": lambda it: it.list_offsets({TP: OffsetSpec.LATEST}),
    "list_partition_reassignments": lambda it: it.list_partition_reassignments(),
    "list_share_group_offsets": lambda it: it.list_share_group_offsets("g"),
    "list_topics": lambda it: it.list_topics(),
    "list_transactions": lambda it: it.list_transactions(),
    "remove_members_from_consumer_group": lambda it: it.remove_members_from_consumer_group(
        "g", ["m"]
    ),
}
ADMIN: dict[str, Row | str] = {
    "start": Row(lambda it: it.start(), API_MS, NAMED, ready=False),
    "__aenter__": Row(_enter_and_leave, API_MS, ("start",), ready=False),
    "__aexit__": Row(lambda it: it.__aexit__(), 2_000, ("close",)),
    "stop": Row(lambda it: it.stop(), 2_000, ("close",)),
    "close": Row(lambda it: it.close(), 2_000, ("2 seconds",)),
    "client_instance_id": Row(
        lambda it: it.client_instance_id(), REQUEST_MS, ("request_timeout_ms",)
    ),
    **{name: Row(call, API_MS, ("timeout_ms",)) for name, call in _CALLS.items()},
}

TABLES: list[tuple[type, Callable[[EmbeddedCluster], Any], dict[str, Any]]] = [
    (Producer, producer, PRODUCER),
    (Producer, transactional, TRANSACTIONS),
    (Delivery, producer, DELIVERY),
    (Deliveries, producer, DELIVERIES),
    (Consumer, consumer, CONSUMER),
    (ShareConsumer, share_consumer, SHARE_CONSUMER),
    (Admin, admin, ADMIN),
]
ROWS = [
    (f"{make.__name__}.{name}", make, row)
    for _, make, table in TABLES
    for name, row in table.items()
    if isinstance(row, Row)
]


@pytest.mark.parametrize(
    ("make", "row", "kinds"),
    [
        pytest.param(make, row, *share.values, id=f"{name}-{share.id}", marks=share.marks)
        for place, (name, make, row) in enumerate(ROWS)
        for share in shares_by_default(KINDS, 2, place)
    ],
)
def test_a_call_ends_within_its_limit(
    make: Callable[[EmbeddedCluster], Any], row: Row, kinds: Sequence[str]
) -> None:
    for kind in kinds:
        taken = time_of(row, kind, make)
        assert taken.seconds <= row.limit_ms / 1000 + GRACE_S, (kind, taken)
        # One a second: reconnect_backoff_max_ms. A consumer has three connections to each broker.
        assert taken.connections <= 4 * (taken.seconds + 5), (kind, taken)


@pytest.mark.parametrize(
    ("owner", "name", "row"),
    [(owner, name, row) for owner, _, table in TABLES for name, row in table.items()],
)
def test_a_docstring_names_the_limit(owner: type, name: str, row: Row | str) -> None:
    if isinstance(row, str):
        assert "forever" in row
        return
    text = " ".join((inspect.getdoc(getattr(in_python(owner), name)) or "").split())
    assert [named for named in row.names if named not in text] == []


@pytest.mark.parametrize("owner", [Producer, Delivery, Deliveries, Consumer, ShareConsumer, Admin])
def test_each_public_coroutine_has_a_row(owner: type) -> None:
    known = {name for each, _, table in TABLES if each is owner for name in table}
    assert public_coroutines(in_python(owner)) == known


def in_python(owner: type) -> Any:
    """Return the source of a class that the accelerator may have replaced."""
    return native.python_sources.get(owner.__name__, owner)


def public_coroutines(owner: type) -> set[str]:
    """Return the names of coroutine functions, of functions that return an awaitable, and of
    asynchronous context managers and iterators.
    """
    found = set()
    for name in dir(owner):
        method = inspect.getattr_static(owner, name)
        plain = getattr(method, "__func__", method)
        if not inspect.isfunction(plain) or (
            name.startswith("_")
            and name not in ("__aenter__", "__aexit__", "__anext__", "__await__")
        ):
            continue
        inner = inspect.unwrap(plain)
        waits = (
            inspect.iscoroutinefunction(inner)
            or inspect.isasyncgenfunction(inner)
            or name == "__await__"
        )
        if waits or "Awaitable" in str(inspect.signature(plain).return_annotation):
            found.add(name)
    return found
