"""``aioprod completion``: scripts that complete commands and options in a shell."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator
from typing import NamedTuple

from aioprod.cli.completed_names import KINDS, print_names
from aioprod.cli.output import say
from aioprod.cli.parser import Parser, path

_KINDS_OF = {
    "TOPIC": "topics",
    "--topic": "topics",
    "GROUP": "groups",
    "--group": "groups",
    "--profile": "profiles",
    "--to-profile": "profiles",
}
_NEW_NAMES = ("topics create", "broker")  # these take names that do not exist yet


class _Option(NamedTuple):
    """An option: its names, and its value; ``kind`` is one of :data:`KINDS`, or empty."""

    names: list[str]
    meaning: str
    takes_value: bool
    choices: list[str]
    is_file: bool
    kind: str


class _Command(NamedTuple):
    """A command: its words, such as ``topics create``; the top level has none. Its arguments are
    fixed words, or names of a kind.
    """

    words: str
    commands: dict[str, str]
    options: list[_Option]
    arguments: list[str]
    kind: str


def add_arguments(parser: Parser) -> None:
    """Add the arguments of ``aioprod completion``."""
    parser.description = (
        "Prints a script for a shell. bash: source <(aioprod completion bash). zsh, after "
        "compinit: source <(aioprod completion zsh). fish: aioprod completion fish | source."
    )
    parser.add_argument(
        "shell", nargs="?", choices=list(_SCRIPTS), metavar="{" + ",".join(_SCRIPTS) + "}"
    )
    parser.add_argument(
        "--names", choices=KINDS, help="print names, as the shell's script requests"
    )
    parser.add_argument(
        "--line",
        default="",
        metavar="WORDS",
        help="the words of the command line, one per line, which name the cluster",
    )

    parser.set_defaults(run=_run, parser=parser)


def _run(options: argparse.Namespace) -> int:
    if options.names is not None:
        print_names(options.names, options.line.split("\n"))
        return 0
    parser: Parser = options.parser
    if options.shell is None:
        parser.error(f"name a shell: {', '.join(_SCRIPTS)}")
    say(_SCRIPTS[options.shell](list(_tree(options.whole(), ""))), end="")
    return 0


def _tree(parser: argparse.ArgumentParser, words: str) -> Iterator[_Command]:
    """Yield a command and all commands below it."""
    command = _Command(
        words,
        {},
        [],
        [],
        next(
            (kind for each in parser._actions if (kind := _kind(words, each, of_option=False))), ""
        ),
    )
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
                    action.type is path,
                    _kind(words, action, of_option=True),
                )
            )
        else:
            command.arguments.extend(map(str, action.choices or ()))
    yield command
    for name, each in below.items():
        yield from _tree(each, f"{words} {name}".strip())


def _kind(words: str, action: argparse.Action, *, of_option: bool) -> str:
    """Return the kind of names that an option or argument accepts, if the cluster has them."""
    if bool(action.option_strings) != of_option or words in _NEW_NAMES:
        return ""
    name = action.option_strings[-1] if of_option else str(action.metavar)
    return _KINDS_OF.get(name, "")


def _words(command: _Command) -> list[str]:
    """Return the words that may follow a command."""
    names = [name for option in command.options for name in option.names]
    return [*command.commands, *command.arguments, *names]


# In bash and zsh the function reads the words before the cursor, and keeps those that name
# commands: "$at" is the command. Unknown words are values.
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


# compopt quotes file names; bash 3.2 of macOS does not have it.
_BASH_FILES = (
    "local IFS=$'\\n'; compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- \"$current\"))"
)


# compgen -W would expand its words, and a name such as $(...) must not be expanded.
_BASH_NAMES = r"""_aioprod_names() {
  [[ "$current" == -* ]] && return 1
  local name words
  read -ra words <<< "${COMP_LINE:0:COMP_POINT}"
  COMPREPLY=()
  while IFS= read -r name; do
    [[ "$name" == "$current"* ]] && COMPREPLY+=("$(printf %q "$name")")
  done < <("${words[0]}" completion --names "$1" \
    --line "$(printf '%s\n' "${words[@]}")" 2>/dev/null)
  (( ${#COMPREPLY[@]} ))
}
"""


def _bash(commands: list[_Command]) -> str:
    lines = [
        "# bash completion of aioprod",
        _BASH_NAMES.rstrip("\n"),
        "_aioprod() {",
        '  local current="${COMP_WORDS[COMP_CWORD]}"',
        _walk(commands, '"${COMP_WORDS[@]:1:COMP_CWORD-1}"').rstrip("\n"),
        '  case "$at/${COMP_WORDS[COMP_CWORD-1]}" in',
    ]
    lines += _value_cases(
        commands,
        lambda option: (
            _BASH_FILES
            if option.is_file
            else f"_aioprod_names {option.kind}"
            if option.kind
            else _compgen(option.choices)
        ),
    )
    lines += ["  esac", '  case "$at" in']
    for each in commands:
        named = f"_aioprod_names {each.kind} || " if each.kind else ""
        lines.append(f"    {shlex.quote(each.words)}) {named}{_compgen(_words(each))} ;;")
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


_ZSH_NAMES = r"""_aioprod_names() {
  [[ "${words[CURRENT]}" == -* ]] && return 1
  local line="${(F)words[1,CURRENT]}"
  local -a names
  names=(${(f)"$("${words[1]}" completion --names "$1" --line "$line" 2>/dev/null)"})
  (( $#names )) && compadd -- "${names[@]}"
}
"""


def _zsh(commands: list[_Command]) -> str:
    lines = [
        "#compdef aioprod",
        _ZSH_NAMES.rstrip("\n"),
        "_aioprod() {",
        _walk(commands, '"${(@)words[2,CURRENT-1]}"').rstrip("\n"),
        '  case "$at/${words[CURRENT-1]}" in',
    ]
    lines += _value_cases(
        commands,
        lambda option: (
            "_files"
            if option.is_file
            else f"_aioprod_names {option.kind}"
            if option.kind
            else f"compadd -- {shlex.join(option.choices)}".rstrip()
        ),
    )
    lines += ["  esac", "  local -a found", '  case "$at" in']
    for each in commands:
        meanings = {**each.commands, **dict.fromkeys(each.arguments, "")}
        meanings |= {name: option.meaning for option in each.options for name in option.names}
        found = [f"{name}:{meaning}".rstrip(":") for name, meaning in meanings.items()]
        named = f"_aioprod_names {each.kind} && return; " if each.kind else ""
        lines.append(f"    {shlex.quote(each.words)}) {named}found=({shlex.join(found)}) ;;")
    lines += ["  esac", "  _describe aioprod found", "}"]
    # As a file in $fpath the script is the function itself; when it is sourced, it defines it.
    lines.append(
        'if [ "$funcstack[1]" = _aioprod ]; then _aioprod; else compdef _aioprod aioprod; fi'
    )
    return "\n".join([*lines, ""])


_FISH_NAMES = r"""function __aioprod_names
  set -l words (commandline -opc)
  string match -q -- '-*' (commandline -ct); and return
  set -l line (string join \n -- $words | string collect)
  $words[1] completion --names $argv[1] --line $line 2>/dev/null
end
"""


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
        _FISH_NAMES.rstrip("\n"),
        "complete -c aioprod -f",
    ]
    for each in commands:
        begin = f"complete -c aioprod -n {_fish_text(f'__aioprod_at {_fish_text(each.words)}')}"
        meanings = {**each.commands, **dict.fromkeys(each.arguments, "")}
        for name, meaning in meanings.items():
            lines.append(f"{begin} -a {name} -d {_fish_text(meaning)}")
        if each.kind:
            lines.append(f"{begin} -a '(__aioprod_names {each.kind})'")
        for option in each.options:
            names = [
                f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
                for name in option.names
            ]
            value = ["-r -F" if option.is_file else "-x"] if option.takes_value else []
            if option.kind:
                value.append(f"-a '(__aioprod_names {option.kind})'")
            if option.choices:
                value.append(f"-a {_fish_text(' '.join(option.choices))}")
            lines.append(" ".join([begin, *names, *value, "-d", _fish_text(option.meaning)]))
    return "\n".join([*lines, ""])


def _fish_text(text: str) -> str:
    """Quote for fish, in which a backslash counts within single quotes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
