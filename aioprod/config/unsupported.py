"""Settings of the Java clients that aioprod does not have, and why."""

from __future__ import annotations

from collections.abc import Mapping

_TLS_BY_CONTEXT = "make an ssl.SSLContext with it and give that as ssl_context"

_PEM_ONLY = "files are always PEM; the password of a private key is ssl.key.password"

_INLINE_PEM = (
    "write it to a file (ssl.keystore.location, ssl.truststore.location), or give an ssl_context"
)

_TOKEN_PROVIDER = (
    "tokens come from sasl_oauth_token_provider, an async function, which decides on all this "
    "itself"
)

_KERBEROS = "SASL/GSSAPI (Kerberos) is not there; PLAIN, SCRAM and OAUTHBEARER are"

#: Settings of security that all of Java's clients have and that are not here, and why.
SECURITY_ABSENT: Mapping[str, str] = {
    "security.providers": "it names Java classes; give an ssl_context for other TLS settings",
    "sasl.jaas.config": (
        "it is in Java's own language; give sasl.username and sasl.password, or "
        "sasl_oauth_token_provider"
    ),
    "sasl.client.callback.handler.class": "it names a Java class; give sasl_oauth_token_provider",
    "sasl.login.callback.handler.class": "it names a Java class; give sasl_oauth_token_provider",
    "sasl.login.class": "it names a Java class; give sasl_oauth_token_provider",
    **dict.fromkeys(
        (
            "ssl.cipher.suites",
            "ssl.enabled.protocols",
            "ssl.engine.factory.class",
            "ssl.keymanager.algorithm",
            "ssl.protocol",
            "ssl.provider",
            "ssl.secure.random.implementation",
            "ssl.trustmanager.algorithm",
        ),
        _TLS_BY_CONTEXT,
    ),
    **dict.fromkeys(
        (
            "ssl.keystore.password",
            "ssl.keystore.type",
            "ssl.truststore.password",
            "ssl.truststore.type",
        ),
        _PEM_ONLY,
    ),
    **dict.fromkeys(
        ("ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.truststore.certificates"),
        _INLINE_PEM,
    ),
    **dict.fromkeys(
        (
            "sasl.kerberos.kinit.cmd",
            "sasl.kerberos.min.time.before.relogin",
            "sasl.kerberos.service.name",
            "sasl.kerberos.ticket.renew.jitter",
            "sasl.kerberos.ticket.renew.window.factor",
        ),
        _KERBEROS,
    ),
    **dict.fromkeys(
        (
            "sasl.login.connect.timeout.ms",
            "sasl.login.read.timeout.ms",
            "sasl.login.refresh.buffer.seconds",
            "sasl.login.refresh.min.period.seconds",
            "sasl.login.refresh.window.factor",
            "sasl.login.refresh.window.jitter",
            "sasl.login.retry.backoff.max.ms",
            "sasl.login.retry.backoff.ms",
            "sasl.oauthbearer.assertion.algorithm",
            "sasl.oauthbearer.assertion.claim.aud",
            "sasl.oauthbearer.assertion.claim.exp.seconds",
            "sasl.oauthbearer.assertion.claim.iss",
            "sasl.oauthbearer.assertion.claim.jti.include",
            "sasl.oauthbearer.assertion.claim.nbf.seconds",
            "sasl.oauthbearer.assertion.claim.sub",
            "sasl.oauthbearer.assertion.file",
            "sasl.oauthbearer.assertion.private.key.file",
            "sasl.oauthbearer.assertion.private.key.passphrase",
            "sasl.oauthbearer.assertion.template.file",
            "sasl.oauthbearer.client.credentials.client.id",
            "sasl.oauthbearer.client.credentials.client.secret",
            "sasl.oauthbearer.clock.skew.seconds",
            "sasl.oauthbearer.expected.audience",
            "sasl.oauthbearer.expected.issuer",
            "sasl.oauthbearer.header.urlencode",
            "sasl.oauthbearer.jwks.endpoint.refresh.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
            "sasl.oauthbearer.jwks.endpoint.url",
            "sasl.oauthbearer.jwt.retriever.class",
            "sasl.oauthbearer.jwt.validator.class",
            "sasl.oauthbearer.scope",
            "sasl.oauthbearer.scope.claim.name",
            "sasl.oauthbearer.sub.claim.name",
            "sasl.oauthbearer.token.endpoint.url",
        ),
        _TOKEN_PROVIDER,
    ),
}
