"""``aioprod pipeline``."""

from __future__ import annotations

import argparse
import keyword
import re
import sys
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from aioprod.cli.output import note, say
from aioprod.cli.parser import Parser, name_choices, path

# The names in the template, which are replaced by the project's.
_PROJECT, _PACKAGE = "my-pipeline", "my_pipeline"
# The first of each is what the files without a suffix are for.
SINKS = ("kafka", "parquet", "delta", "iceberg")
FORMATS = ("json", "avro", "debezium")
_PARTS = {"sink": SINKS, "outputs": SINKS, "test_sink": SINKS, "schema": FORMATS, "events": FORMATS}
# A part may be for several of them, as outputs_parquet_delta.py.
_ANY = "|".join((*SINKS, *FORMATS))
_PART = re.compile(rf"\b(sink|outputs|schema|events)_((?:{_ANY})(?:_(?:{_ANY}))*)\b")
_ONLY_IF = re.compile(
    r"^(?:<!-- if ([a-z ]+) -->|# if ([a-z ]+))\n(.*?)^(?:<!-- end -->|# end)\n",
    re.DOTALL | re.MULTILINE,
)
# Each release of Delta and Iceberg is for one release of Spark: these are the newest ones.
_PYSPARK = {"delta": "4.2", "iceberg": "4.1"}
_NAME = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")
_MAX_NAME = 60


def add_arguments(parser: Parser) -> None:
    """Add the arguments of ``aioprod pipeline``."""
    actions = parser.add_subparsers(dest="action", required=True, parser_class=Parser)
    new = actions.add_parser(
        "new",
        help="write a project",
        description="Writes a small project into the new directory NAME: a Spark job that reads "
        "events, computes totals, and writes dead letters; its schema, its tests with the embedded "
        "broker, and a README that says how to run it.",
        allow_abbrev=False,
    )
    new.add_argument(
        "name", type=_name, metavar="NAME", help="name of the project, its package and its topic"
    )
    new.add_argument(
        "--in",
        dest="parent",
        type=path,
        default=Path(),
        metavar="DIR",
        help="where to create the directory (default: here)",
    )
    new.add_argument(
        "--sink",
        choices=SINKS,
        default=SINKS[0],
        help="where the totals go: a Kafka topic, Parquet files, a Delta or an Iceberg table "
        "(default: %(default)s)",
    )
    new.add_argument(
        "--format",
        choices=FORMATS,
        default=FORMATS[0],
        help="what the events are: JSON, Avro with schemas in a registry, or changes of a table as "
        "Debezium writes them in JSON (default: %(default)s)",
    )
    new.set_defaults(run=_new, parser=new)
    name_choices(actions)


def _new(arguments: argparse.Namespace) -> int:
    directory: Path = arguments.parent / arguments.name
    try:
        written = write_project(arguments.name, directory, arguments.sink, arguments.format)
    except OSError as error:
        note(f"aioprod pipeline: can't write {directory}: {error.strerror or error}")
        return 1
    for each in written:
        say(f"wrote {each}")
    if pyspark := _PYSPARK.get(arguments.sink):
        say(
            f"needs PySpark {pyspark}, the newest that {arguments.sink.title()} has a jar for; "
            "pip installs it with the project"
        )
    say(f"next: cd {directory}, and see README.md")
    return 0


def write_project(
    name: str, directory: Path, sink: str = SINKS[0], form: str = FORMATS[0]
) -> list[Path]:
    """Write the template with the project's name, and the parts for a sink and a format; return
    the files.

    Raises:
        FileExistsError: if the directory exists.
        OSError: if it cannot be written.
    """
    directory.mkdir(parents=False)
    return list(_copy(files("aioprod") / "spark" / "template", directory, name, (sink, form)))


def _copy(source: Traversable, target: Path, name: str, chosen: tuple[str, str]) -> list[Path]:
    written = []
    for entry in sorted(source.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir() and entry.name != "__pycache__":
            path = target / _renamed(entry.name, name)
            path.mkdir()
            written += _copy(entry, path, name, chosen)
        elif entry.is_file() and not entry.name.endswith((".pyc", ".so")):
            own = _name_of(entry.name, chosen)
            if own is not None:
                path = target / _renamed(own, name)
                text = _only(entry.read_text(encoding="utf-8"), chosen)
                path.write_text(_renamed(text, name), encoding="utf-8")
                written.append(path)
    return written


def _name_of(file: str, chosen: tuple[str, str]) -> str | None:
    """Return a file's name in the project; None if it is for another sink or format."""
    stem, dot, suffix = file.rpartition(".")
    if part := _PART.fullmatch(stem):
        is_chosen = not {*part[2].split("_")}.isdisjoint(chosen)
        return f"{part[1]}{dot}{suffix}" if is_chosen else None
    kinds = _PARTS.get(stem)
    return None if kinds is not None and kinds[0] not in chosen else file


def _only(text: str, chosen: tuple[str, str]) -> str:
    """Return a text without the paragraphs for other sinks and formats."""

    def keep(found: re.Match[str]) -> str:
        names = (found[1] or found[2]).split()
        return found[3] if any(name in chosen for name in names) else ""

    if not _ONLY_IF.search(text):
        return _PART.sub(lambda found: found[1], text)
    return re.sub(r"\n{3,}", "\n\n", _ONLY_IF.sub(keep, text))


def _renamed(text: str, name: str) -> str:
    return text.replace(_PACKAGE, name.replace("-", "_")).replace(_PROJECT, name)


def _name(text: str) -> str:
    package = text.replace("-", "_")
    if not _NAME.fullmatch(text) or len(text) > _MAX_NAME:
        raise argparse.ArgumentTypeError(
            f"must be at most {_MAX_NAME} lowercase letters, digits, - and _, such as "
            f"orders-by-hour, not {text!r}"
        )
    reserved = package in sys.stdlib_module_names or keyword.iskeyword(package)
    # Spark imports every module named pyspark_... when it starts.
    if reserved or package in ("aioprod", "tests") or package.startswith("pyspark"):
        raise argparse.ArgumentTypeError(
            f"{text!r} is the name of another Python package or a keyword: choose another one"
        )
    return text
