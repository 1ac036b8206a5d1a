"""Values in PostgreSQL's input format: single ones, and a whole column as an array; as text, and bytes in binary.

The driver converts each element of an array in Python: for a commit of 400 claims that took longer than the server needed for the whole commit (measured: 50 of
110 ms). Here a column is one join. The server would have to convert bytes from hexadecimal digits: for a commit with messages of 300 KiB that took 3 of its 25
ms.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Boolean, Double, Integer, LargeBinary, Text
from sqlalchemy.types import TypeEngine

from hbox_common.errors import Bug

_BETWEEN = "\0"  #: no text of PostgreSQL has it


@dataclass(frozen=True, slots=True)
class Literal:
    """How values of one type are written: bytes are in PostgreSQL's binary format, a str is text."""

    one: Callable[[Any], str | bytes]
    many: Callable[[Sequence[Any]], str | bytes]


def literal(of: TypeEngine[Any]) -> Literal:
    """How a column of this type is written."""
    for kind, write in _WRITTEN.items():
        if isinstance(of, kind):
            return write
    raise Bug(f"store: {of!r} has no writer")


def _text(value: str) -> str:
    if _BETWEEN in value:
        raise Bug("store: a text with a NUL in it, which PostgreSQL has no place for")
    return value


def _texts(values: Sequence[str | None]) -> str:
    there = [value for value in values if value is not None]
    if len(there) < len(values):
        return "{" + ",".join("NULL" if value is None else _texts((value,))[1:-1] for value in values) + "}"
    joined = _BETWEEN.join(there)
    if joined.count(_BETWEEN) != len(there) - 1:
        _text(joined)
    return '{"' + joined.replace("\\", "\\\\").replace('"', '\\"').replace(_BETWEEN, '","') + '"}'


def _numbers(values: Sequence[float]) -> str:
    return "{" + ",".join(map(repr, values)) + "}"


def _body(value: bytes) -> bytes:
    return value


#: Of an array: dimensions, whether there are NULLs, type of the elements, how many, number of the first. Before each element its length.
_ARRAY, _LENGTH = struct.Struct("!iiIii"), struct.Struct("!i")
_BYTEA = 17


def _bodies(values: Sequence[bytes]) -> bytes:
    return _ARRAY.pack(1, 0, _BYTEA, len(values), 1) + b"".join([_LENGTH.pack(len(value)) + value for value in values])


#: BigInteger is an Integer.
_WRITTEN: dict[type[TypeEngine[Any]], Literal] = {
    Text: Literal(_text, _texts),
    Integer: Literal(repr, _numbers),
    Double: Literal(repr, _numbers),
    Boolean: Literal(repr, _numbers),
    LargeBinary: Literal(_body, _bodies),
}
