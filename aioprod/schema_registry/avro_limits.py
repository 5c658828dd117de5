"""Limits on the cost of decoding Avro records.

Each schema is examined once. Most schemas are harmless, since each of their values takes at least
one byte: their records are decoded without a check. If a schema contains itself, or has values
that take no bytes, the bytes of each record are checked first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from aioprod.decoding_limits import DecodingLimits, beyond, too_deep
from aioprod.errors import CorruptRecordError
from aioprod.schema_registry.avro_nodes import AvroNode, all_nodes
from aioprod.varints import read_uvarint, zigzag_decoded

Check = Callable[[bytes, int], None]
"""``(data, start)``: raises ValueError if the data exceed a limit."""

_SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_NUMBERS: Final = frozenset({"int", "long", "enum"})
_CONTAINERS: Final = frozenset({"record", "array", "map"})
_HARMLESS: Final = 16
"""This many values without bytes per byte of a record are harmless."""
_MANY: Final = 1 << 62
_MOST_ROUNDS: Final = 100
_LONGEST_VARINT: Final = 70  # bits, in ten bytes


class _Type:
    """A type, with what the check needs to know.

    Attributes:
        kind: Avro's name; or "fixed" for all types of a fixed size, "number" for varints, "bytes"
            for types with a length, "entry" for the entries of a map.
        parts: the types of the fields, branches or items.
        least: the fewest bytes of a value.
        free: the number of values without bytes in each value.
        depth: the number of nested containers in each value; 0 if the type contains itself.
    """

    __slots__ = ("depth", "free", "kind", "least", "parts")

    def __init__(self, kind: str, least: int, parts: Iterable[_Type] = ()) -> None:
        self.kind = kind
        self.parts = list(parts)
        self.least = least
        self.free = int(not least)
        self.depth = int(kind in _CONTAINERS)

    def measure(self) -> bool:
        """Compute ``least`` and ``free``. Return whether they have changed."""
        before = self.least, self.free
        if self.kind in ("record", "entry"):
            self.least = min(_MANY, sum(each.least for each in self.parts))
            free = sum(each.free for each in self.parts if not each.least)
            self.free = min(_MANY, free + (not self.least))
        elif self.kind == "union":
            self.least = min(_MANY, 1 + min((each.least for each in self.parts), default=_MANY))
        return before != (self.least, self.free)


def check_of(node: AvroNode, limits: DecodingLimits) -> Check | None:
    """Return a function that checks the records of a schema; None if none can exceed a limit.

    Raises:
        ValueError: if the records of the schema are infinite.
    """
    types = {id(each): _type_of(each) for each in all_nodes(node)}
    entries = []
    for each in all_nodes(node):
        kind = types[id(each)]
        if each.kind == "map":
            kind.parts = [_Type("entry", _MANY, (_Type("bytes", 1), types[id(each.item)]))]
            entries += kind.parts
        elif each.kind == "array":
            kind.parts = [types[id(each.item)]]
        else:
            below = [field.node for field in each.fields] or each.branches
            kind.parts = [types[id(part)] for part in below]
    every = [*types.values(), *entries]
    is_recursive = _measure(every)
    root = types[id(node)]
    if is_recursive or root.depth > limits.max_depth or any(map(_gives_much, every)):
        return lambda data, start: _Walk(data, start, limits).over(root)
    return None


def _type_of(node: AvroNode) -> _Type:
    if node.kind in _SIZES or node.kind == "fixed":
        return _Type("fixed", _SIZES.get(node.kind, min(node.size, _MANY - 1)))
    if node.kind in ("record", "union"):
        return _Type(node.kind, _MANY)
    if node.kind in ("array", "map"):
        return _Type(node.kind, 1)
    return _Type("number" if node.kind in _NUMBERS else "bytes", 1)


def _measure(types: list[_Type]) -> bool:
    """Measure all types, parts first. Return whether a type contains itself.

    Raises:
        ValueError: if every value of a type contains another value of this type.
    """
    users: dict[int, list[_Type]] = {}
    missing = {id(each): len(each.parts) for each in types}
    for each in types:
        for part in each.parts:
            users.setdefault(id(part), []).append(each)
            missing.setdefault(id(part), 0)  # the keys of maps
    ready = [each for each in types if not each.parts]
    ready += [part for each in types for part in each.parts if part.kind == "bytes"]
    done: set[int] = set()
    while ready:
        kind = ready.pop()
        if id(kind) in done:
            continue
        done.add(id(kind))
        kind.measure()
        kind.depth += max((part.depth for part in kind.parts), default=0)
        for user in users.get(id(kind), ()):
            missing[id(user)] -= 1
            if not missing[id(user)]:
                ready.append(user)
    endless = [each for each in types if id(each) not in done]
    for _ in range(_MOST_ROUNDS):
        if not sum(each.measure() for each in endless):
            break
    else:
        raise ValueError("the types of the schema are nested too deeply")
    if any(each.least >= _MANY for each in types):
        raise ValueError("a type of the schema always contains itself, so its records are infinite")
    return bool(endless)


def _gives_much(kind: _Type) -> bool:
    if kind.kind == "array":
        return kind.parts[0].least == 0
    return kind.free > _HARMLESS * max(1, kind.least)


class _Walk:
    """Walks through the bytes of a record, without recursion."""

    def __init__(self, data: bytes, start: int, limits: DecodingLimits) -> None:
        self._data = data
        self._place = start
        self._limits = limits
        self._empty = 0

    def over(self, root: _Type) -> None:
        """Check a record.

        Raises:
            ValueError: if it exceeds a limit, or is truncated.
        """
        stack = [(root, 1, 0)]
        max_depth = self._limits.max_depth
        while stack:
            kind, count, depth = stack.pop()
            name = kind.kind
            if name == "fixed":
                self._pass(kind.least * count)
                continue
            if count > 1:
                stack.append((kind, count - 1, depth))
            if name == "number":
                self._number()
            elif name == "bytes":
                self._pass(self._number())
            elif name == "union":
                place = self._number()
                if not 0 <= place < len(kind.parts):
                    raise ValueError(f"no branch {place} in a union")
                stack.append((kind.parts[place], 1, depth))
            else:
                depth += name in _CONTAINERS
                if depth > max_depth:
                    raise too_deep(max_depth)
                if name == "array" or name == "map":
                    self._block(kind, stack, depth)
                else:
                    self._without_bytes(kind.free)
                    stack += [(each, 1, depth) for each in reversed(kind.parts) if each.least]

    def _block(self, kind: _Type, stack: list[tuple[_Type, int, int]], depth: int) -> None:
        count = self._number()
        if count < 0:
            count = -count
            if self._number() < 0:
                raise ValueError(f"a block of an {kind.kind} has a negative size")
        if not count:
            return
        (items,) = kind.parts
        stack.append((kind, 1, depth - 1))
        if not items.least:
            self._without_bytes(count * max(1, items.free))
        elif count * items.least > len(self._data) - self._place:
            raise _cut_short()
        else:
            stack.append((items, count, depth))

    def _without_bytes(self, count: int) -> None:
        self._empty += count
        if self._empty > self._limits.max_empty_values:
            raise beyond("values without bytes", "max_empty_values", self._limits.max_empty_values)

    def _pass(self, size: int) -> None:
        if not 0 <= size <= len(self._data) - self._place:
            raise _cut_short()
        self._place += size

    def _number(self) -> int:
        try:
            number, self._place = read_uvarint(self._data, self._place, _LONGEST_VARINT)
        except (IndexError, CorruptRecordError):
            raise _cut_short() from None
        return zigzag_decoded(number)


def _cut_short() -> ValueError:
    return ValueError("the Avro data is truncated, or contains wrong lengths")
