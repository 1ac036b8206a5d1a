"""Statements that are compiled once and then run over rows by the driver.

SQLAlchemy's own path from a statement to the driver (coercions, cache keys, parameters anew at each execution) costs four times what SQLite
needs for the work itself (measured: 0.9 of 1.2 ms a commit of the ledger). What it is good for stays: statements written as expressions,
in the dialect of the database, on its connection and in its transaction, with its errors.

SQLite runs a statement once a row, within the process. PostgreSQL is sent all rows at once, one array a column, and joins with them: row by row they cost
a message and a portal each.
"""

from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import (
    ARRAY,
    BindParameter,
    Connection,
    CursorResult,
    Delete,
    Dialect,
    Insert,
    Update,
    bindparam,
    column,
    func,
    select,
)
from sqlalchemy.sql import visitors
from sqlalchemy.sql.compiler import SQLCompiler

from .arrays import Literal, literal

Rows = Sequence[Mapping[str, Any]]


class Prepared:
    """One INSERT, UPDATE or DELETE. `columns`: what an INSERT or UPDATE sets from its rows, beside the bind parameters written in it.

    `conflict`: what an INSERT does where the key is there, in SQL: `DO NOTHING`. Rows go to the driver as they are: text, numbers, booleans and bytes, no types
    that only SQLAlchemy knows. No two rows of an UPDATE may be about one row of the table: PostgreSQL heeds one of them.
    """

    def __init__(self, statement: Insert | Update | Delete, *, columns: Collection[str] = (), conflict: str = "") -> None:
        self._statement, self._columns = statement, list(columns)
        self._end = f" ON CONFLICT {conflict}" if conflict else ""  # SQLite and PostgreSQL alike
        self._compiled: dict[str, _ByRow | _AtOnce] = {}  #: by dialect

    def run(self, connection: Connection, rows: Rows) -> int:
        """Run it for these rows. Returns how many rows of the database it changed."""
        return self.send(connection, rows).rowcount if rows else 0

    def send(self, connection: Connection, rows: Rows) -> CursorResult[Any]:
        """As `run`, for at least one row. Within a pipeline nothing is known of the result yet."""
        compiled = self._compiled.get(connection.dialect.name) or self._compile(connection.dialect)
        return connection.exec_driver_sql(compiled.text, compiled.parameters(rows))

    def _compile(self, dialect: Dialect) -> "_ByRow | _AtOnce":
        make = _at_once if dialect.name == "postgresql" else _by_row
        compiled = self._compiled[dialect.name] = make(self._statement, self._columns, self._end, dialect)
        return compiled


class _ByRow:
    """Runs once a row."""

    def __init__(self, text: str, order: Sequence[str] | None, fixed: Mapping[str, Any]) -> None:
        self.text = text
        self._order, self._fixed = order, dict(fixed)
        self._pick = itemgetter(*order) if order is not None and len(order) > 1 else None

    def parameters(self, rows: Rows) -> list[Any]:
        whole = [{**self._fixed, **row} for row in rows] if self._fixed else rows
        if self._order is None:
            return list(whole)
        if self._pick is None:
            return [(row[self._order[0]],) for row in whole]
        return [self._pick(row) for row in whole]


class _AtOnce:
    """Runs once for all rows."""

    def __init__(self, text: str, arrays: Mapping[str, Literal], fixed: Mapping[str, Any]) -> None:
        self.text = text
        self._arrays, self._fixed = dict(arrays), dict(fixed)

    def parameters(self, rows: Rows) -> dict[str, Any]:
        return self._fixed | {name: write([row[name] for row in rows]) for name, write in self._arrays.items()}


def _by_row(statement: Insert | Update | Delete, columns: list[str], end: str, dialect: Dialect) -> _ByRow:
    made = statement.compile(dialect=dialect, column_keys=columns or None)
    fixed = {name: value for name, value in made.params.items() if value is not None}
    return _ByRow(str(made) + end, made.positiontup, fixed)


def _at_once(statement: Insert | Update | Delete, columns: list[str], end: str, dialect: Dialect) -> _AtOnce:
    """The same, with `unnest` of arrays in the place of values: INSERT ... SELECT, UPDATE ... FROM, DELETE ... USING."""
    plain = statement.compile(dialect=dialect, column_keys=columns or None)
    assert isinstance(plain, SQLCompiler)
    types = {name: bind.type for name, bind in plain.binds.items() if bind.required}
    arrays = [bindparam(name, type_=ARRAY(of)) for name, of in types.items()]
    given = func.unnest(*arrays).table_valued(*(column(name, of) for name, of in types.items())).render_derived(name="given")

    def replace(element: Any, **_: Any) -> Any:
        return given.c[element.key] if isinstance(element, BindParameter) and element.required else None

    if isinstance(statement, Insert):
        whole: Any = statement.from_select(columns, select(*(given.c[name] for name in columns)))
    else:
        if columns:
            statement = statement.values({name: given.c[name] for name in columns})  # type: ignore[union-attr]
        whole = visitors.replacement_traverse(statement, {}, replace)
    made = whole.compile(dialect=dialect)
    fixed = {name: value for name, value in made.params.items() if name not in types}
    return _AtOnce(str(made) + end, {name: literal(of) for name, of in types.items()}, fixed)
