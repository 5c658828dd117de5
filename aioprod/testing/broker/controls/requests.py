"""Rules that make requests fail, and the requests that arrived."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from aioprod.errors import ConfigError, KafkaTimeoutError
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.message import Message
from aioprod.testing.broker.actions import Action
from aioprod.testing.broker.cluster import Cluster
from aioprod.testing.broker.dispatcher import Dispatcher
from aioprod.testing.broker.handlers import HANDLERS
from aioprod.testing.broker.request_log import SeenRequest
from aioprod.testing.broker.rules import Rule


class RequestControls:
    """The rules and the request log of an embedded cluster."""

    def __init__(self, cluster: Cluster, dispatcher: Dispatcher) -> None:
        self._cluster = cluster
        self._rules = dispatcher.rules
        self._log = dispatcher.log

    def on(
        self,
        api_key: int,
        *actions: Action,
        nth: int = 1,
        times: int | None = 1,
        where: Callable[[Message], bool] | None = None,
        node: int | None = None,
    ) -> Rule:
        """Apply actions to the next requests of an API:
        ``cluster.on(ApiKey.PRODUCE, drop_after(), nth=3)``.

        One rule applies to each request. Rules of the same API are used in the order of their
        creation.

        Args:
            api_key: the API, such as ``ApiKey.PRODUCE``.
            actions: the actions, such as ``fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)``.
            nth: the first request to act on, counted from now.
            times: the number of requests to act on; None for no limit.
            where: count only requests for which this returns true.
            node: count only requests to this node; None for any node.

        Raises:
            ConfigError: if an argument is invalid.
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
        """Apply actions to every request of an API, or to every ``nth``, until the rule is
        cancelled: ``cluster.on_every(ApiKey.FETCH, delay(0.1))``.

        The other arguments are those of :meth:`on`.

        Raises:
            ConfigError: if an argument is invalid.
        """
        return self._add(
            api_key, Rule(actions, None, where, self._checked(node), nth=nth, every=True)
        )

    def clear_rules(self) -> None:
        """Remove all rules created by :meth:`on` and :meth:`on_every`."""
        self._rules.clear()

    @property
    def requests(self) -> deque[SeenRequest]:
        """The last 10,000 requests, oldest first."""
        return self._log.requests

    def request_count(self, api_key: int, *, node: int | None = None) -> int:
        """Return the number of requests of an API that have arrived at a node, or at all nodes if
        ``node`` is None.
        """
        return self._log.count(api_key, self._checked(node)).value

    async def wait_for_request(
        self,
        api_key: int,
        count: int = 1,
        *,
        node: int | None = None,
        timeout_seconds: float = 10.0,
    ) -> None:
        """Wait until ``count`` requests of an API have arrived since the cluster was created, even
        if they were not applied.

        To wait for one more request:
        ``await cluster.wait_for_request(key, cluster.request_count(key) + 1)``.

        Raises:
            KafkaTimeoutError: if fewer requests have arrived after ``timeout_seconds``.
        """
        arrived = self._log.count(api_key, self._checked(node))
        if not await arrived.reach(count, timeout_seconds):
            name = ApiKey(api_key).name if api_key in set(ApiKey) else str(api_key)
            place = "" if node is None else f" at node {node}"
            raise KafkaTimeoutError(
                f"{arrived.value} of {count} requests {name}{place} after {timeout_seconds} s"
            )

    def _add(self, api_key: int, rule: Rule) -> Rule:
        if api_key not in HANDLERS:
            raise ConfigError(
                f"api_key={api_key}: this broker handles only the API keys {sorted(HANDLERS)}"
            )
        self._rules.add(api_key, rule)
        return rule

    def _checked(self, node: int | None) -> int | None:
        return None if node is None else self._cluster.check_node(node)
