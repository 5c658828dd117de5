"""Makes the member that a consumer's settings ask for."""

from __future__ import annotations

import random

from aioprod.cluster.metadata import Metadata
from aioprod.config.consumer import ConsumerConfig
from aioprod.consumer.group.classic import ClassicMember
from aioprod.consumer.group.member import GroupMember
from aioprod.consumer.group.reconciling import ReconcilingMember
from aioprod.consumer.subscription import SubscriptionState
from aioprod.interceptors import ConsumerInterceptorChain


def group_membership(
    config: ConsumerConfig,
    subscription: SubscriptionState,
    metadata: Metadata,
    interceptors: ConsumerInterceptorChain,
    rng: random.Random,
) -> GroupMember:
    """A member of ``config.group_id``, classic or KIP-848 as ``config.group_protocol`` says. It
    opens connections of its own when it needs them.

    Raises:
        ConfigError: an assignor is unknown, or they don't go together.
    """
    if config.group_protocol == "consumer":
        return ReconcilingMember(config, subscription, metadata, interceptors, rng)
    return ClassicMember(config, subscription, metadata, interceptors, rng)
