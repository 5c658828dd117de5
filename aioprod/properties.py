"""A client's configuration as it is written for Java: dotted names, values that may be text,
classes by name.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import Field, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from aioprod.config import ClientConfig
from aioprod.consumer_config import ConsumerConfig
from aioprod.errors import ConfigError
from aioprod.parts import Maker, find
from aioprod.producer_config import ProducerConfig
from aioprod.security import is_secret

log = logging.getLogger(__name__)

#: Kafka's names that are more than ours with dots.
RENAMED: Mapping[str, str] = {
    "interceptor.classes": "interceptors",
    "partitioner.class": "partitioner",
}

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

#: Settings of Java 4.1's ProducerConfig that are not here, and why.
ABSENT: Mapping[str, str] = {
    **SECURITY_ABSENT,
    "enable.metrics.push": (
        "metrics are not pushed to brokers (KIP-714); read Producer.metrics() or give observers"
    ),
    "metric.reporters": "it names Java classes; give observers",
    "metrics.recording.level": "all metrics are always recorded, they are counted per batch",
    "transaction.two.phase.commit.enable": (
        "transactions can't yet take part in another system's two-phase commit (KIP-939)"
    ),
}


@dataclass(frozen=True)
class Form:
    """What the settings of one kind of client are read by.

    Attributes:
        kind: the class of its configuration.
        client: what Java calls such a client, for errors.
        renamed: Kafka's names that are more than ours with dots.
        absent: settings of Java's that are not here, and why.
        single_parts, listed_parts: settings that are objects of the user's, or lists of these.
        named_parts: settings that are lists of names or objects, with the names of what Java has
            classes for.
    """

    kind: type[ClientConfig]
    client: str
    renamed: Mapping[str, str] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    single_parts: tuple[str, ...] = ()
    listed_parts: tuple[str, ...] = ()
    named_parts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @cached_property
    def fields(self) -> Mapping[str, Field[Any]]:
        """The settings by our names."""
        return {each.name: each for each in fields(self.kind)}

    def find(self, given: str) -> str:
        """Our name for a setting whose name is written with dots or underscores."""
        return self.renamed.get(given.replace("_", "."), given.replace(".", "_"))

    def knows(self, given: str) -> bool:
        """Whether Java's client of this kind has such a setting, here or not."""
        return self.find(given) in self.fields or given.replace("_", ".") in self.absent


#: How a producer's settings are read.
PRODUCER = Form(
    ProducerConfig,
    "producer",
    RENAMED,
    ABSENT,
    ("key_serializer", "value_serializer", "partitioner"),
    ("interceptors", "observers"),
)

_JAVA_CONSUMER = "org.apache.kafka.clients.consumer."

#: How a consumer's settings are read.
CONSUMER = Form(
    ConsumerConfig,
    "consumer",
    {"interceptor.classes": "interceptors"},
    {
        **SECURITY_ABSENT,
        "enable.metrics.push": (
            "metrics are not pushed to brokers (KIP-714); read Consumer.metrics()"
        ),
        "metric.reporters": "it names Java classes; read Consumer.metrics()",
        "metrics.recording.level": "all metrics are always recorded",
        "share.acknowledgement.mode": "share groups (KIP-932) are not there",
    },
    ("key_deserializer", "value_deserializer"),
    ("interceptors",),
    {
        "partition_assignment_strategy": {
            _JAVA_CONSUMER + "RangeAssignor": "range",
            _JAVA_CONSUMER + "RoundRobinAssignor": "roundrobin",
            _JAVA_CONSUMER + "StickyAssignor": "sticky",
            _JAVA_CONSUMER + "CooperativeStickyAssignor": "cooperative-sticky",
        }
    },
)


@contextmanager
def producer_arguments(
    settings: Mapping[str, Any], new_client_id: Callable[[str | None], str]
) -> Iterator[dict[str, Any]]:
    """Kafka's own names and values as keyword arguments of :class:`aioprod.Producer`; see
    :func:`client_arguments`.

    Args:
        new_client_id: makes the ``client.id`` where none is set, of the ``transactional.id``.
    """
    with client_arguments(
        PRODUCER, settings, lambda given: new_client_id(given.get("transactional_id"))
    ) as arguments:
        yield arguments


