"""Rows of a JSON list while it is received. Memory holds one row and one chunk, regardless of the list's length.

Two shapes are read: a bare list, and an object with the list under `data` and a few more numbers (UFM's pages). Between chunks other tasks of the event loop
run, so that no answer blocks the service.
"""

import asyncio
import codecs
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hbox_common.errors import Unavailable

#: Maximum bytes of a row, or of a value next to the list.
MAX_VALUE = 1 << 20
_BLANKS = re.compile(r"[ \t\r\n]*")
_DECODE = json.JSONDecoder()


@dataclass(slots=True)
class Rows:
    """The numbers and short strings next to the list; `wrapped`: whether an object contained the list."""

    fields: dict[str, int | str] = field(default_factory=dict)
    wrapped: bool = False
    listed: bool = False  #: there was a list at all
    count: int = 0


async def read_rows(chunks: AsyncIterator[bytes], take: Callable[[Mapping[str, Any]], None]) -> Rows:
    """Hands every object of the list to `take`, as it comes. Raises Unavailable where it is no such JSON, or ends early."""
    reading = _Reading(take)
    utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
    async for chunk in chunks:
        reading.feed(utf8.decode(chunk))
        await asyncio.sleep(0)
    reading.feed(utf8.decode(b"", final=True))
    return reading.end()


class _Reading:
    """A state for each place where the text may be cut: at the start, at a key, at a value, in the list, behind the end."""

    def __init__(self, take: Callable[[Mapping[str, Any]], None]) -> None:
        self._take = take
        self._text, self._at = "", 0
        self._state: Callable[[], bool] = self._start
        self._key = ""
        self.rows = Rows()

    def feed(self, text: str) -> None:
        self._text = self._text[self._at :] + text
        self._at = 0
        while self._skip() and self._state():
            pass
        if len(self._text) - self._at > MAX_VALUE and self._state != self._done:
            raise Unavailable(f"the answer has a value of more than {MAX_VALUE} characters")

    def end(self) -> Rows:
        if self._state != self._done:
            raise Unavailable("the answer ends in the middle")
        return self.rows

    def _skip(self) -> bool:
        """Blanks. Returns whether there is anything behind them."""
        found = _BLANKS.match(self._text, self._at)
        assert found is not None
        self._at = found.end()
        return self._at < len(self._text)

    def _start(self) -> bool:
        match self._text[self._at]:
            case "[":
                self._state, self.rows.listed = self._row, True
            case "{":
                self._state, self.rows.wrapped = self._name, True
            case "<":
                raise Unavailable("the answer is a page of HTML, as of a login", hint="is the base path right, and the login?")
            case _:
                raise Unavailable("the answer is no JSON")
        self._at += 1
        return True

    def _row(self) -> bool:
        """In the list, before a row or its end."""
        char = self._text[self._at]
        if char == "]":
            self._at += 1
            self._state = self._next if self.rows.wrapped else self._done
            return True
        if char == ",":
            self._at += 1
            return True
        value, known = self._value()
        if not known:
            return False
        if not isinstance(value, dict):
            raise Unavailable("the answer is no list of objects")
        self.rows.count += 1
        self._take(value)
        return True

    def _name(self) -> bool:
        char = self._text[self._at]
        if char == "}":
            self._at += 1
            self._state = self._done
            return True
        key, known = self._value()
        if not known:
            return False
        self._key, self._state = str(key), self._colon
        return True

    def _colon(self) -> bool:
        if self._text[self._at] != ":":
            raise Unavailable("the answer is no JSON")
        self._at += 1
        self._state = self._outside_list
        return True

    def _outside_list(self) -> bool:
        if self._key == "data" and self._text[self._at] == "[":
            self._at += 1
            self._state, self.rows.listed = self._row, True
            return True
        value, known = self._value()
        if not known:
            return False
        if len(self.rows.fields) < 64 and isinstance(value, int | str) and len(self._key) + len(str(value)) < 256:
            self.rows.fields[self._key] = value
        self._state = self._next
        return True

    def _next(self) -> bool:
        """In the object, behind a value."""
        char = self._text[self._at]
        if char not in ",}":
            raise Unavailable("the answer is no JSON")
        self._at += 1
        self._state = self._name if char == "," else self._done
        return True

    def _done(self) -> bool:
        raise Unavailable("the answer continues after its end")

    def _value(self) -> tuple[Any, bool]:
        """The value that begins here; False where its end has not come yet."""
        text = self._text
        try:
            value, end = _DECODE.raw_decode(text, self._at)
        except (ValueError, RecursionError) as e:
            if isinstance(e, RecursionError) or text[self._at] not in '[{"-0123456789tfnNI':
                raise Unavailable("the answer is no JSON") from e
            return None, False
        if isinstance(value, int | float) and (end == len(text) or text[end] not in ",]} \t\r\n"):
            return None, False  # it may go on
        self._at = end
        return value, True
