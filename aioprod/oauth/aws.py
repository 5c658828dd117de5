"""Tokens for Amazon MSK with IAM: a signed request for ``kafka-cluster:Connect``."""

from __future__ import annotations

import base64
import os
import re
from functools import cache
from typing import Any, Unpack
from urllib.parse import quote

from aioprod._version import __version__
from aioprod.config.redaction import HidesArguments
from aioprod.errors import ConfigError
from aioprod.oauth.cache import Token
from aioprod.oauth.cloud import CloudOptions, CloudTokens
from aioprod.oauth.errors import TokenRequestError
from aioprod.oauth_token import OAuthToken

_SERVICE = "kafka-cluster"
_ACTION = "kafka-cluster:Connect"
_REGION = re.compile("[a-z0-9-]+")
_EXPIRES_S = 900  # the maximum that MSK accepts
# Shorter than that: botocore renews temporary credentials at least 10 minutes before they expire,
# and a token is not valid for longer than the credentials that signed it.
_KEPT_S = 600.0


class AwsTokens(CloudTokens, metaclass=HidesArguments):
    """A token provider for Amazon MSK: signs tokens with the AWS credentials of the process.

    botocore finds the credentials as the AWS command line does: environment, profile (also with
    ``role_arn``), web identity (EKS), container (ECS), instance metadata (EC2). A token is signed
    in a thread, as botocore blocks, and cached for 8 to 8.5 minutes.

    Args:
        region: region of the cluster; None uses that of the environment or the profile.
        profile: name of a profile; None uses ``AWS_PROFILE`` or the default.
        credentials: botocore credentials, such as those of your session, instead of a profile.
        options: see :class:`~aioprod.oauth.cloud.CloudOptions`.

    Raises:
        ConfigError: if an argument is invalid, or botocore is not installed.
    """

    _library = ("botocore", "aws")

    def __init__(
        self,
        region: str | None = None,
        *,
        profile: str | None = None,
        credentials: Any = None,
        **options: Unpack[CloudOptions],
    ) -> None:
        for name, value in (("region", region), ("profile", profile)):
            if value is not None and (not isinstance(value, str) or not value.strip()):
                raise ConfigError(f"{name}={value!r}: must be a non-empty string")
        if region is not None and not _REGION.fullmatch(region):
            raise ConfigError(f"region={region!r}: must be the name of a region, such as eu-west-1")
        if credentials is not None and profile is not None:
            raise ConfigError("credentials and profile are both set: set one of them")
        if credentials is not None and not hasattr(credentials, "get_frozen_credentials"):
            raise ConfigError(
                f"credentials: must be credentials of botocore, not a {type(credentials).__name__}"
            )
        super().__init__(options)
        self._region = region
        self._profile = profile
        self._credentials = credentials

    async def _fetch(self) -> Token:
        return await self._in_thread(self._sign)

    def _sign(self) -> Token:
        from botocore.session import Session

        session = Session(profile=self._profile)
        # botocore knows AWS_DEFAULT_REGION only; AWS's other libraries and services use AWS_REGION.
        region = (
            self._region or os.environ.get("AWS_REGION") or session.get_config_variable("region")
        )
        if not region:
            raise TokenRequestError("no region: set region or AWS_REGION, or in the profile", 0)
        if not _REGION.fullmatch(region):
            raise TokenRequestError(f"region {region!r} is not the name of a region", 0)
        # A new session for each token: files with credentials may have changed.
        found = self._credentials or session.get_credentials()
        if found is None:
            raise TokenRequestError("no AWS credentials found", 0)
        return Token(signed_token(region, found.get_frozen_credentials()), _KEPT_S)

    def _errors(self) -> tuple[type[Exception], ...]:
        from botocore.exceptions import BotoCoreError, ClientError

        return (BotoCoreError, ClientError)


def signed_token(region: str, credentials: Any) -> str:
    """Return a token: a presigned URL in Base64 without padding."""
    from botocore.auth import SigV4QueryAuth
    from botocore.awsrequest import AWSRequest

    if not credentials.access_key or not credentials.secret_key:
        raise TokenRequestError("the AWS credentials are empty", 0)
    request = AWSRequest(
        method="GET", url=f"https://kafka.{region}.amazonaws.com/", params={"Action": _ACTION}
    )
    SigV4QueryAuth(credentials, _SERVICE, region, expires=_EXPIRES_S).add_auth(request)
    # Not part of the signature. AWS logs it.
    url = f"{request.url}&User-Agent={quote(f'aioprod/{__version__}', safe='')}"
    return base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")


async def token() -> OAuthToken:
    """Return a token of :class:`AwsTokens` without arguments, for clients that are configured by
    text: ``sasl.oauth.token.provider=aioprod.oauth.aws.token``.

    Raises:
        TokenRequestError: if there are no credentials, or no region.
        ConfigError: if botocore is not installed.
    """
    return await _from_environment()()


@cache
def _from_environment() -> AwsTokens:
    return AwsTokens()
