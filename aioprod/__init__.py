"""aioprod: the asyncio-native Apache Kafka client.

Errors are in ``aioprod.errors``; each can be imported from here, too.
"""

import typing as _typing

from aioprod.lazy_names import lazy_names as _lazy_names

if _typing.TYPE_CHECKING:
    from aioprod._version import __version__ as __version__
    from aioprod.admin import Admin as Admin
    from aioprod.config import *  # noqa: F403
    from aioprod.consumer import *  # noqa: F403
    from aioprod.decoding_limits import DecodingLimits as DecodingLimits
    from aioprod.error_codes import ErrorCode as ErrorCode
    from aioprod.errors import *  # noqa: F403
    from aioprod.interceptors import ConsumerInterceptor as ConsumerInterceptor
    from aioprod.interceptors import ProducerInterceptor as ProducerInterceptor
    from aioprod.metrics import AdminObserver as AdminObserver
    from aioprod.metrics import ConsumerObserver as ConsumerObserver
    from aioprod.metrics import ProducerObserver as ProducerObserver
    from aioprod.metrics import ShareConsumerObserver as ShareConsumerObserver
    from aioprod.oauth_token import OAuthToken as OAuthToken
    from aioprod.producer import *  # noqa: F403
    from aioprod.serialization import BytesDeserializer as BytesDeserializer
    from aioprod.serialization import BytesSerializer as BytesSerializer
    from aioprod.serialization import Deserializer as Deserializer
    from aioprod.serialization import JsonDeserializer as JsonDeserializer
    from aioprod.serialization import JsonSerializer as JsonSerializer
    from aioprod.serialization import Serializer as Serializer
    from aioprod.serialization import StringDeserializer as StringDeserializer
    from aioprod.serialization import StringSerializer as StringSerializer
    from aioprod.types import *  # noqa: F403
else:
    __getattr__, __dir__ = _lazy_names(
        globals(),
        {
            "Admin": "aioprod.admin",
            "AdminObserver": "aioprod.metrics",
            "BytesDeserializer": "aioprod.serialization",
            "BytesSerializer": "aioprod.serialization",
            "ConsumerInterceptor": "aioprod.interceptors",
            "ConsumerObserver": "aioprod.metrics",
            "DecodingLimits": "aioprod.decoding_limits",
            "Deserializer": "aioprod.serialization",
            "ErrorCode": "aioprod.error_codes",
            "JsonDeserializer": "aioprod.serialization",
            "JsonSerializer": "aioprod.serialization",
            "OAuthToken": "aioprod.oauth_token",
            "ProducerInterceptor": "aioprod.interceptors",
            "ProducerObserver": "aioprod.metrics",
            "Serializer": "aioprod.serialization",
            "ShareConsumerObserver": "aioprod.metrics",
            "StringDeserializer": "aioprod.serialization",
            "StringSerializer": "aioprod.serialization",
            "__version__": "aioprod._version",
        },
        modules=("aioprod.producer", "aioprod.consumer", "aioprod.config", "aioprod.types"),
        unlisted=("aioprod.errors",),
    )
