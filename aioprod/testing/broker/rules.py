"""Rules select the requests that a test's actions apply to."""

from __future__ import annotations

from collections.abc import Callable

from anyio.from_thread import BlockingPortal

from aioprod.errors import ConfigError, KafkaTimeoutError
from aioprod.protocol.message import Message
from aioprod.public_module import set_module
from aioprod.testing.broker.actions import Action
from aioprod.testing.broker.request_log import Count


@set_module("aioprod.testing")
class Rule:
    """A rule created by :meth:`EmbeddedCluster.on` or :meth:`EmbeddedCluster.on_every`."""

    def __init__(
        self,
        actions: tuple[Action, ...],
        times: int | None,
        where: Callable[[Message], bool] | None = None,
        node: int | None = None,
        *,
        nth: int = 1,
        every: bool = False,
    ) -> None:
        if not actions:
            raise ConfigError(
                "a rule needs at least one action, such as fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)"
            )
        if times is not None and times < 1:
            raise ConfigError(f"times={times}: must be at least 1, or None for no limit")
        if nth < 1:
            raise ConfigError(f"nth={nth}: must be at least 1")
        self.actions = actions
        self._left = times
        self._where = where
        self._node = node
        self._nth = nth
        self._every = every
        self._seen = 0
        self._used = Count()

    @property
    def used(self) -> int:
        """The number of requests that the rule has acted on."""
        return self._used.value

    @property
    def spent(self) -> bool:
        """True if the rule has acted ``times`` times."""
        return self._left == 0

    def cancel(self) -> None:
        """Stop acting on requests."""
        self._left = 0

    def release(self) -> None:
        """Let the requests continue that this rule's ``hold()`` and ``hold_answer()`` delay, now
        and in the future.
        """
        for action in self.actions:
            action.release()

    async def wait(self, count: int = 1, timeout_seconds: float = 10.0) -> None:
        """Wait until the rule has acted on ``count`` requests in total.

        Raises:
            KafkaTimeoutError: if it has acted on fewer requests after ``timeout_seconds``.
        """
        if not await self._used.reach(count, timeout_seconds):
            raise KafkaTimeoutError(
                f"the rule acted on {self.used} of {count} requests after {timeout_seconds} s"
            )

    def applies(self, request: Message, node_id: int) -> bool:
        """Count a request if it matches, and return whether the rule acts on it."""
        if (
            self._left == 0
            or self._node not in (None, node_id)
            or (self._where is not None and not self._where(request))
        ):
            return False
        self._seen += 1
        return self._seen % self._nth == 0 if self._every else self._seen >= self._nth

    def use(self) -> tuple[Action, ...]:
        """Count one use and return the actions."""
        if self._left is not None:
            self._left -= 1
        self._used.add()
        return self.actions


class ThreadedRule:
    """The methods of :class:`Rule`, for any thread other than that of the broker's event loop."""

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


class RuleBook:
    """The rules of each API, oldest first. Every rule that a request matches counts it, but only
    the oldest that is due acts on it.
    """

    def __init__(self) -> None:
        self._rules: dict[int, list[Rule]] = {}

    def add(self, api_key: int, rule: Rule) -> None:
        """Add a rule after the other rules of its API."""
        self._rules.setdefault(api_key, []).append(rule)

    def take(self, api_key: int, request: Message, node_id: int) -> tuple[Action, ...]:
        """Return the actions of the first rule that is due for a request."""
        rules = self._rules.get(api_key)
        if not rules:
            return ()
        rules[:] = [rule for rule in rules if not rule.spent]
        due = [rule for rule in rules if rule.applies(request, node_id)]
        return due[0].use() if due else ()

    def clear(self) -> None:
        """Remove all rules."""
        self._rules.clear()
