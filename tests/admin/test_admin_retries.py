"""The routing, retries and limits of an admin client's calls, and calls during its close."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aioprod import (
    Admin,
    AdminClosedError,
    BrokerConnectionError,
    BrokerError,
    ConfigError,
    ErrorCode,
    KafkaTimeoutError,
    TopicPartition,
)
from aioprod.admin import NewTopic, OffsetSpec, Results
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.message import Message
from aioprod.testing import (
    EmbeddedCluster,
    change_answer,
    delay,
    drop_after,
    drop_before,
    fail,
    hold,
    throttle,
)

QUICK: Any = {
    "retry_backoff_ms": 1,
    "retry_backoff_max_ms": 5,
    "reconnect_backoff_ms": 1,
    "reconnect_backoff_max_ms": 5,
}


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(nodes=3) as running:
        yield running


@pytest.fixture
async def admin(cluster: EmbeddedCluster) -> AsyncIterator[Admin]:
    async with Admin(cluster.bootstrap_servers, default_api_timeout_ms=10_000, **QUICK) as running:
        yield running


def messages(cluster: EmbeddedCluster, api_key: ApiKey) -> list[Any]:
    """Gets the requests of an API that come in from now on."""
    seen: list[Any] = []

    def note(message: Message) -> bool:
        seen.append(message)
        return False

    cluster.on_every(api_key, delay(0), where=note)
    return seen


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
    ],
)
async def test_temporary_errors_are_retried(
    cluster: EmbeddedCluster, admin: Admin, code: ErrorCode
) -> None:
    cluster.on(ApiKey.CREATE_TOPICS, fail(code), times=2)
    assert (await admin.create_topics(NewTopic("orders", 1))).num_partitions == 1
    assert cluster.request_count(ApiKey.CREATE_TOPICS) == 3


def without_brokers(reply: Any) -> None:
    """Change metadata to those of a broker that has just started, and knows no other one."""
    reply.brokers.clear()


def to_rebootstrap(reply: Any) -> None:
    reply.error_code = ErrorCode.REBOOTSTRAP_REQUIRED


@pytest.mark.parametrize("change", [without_brokers, to_rebootstrap])
@pytest.mark.parametrize("name", ["list_groups", "create_topics", "list_offsets"])
async def test_calls_are_retried_if_a_broker_is_not_ready(
    cluster: EmbeddedCluster, admin: Admin, name: str, change: Any
) -> None:
    cluster.create_topic("t", 1)
    calls: dict[str, Any] = {
        "list_groups": admin.list_groups,
        "create_topics": lambda: admin.create_topics(NewTopic("orders", 1)),
        "list_offsets": lambda: admin.list_offsets({TopicPartition("t", 0): OffsetSpec.LATEST}),
    }
    changed: list[Any] = []

    def answer(reply: Any) -> None:
        changed.append(reply)
        change(reply)

    cluster.on(ApiKey.CREATE_TOPICS, fail(ErrorCode.NOT_CONTROLLER))  # so it asks for metadata
    cluster.on(ApiKey.METADATA, change_answer(answer), times=2)
    await calls[name]()
    assert changed


async def test_only_failed_items_are_retried(cluster: EmbeddedCluster, admin: Admin) -> None:
    seen = messages(cluster, ApiKey.CREATE_TOPICS)
    cluster.on(ApiKey.CREATE_TOPICS, fail(ErrorCode.NOT_CONTROLLER, topic="second"))
    made = await admin.create_topics([NewTopic("first", 1), NewTopic("second", 1)])
    assert list(made.check()) == ["first", "second"]
    assert [[topic.name for topic in message.topics] for message in seen] == [
        ["first", "second"],
        ["second"],
    ]


async def test_requests_to_the_controller_go_to_the_controller(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    await admin.create_topics(NewTopic("orders", 1))
    controller = (await admin.describe_cluster()).controller
    assert controller is not None
    assert [seen.node_id for seen in cluster.requests if seen.api_key == ApiKey.CREATE_TOPICS] == [
        controller.node_id
    ]


async def test_a_coordinator_that_moved_is_looked_up_again(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    cluster.create_topic("orders", 1)
    partition = TopicPartition("orders", 0)
    (await admin.alter_consumer_group_offsets("group", {partition: 1})).check()
    looked = cluster.request_count(ApiKey.FIND_COORDINATOR)
    cluster.on(ApiKey.OFFSET_COMMIT, fail(ErrorCode.NOT_COORDINATOR), times=1)
    (await admin.alter_consumer_group_offsets("group", {partition: 2})).check()
    assert cluster.committed_offsets("group") == {partition: 2}
    assert cluster.request_count(ApiKey.FIND_COORDINATOR) == looked + 1


async def test_a_leader_that_moved_is_looked_up_again(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    cluster.create_topic("orders", 1)
    cluster.on(ApiKey.LIST_OFFSETS, fail(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert (await admin.list_offsets({TopicPartition("orders", 0): OffsetSpec.LATEST}))[
        TopicPartition("orders", 0)
    ].offset == 0


async def test_a_lost_connection_is_made_again(cluster: EmbeddedCluster, admin: Admin) -> None:
    cluster.on(ApiKey.DELETE_TOPICS, drop_before())
    cluster.create_topic("orders", 1)
    await admin.delete_topics("orders")
    assert not cluster.topics


async def test_the_error_mentions_a_lost_answer(cluster: EmbeddedCluster, admin: Admin) -> None:
    cluster.on(ApiKey.CREATE_TOPICS, drop_after())
    with pytest.raises(
        BrokerError,
        match=r"TOPIC_ALREADY_EXISTS.*an earlier attempt got no response, and may have caused",
    ):
        await admin.create_topics(NewTopic("orders", 1))
    assert list(cluster.topics) == ["orders"]


async def test_a_broker_that_is_gone_is_not_waited_for(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    cluster.create_topic("orders", 1)
    for number in range(10):
        (
            await admin.alter_consumer_group_offsets(
                f"group-{number}", {TopicPartition("orders", 0): 0}
            )
        ).check()
    controller = (await admin.describe_cluster()).controller
    assert controller is not None
    await cluster.stop_node(controller.node_id)
    assert len(await admin.list_groups(timeout_ms=8000)) == 10
    assert (await admin.create_topics(NewTopic("after", 1))).name == "after"


@pytest.mark.virtual_time
async def test_the_limit_of_a_call_names_itself_and_the_last_error(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    cluster.on_every(ApiKey.CREATE_TOPICS, fail(ErrorCode.NOT_CONTROLLER))
    with pytest.raises(
        KafkaTimeoutError,
        match=r"create_topics orders: not done within timeout_ms=100; topic orders.*NOT_CONTROLLER",
    ):
        await admin.create_topics(NewTopic("orders", 1), timeout_ms=100)
    cluster.on_every(ApiKey.LIST_GROUPS, fail(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    with pytest.raises(
        KafkaTimeoutError,
        match=(
            r"^list_groups: not done within timeout_ms=100; groups of "
            r".*COORDINATOR_LOAD_IN_PROGRESS"
        ),
    ):
        await admin.list_groups(timeout_ms=100)


@pytest.mark.virtual_time
async def test_the_default_limit_is_a_setting(cluster: EmbeddedCluster) -> None:
    kept_back = cluster.on_every(ApiKey.CREATE_TOPICS, hold())
    async with Admin(cluster.bootstrap_servers, default_api_timeout_ms=100) as admin:
        with pytest.raises(
            KafkaTimeoutError,
            match=r"default_api_timeout_ms=100; no broker responded, so it may still be done",
        ):
            await admin.create_topics(NewTopic("orders", 1))
    kept_back.cancel()


async def test_brokers_are_reported_how_long_they_may_take(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    seen = messages(cluster, ApiKey.CREATE_TOPICS)
    await admin.create_topics(NewTopic("orders", 1), timeout_ms=700)
    assert [0 < message.timeout_ms <= 700 for message in seen] == [True]


@pytest.mark.parametrize("timeout_ms", [0, -1, "5", True, float("nan")])
async def test_a_limit_must_be_a_number_above_0(admin: Admin, timeout_ms: float) -> None:
    with pytest.raises(ConfigError, match="timeout_ms="):
        await admin.list_topics(timeout_ms=timeout_ms)


async def test_a_new_topic_may_still_be_unknown(cluster: EmbeddedCluster, admin: Admin) -> None:
    cluster.create_topic("orders", 1)
    cluster.on(
        ApiKey.METADATA,
        fail(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        where=lambda message: bool(message.topics),  # type: ignore[attr-defined]
    )
    assert (await admin.describe_topics("orders")).name == "orders"


async def test_a_throttled_request_is_delayed(cluster: EmbeddedCluster, admin: Admin) -> None:
    cluster.on(ApiKey.CREATE_TOPICS, throttle(200))
    begun = asyncio.get_running_loop().time()
    for name in ("first", "second"):
        await admin.create_topics(NewTopic(name, 1))
    assert asyncio.get_running_loop().time() - begun >= 0.2


async def test_a_cancelled_call_leaves_the_client_usable(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    cluster.on(ApiKey.LIST_GROUPS, delay(0.2))
    call = asyncio.create_task(admin.list_groups())
    await cluster.wait_for_request(ApiKey.LIST_GROUPS)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await admin.list_groups() == {}


async def test_close_ends_calls_in_progress(cluster: EmbeddedCluster) -> None:
    kept_back = cluster.on_every(ApiKey.LIST_GROUPS, hold())
    admin = Admin(cluster.bootstrap_servers)
    with pytest.raises(AdminClosedError, match="is not started"):
        await admin.list_topics()
    await admin.start()
    await admin.start()
    call = asyncio.create_task(admin.list_groups())
    await cluster.wait_for_request(ApiKey.LIST_GROUPS)
    await admin.close()
    with pytest.raises(AdminClosedError, match="is closed"):
        await call
    kept_back.cancel()
    await admin.close()
    for again in (admin.list_topics, admin.start):
        with pytest.raises(AdminClosedError):
            await again()


async def test_no_broker_answers(unused_tcp_port: int) -> None:
    admin = Admin(f"127.0.0.1:{unused_tcp_port}")
    with pytest.raises(BrokerConnectionError, match=str(unused_tcp_port)):
        await admin.start()
    await admin.close()


async def test_settings_by_kafkas_names(cluster: EmbeddedCluster) -> None:
    admin = Admin.from_config(
        {"bootstrap.servers": cluster.bootstrap_servers, "default.api.timeout.ms": "5000"}
    )
    assert admin.config.default_api_timeout_ms == 5000
    assert admin.config.client_id.startswith("aioprod-admin-")
    with pytest.raises(
        ConfigError, match=r"'default.api.timeout.m': did you mean 'default.api.timeout.ms'"
    ):
        Admin.from_config({"default.api.timeout.m": 1})
    with pytest.raises(
        ConfigError,
        match=r"'retries' of the Java admin client is not supported: calls are retried until",
    ):
        Admin.from_config({"retries": 1})
    with pytest.raises(ConfigError, match="default_api_timeout_ms=0: must be from 1"):
        Admin(default_api_timeout_ms=0)
    with pytest.raises(ConfigError, match="'linger_ms'"):
        Admin(linger_ms=5)  # type: ignore[call-arg]


def test_errors_that_are_never_retrieved_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    error = BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, "topic b")
    with caplog.at_level(logging.ERROR):
        Results("create_topics", {"a": 1, "b": error})
        gc.collect()
    assert caplog.messages == [f"create_topics: the error of b was never retrieved: {error}"]
    caplog.clear()
    looked: Results[str, int] = Results("create_topics", {"a": 1, "b": error})
    assert looked.errors == {"b": error} and looked["a"] == 1 and "b" in looked and len(looked) == 2
    assert repr(error) in repr(looked)
    assert Results("create_topics", {"a": 1}).check() == {"a": 1}
    del looked
    gc.collect()
    assert not caplog.messages


GOOD, BAD = TopicPartition("good", 0), TopicPartition("bad", 0)
OF_GROUPS = [
    ("consumer", ApiKey.OFFSET_FETCH),
    ("share", ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS),
]


async def offsets(
    cluster: EmbeddedCluster, admin: Admin, kind: str, api_key: ApiKey, rule: Any, named: bool
) -> Results[TopicPartition, Any]:
    """Set offsets of two partitions, and list them under a rule."""
    for tp in (GOOD, BAD):
        cluster.create_topic(tp.topic)
    places = {GOOD: 0, BAD: 0}
    (await getattr(admin, f"alter_{kind}_group_offsets")("g", places)).check()
    cluster.on(api_key, fail(**rule), times=1 if rule["code"].retriable else None)
    wanted = list(places) if named else None
    found: Results[TopicPartition, Any] = await getattr(admin, f"list_{kind}_group_offsets")(
        "g", wanted
    )
    return found


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(("kind", "api_key"), OF_GROUPS)
async def test_a_partition_whose_offset_can_not_be_listed_hides_no_other(
    cluster: EmbeddedCluster, admin: Admin, kind: str, api_key: ApiKey, named: bool
) -> None:
    rule = {"code": ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic": "bad"}
    found = await offsets(cluster, admin, kind, api_key, rule, named)
    assert set(found) == {GOOD, BAD}
    assert found[GOOD][0] == 0
    with pytest.raises(BrokerError, match=r"offsets of .*group g for bad-0") as caught:
        found[BAD]
    assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize("topic", ["bad", None])
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(("kind", "api_key"), OF_GROUPS)
async def test_an_offset_that_can_be_listed_a_moment_later(
    cluster: EmbeddedCluster,
    admin: Admin,
    kind: str,
    api_key: ApiKey,
    named: bool,
    topic: str | None,
) -> None:
    rule = {"code": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "topic": topic}
    found = await offsets(cluster, admin, kind, api_key, rule, named)
    assert {tp: at[0] for tp, at in found.items()} == {GOOD: 0, BAD: 0}
