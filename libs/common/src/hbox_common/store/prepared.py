"""Statements that are compiled once and then run over rows by the driver.

SQLAlchemy's own path from a statement to the driver (coercions, cache keys, parameters anew at each execution) costs four times what SQLite
needs for the work itself (measured: 0.9 of 1.2 ms a commit of the ledger). What it is good for stays: statements written as expressions,
in the dialect of the database, on its connection and in its transaction.

SQLite runs a statement once a row, within the process. PostgreSQL is sent all rows at once, one array a column, and joins with them: row by row they cost
a message and a portal each.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, cast

from sqlalchemy import (
    ARRAY,
    BindParameter,
    Connection,
    Delete,
    Dialect,
    Insert,
    Update,
    bindparam,
    column,
    func,
    select,
)
from sqlalchemy import cast as sql_cast
from sqlalchemy.dialects.postgresql.base import PGDialect
from sqlalchemy.sql import visitors
from sqlalchemy.sql.compiler import SQLCompiler

from .literals import Literal, literal

Rows = Sequence[Mapping[str, Any]] | Sequence[tuple[Any, ...]]


@dataclass(slots=True)
class Sent:
    """A statement that was run, or is under way. `changed`: how many rows of the database it changed; None = not known, or never run."""

    changed: int | None = None


class Prepared:
    """One INSERT, UPDATE or DELETE. `columns`: set by an INSERT or UPDATE from its rows, in addition to the bind parameters written in it.

    Rows are mappings by these names; those of an INSERT may be tuples too, in the order of `columns`: many rows of many columns cost half as much.

    `conflict`: what an INSERT does where the key is there, in SQL: `DO NOTHING`. Rows hold text, numbers, booleans and bytes, no types that only SQLAlchemy
    knows; constants stand in the statement as SQL (`false()`). No two rows of an UPDATE may be about one row of the table: PostgreSQL heeds one of them.
    """

    def __init__(self, statement: Insert | Update | Delete, *, columns: Collection[str] = (), conflict: str = "") -> None:
        self._statement, self._columns = statement, list(columns)
        self._end = f" ON CONFLICT {conflict}" if conflict else ""  # SQLite and PostgreSQL alike
        self._by_row: _ByRow | None = None
        self._numbered: tuple[_Numbered, _Numbered] | None = None

    def each(self, connection: Connection, rows: Rows) -> Sent:
        """Run it once a row, on SQLite."""
        if self._by_row is None:
            self._by_row = _by_row(self._statement, self._columns, self._end, connection.dialect)
        return Sent(connection.exec_driver_sql(self._by_row.text, self._by_row.parameters(rows)).rowcount)

    def numbered(self, rows: Rows) -> tuple[str, list[str | bytes | None]]:
        """The statement for all these rows, at least one, as PostgreSQL's protocol has it: with `$1` and so on, and their values as it reads them."""
        if self._numbered is None:
            given = self._statement, self._columns, self._end
            self._numbered = _of_one(*given), _of_many(*given)
        one, many = self._numbered
        values = _by_name(rows, self._columns)
        if len(rows) == 1:
            return one.text, [None if (v := values[name][0]) is None else write.one(v) for name, write in one.values]
        return many.text, [write.many(values[name]) for name, write in many.values]


class _ByRow:
    def __init__(self, text: str, order: Sequence[str]) -> None:
        self.text, self._order = text, order
        self._pick = itemgetter(*order) if len(order) > 1 else None

    def parameters(self, rows: Rows) -> Sequence[Any]:
        if isinstance(rows[0], tuple):
            return rows
        if self._pick is None:
            return [(row[self._order[0]],) for row in cast("Sequence[Mapping[str, Any]]", rows)]
        return list(map(self._pick, rows))


class _Numbered:
    """`values`: the expressions of `$1` and so on."""

    def __init__(self, text: str, values: Sequence[tuple[str, Literal]]) -> None:
        self.text, self.values = text, list(values)


def _by_row(statement: Insert | Update | Delete, columns: list[str], end: str, dialect: Dialect) -> _ByRow:
    made = statement.compile(dialect=dialect, column_keys=columns or None)
    assert isinstance(made, SQLCompiler)
    order = list(made.positiontup or ())
    assert not isinstance(statement, Insert) or order == columns, "name the columns in the order of the table"
    return _ByRow(str(made) + end, order)


def _by_name(rows: Rows, columns: Sequence[str]) -> Mapping[str, Sequence[Any]]:
    """Each column's values."""
    if isinstance(rows[0], tuple):
        return dict(zip(columns, zip(*rows, strict=True), strict=True))
    return {name: [row[name] for row in cast("Sequence[Mapping[str, Any]]", rows)] for name in rows[0]}


_DOLLARS = PGDialect(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call]


def _compiled(statement: Insert | Update | Delete, columns: list[str]) -> SQLCompiler:
    made = statement.compile(dialect=_DOLLARS, column_keys=columns or None)
    assert isinstance(made, SQLCompiler)
    return made


def _of_one(statement: Insert | Update | Delete, columns: list[str], end: str) -> _Numbered:
    made = _compiled(statement, columns)
    return _Numbered(str(made) + end, [(name, literal(made.binds[name].type)) for name in made.positiontup or ()])


def _of_many(statement: Insert | Update | Delete, columns: list[str], end: str) -> _Numbered:
    """With `unnest` of arrays in the place of values: INSERT ... SELECT, UPDATE ... FROM, DELETE ... USING."""
    types = {name: bind.type for name, bind in _compiled(statement, columns).binds.items()}
    arrays = [sql_cast(bindparam(name), ARRAY(of)) for name, of in types.items()]
    given = func.unnest(*arrays).table_valued(*(column(name, of) for name, of in types.items())).render_derived(name="given")

    def replace(element: Any, **_: Any) -> Any:
        return given.c[element.key] if isinstance(element, BindParameter) else None

    if isinstance(statement, Insert):
        whole: Any = statement.from_select(columns, select(*(given.c[name] for name in columns)))
    else:
        if columns:
            statement = statement.values({name: given.c[name] for name in columns})  # type: ignore[union-attr]
        whole = visitors.replacement_traverse(statement, {}, replace)
    made = _compiled(whole, [])
    return _Numbered(str(made) + end, [(name, literal(types[name])) for name in made.positiontup or ()])
