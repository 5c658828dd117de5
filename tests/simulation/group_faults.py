"""The faults of members of groups and of share groups: error codes, requests of one API that fail
for a while, a coordinator that moves, and members whose processes freeze.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence

from aioprod.error_codes import ErrorCode
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import Action, delay, drop_after, drop_before, fail
from tests.simulation.fault_injector import FaultInjector, FaultPlan
from tests.simulation.run_context import RunContext


class MemberFaults(FaultInjector):
    """Injects faults of members.

    Args:
        group: the group's id.
        codes: the error codes that responses of an API may have.
        apis: those of the group, whose requests fail for a while.
        others: further APIs whose requests are disturbed.
    """

    def __init__(
        self,
        context: RunContext,
        plan: FaultPlan,
        group: str,
        codes: Mapping[ApiKey, Sequence[ErrorCode]],
        apis: Sequence[ApiKey],
        others: Sequence[ApiKey],
    ) -> None:
        super().__init__(context, plan)
        self._group = group
        self._codes = codes
        self._apis = apis
        self._all_apis = [*apis, *codes, *others]

    @abstractmethod
    def _long_freezes(self) -> list[float]:
        """Return for how many seconds a member may freeze so that the group notices."""

    def _kinds(self) -> list[Callable[[], Awaitable[None]]]:
        return [
            *[self._error_codes] * 3,
            self._drop,
            self._drop,
            self._throttle,
            *[self._flaky] * 3,
            *[self._move_coordinator] * 3,
            *[self._freeze_member] * 3,
            self._refuse_connections,
        ]

    def _losing_kinds(self) -> list[Callable[[], Awaitable[None]]]:
        """Return the faults by which responses to handled requests may get lost."""
        return [
            *[self._lose_responses] * 3,
            self._keep_responses,
            self._delay,
            self._stop_node,
            self._kill_node,
            self._freeze_node,
            self._cut,
            self._cut_while_sending,
            self._cut_while_sending,
            self._partition,
            self._black_hole,
            self._slow,
            self._latency,
            self._block_responses,
            self._block_responses,
            self._jump,
        ]

    def _any_api(self) -> ApiKey:
        return self._rng.choice(self._all_apis)

    def _refuse(self, code: ErrorCode) -> Action:
        return fail(code)

    async def _error_codes(self) -> None:
        api = self._rng.choice(list(self._codes))
        code = self._rng.choice(self._codes[api])
        self._add_rule(api, self._refuse(code), code.name)

    async def _flaky(self) -> None:
        """For a while, lose, refuse or delay a share of the requests of one API."""
        api = self._rng.choice(self._apis)
        share = self._rng.choice([0.1, 0.3, 0.6])
        actions = [drop_before(), self._refuse(self._rng.choice(self._codes[api]))]
        if self._plan.loses_responses:
            actions += [drop_after(), drop_after(), delay(0.05), delay(0.6)]
        action = self._rng.choice(actions)
        text = f"{share:.0%} of {api.name} requests get {type(action).__name__.strip('_')}"
        self._note(text)
        rule = self._cluster.on_every(api, action, where=lambda _: self._rng.random() < share)
        await asyncio.sleep(2 * self._duration())
        rule.cancel()
        self._note(f"ended: {text}")

    async def _move_coordinator(self) -> None:
        node = self._rng.choice(self._cluster.node_ids)
        self._note(f"node {node} coordinates the group")
        self._cluster.move_coordinator("group", self._group, node)

    async def _freeze_member(self) -> None:
        """Stop the process of a member, perhaps until the group notices."""
        name = self._rng.choice(self._plan.clients)
        hosts = self._context.loop.hosts
        if name in hosts.frozen:
            return
        seconds = self._rng.choice([self._duration(), *self._long_freezes()])
        self._note(f"{name} freezes for {seconds:.3f} s")
        begun = self._context.loop.time()
        hosts.freeze(name)
        await asyncio.sleep(seconds)
        hosts.unfreeze(name)
        freezes = self._context.history.freezes.setdefault(name, [])
        freezes.append((begun, self._context.loop.time()))
        self._note(f"{name} continues")
