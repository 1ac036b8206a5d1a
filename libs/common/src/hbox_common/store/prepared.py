"""Statements that are compiled once and then run over rows by the driver.

SQLAlchemy's own path from a statement to the driver (coercions, cache keys, parameters anew at each execution) costs four times what SQLite
needs for the work itself (measured: 0.9 of 1.2 ms a commit of the ledger). What it is good for stays: statements written as expressions,
in the dialect of the database, on its connection and in its transaction, with its errors.

PostgreSQL is sent the rows of an INSERT as one array a column: row by row they cost
a message and a portal each.
"""

from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from typing import Any, cast

from sqlalchemy import Connection, Delete, Dialect, Insert, Table, Update


class Prepared:
    """One INSERT, UPDATE or DELETE. `columns`: what an INSERT or UPDATE sets from its rows, beside the bind parameters written in it.

    `or_nothing`: an INSERT passes over rows whose key is there. Rows go to the driver as they are: text, numbers, booleans and bytes, no types
    that only SQLAlchemy knows.
    """

    def __init__(self, statement: Insert | Update | Delete, *, columns: Collection[str] = (), or_nothing: bool = False) -> None:
        self._statement, self._columns = statement, list(columns)
        self._end = " ON CONFLICT DO NOTHING" if or_nothing else ""  # SQLite and PostgreSQL alike
        self._compiled: dict[str, _Compiled] = {}  #: by dialect
        self._insert = ""  #: of arrays, as PostgreSQL has it

    def run(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> int:
        """Run it once a row. Returns how many rows of the database it changed."""
        if not rows:
            return 0
        if connection.dialect.name == "postgresql" and isinstance(self._statement, Insert):
            return self._unnested(connection, rows)
        compiled = self._compiled.get(connection.dialect.name) or self._compile(connection)
        return connection.exec_driver_sql(compiled.text, compiled.parameters(rows)).rowcount

    def _unnested(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> int:
        if not self._insert:
            self._insert = _unnest(cast(Table, self._statement.table), self._columns, connection.dialect) + self._end
        columns = {name: [row[name] for row in rows] for name in self._columns}
        return connection.exec_driver_sql(self._insert, columns).rowcount

    def _compile(self, connection: Connection) -> "_Compiled":
        made = self._statement.compile(dialect=connection.dialect, column_keys=self._columns or None)
        fixed = {name: value for name, value in made.params.items() if value is not None}
        compiled = _Compiled(str(made) + self._end, made.positiontup, fixed)
        self._compiled[connection.dialect.name] = compiled
        return compiled


def _unnest(table: Table, columns: Sequence[str], dialect: Dialect) -> str:
    quoted = dialect.identifier_preparer.quote
    arrays = (f"%({name})s::{table.c[name].type.compile(dialect)}[]" for name in columns)
    names = ", ".join(map(quoted, columns))
    return f"INSERT INTO {quoted(table.name)} ({names}) SELECT * FROM unnest({', '.join(arrays)})"  # noqa: S608  names of our own tables


class _Compiled:
    def __init__(self, text: str, order: Sequence[str] | None, fixed: Mapping[str, Any]) -> None:
        self.text = text
        self._order, self._fixed = order, dict(fixed)
        self._pick = itemgetter(*order) if order is not None and len(order) > 1 else None

    def parameters(self, rows: Sequence[Mapping[str, Any]]) -> list[Any]:
        whole = [{**self._fixed, **row} for row in rows] if self._fixed else rows
        if self._order is None:
            return list(whole)
        if self._pick is None:
            return [(row[self._order[0]],) for row in whole]
        return [self._pick(row) for row in whole]
