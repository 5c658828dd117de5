"""The settings of the clients: Kafka's names in snake_case, checked when a client is created."""

import typing as _typing

from aioprod.lazy_names import lazy_names as _lazy_names

if _typing.TYPE_CHECKING:
    from aioprod.config.admin import AdminConfig
    from aioprod.config.client import ClientConfig
    from aioprod.config.consumer import ConsumerConfig
    from aioprod.config.keywords import (
        AdminSettings,
        ConsumerSettings,
        ProducerSettings,
        ShareConsumerSettings,
    )
    from aioprod.config.producer import ProducerConfig
    from aioprod.config.share_consumer import ShareConsumerConfig

__all__ = [
    "AdminConfig",
    "AdminSettings",
    "ClientConfig",
    "ConsumerConfig",
    "ConsumerSettings",
    "ProducerConfig",
    "ProducerSettings",
    "ShareConsumerConfig",
    "ShareConsumerSettings",
]

_HOMES = {
    "AdminConfig": "aioprod.config.admin",
    "AdminSettings": "aioprod.config.keywords",
    "ClientConfig": "aioprod.config.client",
    "ConsumerConfig": "aioprod.config.consumer",
    "ConsumerSettings": "aioprod.config.keywords",
    "ProducerConfig": "aioprod.config.producer",
    "ProducerSettings": "aioprod.config.keywords",
    "ShareConsumerConfig": "aioprod.config.share_consumer",
    "ShareConsumerSettings": "aioprod.config.keywords",
}

if not _typing.TYPE_CHECKING:
    __getattr__, __dir__ = _lazy_names(globals(), _HOMES)
