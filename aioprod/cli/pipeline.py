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
from aioprod.cli.parser import Commands, Parser, name_choices

# The names in the template, which become those of the project.
_PROJECT, _PACKAGE = "my-pipeline", "my_pipeline"
_NAME = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")
_MAX_NAME = 60


def add_pipeline(commands: Commands[Parser]) -> None:
    """Add the command."""
    pipeline = commands.add_parser(
        "pipeline", help="begin a Spark pipeline of your own", allow_abbrev=False
    )
    actions = pipeline.add_subparsers(dest="action", required=True, parser_class=Parser)
    new = actions.add_parser(
        "new",
        help="write a project",
        description="Writes a small project into the new directory NAME: a Spark job that reads "
        "events, computes totals, and writes dead letters; its schema, its tests with the embedded "
        "broker, and a README that says how to run it.",
        allow_abbrev=False,
    )
    new.add_argument(
        "name", type=_name, metavar="NAME", help="of the project, its package and its topic"
    )
    new.add_argument(
        "--in",
        dest="parent",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="where to create the directory (default: here)",
    )
    new.set_defaults(run=_new, parser=new)
    name_choices(actions)


def _new(arguments: argparse.Namespace) -> int:
    directory: Path = arguments.parent / arguments.name
    try:
        written = write_project(arguments.name, directory)
    except OSError as error:
        note(f"aioprod pipeline: can't write {directory}: {error.strerror or error}")
        return 1
    for path in written:
        say(f"wrote {path}")
    say(f"next: cd {directory}, and see README.md")
    return 0


def write_project(name: str, directory: Path) -> list[Path]:
    """Write the template with another name; return the files.

    Raises:
        FileExistsError: if the directory exists.
        OSError: if it cannot be written.
    """
    directory.mkdir(parents=False)
    return list(_copy(files("aioprod") / "spark" / "template", directory, name))


def _copy(source: Traversable, target: Path, name: str) -> list[Path]:
    written = []
    for entry in sorted(source.iterdir(), key=lambda entry: entry.name):
        path = target / _renamed(entry.name, name)
        if entry.is_file() and not entry.name.endswith((".pyc", ".so")):
            path.write_text(_renamed(entry.read_text(encoding="utf-8"), name), encoding="utf-8")
            written.append(path)
        elif entry.is_dir() and entry.name != "__pycache__":
            path.mkdir()
            written += _copy(entry, path, name)
    return written


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
    # Spark imports each module pyspark_... at its start.
    if reserved or package in ("aioprod", "tests") or package.startswith("pyspark"):
        raise argparse.ArgumentTypeError(
            f"{text!r} is the name of another Python package or a keyword: choose another one"
        )
    return text
