"""Split JSON text into its top-level objects, in bounded memory.

A `.json` file may hold one object, an array of objects, or one object after another. The objects
are found by their brackets; nothing is parsed here, and an object that is too long is skipped.
"""

import json
import re
from collections.abc import Iterable, Iterator

from data_prep.reading.lines import LONGEST_BYTES

# A string up to its end, or up to the end of the data; possessive, so that no input is quadratic.
STRING_REST = rb'[^"\\]*+(?:\\.[^"\\]*+)*+(?:(")|(\\)?\Z)'
REST = re.compile(STRING_REST, re.DOTALL)
TOKEN = re.compile(rb'"' + STRING_REST + rb"|[{}\[\]]", re.DOTALL)
BETWEEN = re.compile(rb"[\s,\[\]]*")  # what may stand between objects

Span = tuple[int, bytes | None]


def is_lines(first_line: bytes) -> bool:
    """Return True if the first line of a file is an object, so that the file is JSON Lines."""
    try:
        return isinstance(json.loads(first_line), dict)
    except (ValueError, RecursionError):
        return False


def split_objects(blocks: Iterable[bytes]) -> Iterator[Span]:
    """Yield (offset, bytes) of each top-level object, also of those inside one outer array.

    The bytes are None for what is not an object: text between objects, an object longer than
    LONGEST_BYTES, or one that the end of the text cuts off.
    """
    objects = _Objects()
    for block in blocks:
        yield from objects.feed(block)
    yield from objects.close()


class _Objects:
    """The state between two blocks: the bytes of the object that is open, and its depth."""

    def __init__(self) -> None:
        self._data = b""  # bytes that are still needed
        self._offset = 0  # of `_data` in the text
        self._start = 0  # place in `_data` of the open object, or of what follows the last one
        self._place = 0  # place in `_data` up to which it was scanned
        self._depth = 0  # of brackets, with the object's own; 0 between objects
        self._in_string = False
        self._is_long = False

    def feed(self, block: bytes) -> Iterator[Span]:
        """Yield the objects that end in the next block."""
        self._data += block
        while (bracket := self._next_bracket()) is not None:
            if self._depth == 0 and bracket in b"[]":
                continue  # the outer array
            if self._depth == 0:
                yield from self._between(self._place - 1)
                self._depth = 1
            elif bracket in b"{[":
                self._depth += 1
            else:
                self._depth -= 1
                if self._depth == 0:
                    yield from self._object()
        if self._depth == 0:
            yield from self._between(self._place)
        self._is_long |= self._place - self._start > LONGEST_BYTES
        self._forget(self._place if self._is_long else self._start)

    def close(self) -> Iterator[Span]:
        """Yield a fault if the text ended inside an object."""
        if self._depth or self._in_string:
            yield self._offset + self._start, None

    def _next_bracket(self) -> bytes | None:
        """Advance past the next bracket that is not in a string and return it, or None."""
        if self._in_string:
            self._end_string(REST.match(self._data, self._place))
        while not self._in_string:
            found = TOKEN.search(self._data, self._place)
            if found is None:
                self._place = len(self._data)
                return None
            if found[0][:1] != b'"':
                self._place = found.end()
                return found[0]
            self._end_string(found)
        return None

    def _end_string(self, found: re.Match[bytes] | None) -> None:
        assert found is not None, "the pattern matches any text"
        self._in_string = found[1] is None
        # A backslash at the end of the data escapes a character that is still to come.
        self._place = found.end() - (found[2] is not None)

    def _object(self) -> Iterator[Span]:
        whole = None if self._is_long else self._data[self._start : self._place]
        yield self._offset + self._start, whole
        self._start, self._is_long = self._place, False

    def _between(self, place: int) -> Iterator[Span]:
        """Pass the text before `place`; yield a fault if it is more than commas and brackets."""
        if BETWEEN.fullmatch(self._data, self._start, place) is None:
            yield self._offset + self._start, None
        self._start = place

    def _forget(self, count: int) -> None:
        self._data = self._data[count:]
        self._offset += count
        self._place -= count
        self._start -= count  # negative for an object that is too long to be kept
