"""The keyword arguments of the clients, for type checkers: one module for each client.

A module is imported when its name is used: clients only have it in annotations.
"""

import typing as _typing

from aioprod.lazy_names import lazy_names as _lazy_names

if _typing.TYPE_CHECKING:
    from aioprod.config.keywords.admin import AdminSettings as AdminSettings
    from aioprod.config.keywords.consumer import ConsumerArguments as ConsumerArguments
    from aioprod.config.keywords.consumer import ConsumerSettings as ConsumerSettings
    from aioprod.config.keywords.producer import ProducerSettings as ProducerSettings
    from aioprod.config.keywords.share_consumer import (
        ShareConsumerSettings as ShareConsumerSettings,
    )
else:
    __getattr__, __dir__ = _lazy_names(
        globals(),
        {
            "AdminSettings": "aioprod.config.keywords.admin",
            "ConsumerArguments": "aioprod.config.keywords.consumer",
            "ConsumerSettings": "aioprod.config.keywords.consumer",
            "ProducerSettings": "aioprod.config.keywords.producer",
            "ShareConsumerSettings": "aioprod.config.keywords.share_consumer",
        },
    )
