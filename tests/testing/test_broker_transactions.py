"""The embedded broker's transactions: what tests can see, change and delay.

``test_broker_transactions_differential.py`` compares the responses with a real broker's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from aioprod.error_codes import ErrorCode
from aioprod.errors import ConfigError
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.messages.api_versions import (
    ApiVersionsRequest,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from aioprod.protocol.messages.init_producer_id import InitProducerIdRequest
from aioprod.protocol.messages.offset_fetch import OffsetFetchRequest
from aioprod.testing import EmbeddedCluster, ThreadedCluster, drop_after, drop_before, fail, hold
from aioprod.testing.broker.transactions.coordinator import TransactionTimers
from aioprod.testing.broker.transactions.transaction import TransactionState
from aioprod.types import TopicPartition
from tests.testing.raw_client import RawClient, fetch_request, make_batch, produce_request
from tests.testing.raw_transactions import V1, V2, Member, TransactionalClient
from tests.waiting import until

LAST_EPOCH = 2**15 - 2
ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
async def two() -> AsyncIterator[EmbeddedCluster]:
    """A broker with topic "t" of two partitions."""
    async with EmbeddedCluster() as broker:
        broker.create_topic("t", 2)
        yield broker


@pytest.fixture
async def client(two: EmbeddedCluster) -> AsyncIterator[RawClient]:
    async with RawClient(two.bootstrap_servers) as connected:
        yield connected


@pytest.fixture(params=[V1, V2], ids=["v1", "v2"])
async def it(client: RawClient, request: pytest.FixtureRequest) -> TransactionalClient:
    """A producer with the transactional id "x" after InitProducerId."""
    producer = TransactionalClient(client, "x", "t", request.param)
    assert await producer.init() == ("NONE", 0)
    return producer


async def begin(it: TransactionalClient, value: bytes = b"a", partition: int = 0) -> None:
    """Send a record in a transaction."""
    if it.protocol is V1:
        assert await it.add(partition) == ["NONE"]
    assert (await it.produce(value, partition=partition))[0] == "NONE"


def state(broker: EmbeddedCluster | ThreadedCluster) -> TransactionState:
    return broker.transactions["x"].state


async def commit_offset(it: TransactionalClient, offset: int) -> None:
    if it.protocol is V1:
        assert await it.add_offsets("g") == "NONE"
    assert await it.commit_offset("g", offset) == "NONE"


class TestInspection:
    async def test_a_transaction_shows_its_state(
        self, two: EmbeddedCluster, it: TransactionalClient
    ) -> None:
        found = two.transactions["x"]
        assert (found.transactional_id, found.state, found.producer_id, found.producer_epoch) == (
            "x",
            TransactionState.EMPTY,
            it.producer_id,
            0,
        )
        await begin(it)
        await begin(it, partition=1)
        await commit_offset(it, 5)
        assert (found.state, found.partitions, found.groups) == (
            TransactionState.ONGOING,
            {ZERO, ONE},
            {"g"},
        )
        await it.end(commit=True)
        assert (found.state, found.partitions, found.groups) == (
            TransactionState.COMPLETE_COMMIT,
            set(),
            set(),
        )
        assert found.identity == (it.producer_id, it.epoch)
        await begin(it)
        await it.end(commit=False)
        assert state(two) is TransactionState.COMPLETE_ABORT

    async def test_records_leaves_markers_out_and_on_demand_what_is_not_committed(
        self, two: EmbeddedCluster, it: TransactionalClient
    ) -> None:
        await it.client.produce("t", make_batch([b"plain"]))
        for value, commit in ((b"committed", True), (b"aborted", False), (b"again", True)):
            await begin(it, value)
            await it.end(commit=commit)
        await begin(it, b"open")
        every = [b"plain", b"committed", b"aborted", b"again", b"open"]
        assert [record.value for record in two.records("t", 0)] == every
        assert [record.value for record in two.records("t", committed_only=True)] == [
            b"plain",
            b"committed",
            b"again",
        ]
        assert [record.value for record in two.records("t", 1, committed_only=True)] == []
        assert [record.value for record in await two.wait_for_records("t", 5)] == every
        with pytest.raises(TimeoutError):
            # The log has 8 entries, of which 3 are markers.
            await two.wait_for_records("t", 6, timeout_seconds=0.01)

    async def test_committed_offsets_are_those_of_ended_transactions(
        self, two: EmbeddedCluster, it: TransactionalClient
    ) -> None:
        assert two.committed_offsets("g") == {}
        await commit_offset(it, 5)
        assert two.committed_offsets("g") == {}
        await it.end(commit=True)
        assert two.committed_offsets("g") == {ZERO: 5}
        await commit_offset(it, 7)
        await it.end(commit=False)
        assert two.committed_offsets("g") == {ZERO: 5}

    def test_from_another_thread(self) -> None:
        with EmbeddedCluster.in_thread(transaction_version=1) as broker:
            broker.create_topic("t")

            async def talk() -> None:
                async with RawClient(broker.bootstrap_servers) as client:
                    producer = TransactionalClient(client, "x", "t", V1)
                    await producer.init()
                    broker.pause_markers()
                    await begin(producer)
                    await commit_offset(producer, 3)
                    await producer.end(commit=True)

            asyncio.run(talk())
            assert state(broker) is TransactionState.PREPARE_COMMIT
            assert (broker.records("t", committed_only=True), broker.committed_offsets("g")) == (
                [],
                {},
            )
            broker.resume_markers()
            assert state(broker) is TransactionState.COMPLETE_COMMIT
            assert (
                len(broker.records("t", committed_only=True)),
                broker.committed_offsets("g"),
            ) == (1, {ZERO: 3})
            broker.expire_transaction("x")
            broker.set_group_members("g", 1, {"m": None})
            assert broker.transactions["x"].producer_epoch == 0


class TestMarkers:
    async def test_while_markers_wait_the_producer_is_asked_to_wait(
        self, two: EmbeddedCluster, it: TransactionalClient
    ) -> None:
        await begin(it)
        await commit_offset(it, 5)
        two.pause_markers()
        assert (await it.end(commit=True))[0] == "NONE"
        assert state(two) is TransactionState.PREPARE_COMMIT
        assert (await it.read(committed=True))[1:] == [1, 0, []]
        assert await it.committed("g", stable=True) == [(0, -1, "", "UNSTABLE_OFFSET_COMMIT")]
        assert await it.init() == ("CONCURRENT_TRANSACTIONS", -1)
        assert await it.add(patient=False) == ["CONCURRENT_TRANSACTIONS"]
        two.resume_markers()
        assert state(two) is TransactionState.COMPLETE_COMMIT
        assert (await it.read(committed=True))[1:3] == [2, 2]
        assert await it.committed("g", stable=True) == [(0, 5, "", "NONE")]
        await begin(it)
        assert (await it.end(commit=True))[0] == "NONE"
        assert state(two) is TransactionState.COMPLETE_COMMIT

    @pytest.mark.parametrize(
        ("version", "code"),
        [
            (9, ErrorCode.NOT_ENOUGH_REPLICAS),
            (11, ErrorCode.NOT_ENOUGH_REPLICAS),
            (12, ErrorCode.CONCURRENT_TRANSACTIONS),
        ],
    )
    async def test_a_record_in_between_is_to_be_sent_again(
        self, two: EmbeddedCluster, client: RawClient, version: int, code: ErrorCode
    ) -> None:
        it = TransactionalClient(client, "x", "t", V1)
        await it.init()
        await begin(it)
        two.pause_markers()
        await it.end(commit=True)
        request = produce_request(
            "t",
            make_batch([b"x"], producer=(it.producer_id, 0, 0), transactional=True),
            partition=1,
        )
        request.transactional_id = "x"
        answer = await client.call(request, version)
        assert answer.responses[0].partition_responses[0].error_code == code

    async def test_ending_again_meanwhile(
        self, two: EmbeddedCluster, it: TransactionalClient
    ) -> None:
        await begin(it)
        two.pause_markers()
        await it.end(commit=True, keep=False)
        assert (await it.end(commit=True, patient=False))[0] == "CONCURRENT_TRANSACTIONS"
        assert (await it.end(commit=False, patient=False))[0] == "INVALID_TXN_STATE"
        if it.protocol is V2:
            it.epoch += 1
            assert (await it.end(commit=True, patient=False))[0] == "PRODUCER_FENCED"

    async def test_a_reader_that_waits_is_woken_by_the_marker_and_not_by_records(
        self, two: EmbeddedCluster, it: TransactionalClient
    ) -> None:
        await begin(it)
        request = fetch_request("t", 0, max_wait_ms=10_000)
        request.isolation_level = 1
        async with RawClient(two.bootstrap_servers) as reader:
            reading = asyncio.create_task(reader.call(request, 12))
            await until(lambda: ApiKey.FETCH in {seen.api_key for seen in two.requests})
            assert (await it.produce(b"b"))[0] == "NONE"
            done, _ = await asyncio.wait([reading], timeout=0.05)
            assert not done
            await it.end(commit=True)
            found = (await asyncio.wait_for(reading, 5)).responses[0].partitions[0]
        assert (found.high_watermark, found.last_stable_offset, found.aborted_transactions) == (
            3,
            3,
            [],
        )
        assert found.records and len(found.records) > 100

    async def test_a_topic_that_is_deleted_meanwhile_gets_none(
        self, two: EmbeddedCluster, it: TransactionalClient
    ) -> None:
        await begin(it)
        await commit_offset(it, 5)
        two.delete_topic("t")
        two.create_topic("t", 2)
        assert (await it.end(commit=True))[0] == "NONE"
        assert await it.read(committed=False) == ["NONE", 0, 0]
        assert two.committed_offsets("g") == {}


class TestTimeout:
    async def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(
        self, two: EmbeddedCluster, it: TransactionalClient
    ) -> None:
        await it.init(timeout_ms=50)
        for _ in range(2):  # on a busy machine the timeout may pass first
            await it.add()
            await it.produce(b"slow")
            await it.add_offsets("g")
            await it.commit_offset("g", 5)
        await until(lambda: state(two) is TransactionState.COMPLETE_ABORT)
        assert (await it.produce(b"late"))[0] == "INVALID_PRODUCER_EPOCH"
        assert (await it.end(commit=True))[0] in ("PRODUCER_FENCED", "INVALID_TXN_STATE")
        assert (two.records("t", committed_only=True), two.committed_offsets("g")) == ([], {})

    async def test_each_transaction_has_the_whole_time(
        self, two: EmbeddedCluster, it: TransactionalClient
    ) -> None:
        await it.init(timeout_ms=1000)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + 1.3
        while loop.time() < deadline:
            await begin(it)
            assert (await it.end(commit=True))[0] == "NONE"
        assert {record.value for record in two.records("t", committed_only=True)} == {b"a"}

    async def test_expire_transaction_needs_no_waiting(
        self, two: EmbeddedCluster, it: TransactionalClient
    ) -> None:
        two.expire_transaction("x")
        two.expire_transaction("unknown")
        assert two.transactions["x"].producer_epoch == 0
        await begin(it)
        two.expire_transaction("x")
        assert (state(two), two.transactions["x"].producer_epoch) == (
            TransactionState.COMPLETE_ABORT,
            1,
        )
        assert await it.add() == ["PRODUCER_FENCED"]

    async def test_it_does_not_expire_while_the_broker_is_stopped(
        self, two: EmbeddedCluster, it: TransactionalClient
    ) -> None:
        await it.init(timeout_ms=500)
        await begin(it)
        await two.stop()
        await asyncio.sleep(0.6)  # nothing may happen
        assert state(two) is TransactionState.ONGOING
        await two.start()
        await until(lambda: state(two) is TransactionState.COMPLETE_ABORT)

    async def test_timers(self) -> None:
        expired: list[str] = []
        timers = TransactionTimers(expired.append)
        for name in "abc":
            timers.start(name, 10)
        timers.cancel("b")
        timers.suspend()
        await asyncio.sleep(0.03)  # nothing may happen
        assert expired == []
        timers.resume()
        timers.resume()
        await until(lambda: len(expired) >= 2)
        timers.cancel("a")
        timers.resume()
        await asyncio.sleep(0.03)
        assert sorted(expired) == ["a", "c"]


class TestControl:
    async def test_fail_applies_nothing(
        self, two: EmbeddedCluster, it: TransactionalClient
    ) -> None:
        for api in (
            ApiKey.ADD_PARTITIONS_TO_TXN,
            ApiKey.ADD_OFFSETS_TO_TXN,
            ApiKey.TXN_OFFSET_COMMIT,
            ApiKey.OFFSET_COMMIT,
        ):
            two.on(api, fail(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        assert await it.add(0, 1) == ["COORDINATOR_LOAD_IN_PROGRESS"] * 2
        assert await it.add_offsets("g") == "COORDINATOR_LOAD_IN_PROGRESS"
        assert await it.commit_offset_plainly("g", 9) == "COORDINATOR_LOAD_IN_PROGRESS"
        two.on(ApiKey.PRODUCE, fail(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        assert (await it.produce())[0] == "NOT_LEADER_OR_FOLLOWER"
        assert state(two) is TransactionState.EMPTY
        two.clear_rules()
        await begin(it)
        two.on(ApiKey.TXN_OFFSET_COMMIT, fail(ErrorCode.ILLEGAL_GENERATION))
        assert await it.commit_offset("g", 5) == "ILLEGAL_GENERATION"
        assert two.transactions["x"].groups == set()
        two.on(ApiKey.END_TXN, fail(ErrorCode.UNKNOWN_SERVER_ERROR))
        two.on(ApiKey.INIT_PRODUCER_ID, fail(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        assert await it.end(commit=True) == ("UNKNOWN_SERVER_ERROR", 0, -1)
        assert await it.init() == ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", -1)
        assert state(two) is TransactionState.ONGOING
        assert await it.committed("g") == [(0, -1, "", "NONE")]

    async def test_fail_for_one_partition(
        self, two: EmbeddedCluster, it: TransactionalClient
    ) -> None:
        two.on(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic="t", partition=1),
        )
        assert await it.add(0, 1) == ["OPERATION_NOT_ATTEMPTED", "TOPIC_AUTHORIZATION_FAILED"]
        assert state(two) is TransactionState.EMPTY
        two.on(
            ApiKey.ADD_PARTITIONS_TO_TXN, fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED, partition=1)
        )
        assert await it.add_batched(0, 1) == [
            "NONE/OPERATION_NOT_ATTEMPTED",
            "NONE/TOPIC_AUTHORIZATION_FAILED",
        ]
        assert await it.add_offsets("g") == "NONE"
        two.on(ApiKey.TXN_OFFSET_COMMIT, fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED, partition=1))
        assert await it.commit_offset("g", 5, partition=1) == "TOPIC_AUTHORIZATION_FAILED"
        assert await it.commit_offset("g", 5) == "NONE"
        await it.end(commit=True)
        assert two.committed_offsets("g") == {ZERO: 5}

    @pytest.mark.parametrize("version", [1, 5, 7, 8, 9])
    async def test_fail_of_offset_fetch_stands_where_the_version_has_it(
        self, two: EmbeddedCluster, it: TransactionalClient, version: int
    ) -> None:
        two.on(ApiKey.OFFSET_FETCH, fail(ErrorCode.UNSTABLE_OFFSET_COMMIT, partition=0))
        assert await it.committed("g", version=version) == [(0, -1, "", "UNSTABLE_OFFSET_COMMIT")]
        two.on(ApiKey.OFFSET_FETCH, fail(ErrorCode.NOT_COORDINATOR))
        if version == 1:
            assert await it.committed("g", version=version) == [(0, -1, "", "NOT_COORDINATOR")]
        else:
            with pytest.raises(AssertionError, match="NOT_COORDINATOR"):
                await it.committed("g", version=version)

    @pytest.mark.parametrize("api", [ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN])
    async def test_an_answer_that_is_lost(
        self, two: EmbeddedCluster, it: TransactionalClient, api: ApiKey
    ) -> None:
        await begin(it)
        for action, applied in ((drop_before(), False), (drop_after(), True)):
            two.on(api, action)
            async with RawClient(two.bootstrap_servers) as other:
                twin = TransactionalClient(other, "x", "t", it.protocol)
                twin.producer_id, twin.epoch = it.producer_id, it.epoch
                with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                    await (
                        twin.init() if api is ApiKey.INIT_PRODUCER_ID else twin.end(commit=False)
                    )
            assert (state(two) is TransactionState.COMPLETE_ABORT) == applied

    async def test_keep(self, two: EmbeddedCluster, it: TransactionalClient) -> None:
        await begin(it)
        event = asyncio.Event()
        two.on(ApiKey.END_TXN, hold(event))
        ending = asyncio.create_task(it.end(commit=True))
        await until(lambda: ApiKey.END_TXN in {seen.api_key for seen in two.requests})
        assert state(two) is TransactionState.ONGOING
        event.set()
        assert (await ending)[0] == "NONE"


class TestLastEpoch:
    """The differential test has more of this, but takes long. Here the epoch is simply set."""

    @pytest.fixture(autouse=True)
    def last_epoch(self, two: EmbeddedCluster, it: TransactionalClient) -> None:
        two.transactions["x"].producer_epoch = it.epoch = LAST_EPOCH

    async def test_the_end_of_a_transaction_brings_a_new_producer_id_in_v2(
        self, two: EmbeddedCluster, it: TransactionalClient
    ) -> None:
        first = it.producer_id
        await begin(it)
        assert await it.end(commit=True) == (
            ("NONE", 0, -1) if it.protocol is V1 else ("NONE", 1, 0)
        )
        assert [record.value for record in two.records("t", committed_only=True)] == [b"a"]
        if it.protocol is V2:
            it.producer_id, it.epoch, second = first, LAST_EPOCH, it.producer_id
            assert await it.end(commit=True) == ("NONE", 1, 0)
            assert it.producer_id == second
            await begin(it)
            assert await it.end(commit=True) == ("NONE", 0, 1)

    async def test_initializing_brings_a_new_producer_id(
        self, two: EmbeddedCluster, it: TransactionalClient
    ) -> None:
        first = it.identity
        assert await it.init(expected=first) == ("NONE", 0)
        second = it.identity
        assert second[0] != first[0]
        # A retry, because the response was lost.
        assert await it.init(expected=first) == (
            "NONE",
            0,
        )
        assert it.identity == second

    async def test_fencing_takes_the_one_that_no_client_gets(
        self, two: EmbeddedCluster, it: TransactionalClient
    ) -> None:
        await begin(it)
        second = TransactionalClient(it.client, "x", "t", it.protocol)
        assert await second.init() == ("CONCURRENT_TRANSACTIONS", -1)
        assert two.transactions["x"].identity == (it.producer_id, LAST_EPOCH + 1)
        assert await second.init() == ("NONE", 0)
        assert second.producer_id != it.producer_id
        assert (await it.end(commit=True))[0] == (
            "INVALID_PRODUCER_ID_MAPPING" if it.protocol is V1 else "PRODUCER_FENCED"
        )
        assert (await it.produce())[0] == "INVALID_PRODUCER_EPOCH"


class TestGroups:
    async def test_members_are_checked_if_there_are_some(
        self, two: EmbeddedCluster, it: TransactionalClient
    ) -> None:
        two.set_group_members("g", 3, {"m": None, "s": "instance"})
        if it.protocol is V1:
            await it.add_offsets("g")
        expected = [
            (Member(), "NONE", "UNKNOWN_MEMBER_ID"),
            (Member(3, "m"), "NONE", "NONE"),
            (Member(3, "s", "instance"), "NONE", "NONE"),
            (Member(2, "m"), "ILLEGAL_GENERATION", "ILLEGAL_GENERATION"),
            (Member(4, "m"), "ILLEGAL_GENERATION", "ILLEGAL_GENERATION"),
            (Member(-1, "m"), "ILLEGAL_GENERATION", "ILLEGAL_GENERATION"),
            (Member(3, "other"), "UNKNOWN_MEMBER_ID", "UNKNOWN_MEMBER_ID"),
            (Member(3, ""), "UNKNOWN_MEMBER_ID", "UNKNOWN_MEMBER_ID"),
            (Member(3, "m", "instance"), "FENCED_INSTANCE_ID", "FENCED_INSTANCE_ID"),
            (Member(3, "m", "unknown"), "UNKNOWN_MEMBER_ID", "UNKNOWN_MEMBER_ID"),
        ]
        for member, *codes in expected:
            assert [
                await it.commit_offset("g", 1, member=member),
                await it.commit_offset_plainly("g", 1, member=member),
            ] == codes, member


class TestFeatures:
    @pytest.mark.parametrize("level", [0, 1, 2])
    async def test_api_versions_shows_the_transaction_version(self, level: int) -> None:
        async with (
            EmbeddedCluster(transaction_version=level) as broker,
            RawClient(broker.bootstrap_servers) as client,
        ):
            asked = ApiVersionsRequest(client_software_name="raw", client_software_version="1.0")
            older, newer = await client.call(asked, 3), await client.call(asked, 4)
        assert newer.supported_features == [
            SupportedFeatureKey("group.version", 0, 1),
            SupportedFeatureKey("share.version", 0, 2),
            SupportedFeatureKey("transaction.version", 0, 2),
        ]
        # As in Kafka, version 3 can't encode a feature that may be 0.
        assert older.supported_features == []
        finalized = [
            FinalizedFeatureKey("group.version", 1, 1),
            FinalizedFeatureKey("share.version", 2, 2),
        ]
        finalized += [FinalizedFeatureKey("transaction.version", level, level)] if level else []
        assert newer.finalized_features == older.finalized_features == finalized
        assert newer.finalized_features_epoch >= 0

    def test_other_levels_are_refused(self) -> None:
        with pytest.raises(ConfigError, match="transaction_version=3"):
            EmbeddedCluster(transaction_version=3)


async def test_only_the_coordinator_answers() -> None:
    async with EmbeddedCluster(nodes=2) as broker:
        broker.create_topic("t")
        broker.move_coordinator("transaction", "x", 2)
        broker.move_coordinator("group", "g", 2)
        answers: list[list[object]] = []
        for node_id in (1, 2):
            async with RawClient(broker.address(node_id)) as client:
                it = TransactionalClient(client, "x", "t", V1)
                it.producer_id, it.epoch = 1000, 0
                initialized = await client.call(InitProducerIdRequest("x", 1000), 4)
                fetched = await client.call(OffsetFetchRequest("g", None), 7)
                answers.append([initialized.error_code, fetched.error_code])
                answers.append(
                    [
                        (await it.add())[0],
                        (await it.end(commit=True))[0],
                        await it.add_offsets("g"),
                        (await it.add_batched())[0],
                    ]
                )
                answers.append([await it.commit_offset_plainly("g", 1)])
        assert answers[0] == [ErrorCode.NOT_COORDINATOR] * 2
        assert answers[1:3] == [
            ["NOT_COORDINATOR"] * 3 + ["NONE/NOT_COORDINATOR"],
            ["NOT_COORDINATOR"],
        ]
        assert answers[3:] == [[0, 0], ["NONE"] * 3 + ["NONE/NONE"], ["NONE"]]


async def test_a_thousand_transactions(two: EmbeddedCluster, it: TransactionalClient) -> None:
    for number in range(1000):
        await begin(it, b"%d" % number, partition=number % 2)
        await it.end(commit=number % 3 != 0)
    values = [record.value for record in two.records("t", committed_only=True)]
    assert sorted(values, key=lambda value: int(value or b"")) == [
        b"%d" % number for number in range(1000) if number % 3 != 0
    ]
