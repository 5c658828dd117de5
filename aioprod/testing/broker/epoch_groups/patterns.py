"""Subscriptions by regular expression. Kafka uses RE2, whose expressions Python knows, too; what
Python allows beyond that is refused.
"""

from __future__ import annotations

import re
from functools import lru_cache

from aioprod.error_codes import ErrorCode
from aioprod.testing.broker.errors import RequestError

# Look-around, atomic groups, conditions, comments, references to groups.
_NOT_IN_RE2 = re.compile(r"(?<!\\)(?:\\\\)*(?:\(\?(?:[=!>#(]|<[=!]|P=)|\\[1-9])")


@lru_cache(maxsize=1000)
def compile_pattern(text: str) -> re.Pattern[str]:
    """Return the pattern, which has to match whole names; raise RequestError
    (INVALID_REGULAR_EXPRESSION) if it is not an expression of RE2.
    """
    try:
        if _NOT_IN_RE2.search(text):
            raise re.error("RE2 does not know this operator", text)
        return re.compile(text)
    except re.error as error:
        raise RequestError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{text}` is not a valid regular expression: {error}.",
        ) from None
