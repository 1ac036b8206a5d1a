"""Columns of rows as PostgreSQL's array literals: how many rows go into one statement.

The driver's own way to an array looks at every element by itself, in Python: of a commit of 400 claims that took longer than the server needed for all
of it (measured: 50 of 110 ms). Here a column is one join.
"""

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Boolean, Double, Integer, LargeBinary, Text
from sqlalchemy.types import TypeEngine

from hbox_common.errors import Bug

Literal = Callable[[Sequence[Any]], str]

_BETWEEN = "\0"  #: no text of PostgreSQL has it


def literal(of: TypeEngine[Any]) -> Literal:
    """How a column of this type is written as an array."""
    for kind, write in _WRITTEN.items():
        if isinstance(of, kind):
            return write
    raise Bug(f"store: no array of {of!r} is known")


def _texts(values: Sequence[str | None]) -> str:
    there = [value for value in values if value is not None]
    if len(there) < len(values):
        return "{" + ",".join("NULL" if value is None else _texts((value,))[1:-1] for value in values) + "}"
    joined = _BETWEEN.join(there)
    if joined.count(_BETWEEN) != len(there) - 1:
        raise Bug("store: a text with a NUL in it, which PostgreSQL has no place for")
    return '{"' + joined.replace("\\", "\\\\").replace('"', '\\"').replace(_BETWEEN, '","') + '"}'


def _numbers(values: Sequence[float]) -> str:
    return "{" + ",".join(map(repr, values)) + "}"


def _bytes(values: Sequence[bytes]) -> str:
    return '{"\\\\x' + '","\\\\x'.join(map(bytes.hex, values)) + '"}'


#: BigInteger is an Integer.
_WRITTEN: dict[type[TypeEngine[Any]], Literal] = {
    Text: _texts,
    Integer: _numbers,
    Double: _numbers,
    Boolean: _numbers,
    LargeBinary: _bytes,
}
