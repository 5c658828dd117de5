"""``aioprod demo``."""

from __future__ import annotations

import argparse
from pathlib import Path

from aioprod.cli.output import note
from aioprod.cli.parser import INTERRUPTED, Parser, path, positive_float, positive_int


def add_arguments(parser: Parser) -> None:
    """Add the arguments of ``aioprod demo``."""
    parser.description = (
        "Sends the 336,776 flights that left New York in 2013 to Kafka, computes their "
        "delays by carrier and hour with Spark, "
        "checks the totals against the CSV and saves a picture. Without options a broker is "
        "started in this process."
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--bootstrap-servers", metavar="HOST:PORT", help="use this running cluster")
    where.add_argument(
        "--real-kafka",
        action="store_true",
        help="start a real Kafka 4.1 (downloads 44 MB the first time)",
    )
    parser.add_argument(
        "--cluster",
        action="store_true",
        help=(
            "run Spark as a master with two workers, and Kafka as three nodes unless "
            "--bootstrap-servers is given"
        ),
    )
    parser.add_argument(
        "--flights",
        type=positive_int,
        metavar="N",
        help="send only the first N flights of the year",
    )
    parser.add_argument(
        "--rate", type=positive_float, metavar="R", help="send at most R records per second"
    )
    parser.add_argument(
        "--out",
        type=path,
        default=Path("demo-out"),
        metavar="DIR",
        help="directory of the results (default: %(default)s)",
    )
    parser.add_argument(
        "--topic-prefix",
        default="",
        metavar="TEXT",
        help="prefix of the topics, which must be empty",
    )
    parser.add_argument(
        "--follow", action="store_true", help=("continue reading the topic until Ctrl-C")
    )
    parser.add_argument(
        "--page",
        nargs="?",
        const="0",
        metavar="[HOST:]PORT",
        help="also show Spark's progress on a web page (default: any free port of 127.0.0.1)",
    )
    parser.set_defaults(run=_demo, parser=parser)


def _demo(arguments: argparse.Namespace) -> int:
    if arguments.cluster and (arguments.follow or arguments.real_kafka):
        arguments.parser.error("argument --cluster: not allowed with --follow or --real-kafka")
    try:
        from aioprod.demo.options import DemoError, DemoOptions, check_extras

        try:
            check_extras()
        except DemoError as error:
            note(f"aioprod demo: {error}")
            return 1
        from aioprod.demo.run import main as run_demo

        page = _page(arguments)
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
            page=page,
            topic_prefix=arguments.topic_prefix,
        )
    )


def _page(arguments: argparse.Namespace) -> tuple[str, int] | None:
    if arguments.page is None:
        return None
    from aioprod.page_server import parse_address

    try:
        return parse_address(arguments.page)
    except ValueError as error:
        parser: Parser = arguments.parser
        parser.error(f"argument --page: {error}")
