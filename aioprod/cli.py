"""The command line: ``aioprod demo`` and ``aioprod broker``."""

from __future__ import annotations

import argparse
import asyncio
import difflib
import json
import math
import signal
import ssl
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from aioprod.testing import BrokerSecurity

USAGE_ERROR = 2
INTERRUPTED = 130


class Parser(argparse.ArgumentParser):
    """An argument parser whose error about a wrong option or command names the right ones."""

    def option_names(self) -> list[str]:
        """The long options."""
        return [name for action in self._actions for name in action.option_strings if name.startswith("--")]

    def error(self, message: str) -> NoReturn:
        """End with status 2 and one line on standard error."""
        self.exit(USAGE_ERROR, f"{self.prog}: {message}\n")

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            self.error(_unknown_text("command", str(value), list(action.choices)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the entry point ``aioprod``.

    Returns:
        The exit status: 0 where all went well, 1 where not, 2 for wrong usage, 130 where Ctrl-C ended it.
    """
    options, unknown = _parser().parse_known_args(arguments)
    if unknown:
        parser: Parser = options.parser
        parser.error(_unknown_text("option" if unknown[0].startswith("-") else "argument", unknown[0], parser.option_names()))
    run: Callable[[argparse.Namespace], int] = options.run
    return run(options)


def _parser() -> Parser:
    parser = Parser(prog="aioprod", description="The asyncio-native Apache Kafka client for Python.", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True, metavar="{demo,broker}", parser_class=Parser)
    _add_demo(commands)
    _add_broker(commands)
    return parser


def _add_demo(commands: argparse._SubParsersAction[Parser]) -> None:
    demo = commands.add_parser(
        "demo",
        help="send real flights through Kafka and Spark and draw their delays",
        description="Sends the 336,776 flights that left New York in 2013 to Kafka, computes their delays by carrier and hour with Spark, "
        "checks the totals against the CSV and saves a picture. Without options a broker is started in this process.",
        allow_abbrev=False,
    )
    where = demo.add_mutually_exclusive_group()
    where.add_argument("--bootstrap-servers", metavar="HOST:PORT", help="use this running cluster")
    where.add_argument("--real-kafka", action="store_true", help="start a real Kafka 4.1 (44 MB are downloaded the first time)")
    demo.add_argument("--cluster", action="store_true", help="Spark as a master with two workers, and Kafka as three nodes unless it is given")
    demo.add_argument("--flights", type=_positive_int, metavar="N", help="send only the first N flights of the year")
    demo.add_argument("--rate", type=_positive_float, metavar="R", help="send at most R records per second")
    demo.add_argument("--out", type=Path, default=Path("demo-out"), metavar="DIR", help="where the results go (default: %(default)s)")
    demo.add_argument("--topic-prefix", default="", metavar="TEXT", help="put before the topics' names; they must be empty")
    demo.add_argument("--follow", action="store_true", help="go on reading the topic until Ctrl-C")
    demo.set_defaults(run=_demo, parser=demo)


def _add_broker(commands: argparse._SubParsersAction[Parser]) -> None:
    broker = commands.add_parser(
        "broker",
        help="run the embedded broker for development (keeps everything in memory)",
        description="Runs the embedded broker until Ctrl-C. It keeps everything in memory and forgets it at the end.",
        allow_abbrev=False,
    )
    broker.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    broker.add_argument("--port", type=_port, default=9092, help="of the first node, others take the next; 0 for free ones (default: %(default)s)")
    broker.add_argument("--nodes", type=_positive_int, default=1, metavar="N", help="how many nodes (default: %(default)s)")
    broker.add_argument("--partitions", type=_positive_int, default=1, metavar="N", help="of topics created by use (default: %(default)s)")
    broker.add_argument("--topic", type=_topic, action="append", default=[], metavar="NAME:PARTITIONS", help="create this topic; may be given again")
    broker.add_argument("--json", action="store_true", help="print the addresses as one line of JSON")
    security = broker.add_argument_group("TLS and SASL")
    security.add_argument("--tls-certificate", type=Path, metavar="FILE", help="speak TLS, with this certificate chain in PEM")
    security.add_argument("--tls-key", type=Path, metavar="FILE", help="its private key; without it the key is in the same file")
    security.add_argument("--tls-client-ca", type=Path, metavar="FILE", help="clients must have a certificate of this authority")
    security.add_argument("--users", type=Path, metavar="FILE", help="ask for a login by PLAIN or SCRAM; a line NAME:PASSWORD for each user")
    security.add_argument("--mechanism", action="append", metavar="NAME", help="offer only this SASL mechanism; may be given again")
    broker.set_defaults(run=_broker, parser=broker)


def _unknown_text(kind: str, given: str, right: Sequence[str]) -> str:
    name = given.split("=", 1)[0]
    nearest = difflib.get_close_matches(name, right, n=1, cutoff=0.5)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    return f"unknown {kind} {name}{hint} (known: {', '.join(right)})"


def _positive_int(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text!r}")
    return int(text)


def _positive_float(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number above 0, not {text!r}")
    return value


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"must be a port from 0 to 65535, not {text!r}")
    return int(text)


def _topic(text: str) -> tuple[str, int | None]:
    name, colon, partitions = text.partition(":")
    return name, _positive_int(partitions) if colon else None


def _demo(arguments: argparse.Namespace) -> int:
    if arguments.cluster and (arguments.follow or arguments.real_kafka):
        arguments.parser.error("argument --cluster: not allowed with --follow or --real-kafka")
    try:
        from aioprod.demo.options import DemoError, DemoOptions, check_extras

        try:
            check_extras()
        except DemoError as error:
            print(f"aioprod demo: {error}", file=sys.stderr)
            return 1
        from aioprod.demo.run import main as run_demo
    except KeyboardInterrupt:
        return INTERRUPTED
    return run_demo(
        DemoOptions(
            bootstrap_servers=arguments.bootstrap_servers,
            real_kafka=arguments.real_kafka,
            cluster=arguments.cluster,
            flights=arguments.flights,
            rate=arguments.rate,
            out=arguments.out,
            follow=arguments.follow,
            topic_prefix=arguments.topic_prefix,
        )
    )


def _broker(arguments: argparse.Namespace) -> int:
    try:
        asyncio.run(_serve(arguments))
    except _UsageError as error:
        print(f"aioprod broker: {error}", file=sys.stderr)
        return USAGE_ERROR
    except OSError as error:
        print(f"aioprod broker: can't listen on {arguments.host}:{arguments.port}: {error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


class _UsageError(Exception):
    """What was asked for can't be had."""


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
            nodes=arguments.nodes, host=arguments.host, port=arguments.port, num_partitions=arguments.partitions, security=security
        )
        for name, partitions in arguments.topic:
            cluster.create_topic(name, partitions)
    except KafkaError as error:
        raise _UsageError(str(error)) from None
    async with cluster:
        protocol = ("SASL_" if security.offered else "") + ("SSL" if security.ssl_context else "PLAINTEXT" if security.offered else "")
        if arguments.json:
            print(json.dumps({"bootstrap_servers": cluster.bootstrap_servers, "security_protocol": protocol or "PLAINTEXT"}), flush=True)
        else:
            kind = f" by {protocol}" if protocol else ""
            print(f"Broker on {cluster.bootstrap_servers}{kind}, everything in memory only. Ctrl-C ends it.", flush=True)
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
        return BrokerSecurity(ssl_context=_tls_context(arguments), users=_users(arguments.users), mechanisms=mechanisms)
    except ConfigError as error:
        raise _UsageError(str(error)) from None


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
        if line and not (colon and name and password):  # the line is not shown: it may hold a password
            raise _UsageError(f"line {number} of --users {path} is not NAME:PASSWORD")
        if line:
            users[name] = password
    if not users:
        raise _UsageError(f"--users {path} names nobody")
    return users


if __name__ == "__main__":
    sys.exit(main())
