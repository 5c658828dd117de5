"""Which requests the actions of a test hit: the next one, the n-th, every n-th, those of one node,
or whatever else it says.
"""

from __future__ import annotations

from collections.abc import Callable

from anyio.from_thread import BlockingPortal

from aioprod.errors import ConfigError, KafkaTimeoutError
from aioprod.protocol.message import Message
from aioprod.testing.broker.actions import Action
from aioprod.testing.broker.request_log import Count


class Rule:
    """What :meth:`EmbeddedCluster.on` or :meth:`EmbeddedCluster.on_every` has set up."""

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
            raise ConfigError(f"times={times}: must be at least 1, or None for always")
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
        """How many requests it acted on."""
        return self._used.value

    @property
    def spent(self) -> bool:
        """Whether it has acted as often as it was to."""
        return self._left == 0

    def cancel(self) -> None:
        """Act no more."""
        self._left = 0

    def release(self) -> None:
        """Let go on what ``hold()`` and ``hold_answer()`` of this rule hold, and whatever they
        would hold later.
        """
        for action in self.actions:
            action.release()

    async def wait(self, count: int = 1, timeout_seconds: float = 10.0) -> None:
        """Return as soon as it acts on a request, or has done so before; with ``count`` on the
        so-manieth in all.

        Raises KafkaTimeoutError where there are too few in that time.
        """
        if not await self._used.reach(count, timeout_seconds):
            raise KafkaTimeoutError(
                f"the rule acted on {self.used} of {count} requests after {timeout_seconds} s"
            )

    def applies(self, request: Message, node_id: int) -> bool:
        """Count a request if it is of the right kind, and tell whether the rule's turn has come."""
        if (
            self._left == 0
            or self._node not in (None, node_id)
            or (self._where is not None and not self._where(request))
        ):
            return False
        self._seen += 1
        return self._seen % self._nth == 0 if self._every else self._seen >= self._nth

    def use(self) -> tuple[Action, ...]:
        """Count one use, and return what to do."""
        if self._left is not None:
            self._left -= 1
        self._used.add()
        return self.actions


class ThreadedRule:
    """The calls of a :class:`Rule`, for any thread but that of the broker's event loop."""

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
    """The rules per API, oldest first: one request uses one rule, and all that it fits count it."""

    def __init__(self) -> None:
        self._rules: dict[int, list[Rule]] = {}

    def add(self, api_key: int, rule: Rule) -> None:
        """Put a rule behind the others of its API."""
        self._rules.setdefault(api_key, []).append(rule)

    def take(self, api_key: int, request: Message, node_id: int) -> tuple[Action, ...]:
        """Return the actions for a request to a node, from the first rule that applies."""
        rules = self._rules.get(api_key)
        if not rules:
            return ()
        rules[:] = [rule for rule in rules if not rule.spent]
        due = [rule for rule in rules if rule.applies(request, node_id)]
        return due[0].use() if due else ()

    def clear(self) -> None:
        """Forget all rules."""
        self._rules.clear()
