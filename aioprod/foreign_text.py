"""Makes foreign text safe for errors, logs and terminals: names and texts from brokers, records and
services, and arguments, which may be records.

Such text may be hostile: escape sequences change a terminal, line breaks forge log lines, megabytes
hide everything else, and a server may repeat the password that it received.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from itertools import islice

#: The longest text of a server in an error.
MAX_REASON = 500
_HIDDEN = "***"
_MOST_OF_NAME = 250
_MOST_PARTS = 10
_MOST_BITS = 1024
_BRACKETS: Mapping[type, tuple[str, str]] = {list: ("[", "]"), tuple: ("(", ")")}
_LONG_SECRET = 6
_TIMEDELTA = ("datetime", "timedelta")  # by name: few programs need that module


def escaped(text: str) -> str:
    r"""Return text with an escape, such as ``\x1b``, for each character that is not printable:
    control characters, line breaks, marks that change the direction of text, halves of surrogate
    pairs.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def bounded(text: str, limit: int) -> str:
    """Return the beginning of a long text, and its length."""
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text):,} characters)"


def shown(given: object, depth: int = 2) -> str:
    """Return an argument for an error: names, numbers, and collections of these. Of anything else
    only the type: keys, values and headers of records must not get into a log.
    """
    if isinstance(given, str):
        return repr(bounded(given, _MOST_OF_NAME))
    if isinstance(given, type):
        return f"class {given.__name__}"
    if isinstance(given, int) and given.bit_length() > _MOST_BITS:
        return f"a number of {given.bit_length()} bits"  # Python does not convert it to text
    is_time = (type(given).__module__, type(given).__name__) == _TIMEDELTA
    if given is None or is_time or isinstance(given, int | float):
        return bounded(repr(given), _MOST_OF_NAME)
    if not depth or not isinstance(given, tuple | list | set | frozenset | dict):
        hint = "; int() converts it" if hasattr(type(given), "__index__") else ""  # NumPy's
        return f"<{type(given).__name__}{hint}>"
    names: tuple[str, ...] = vars(type(given)).get("_fields", ())  # of a NamedTuple
    if "value" in names or "key" in names:  # a record
        return f"<{type(given).__name__}>"
    parts = [shown(part, depth - 1) for part in islice(given, _MOST_PARTS)]
    if isinstance(given, dict):
        # Settings and records as dictionaries have passwords and values.
        values = (
            "<str>" if isinstance(part, str) else shown(part, depth - 1) for part in given.values()
        )
        parts = [f"{part}: {value}" for part, value in zip(parts, values, strict=False)]
    if len(given) > _MOST_PARTS:
        parts.append(f"... ({len(given):,} items)")
    before, after = _BRACKETS.get(type(given), ("{", "}"))
    if names:
        parts = [f"{name}={part}" for name, part in zip(names, parts, strict=False)]
        before, after = f"{type(given).__name__}(", ")"
    return f"{before}{', '.join(parts)}{after}"


def nearest(given: str, known: Iterable[str], similarity: float = 0.6) -> str:
    """Return the known name that is most similar to a misspelled one, or ""."""
    import difflib  # for errors only

    return next(iter(difflib.get_close_matches(given, known, 1, similarity)), "")


def fault_of(error: BaseException) -> str:
    """Return the text of an error of a serializer or deserializer, without the data that some texts
    contain: those of Unicode's codecs and of pydantic.
    """
    if isinstance(error, UnicodeEncodeError | UnicodeDecodeError | UnicodeTranslateError):
        return error.reason
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None and isinstance(error, pydantic.ValidationError):
        found = error.errors(include_url=False, include_context=False, include_input=False)
        return "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in found)
    return text_of(error)


def text_of(error: BaseException) -> str:
    """Return the text of an error of user code, whose ``__str__`` may fail, too."""
    return _made(str, error)


def repr_of(error: BaseException) -> str:
    """Return the repr of an error of user code, whose ``__repr__`` may fail, too."""
    return _made(repr, error)


def _made(make: Callable[[object], str], error: BaseException) -> str:
    try:
        return make(error)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as fault:
        return f"<{type(error).__name__}, whose {make.__name__}() raises {type(fault).__name__}>"


def reason_of(said: object, secrets: Iterable[str] = (), limit: int = MAX_REASON) -> str:
    """Return what a server said for an error: short, printable, and without secrets.

    Args:
        said: the server's text; anything else counts as none.
        secrets: texts that must not be in it, as :func:`aioprod.secret_forms.secret_forms` returns.
        limit: the maximum number of characters.
    """
    if not isinstance(said, str):
        return ""
    said = without_secrets(said.strip(), secrets)
    return bounded(escaped(bounded(said, limit)), 2 * limit)


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """Replace secrets by ``***``; a short one as a whole word only."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _LONG_SECRET:
            text = text.replace(secret, _HIDDEN)
        else:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", _HIDDEN, text)
    return text
