"""The faults of producers: those of all clients, error codes, sequences and transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aioprod.error_codes import ErrorCode
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import delay, drop_after, drop_before, fail
from tests.simulation.fault_injector import FaultInjector, FaultPlan
from tests.simulation.run_context import RunContext
from tests.simulation.scenario import TOPIC, Scenario

_PRODUCE_CODES = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.CORRUPT_MESSAGE,
]
_SEQUENCE_CODES = [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID]
_COORDINATOR_CODES = [
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
]
_TRANSACTION_CODES = [*_COORDINATOR_CODES, ErrorCode.CONCURRENT_TRANSACTIONS]
_CODES: dict[ApiKey, list[ErrorCode]] = {
    ApiKey.PRODUCE: _PRODUCE_CODES,
    ApiKey.FETCH: [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
    ApiKey.FIND_COORDINATOR: [ErrorCode.COORDINATOR_NOT_AVAILABLE],
    ApiKey.INIT_PRODUCER_ID: _TRANSACTION_CODES,
    ApiKey.ADD_PARTITIONS_TO_TXN: _TRANSACTION_CODES,
    ApiKey.ADD_OFFSETS_TO_TXN: _TRANSACTION_CODES,
    ApiKey.END_TXN: _TRANSACTION_CODES,
    ApiKey.TXN_OFFSET_COMMIT: _COORDINATOR_CODES,
}
_ANY_API = [*_CODES, ApiKey.METADATA, ApiKey.API_VERSIONS]


class ProducerFaults(FaultInjector):
    """Injects the faults of a scenario and repairs them."""

    def __init__(self, context: RunContext, scenario: Scenario) -> None:
        plan = FaultPlan(
            scenario.faults,
            scenario.fault_seconds,
            scenario.nodes,
            scenario.loses_responses,
            {TOPIC: scenario.partitions},
            [
                *(producer.name for producer in scenario.producers),
                *(reader.name for reader in scenario.readers),
            ],
        )
        super().__init__(context, plan)
        self._scenario = scenario

    def _kinds(self) -> list[Callable[[], Awaitable[None]]]:
        scenario = self._scenario
        kinds: list[Callable[[], Awaitable[None]]] = [
            self._error_codes,
            self._error_codes,
            self._drop,
            self._throttle,
        ]
        kinds += [
            self._flaky,
            self._flaky,
            self._flaky,
            self._move_coordinator,
            self._pause_markers,
            self._refuse_connections,
        ]
        if scenario.loses_responses:
            kinds += [
                self._lose_responses,
                self._lose_responses,
                self._keep_responses,
                self._delay,
                self._stop_node,
                self._kill_node,
                self._freeze_node,
            ]
            kinds += [
                self._cut,
                self._cut_while_sending,
                self._cut_while_sending,
                self._partition,
                self._black_hole,
                self._slow,
                self._latency,
            ]
            kinds += [self._block_responses, self._block_responses, self._jump]
        else:
            kinds += [self._refuse_sequences]
        if scenario.nodes > 1:
            kinds += [self._move_leaders, self._move_leaders]
            if scenario.loses_responses:
                kinds += [self._outage, self._pause_replication, self._elect_lagging_leader]
        if any(plan.may_be_fatal for plan in scenario.producers):
            kinds += [self._expire_transactions]
        return kinds

    async def _error_codes(self) -> None:
        api = self._rng.choice([ApiKey.PRODUCE, ApiKey.PRODUCE, *_CODES])
        code = self._rng.choice(_CODES[api])
        partition = (
            self._rng.choice([None, *range(self._scenario.partitions)])
            if api is ApiKey.PRODUCE
            else None
        )
        topic = TOPIC if partition is not None else None
        self._add_rule(
            api,
            fail(code, topic=topic, partition=partition),
            f"{code.name}{'' if partition is None else f' for partition {partition}'}",
        )

    async def _refuse_sequences(self) -> None:
        code = self._rng.choice(_SEQUENCE_CODES)
        self._add_rule(ApiKey.PRODUCE, fail(code), code.name)

    async def _flaky(self) -> None:
        """For a while, lose, reject or delay a share of the requests of one API."""
        api: ApiKey = self._rng.choice(
            [
                *[ApiKey.PRODUCE] * 3,
                ApiKey.END_TXN,
                ApiKey.ADD_PARTITIONS_TO_TXN,
                ApiKey.INIT_PRODUCER_ID,
            ]
        )
        share = self._rng.choice([0.05, 0.2, 0.4])
        actions = [
            drop_before(),
            fail(ErrorCode.NOT_LEADER_OR_FOLLOWER),
            fail(ErrorCode.NOT_ENOUGH_REPLICAS),
        ]
        if api is not ApiKey.PRODUCE:
            actions = [drop_before(), fail(self._rng.choice(_COORDINATOR_CODES))]
        if self._scenario.loses_responses:
            actions += [drop_after(), drop_after(), delay(0.05), delay(0.15)]
        action = self._rng.choice(actions)
        text = f"{share:.0%} of {api.name} requests get {type(action).__name__.strip('_')}"
        self._note(text)
        rule = self._cluster.on_every(api, action, where=lambda _: self._rng.random() < share)
        await asyncio.sleep(self._duration())
        rule.cancel()
        self._note(f"ended: {text}")

    def _any_api(self) -> ApiKey:
        return self._rng.choice([ApiKey.PRODUCE, ApiKey.PRODUCE, ApiKey.PRODUCE, *_ANY_API])

    async def _move_coordinator(self) -> None:
        for plan in self._scenario.producers:
            if plan.transactional_id is not None:
                node = self._rng.choice(self._cluster.node_ids)
                self._note(f"node {node} coordinates {plan.transactional_id}")
                self._cluster.move_coordinator("transaction", plan.transactional_id, node)

    # -- transactions ------------------------------------------------------------------------------

    async def _pause_markers(self) -> None:
        self._note("transaction markers are paused")
        self._cluster.pause_markers()
        await asyncio.sleep(min(0.2, self._duration()))
        self._note("transaction markers are resumed")
        self._cluster.resume_markers()

    async def _expire_transactions(self) -> None:
        for plan in self._scenario.producers:
            name = plan.transactional_id
            if plan.may_be_fatal and name is not None:
                self._note(f"the transaction of {name} expires")
                self._cluster.expire_transaction(name)
