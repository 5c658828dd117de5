"""``aioprod broker``."""

from __future__ import annotations

import argparse
import asyncio
import signal
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from aioprod.cli.output import note, say, show
from aioprod.cli.parser import INTERRUPTED, USAGE_ERROR, Parser, path, port, positive_int

if TYPE_CHECKING:
    from aioprod.testing import Authorizer, BrokerSecurity


def add_arguments(parser: Parser) -> None:
    """Add the arguments of ``aioprod broker``."""
    parser.description = (
        "Runs the embedded broker until Ctrl-C. It keeps everything in memory, so all data is "
        "lost when it stops."
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: %(default)s)"
    )
    parser.add_argument(
        "--port",
        type=port,
        default=9092,
        help="first node's port; others use the next ones; 0: any free (default: %(default)s)",
    )
    parser.add_argument(
        "--nodes",
        type=positive_int,
        default=1,
        metavar="N",
        help="number of nodes (default: %(default)s)",
    )
    parser.add_argument(
        "--partitions",
        type=positive_int,
        default=1,
        metavar="N",
        help="number of partitions of auto-created topics (default: %(default)s)",
    )
    parser.add_argument(
        "--topic",
        type=_topic,
        action="append",
        default=[],
        metavar="NAME:PARTITIONS",
        help="create this topic; may be repeated",
    )
    parser.add_argument(
        "--imitate",
        action="append",
        default=[],
        metavar="NAME",
        help="behave as a service such as event-hubs, or with a quirk "
        "(docs/embedded-broker.md); may be repeated",
    )
    parser.add_argument(
        "--json", action="store_true", help="print the addresses as one line of JSON"
    )
    _add_security(parser)
    parser.set_defaults(run=_broker, parser=parser)


def _add_security(broker: Parser) -> None:
    security = broker.add_argument_group("TLS and SASL")
    security.add_argument(
        "--tls-certificate",
        type=path,
        metavar="FILE",
        help="use TLS, with this certificate chain in PEM",
    )
    security.add_argument(
        "--tls-key",
        type=path,
        metavar="FILE",
        help="private key of the certificate (default: in the same file)",
    )
    security.add_argument(
        "--tls-client-ca",
        type=path,
        metavar="FILE",
        help="require client certificates that this authority has signed",
    )
    security.add_argument(
        "--users",
        type=path,
        metavar="FILE",
        help="require clients to log in with PLAIN or SCRAM; one NAME:PASSWORD per line",
    )
    security.add_argument(
        "--mechanism",
        action="append",
        metavar="NAME",
        help="offer only this SASL mechanism; may be repeated",
    )
    security.add_argument(
        "--super-user",
        action="append",
        metavar="NAME",
        help="authorize clients by ACLs, with this super user; may be repeated",
    )


def _topic(text: str) -> tuple[str, int | None]:
    name, colon, partitions = text.partition(":")
    return name, positive_int(partitions) if colon else None


def _broker(arguments: argparse.Namespace) -> int:
    try:
        asyncio.run(_serve(arguments))
    except _UsageError as error:
        note(f"aioprod broker: {error}")
        return USAGE_ERROR
    except OSError as error:
        note(
            f"aioprod broker: can't listen on {arguments.host}:{arguments.port}: "
            f"{error.strerror or error}"
        )
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


class _UsageError(Exception):
    """An argument is invalid."""


async def _serve(arguments: argparse.Namespace) -> None:
    from aioprod.errors import KafkaError
    from aioprod.testing import EmbeddedCluster

    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(number, ended.set)
        except NotImplementedError:  # Windows: KeyboardInterrupt ends the loop
            break
    security = _security(arguments)
    try:
        cluster = EmbeddedCluster(
            nodes=arguments.nodes,
            host=arguments.host,
            port=arguments.port,
            num_partitions=arguments.partitions,
            security=security,
            authorizer=_authorizer(arguments),
            imitate=arguments.imitate,
        )
        for name, partitions in arguments.topic:
            cluster.create_topic(name, partitions)
    except KafkaError as error:
        raise _UsageError(str(error)) from None
    async with cluster:
        protocol = ("SASL_" if security.offered else "") + (
            "SSL" if security.ssl_context else "PLAINTEXT" if security.offered else ""
        )
        if arguments.json:
            show(
                {
                    "bootstrap_servers": cluster.bootstrap_servers,
                    "security_protocol": protocol or "PLAINTEXT",
                },
                indent=None,
            )
        else:
            kind = f" by {protocol}" if protocol else ""
            say(f"Broker on {cluster.bootstrap_servers}{kind}, in memory only. Ctrl-C stops it.")
        await ended.wait()


def _security(arguments: argparse.Namespace) -> BrokerSecurity:
    from aioprod.errors import ConfigError
    from aioprod.testing import BrokerSecurity

    if arguments.tls_certificate is None and (arguments.tls_key or arguments.tls_client_ca):
        raise _UsageError("--tls-key and --tls-client-ca need --tls-certificate")
    if arguments.users is None and arguments.mechanism:
        raise _UsageError("--mechanism needs --users")
    mechanisms = tuple(arguments.mechanism) if arguments.mechanism else None
    try:
        return BrokerSecurity(
            ssl_context=_tls_context(arguments),
            users=_users(arguments.users),
            mechanisms=mechanisms,
        )
    except ConfigError as error:
        raise _UsageError(str(error)) from None


def _authorizer(arguments: argparse.Namespace) -> Authorizer | None:
    from aioprod.testing import Authorizer

    names = arguments.super_user
    return Authorizer([f"User:{name}" for name in names]) if names else None


def _tls_context(arguments: argparse.Namespace) -> ssl.SSLContext | None:
    if arguments.tls_certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(arguments.tls_certificate, arguments.tls_key)
        if arguments.tls_client_ca is not None:
            context.load_verify_locations(arguments.tls_client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except OSError as error:
        raise _UsageError(f"the TLS files can't be used: {error.strerror or error}") from None
    return context


def _users(path: Path | None) -> dict[str, str]:
    if path is None:
        return {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise _UsageError(f"can't read --users {path}: {error.strerror}") from None
    users = {}
    for number, line in enumerate(lines, start=1):
        name, colon, password = line.partition(":")
        # The line is not shown: it may contain a password.
        if line and not (colon and name and password):
            raise _UsageError(f"line {number} of --users {path} is not NAME:PASSWORD")
        if line:
            users[name] = password
    if not users:
        raise _UsageError(f"--users {path} has no users")
    return users
