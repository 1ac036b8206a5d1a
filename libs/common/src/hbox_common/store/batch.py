"""Statements of one transaction that do not wait for one another.

Theory of operation. A transaction of ten statements on PostgreSQL is ten round trips, and while the server works the client waits. A batch sends them down a
pipeline as they come and waits once, at its end, for all; what was expected of each is looked at then, in their order. So a statement that depends
on an expectation of an earlier one may be sent, and fail, before that one is known not to hold: the first expectation that does not hold is the error, whatever
failed behind it. Nothing of it stays, for whoever opened the transaction rolls back on any error.

SQLite is within the process: there each statement has run, and its expectation holds, when the call returns.
"""

from dataclasses import dataclass
from types import TracebackType
from typing import Any

from sqlalchemy import Connection, CursorResult, exc

from .prepared import Prepared, Rows

UNKNOWN = -1  #: the number of rows changed by a statement that had no result: one before it failed


@dataclass(frozen=True, slots=True)
class _Sent:
    result: CursorResult[Any]
    expected: int
    otherwise: Exception

    def check(self, changed: int) -> None:
        if changed != self.expected:
            raise self.otherwise


class Batch:
    """A context within a transaction on `connection`. Only prepared statements go in; leaving it waits for them, and raises what went wrong first."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sent: list[_Sent] = []
        self._pipeline: Any = None
        if connection.dialect.name == "postgresql":
            driver: Any = connection.connection.driver_connection
            self._pipeline = driver.pipeline()

    def run(self, statement: Prepared, rows: Rows) -> None:
        """Run it for these rows."""
        if rows:
            statement.send(self._connection, rows)

    def expect(self, statement: Prepared, rows: Rows, changes: int, otherwise: Exception) -> None:
        """Run it for these rows; unless it changes as many rows of the database as `changes` says, the batch raises `otherwise`."""
        if rows:
            sent = _Sent(statement.send(self._connection, rows), changes, otherwise)
            if self._pipeline is None:
                sent.check(sent.result.rowcount)
            self._sent.append(sent)

    def __enter__(self) -> "Batch":
        if self._pipeline is not None:
            self._pipeline.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._pipeline is None:
            return
        try:
            self._pipeline.__exit__(kind, error, trace)
        except self._connection.dialect.loaded_dbapi.Error as e:
            self._check()
            raise _wrapped(e) from e
        self._check()

    def _check(self) -> None:
        for sent in self._sent:
            changed = sent.result.context.cursor.rowcount  # the driver's own: SQLAlchemy's word is from before the result
            if changed != UNKNOWN:
                sent.check(changed)


def _wrapped(error: Exception) -> exc.DBAPIError:
    """SQLAlchemy's name for an error of the driver, as it has them for statements that it waits for."""
    for kind in type(error).__mro__:
        known = getattr(exc, kind.__name__, None)
        if known is not None and issubclass(known, exc.DBAPIError):
            return known("(one of a pipeline)", None, error)  # type: ignore[no-any-return]
    return exc.DBAPIError("(one of a pipeline)", None, error)
