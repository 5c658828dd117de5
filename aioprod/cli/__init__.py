"""The command line."""

from aioprod.cli.command_line import main

__all__ = ["main"]
