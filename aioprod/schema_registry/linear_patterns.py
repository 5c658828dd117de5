"""Matches regular expressions in a time that is linear in the length of the text.

A pattern becomes a state machine that is in a set of states at once, and reads each character once.
Each set of states is computed only once; after that, a character takes one dictionary lookup.
Lookahead and lookbehind conditions (``(?=...)``, ``(?<=...)``) are evaluated for all places
beforehand, by separate machines; those for lookahead read the text backwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Sequence as Items
from functools import lru_cache
from typing import Final

from aioprod.schema_registry.pattern_syntax import (
    Chars,
    Choice,
    Look,
    Node,
    Place,
    Repeat,
    Sequence,
    UnsupportedPatternError,
    parse_pattern,
)

Spend = Callable[[int], None]
"""Counts steps; raises ValueError if there are too many."""

_MOST_STATES: Final = 10_000
_MOST_KNOWN: Final = 2_000
_MOST_FOLLOWING: Final = 1_000
_WORD: Final = Chars(((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)))
_LINE_END: Final = frozenset("\n\r\u2028\u2029")


class LinearPattern:
    """A pattern.

    Args:
        pattern: a regular expression of ECMA-262.

    Attributes:
        states: the number of states of its machines.

    Raises:
        UnsupportedPatternError: if it is malformed or too large, or has backreferences or similar
            features.
    """

    def __init__(self, pattern: str) -> None:
        node = parse_pattern(pattern)
        self._conditions: dict[Place | Look, int] = {}
        self._looks: list[tuple[Look, int, _Machine]] = []
        self._number(node)
        self._main = _Machine(node, self._conditions, anchored=_is_anchored(node))
        self._plain = not any(
            isinstance(each, Look) or each.kind not in ("start", "end") for each in self._conditions
        )
        self.states: int = self._main.size + sum(each.size for _, _, each in self._looks)

    def search(self, text: str, spend: Spend | None = None) -> bool:
        """Return whether a part of the text matches."""
        return any(self._main.ends(text, self._masks(text, spend), spend))

    def _number(self, node: Node) -> None:
        """Number the conditions, inner ones first."""
        if isinstance(node, Sequence | Choice):
            for each in node.parts:
                self._number(each)
        elif isinstance(node, Repeat | Look):
            self._number(node.part)
        if isinstance(node, Place | Look) and node not in self._conditions:
            bit = 1 << len(self._conditions)
            self._conditions[node] = bit
            if isinstance(node, Look):
                part = node.part if node.behind else _reversed(node.part)
                self._looks.append((node, bit, _Machine(part, self._conditions, anchored=False)))

    def _masks(self, text: str, spend: Spend | None) -> list[int]:
        """Return the bits of the conditions that are true, for each place."""
        masks = [0] * (len(text) + 1)
        for condition, bit in self._conditions.items():
            if isinstance(condition, Place):
                for place in _places(condition, text):
                    masks[place] |= bit
        for look, bit, machine in self._looks:
            if look.behind:
                found = list(machine.ends(text, masks, spend))
            else:
                found = list(machine.ends(text[::-1], masks[::-1], spend))[::-1]
            for place, is_met in enumerate(found):
                if is_met != look.negated:
                    masks[place] |= bit
        return masks


@lru_cache(maxsize=1_000)
def compiled(pattern: str) -> LinearPattern:
    """Return a compiled pattern from the cache.

    Raises:
        UnsupportedPatternError: see :class:`LinearPattern`; the message names the pattern.
    """
    try:
        return LinearPattern(pattern)
    except UnsupportedPatternError as error:
        raise UnsupportedPatternError(
            f"the schema's pattern {pattern!r} has {error}: change it, or give "
            "limits=DecodingLimits(linear_patterns=False) if all texts are trusted"
        ) from None


def _places(condition: Place, text: str) -> Iterator[int]:
    last = len(text)
    if condition.kind == "start":
        yield 0
    elif condition.kind == "end":
        yield last
    elif condition.kind == "line start":
        yield from (n for n in range(last + 1) if n == 0 or text[n - 1] in _LINE_END)
    elif condition.kind == "line end":
        yield from (n for n in range(last + 1) if n == last or text[n] in _LINE_END)
    else:
        words = [False, *(each in _WORD for each in text), False]
        for place in range(last + 1):
            if (words[place] != words[place + 1]) != condition.negated:
                yield place


def _is_anchored(node: Node) -> bool:
    if isinstance(node, Choice):
        return all(map(_is_anchored, node.parts))
    if isinstance(node, Sequence):
        return bool(node.parts) and _is_anchored(node.parts[0])
    return node == Place("start")


def _reversed(node: Node) -> Node:
    if isinstance(node, Sequence):
        return Sequence(tuple(map(_reversed, reversed(node.parts))))
    if isinstance(node, Choice):
        return Choice(tuple(map(_reversed, node.parts)))
    return Repeat(_reversed(node.part), node.least, node.most) if isinstance(node, Repeat) else node


class _Known:
    """A set of states at a place.

    Attributes:
        moves: the characters that lead on, each with the next state.
        accepts: whether a match ends here.
        following: the next sets, by character, or by character and mask.
    """

    __slots__ = ("accepts", "following", "moves")

    def __init__(self, moves: Items[tuple[Chars, int]], accepts: bool) -> None:
        self.moves = moves
        self.accepts = accepts
        self.following: dict[str | tuple[str, int], _Known] = {}


class _Machine:
    """The states of a pattern. State 0 is the end of a match."""

    def __init__(self, node: Node, conditions: dict[Place | Look, int], *, anchored: bool) -> None:
        self._conditions = conditions
        self._moves: list[tuple[Chars, int] | None] = [None]
        self._jumps: list[list[tuple[int, int]]] = [[]]
        self._anchored = anchored
        self._first = self._build(node, 0)
        self._known: dict[tuple[frozenset[int], int], _Known] = {}
        self.size = len(self._moves)

    def ends(self, text: str, masks: Items[int], spend: Spend | None) -> Iterator[bool]:
        """Yield whether a match ends at each place; stops early if no later one can."""
        if spend is not None:
            spend(len(text) // 32 + 1)
        here = self._at(frozenset((self._first,)), masks[0], spend)
        yield here.accepts
        for place, char in enumerate(text, 1):
            mask = masks[place]
            key = (char, mask) if mask else char
            following = here.following.get(key)
            if following is None:
                following = self._after(here, char, mask, spend)
                if len(here.following) > _MOST_FOLLOWING:
                    here.following = {}
                here.following[key] = following
            here = following
            yield here.accepts
            if not here.moves and self._anchored:
                return

    def _after(self, here: _Known, char: str, mask: int, spend: Spend | None) -> _Known:
        if spend is not None:
            spend(len(here.moves) // 8 + 1)
        states = {target for chars, target in here.moves if char in chars}
        if not self._anchored:
            states.add(self._first)
        return self._at(frozenset(states), mask, spend)

    def _at(self, states: frozenset[int], mask: int, spend: Spend | None) -> _Known:
        """Return the set with all states that jumps lead to."""
        known = self._known.get((states, mask))
        if known is not None:
            return known
        reached = set(states)
        stack = list(states)
        while stack:
            for target, needed in self._jumps[stack.pop()]:
                if needed & mask == needed and target not in reached:
                    reached.add(target)
                    stack.append(target)
        if spend is not None:
            spend(len(reached) // 8 + 1)
        moves = [move for each in reached if (move := self._moves[each]) is not None]
        if len(self._known) >= _MOST_KNOWN:
            self._forget()
        known = self._known[states, mask] = _Known(moves, 0 in reached)
        return known

    def _forget(self) -> None:
        for each in self._known.values():
            each.following = {}
        self._known = {}

    # -- making states -----------------------------------------------------------------------------

    def _new(self, *jumps: tuple[int, int]) -> int:
        if len(self._moves) >= _MOST_STATES:
            raise UnsupportedPatternError(f"more than {_MOST_STATES:,} states")
        self._moves.append(None)
        self._jumps.append(list(jumps))
        return len(self._moves) - 1

    def _build(self, node: Node, target: int) -> int:
        """Return the state from which a match of the node leads to ``target``."""
        if isinstance(node, Chars):
            state = self._new()
            self._moves[state] = (node, target)
            return state
        if isinstance(node, Sequence):
            for each in reversed(node.parts):
                target = self._build(each, target)
            return target
        if isinstance(node, Choice):
            return self._new(*((self._build(each, target), 0) for each in node.parts))
        if isinstance(node, Repeat):
            return self._repeat(node, target)
        return self._new((target, self._conditions[node]))

    def _repeat(self, node: Repeat, target: int) -> int:
        if node.most is None:
            loop = self._new((target, 0))
            self._jumps[loop].append((self._build(node.part, loop), 0))
            target = loop
        else:
            end = target
            for _ in range(node.most - node.least):
                target = self._new((self._build(node.part, target), 0), (end, 0))
        for _ in range(node.least):
            target = self._build(node.part, target)
        return target