@contextmanager
def client_arguments(
    form: Form, settings: Mapping[str, Any], new_client_id: Callable[[Mapping[str, Any]], str]
) -> Iterator[dict[str, Any]]:
    """Kafka's own names and values as keyword arguments of a client.

    Names may have dots or underscores. A value may be text. Serializers, partitioner, interceptors
    and observers may be
    classes or import paths: these are made and configured here, and closed again where the body of
        ``with`` fails.

    Args:
        form: the kind of client.
        settings: such as ``{"bootstrap.servers": "...", "linger.ms": "5"}``.
        new_client_id: makes the ``client.id`` where none is set, of the other arguments.

    Raises:
        ConfigError: a name or value that is not known, not supported or out of its limits.
    """
    maker = Maker()
    try:
        arguments = {
            name: _typed(form, maker, name, value) for name, value in _named(form, settings).items()
        }
        if "client_id" not in arguments:
            arguments["client_id"] = new_client_id(arguments)
        config = form.kind(**arguments)
        # What is hidden from a repr is secret: no part of the user's needs it.
        maker.configure(
            {name: getattr(config, name) for name, setting in form.fields.items() if setting.repr}
        )
        yield arguments
    except BaseException:
        maker.close()
        raise


def _named(form: Form, settings: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(settings, Mapping):  # it is not shown: it may hold a password
        raise ConfigError(
            f"settings of type {type(settings).__name__}: must be a mapping from names to values"
        )
    named: dict[str, Any] = {}
    for given, value in settings.items():
        if not isinstance(given, str):
            raise ConfigError(f"the name of a setting is {given!r}: must be a string")
        name = form.find(given)
        if name not in form.fields:
            raise _unknown(form, given)
        if name in named:
            raise ConfigError(f"{given} is set twice, with dots and with underscores")
        named[name] = value
    return named


def _unknown(form: Form, given: str) -> ConfigError:
    dotted = given.replace("_", ".")
    if dotted in form.absent:
        return ConfigError(
            f"setting {given!r} of Java's {form.client} is not there: {form.absent[dotted]}"
        )
    known = [*form.renamed, *(name.replace("_", ".") for name in form.fields)]
    near = difflib.get_close_matches(dotted, known, 1)
    if not near:
        return ConfigError(f"unknown setting {given!r}; docs/configuration.md lists all")
    return ConfigError(
        f"unknown setting {given!r}: did you mean "
        f"{near[0] if '.' in given else near[0].replace('.', '_')!r}?"
    )


def _typed(form: Form, maker: Maker, name: str, value: Any) -> Any:
    if name in form.single_parts:
        return maker.one(name, value)
    if name in form.listed_parts:
        return maker.many(name, value)
    if name in form.named_parts:
        return _named_parts(maker, name, value, form.named_parts[name])
    if not isinstance(value, str):
        return value
    if name == "sasl_oauth_token_provider":
        return find(name, value.strip(), is_secret=True)
    setting = form.fields[name]
    if not setting.repr:
        return value  # a password may begin or end with spaces
    kind, read = _READERS.get(str(setting.type), ("text", str))
    try:
        return read(value.strip())
    except ValueError:
        raise ConfigError(f"{name}={value!r}: must be {kind}") from None


def _named_parts(maker: Maker, name: str, value: Any, names: Mapping[str, str]) -> Any:
    """Names as they are; of a class or an import path the object."""
    given = (
        value.split(",")
        if isinstance(value, str)
        else [value]
        if isinstance(value, type)
        else value
    )
    if not isinstance(given, Iterable):
        return value
    stripped = [item.strip() if isinstance(item, str) else item for item in given]
    mapped = [names.get(item, item) if isinstance(item, str) else item for item in stripped]
    return [
        item if isinstance(item, str) and "." not in item else maker.one(name, item)
        for item in mapped
        if item != ""
    ]


def _switch(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


#: How text becomes a value, by the type of the field: its name for errors, and the function.
_READERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "bool": ("true or false", _switch),
    "int": ("a whole number", int),
    "int | None": ("a whole number", int),
    "float": ("a number", float),
}


def read_settings(path: Path, option: str) -> dict[str, str]:
    """The settings in a file of lines ``NAME=VALUE``; ``#`` or ``!`` begins a comment.

    Args:
        path: of the file.
        option: of the command line that named it, for errors.

    Raises:
        ConfigError: the file can't be read, or a line is no setting.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"can't read {option} {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{option} {path} is no text in UTF-8") from None
    settings = {}
    for number, line in enumerate(lines, start=1):
        text = line.lstrip()
        if not text or text[0] in "#!":
            continue
        name, equals, value = text.partition("=")
        if not equals or not name.strip():  # the line is not shown: it may hold a password
            raise ConfigError(f"line {number} of {option} {path} is not NAME=VALUE")
        settings[name.strip()] = value.lstrip()  # a password may end with spaces
    return settings


def warn_of_secrets(names: Iterable[str], option: str, better: str) -> None:
    """Warn, in one line, of secrets that were given on the command line.

    Args:
        names: of the settings.
        option: that gave them.
        better: the option that names a file with them.
    """
    found = sorted(filter(is_secret, names))
    if found:
        log.warning(
            "%s %s: the process list shows it to all users of this machine; "
            "put it into a file for %s",
            option, ", ".join(found), better,
        )  # fmt: skip
