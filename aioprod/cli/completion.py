"""``aioprod completion``: scripts with which shells complete commands and options."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from aioprod.cli.output import say
from aioprod.cli.parser import Commands, Parser


class _Option(NamedTuple):
    """An option: its names, and what follows it."""

    names: list[str]
    meaning: str
    takes_value: bool
    choices: list[str]
    is_file: bool


class _Command(NamedTuple):
    """A command: its words, such as ``topics create``; the top level has none."""

    words: str
    commands: dict[str, str]
    options: list[_Option]
    arguments: list[str]


def add_completion(commands: Commands[Parser], whole: Parser) -> None:
    """Add the command.

    Args:
        whole: the parser of the whole command line.
    """
    parser = commands.add_parser(
        "completion",
        help="print a script that completes commands and options in a shell",
        description=(
            "Prints a script for a shell. bash: source <(aioprod completion bash). zsh, after "
            "compinit: source <(aioprod completion zsh). fish: aioprod completion fish | source."
        ),
        allow_abbrev=False,
    )
    parser.add_argument("shell", choices=list(_SCRIPTS), metavar="{" + ",".join(_SCRIPTS) + "}")

    def run(options: argparse.Namespace) -> int:
        say(_SCRIPTS[options.shell](list(_tree(whole, ""))), end="")
        return 0

    parser.set_defaults(run=run, parser=parser)


def _tree(parser: argparse.ArgumentParser, words: str) -> Iterator[_Command]:
    """Yield a command and all below it."""
    command = _Command(words, {}, [], [])
    below: dict[str, argparse.ArgumentParser] = {}
    formatter = parser._get_formatter()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            below = action.choices
            command.commands.update(
                {each.dest: each.help or "" for each in action._get_subactions()}
            )
        elif action.option_strings:
            command.options.append(
                _Option(
                    list(action.option_strings),
                    formatter._expand_help(action) if action.help else "",
                    action.nargs != 0,
                    list(map(str, action.choices or ())),
                    action.type is Path,
                )
            )
        else:
            command.arguments.extend(map(str, action.choices or ()))
    yield command
    for name, each in below.items():
        yield from _tree(each, f"{words} {name}".strip())


def _words(command: _Command) -> list[str]:
    """Return what may follow a command."""
    names = [name for option in command.options for name in option.names]
    return [*command.commands, *command.arguments, *names]


# In bash and zsh the function walks over the words before the cursor, and keeps those that name
# commands: "$at" is then the command. What it does not know are values.
_WALK = """  local at= word
  for word in {words}; do
    case "$at/$word" in
      {known}) at="${{at:+$at }}$word" ;;
    esac
  done
"""


def _walk(commands: list[_Command], words: str) -> str:
    known = [shlex.quote(f"{each.words}/{name}") for each in commands for name in each.commands]
    return _WALK.format(words=words, known="|".join(known))


# compopt quotes names; bash 3.2 of macOS has none.
_BASH_FILES = (
    "local IFS=$'\\n'; compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- \"$current\"))"
)


def _bash(commands: list[_Command]) -> str:
    lines = [
        "# bash completion of aioprod",
        "_aioprod() {",
        '  local current="${COMP_WORDS[COMP_CWORD]}"',
        _walk(commands, '"${COMP_WORDS[@]:1:COMP_CWORD-1}"').rstrip("\n"),
        '  case "$at/${COMP_WORDS[COMP_CWORD-1]}" in',
    ]
    lines += _value_cases(
        commands,
        lambda option: _BASH_FILES if option.is_file else _compgen(option.choices),
    )
    lines += ["  esac", '  case "$at" in']
    lines += [f"    {shlex.quote(each.words)}) {_compgen(_words(each))} ;;" for each in commands]
    return "\n".join([*lines, "  esac", "}", "complete -F _aioprod aioprod", ""])


def _compgen(words: list[str]) -> str:
    return f'COMPREPLY=($(compgen -W {shlex.quote(" ".join(words))} -- "$current"))'


def _value_cases(commands: list[_Command], offer: Callable[[_Option], str]) -> list[str]:
    """Return the cases of options before the cursor, whose values are offered."""
    cases: dict[str, list[str]] = {}
    for command in commands:
        for option in command.options:
            if option.takes_value:
                names = [shlex.quote(f"{command.words}/{name}") for name in option.names]
                cases.setdefault(offer(option), []).extend(names)
    return [f"    {'|'.join(names)}) {values}; return ;;" for values, names in cases.items()]


def _zsh(commands: list[_Command]) -> str:
    lines = [
        "#compdef aioprod",
        "_aioprod() {",
        _walk(commands, '"${(@)words[2,CURRENT-1]}"').rstrip("\n"),
        '  case "$at/${words[CURRENT-1]}" in',
    ]
    lines += _value_cases(
        commands,
        lambda option: (
            "_files" if option.is_file else f"compadd -- {shlex.join(option.choices)}".rstrip()
        ),
    )
    lines += ["  esac", "  local -a found", '  case "$at" in']
    for each in commands:
        meanings = {**each.commands, **dict.fromkeys(each.arguments, "")}
        meanings |= {name: option.meaning for option in each.options for name in option.names}
        found = [f"{name}:{meaning}".rstrip(":") for name, meaning in meanings.items()]
        lines.append(f"    {shlex.quote(each.words)}) found=({shlex.join(found)}) ;;")
    lines += ["  esac", "  _describe aioprod found", "}"]
    # As a file in $fpath the script is the function itself; when it is sourced, it defines it.
    lines.append(
        'if [ "$funcstack[1]" = _aioprod ]; then _aioprod; else compdef _aioprod aioprod; fi'
    )
    return "\n".join([*lines, ""])


def _fish(commands: list[_Command]) -> str:
    known = [shlex.quote(f"{each.words}/{name}") for each in commands for name in each.commands]
    lines = [
        "# fish completion of aioprod",
        "function __aioprod_at",
        "  set -l at",
        "  for word in (commandline -opc)[2..-1]",
        f'    if contains -- "$at/$word" {" ".join(known)}',
        '      set at (string trim -- "$at $word")',
        "    end",
        "  end",
        '  test "$at" = "$argv[1]"',
        "end",
        "complete -c aioprod -f",
    ]
    for each in commands:
        begin = f"complete -c aioprod -n {_fish_text(f'__aioprod_at {_fish_text(each.words)}')}"
        meanings = {**each.commands, **dict.fromkeys(each.arguments, "")}
        for name, meaning in meanings.items():
            lines.append(f"{begin} -a {name} -d {_fish_text(meaning)}")
        for option in each.options:
            names = [
                f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
                for name in option.names
            ]
            value = ["-r -F" if option.is_file else "-x"] if option.takes_value else []
            if option.choices:
                value.append(f"-a {_fish_text(' '.join(option.choices))}")
            lines.append(" ".join([begin, *names, *value, "-d", _fish_text(option.meaning)]))
    return "\n".join([*lines, ""])


def _fish_text(text: str) -> str:
    """Quote for fish, in which a backslash counts within single quotes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
