"""Amazon MSK's mechanism AWS_MSK_IAM, which a Java class implements. The brokers accept the same
identities with OAUTHBEARER, so the settings of Java's clients are converted to those.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from aioprod.errors import ConfigError

MECHANISM = "AWS_MSK_IAM"
_TOKENS = "aioprod.oauth.aws.token"
_TOKEN_PROVIDER = "sasl.oauth.token.provider"
# Java's classes without settings of their own, such as a profile or role.
_CLASSES = {
    "sasl.client.callback.handler.class": (
        r"software\.amazon\.msk\.auth\.iam\.IAMClientCallbackHandler"
    ),
    "sasl.jaas.config": r"software\.amazon\.msk\.auth\.iam\.IAMLoginModule\s+required\s*;",
}

#: The error for the keyword argument.
CURE = (
    "only a Java class has this mechanism; set sasl_mechanism='OAUTHBEARER' and "
    "sasl_oauth_token_provider=aioprod.oauth.AwsTokens()"
)


def with_tokens(settings: Mapping[str, Any], prefix: str = "") -> Mapping[str, Any]:
    """Return settings with OAUTHBEARER instead of AWS_MSK_IAM. Others are returned unchanged.

    Args:
        settings: by Kafka's names, with dots or underscores.
        prefix: before the names, in errors.

    Raises:
        ConfigError: if Java's classes are configured.
    """
    names = {name.replace("_", "."): name for name in settings if isinstance(name, str)}
    mechanism = settings.get(names.get("sasl.mechanism", ""))
    if not isinstance(mechanism, str) or mechanism.strip().upper() != MECHANISM:
        return settings
    converted = dict(settings)
    for name, usual in _CLASSES.items():
        value = converted.pop(names.get(name, ""), None)
        if value is not None and not re.fullmatch(usual, str(value).strip()):
            raise ConfigError(
                f"{prefix}{name} of {MECHANISM} is not supported with settings of its own: leave "
                f"it out, set {prefix}sasl.mechanism=OAUTHBEARER, and {prefix}{_TOKEN_PROVIDER} to "
                "the import path of an aioprod.oauth.AwsTokens with the profile or role"
            )
    converted[names["sasl.mechanism"]] = "OAUTHBEARER"
    converted.setdefault(names.get(_TOKEN_PROVIDER, _TOKEN_PROVIDER), _TOKENS)
    return converted
