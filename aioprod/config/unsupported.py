"""Settings of the Java clients that aioprod does not support, each with what to do instead."""

from __future__ import annotations

from collections.abc import Mapping

_JAVA_CLASS = (
    "it names a Java class; leave it out: sasl.oauthbearer.token.endpoint.url is enough, and "
    "sasl_oauth_token_provider replaces other classes"
)
_TLS_CONTEXT = "configure an ssl.SSLContext, and set ssl_context"
_PEM_ONLY = "files must be PEM; the password of a private key is ssl.key.password"
_PEM_TEXT = (
    "write it to a file, and set ssl.keystore.location or ssl.truststore.location; or set "
    "ssl_context"
)
_TOKENS = (
    "tokens are renewed after 80 to 85 % of their lifetime; set sasl_oauth_token_provider for "
    "another way"
)
_ASSERTION = (
    "set sasl.oauthbearer.assertion.claim.iss, .sub and .aud; for other claims "
    "sasl_oauth_token_provider to an aioprod.oauth.JwtBearer"
)
_OF_BROKERS = "brokers use it to check tokens"
_TICKETS = (
    "the Kerberos library renews the tickets of a keytab; renew those of a cache with k5start or "
    "kinit -R"
)
_ALWAYS_RECORDED = "all metrics are always recorded"
_NO_METRICS = "an admin client has no metrics over windows of time"
_NO_RACKS = "partitions are chosen regardless of racks (KIP-1123); set partitioner"

#: The unsupported settings of all clients.
SHARED_UNSUPPORTED: Mapping[str, str] = {
    "bootstrap.resolve.timeout.ms": "names are resolved again in each attempt to connect",
    "config.providers": "they are Java classes; read secrets in the application",
    "security.providers": "it names Java classes; set ssl_context for other TLS settings",
    "sasl.client.callback.handler.class": _JAVA_CLASS,
    "sasl.login.callback.handler.class": _JAVA_CLASS,
    "sasl.login.class": _JAVA_CLASS,
    "sasl.oauthbearer.jwt.retriever.class": _JAVA_CLASS,
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
        _TLS_CONTEXT,
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
        _PEM_TEXT,
    ),
    **dict.fromkeys(
        (
            "sasl.kerberos.kinit.cmd",
            "sasl.kerberos.min.time.before.relogin",
            "sasl.kerberos.ticket.renew.jitter",
            "sasl.kerberos.ticket.renew.window.factor",
        ),
        _TICKETS,
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
        ),
        _TOKENS,
    ),
    "sasl.oauthbearer.assertion.template.file": _ASSERTION,
    **dict.fromkeys(
        (
            "sasl.oauthbearer.allow.unverified.audience",
            "sasl.oauthbearer.allow.unverified.issuer",
            "sasl.oauthbearer.clock.skew.seconds",
            "sasl.oauthbearer.expected.audience",
            "sasl.oauthbearer.expected.issuer",
            "sasl.oauthbearer.jwks.endpoint.refresh.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
            "sasl.oauthbearer.jwks.endpoint.url",
            "sasl.oauthbearer.jwt.validator.class",
            "sasl.oauthbearer.scope.claim.name",
            "sasl.oauthbearer.sub.claim.name",
        ),
        _OF_BROKERS,
    ),
}

PRODUCER_UNSUPPORTED: Mapping[str, str] = {
    **SHARED_UNSUPPORTED,
    "metric.reporters": "it names Java classes; set observers",
    "metrics.recording.level": _ALWAYS_RECORDED,
    "client.rack": _NO_RACKS,
    "partitioner.rack.aware": _NO_RACKS,
    "transaction.two.phase.commit.enable": (
        "brokers up to Kafka 4.4 refuse to keep prepared transactions (KIP-939)"
    ),
}

CONSUMER_UNSUPPORTED: Mapping[str, str] = {
    **SHARED_UNSUPPORTED,
    "metric.reporters": "it names Java classes; set observers",
    "metrics.recording.level": _ALWAYS_RECORDED,
    "share.acknowledgement.mode": "it is a setting of ShareConsumer",
    "share.acquire.mode": "it is a setting of ShareConsumer",
}

SHARE_CONSUMER_UNSUPPORTED: Mapping[str, str] = {
    **SHARED_UNSUPPORTED,
    "allow.auto.create.topics": "a share consumer creates no topics; create them first",
    "exclude.internal.topics": "topics are subscribed by name, not by pattern",
    "max.partition.fetch.bytes": "share groups have no such limit (KIP-932); set fetch.max.bytes",
    "metric.reporters": "it names Java classes; set observers",
    "metrics.recording.level": _ALWAYS_RECORDED,
    **dict.fromkeys(
        ("auto.offset.reset", "isolation.level", "heartbeat.interval.ms", "session.timeout.ms"),
        "it is a setting of the group: share.auto.offset.reset, share.isolation.level, "
        "share.heartbeat.interval.ms, share.session.timeout.ms",
    ),
    **dict.fromkeys(
        (
            "auto.commit.interval.ms",
            "enable.auto.commit",
            "group.instance.id",
            "group.protocol",
            "group.remote.assignor",
            "interceptor.classes",
            "partition.assignment.strategy",
        ),
        "share groups do not have it (KIP-932)",
    ),
}

ADMIN_UNSUPPORTED: Mapping[str, str] = {
    **SHARED_UNSUPPORTED,
    "bootstrap.controllers": (
        "set bootstrap.servers: brokers forward requests to controllers (KIP-919 is not supported)"
    ),
    "metric.reporters": "it names Java classes",
    "metrics.num.samples": _NO_METRICS,
    "metrics.recording.level": _NO_METRICS,
    "metrics.sample.window.ms": _NO_METRICS,
    "retries": "calls are retried until default.api.timeout.ms, or their own timeout_ms",
}
