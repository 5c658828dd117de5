"""The calls of the embedded broker that are about requests: misbehaving at some, and waiting for
some; on its loop and from other threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from anyio.from_thread import BlockingPortal

from aioprod.errors import ConfigError, KafkaTimeoutError
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.message import Message
from aioprod.testing.broker.cluster import Cluster
from aioprod.testing.broker.control import Action
from aioprod.testing.broker.dispatcher import Dispatcher
from aioprod.testing.broker.handlers import HANDLERS
from aioprod.testing.broker.request_log import SeenRequest
from aioprod.testing.broker.rules import Rule


class FaultControls:
    """Of :class:`aioprod.testing.EmbeddedCluster`."""

    _dispatcher: Dispatcher
    _cluster: Cluster

    def on(
        self,
        api_key: int,
        *actions: Action,
        nth: int = 1,
        times: int | None = 1,
        where: Callable[[Message], bool] | None = None,
        node: int | None = None,
    ) -> Rule:
        """Do something to the ``nth`` request of an API from now on, and to those after it until it
        was done ``times`` times (None: for ever).

        Only requests to ``node`` (None: any) for which ``where(request)`` is true are counted.
        Rules of the same API are used up one after another, in the order in which they were made:
        ``cluster.on(ApiKey.PRODUCE, drop_after(), nth=3)``.
        """
        return self._add(api_key, Rule(actions, times, where, self._checked(node), nth=nth))

    def on_every(
        self,
        api_key: int,
        *actions: Action,
        nth: int = 1,
        where: Callable[[Message], bool] | None = None,
        node: int | None = None,
    ) -> Rule:
        """Do something to every request of an API, or to every ``nth``, until the rule is
        cancelled.

        ``cluster.on_every(ApiKey.FETCH, delay(0.1))``
        """
        return self._add(
            api_key, Rule(actions, None, where, self._checked(node), nth=nth, every=True)
        )

    def clear_rules(self) -> None:
        """Forget everything that :meth:`on` and :meth:`on_every` set up."""
        self._dispatcher.rules.clear()

    @property
    def requests(self) -> deque[SeenRequest]:
        """The last 10,000 requests that came in, oldest first."""
        return self._dispatcher.log.requests

    def request_count(self, api_key: int, *, node: int | None = None) -> int:
        """How many requests of an API have come in, to one node or to all of them."""
        return self._dispatcher.log.count(api_key, self._checked(node)).value

    async def wait_for_request(
        self,
        api_key: int,
        count: int = 1,
        *,
        node: int | None = None,
        timeout_seconds: float = 10.0,
    ) -> None:
        """Return as soon as ``count`` requests of an API have come in, since the cluster was made,
        whatever became of them.

        For one more than there are: ``await cluster.wait_for_request(key,
            cluster.request_count(key) + 1)``.
        Raises KafkaTimeoutError where there are too few in that time.
        """
        seen = self._dispatcher.log.count(api_key, self._checked(node))
        if not await seen.reach(count, timeout_seconds):
            name = ApiKey(api_key).name if api_key in set(ApiKey) else str(api_key)
            place = "" if node is None else f" at node {node}"
            raise KafkaTimeoutError(
                f"{seen.value} of {count} requests {name}{place} after {timeout_seconds} s"
            )

    def _add(self, api_key: int, rule: Rule) -> Rule:
        if api_key not in HANDLERS:
            raise ConfigError(
                f"API key {api_key} is none that this broker handles: {sorted(HANDLERS)}"
            )
        self._dispatcher.rules.add(api_key, rule)
        return rule

    def _checked(self, node: int | None) -> int | None:
        return None if node is None else self._cluster.check_node(node)


class ThreadedRule:
    """The calls of a :class:`Rule`, from any thread but the broker's own."""

    def __init__(self, rule: Rule, portal: BlockingPortal) -> None:
        self._rule = rule
        self._portal = portal

    @property
    def used(self) -> int:
        """See :attr:`Rule.used`."""
        return self._rule.used

    def cancel(self) -> None:
        """See :meth:`Rule.cancel`."""
        self._portal.call(self._rule.cancel)

    def release(self) -> None:
        """See :meth:`Rule.release`."""
        self._portal.call(self._rule.release)

    def wait(self, count: int = 1, timeout_seconds: float = 10.0) -> None:
        """See :meth:`Rule.wait`."""
        self._portal.call(self._rule.wait, count, timeout_seconds)


class ThreadedFaultControls:
    """Of :class:`aioprod.testing.ThreadedCluster`."""

    _broker: FaultControls
    _portal: BlockingPortal

    def on(
        self,
        api_key: int,
        *actions: Action,
        nth: int = 1,
        times: int | None = 1,
        where: Callable[[Message], bool] | None = None,
        node: int | None = None,
    ) -> ThreadedRule:
        """See :meth:`EmbeddedCluster.on`."""
        rule = self._portal.call(
            lambda: self._broker.on(api_key, *actions, nth=nth, times=times, where=where, node=node)
        )
        return ThreadedRule(rule, self._portal)

    def on_every(
        self,
        api_key: int,
        *actions: Action,
        nth: int = 1,
        where: Callable[[Message], bool] | None = None,
        node: int | None = None,
    ) -> ThreadedRule:
        """See :meth:`EmbeddedCluster.on_every`."""
        return ThreadedRule(
            self._portal.call(
                lambda: self._broker.on_every(api_key, *actions, nth=nth, where=where, node=node)
            ),
            self._portal,
        )

    def clear_rules(self) -> None:
        """See :meth:`EmbeddedCluster.clear_rules`."""
        self._portal.call(self._broker.clear_rules)

    @property
    def requests(self) -> list[SeenRequest]:
        """A copy of the last requests that came in, oldest first."""
        return self._portal.call(lambda: list(self._broker.requests))

    def request_count(self, api_key: int, *, node: int | None = None) -> int:
        """See :meth:`EmbeddedCluster.request_count`."""
        return self._portal.call(lambda: self._broker.request_count(api_key, node=node))

    def wait_for_request(
        self,
        api_key: int,
        count: int = 1,
        *,
        node: int | None = None,
        timeout_seconds: float = 10.0,
    ) -> None:
        """See :meth:`EmbeddedCluster.wait_for_request`."""

        async def wait() -> None:
            await self._broker.wait_for_request(
                api_key, count, node=node, timeout_seconds=timeout_seconds
            )

        self._portal.call(wait)
