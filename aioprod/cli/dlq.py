"""``aioprod dlq``."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from aioprod.cli.client import (
    CommandError,
    add_registry_option,
    command,
    registry_of,
    settings_of_any_client,
)
from aioprod.cli.confirm import add_confirmation, check_can_ask, confirmed
from aioprod.cli.output import note, say, show, table
from aioprod.cli.parser import (
    Commands,
    Parser,
    bytes_of,
    name_choices,
    positive_float,
    positive_int,
)
from aioprod.cli.reset_offsets import timestamp
from aioprod.counts import counted
from aioprod.foreign_text import bounded, escaped

if TYPE_CHECKING:
    from aioprod.processing.dead_letters import (
        DeadLetter,
        DeadLetterKind,
        Redrive,
        Selection,
    )

_MOST_CELL = 60
_LISTED = 100


def add_arguments(parser: Parser) -> None:
    """Add the arguments of ``aioprod dlq``."""
    actions = parser.add_subparsers(dest="action", required=True, parser_class=Parser)
    _add_list(actions)
    _add_show(actions)
    _add_redrive(actions)
    _add_drop(actions)
    name_choices(actions)


def _add_list(actions: Commands[Parser]) -> None:
    parser = actions.add_parser(
        "list", help="print the dead letters of a topic, one per line", allow_abbrev=False
    )
    parser.add_argument("topic", metavar="TOPIC")
    _add_selection(parser)
    parser.add_argument(
        "--pending",
        action="store_true",
        help="only those that redrive has not sent again, and drop has not dropped",
    )
    _add_group(parser, "with --pending: the group whose offsets say what is done")
    parser.add_argument(
        "-n",
        "--count",
        type=positive_int,
        default=_LISTED,
        metavar="N",
        help="end after this many (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, a line for each")
    command(parser, _list)


def _add_show(actions: Commands[Parser]) -> None:
    parser = actions.add_parser(
        "show",
        help="print one dead letter: origin, error, headers, key and value",
        allow_abbrev=False,
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "place", type=_place, metavar="PARTITION:OFFSET", help="its place, as list prints it"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_registry_option(
        parser, "decode the value by the schema id that it begins with (extra schema-registry)"
    )
    command(parser, _show)


def _add_redrive(actions: Commands[Parser]) -> None:
    parser = actions.add_parser(
        "redrive",
        help="send dead letters to their topics again, exactly once",
        description="Sends dead letters to their original topics again, up to the end offsets as "
        "of the start. Each is sent once, however often the command is killed and repeated, and "
        "whatever the selections are.",
        allow_abbrev=False,
    )
    parser.add_argument("topic", metavar="TOPIC")
    _add_selection(parser)
    parser.add_argument(
        "--to-topic",
        metavar="NAME",
        help="send all of them to this topic, by key (default: the original topic and partition)",
    )
    parser.add_argument(
        "--max-redrives",
        type=positive_int,
        default=3,
        metavar="N",
        help="leave out records that were sent again N times (default: %(default)s)",
    )
    parser.add_argument(
        "--rate", type=positive_float, metavar="N", help="send at most N records in a second"
    )
    parser.add_argument(
        "--follow",
        action="store_true",
        help="continue with dead letters that are written after the start, until Ctrl-C",
    )
    _add_progress(parser)
    add_confirmation(parser)
    command(parser, _redrive)


def _add_drop(actions: Commands[Parser]) -> None:
    parser = actions.add_parser(
        "drop",
        help="mark dead letters as done, and delete what is done",
        description="Marks dead letters as done, so that redrive leaves them out. Then deletes, at "
        "the beginning of each partition, the records before the first one that is neither "
        "dropped nor redriven: Kafka can delete no others.",
        allow_abbrev=False,
    )
    parser.add_argument("topic", metavar="TOPIC")
    _add_selection(parser)
    _add_progress(parser)
    add_confirmation(parser)
    command(parser, _drop)


def _add_selection(parser: Parser) -> None:
    chosen = parser.add_argument_group("which dead letters", "those that meet all conditions")
    chosen.add_argument(
        "--error",
        default="",
        metavar="TEXT",
        help="the class or the message of the error contains this",
    )
    chosen.add_argument(
        "--since",
        type=timestamp,
        metavar="TIME",
        help="written to TOPIC at this time or later, such as 2026-01-31T08:00:00Z",
    )
    chosen.add_argument("--until", type=timestamp, metavar="TIME", help="written before this time")
    chosen.add_argument("--key", metavar="TEXT", help="with this key")
    chosen.add_argument("--original-topic", metavar="TOPIC", help="from this topic")


def _add_group(parser: Parser, meaning: str) -> None:
    parser.add_argument(
        "--group", metavar="GROUP", help=f"{meaning} (default: aioprod-redrive-TOPIC)"
    )


def _add_progress(parser: Parser) -> None:
    _add_group(parser, "the group whose offsets say what is done, and the transactional id")
    parser.add_argument(
        "--new",
        action="store_true",
        help="dead letters older than a week were not redriven before: of those the group may have "
        "lost its offsets",
    )


def _place(text: str) -> tuple[int, int]:
    partition, colon, offset = text.partition(":")
    if not (colon and partition.isdecimal() and offset.isdecimal()):
        raise argparse.ArgumentTypeError(f"must be PARTITION:OFFSET, such as 0:15, not {text!r}")
    return int(partition), int(offset)


def _selection(options: argparse.Namespace, max_redrives: int | None) -> Selection:
    from aioprod.processing.dead_letters import Selection

    return Selection(
        options.error,
        options.since,
        options.until,
        None if options.key is None else bytes_of(options.key),
        options.original_topic,
        max_redrives,
    )


# -- list and show ---------------------------------------------------------------------------------


async def _list(options: argparse.Namespace) -> int:
    from contextlib import aclosing

    from aioprod.processing.dead_letters import read_dead_letters

    found: list[DeadLetter] = []
    letters = read_dead_letters(
        options.topic,
        selection=_selection(options, None),
        pending=options.pending,
        group_id=options.group,
        **settings_of_any_client(options),
    )
    async with aclosing(letters):
        async for letter in letters:
            if len(found) == options.count:
                note(f"more than {counted(options.count, 'dead letter')}: give --count")
                break
            found.append(letter)
            if options.json:
                show(_to_json(letter), indent=None)
    if not options.json:
        say(table([_COLUMNS, *map(_row, found)]))
    return 0


_COLUMNS = ("PLACE", "TIME", "FORMAT", "FROM", "ATTEMPTS", "REDRIVES", "KEY", "ERROR")


def _row(letter: DeadLetter) -> tuple[object, ...]:
    record = letter.record
    error = ": ".join(part for part in (letter.error, letter.message) if part)
    return (
        f"{record.partition}:{record.offset}",
        _time(record.timestamp),
        letter.format or None,
        _origin(letter),
        letter.attempts if letter.attempts is not None else letter.delivery_count,
        letter.redrives,
        None if letter.key is None else _cell(letter.key.decode(errors="backslashreplace")),
        _cell(error) or None,
    )


def _cell(text: str) -> str:
    return bounded(escaped(text), _MOST_CELL)


def _origin(letter: DeadLetter) -> str | None:
    if letter.original_topic is None:
        return None
    partition, offset = letter.original_partition, letter.original_offset
    return f"{letter.original_topic}-{partition}:{offset}".replace("None", "?")


def _time(timestamp_ms: int | None) -> str | None:
    if timestamp_ms is None:
        return None
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(" ", "seconds")[:19] + "Z"
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)


def _to_json(letter: DeadLetter) -> dict[str, object]:
    import json

    from aioprod.cli.formats import json_lines

    record = letter.record._replace(key=letter.key, value=letter.value, headers=letter.headers)
    fields: dict[str, object] = json.loads(json_lines([record]))
    return {
        **fields,
        "format": letter.format or None,
        "original_topic": letter.original_topic,
        "original_partition": letter.original_partition,
        "original_offset": letter.original_offset,
        "original_timestamp": letter.original_timestamp,
        "group": letter.group_id or None,
        "error": letter.error or None,
        "message": letter.message or None,
        "attempts": letter.attempts,
        "delivery_count": letter.delivery_count,
        "redrives": letter.redrives,
        "missing": letter.missing,
    }


async def _show(options: argparse.Namespace) -> int:
    from aioprod.processing.dead_letters.reading import read_dead_letter

    partition, offset = options.place
    letter = await read_dead_letter(
        options.topic, partition, offset, **settings_of_any_client(options)
    )
    if letter is None:
        raise CommandError(f"{options.topic}-{partition} has no record at offset {offset}")
    async with registry_of(options) as registry:
        if registry is not None and letter.value is not None:
            letter = await _decoded(letter, registry)
    fields = _to_json(letter)
    if options.json:
        show(fields)
        return 0
    headers: Any = fields.pop("headers", [])
    lines = [(name.replace("_", " "), value) for name, value in fields.items() if value is not None]
    lines += [(f"header {name}", value) for name, value in headers]
    width = max(len(str(name)) for name, _ in lines)
    for name, value in lines:
        if str(name).endswith("timestamp") and isinstance(value, int):
            value = _time(value)
        text = value if isinstance(value, str) else _as_text(value)
        say(f"{escaped(str(name)):<{width}}  {escaped(text)}")
    return 0


def _as_text(value: object) -> str:
    from aioprod.cli.output import encode_json

    return encode_json(value)


async def _decoded(letter: DeadLetter, registry: Any) -> DeadLetter:
    from aioprod.cli.registry import deserializers
    from aioprod.errors import DeserializationError
    from aioprod.preparation import NotPrepared

    decode: Any = deserializers(registry, "value")["value_deserializer"]
    topic = letter.original_topic or letter.record.topic
    for _ in range(3):
        try:
            return letter._replace(value=decode(topic, letter.headers, letter.value))
        except NotPrepared as needed:
            await needed.prepare()
            if needed.error is not None:
                raise needed.error from None
        except (ValueError, DeserializationError) as error:
            note(f"the value can't be decoded: {error}")
            break
    return letter


# -- redrive and drop ------------------------------------------------------------------------------


async def _redrive(options: argparse.Namespace) -> int:
    check_can_ask(options)
    selection = _selection(options, options.max_redrives)
    if not options.yes:
        counts = await _of(options, selection).plan(new=options.new or options.dry_run)
        plan = _plan(counts, options.to_topic)
        question = f"send {counted(_selected(counts), 'record')} again"
        if not await confirmed(options, plan, question):
            return 0
    redrive = _of(options, selection)
    try:
        counts = await redrive.run(follow=options.follow, new=options.new)
    finally:
        note(f"sent {counted(redrive.records_sent, 'record')} again")
    _note_left_out(counts)
    return 0


async def _drop(options: argparse.Namespace) -> int:
    check_can_ask(options)
    selection = _selection(options, None)
    if not options.yes:
        counts = await _of(options, selection).plan(new=True)
        question = f"drop {counted(_selected(counts), 'record')}"
        if not await confirmed(options, _plan(counts, "(none)"), question):
            return 0
    redrive = _of(options, selection)
    counts = await redrive.drop(new=options.new)
    deleted = counted(redrive.offsets_deleted, "offset")
    note(f"dropped {counted(_selected(counts), 'record')}, deleted {deleted}")
    return 0


def _of(options: argparse.Namespace, selection: Selection) -> Redrive:
    from aioprod.processing.dead_letters import Redrive

    return Redrive(
        options.topic,
        selection=selection,
        to_topic=getattr(options, "to_topic", None),
        group_id=options.group,
        max_records_per_s=getattr(options, "rate", None),
        **settings_of_any_client(options),
    )


def _selected(counts: Counter[DeadLetterKind]) -> int:
    return sum(number for kind, number in counts.items() if kind.verdict == "selected")


def _plan(counts: Counter[DeadLetterKind], to_topic: str | None) -> list[tuple[object, ...]]:
    rows: Iterable[tuple[object, ...]] = (
        (
            number,
            kind.verdict,
            kind.original_topic,
            (to_topic or kind.original_topic) if kind.verdict == "selected" else None,
            _cell(kind.error) or None,
        )
        for kind, number in counts.most_common()
    )
    return [("RECORDS", "STATE", "FROM", "TO", "ERROR"), *rows]


def _note_left_out(counts: Counter[DeadLetterKind]) -> None:
    reasons = {
        "too often": "sent again as often as --max-redrives allows",
        "no origin": "without an original topic: give --to-topic",
        "missing": "of share groups, whose content is deleted",
    }
    for verdict, reason in reasons.items():
        number = sum(each for kind, each in counts.items() if kind.verdict == verdict)
        if number:
            note(f"left out {counted(number, 'record')} {reason}")
