"""The settings of the clients: Kafka's names in snake_case, checked when a client is made."""

import typing as _typing

from aioprod.lazy_names import lazy_names as _lazy_names

if _typing.TYPE_CHECKING:
    from aioprod.config.admin import AdminConfig
    from aioprod.config.client import ClientConfig
    from aioprod.config.consumer import ConsumerConfig
    from aioprod.config.producer import ProducerConfig
    from aioprod.config.security import SecurityConfig

__all__ = ["AdminConfig", "ClientConfig", "ConsumerConfig", "ProducerConfig", "SecurityConfig"]

_HOMES = {
    "AdminConfig": "aioprod.config.admin",
    "ClientConfig": "aioprod.config.client",
    "ConsumerConfig": "aioprod.config.consumer",
    "ProducerConfig": "aioprod.config.producer",
    "SecurityConfig": "aioprod.config.security",
}

if not _typing.TYPE_CHECKING:
    __getattr__, __dir__ = _lazy_names(globals(), _HOMES)
