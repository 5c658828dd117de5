"""Makes the assignors that the setting ``partition_assignment_strategy`` names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import cast

from aioprod.consumer.group.assignors.assignor import Assignor, RebalanceProtocol
from aioprod.consumer.group.assignors.cooperative import CooperativeStickyAssignor
from aioprod.consumer.group.assignors.range import RangeAssignor
from aioprod.consumer.group.assignors.roundrobin import RoundRobinAssignor
from aioprod.consumer.group.assignors.sticky import StickyAssignor
from aioprod.errors import ConfigError

_OURS: dict[str, Callable[[], Assignor]] = {
    "range": RangeAssignor,
    "roundrobin": RoundRobinAssignor,
    "sticky": StickyAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
_PARTS = ("name", "supported_protocols", "subscription_user_data", "assign", "on_assignment")


def make_assignors(strategy: Iterable[object]) -> list[Assignor]:
    """Return an assignor for each name or object, in the order of preference.

    Raises:
        ConfigError: if a name is unknown or occurs twice, none is given, or an object is not an
            assignor.
    """
    found: dict[str, Assignor] = {}
    for each in strategy:
        if not _is_assignor(each):
            what = (
                f"must be one of {', '.join(_OURS)}, or your own assignor: an object with "
                f"{', '.join(_PARTS)}"
            )
            raise ConfigError(f"partition_assignment_strategy={each!r}: {what}")
        assignor = _OURS[each]() if isinstance(each, str) else cast("Assignor", each)
        if assignor.name in found:
            raise ConfigError(f"partition_assignment_strategy: {assignor.name!r} occurs twice")
        found[assignor.name] = assignor
    if not found:
        raise ConfigError("partition_assignment_strategy is empty: name at least one assignor")
    rebalance_protocol(list(found.values()))
    return list(found.values())


def _is_assignor(given: object) -> bool:
    if isinstance(given, str):
        return given in _OURS
    return not isinstance(given, type) and all(hasattr(given, name) for name in _PARTS)


def rebalance_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """Return the newest protocol that all assignors support, so that two rolling restarts can
    switch a group from eager to cooperative.

    Raises:
        ConfigError: if they have none in common.
    """
    common = set.intersection(*(set(assignor.supported_protocols) for assignor in assignors))
    if not common:
        raise ConfigError(
            "partition_assignment_strategy: the assignors have no rebalance protocol in common"
        )
    return max(common)
