"""Statements of one transaction that do not wait for each other.

Theory of operation. A transaction of ten statements on PostgreSQL needs ten round trips, and the client waits while the server works. A batch sends the
statements through a pipeline as they come, waits once at its end for all results, and then checks the expectation of each, in order. So a statement that
depends on an earlier expectation may be sent, and fail, before that expectation is checked: the first failed expectation is the error, whatever failed after
it. No statement takes effect then, because the transaction's owner rolls back on any error.

SQLite runs within the process: each statement has run, and its expectation has been checked, when the call returns.
"""

from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from sqlalchemy import Connection, exc

from .prepared import Prepared, Rows, Sent


@dataclass(frozen=True, slots=True)
class _Expected:
    sent: Sent
    changes: int
    otherwise: Exception


class Batch:
    """A context within a transaction on `connection`. Accepts prepared statements only; on exit it waits for them and raises the first error."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._expected: list[_Expected] = []
        self._pipeline: Any = None
        if connection.dialect.name == "postgresql":
            from .pipeline import Pipeline  # noqa: PLC0415  SQLite needs no PostgreSQL driver

            self._pipeline = Pipeline(connection)

    def run(self, statement: Prepared, rows: Rows) -> Sent:
        """Run it for these rows. What it changed is known when the batch has ended."""
        if not rows:
            return Sent(0)
        if self._pipeline is None:
            return statement.each(self._connection, rows)
        sent: Sent = self._pipeline.send(*statement.numbered(rows))
        return sent

    def expect(self, statement: Prepared, rows: Rows, changes: int, otherwise: Exception) -> None:
        """Run the statement for these rows; if the number of changed rows differs from `changes`, the batch raises `otherwise`."""
        self._expected.append(_Expected(self.run(statement, rows), changes, otherwise))
        if self._pipeline is None:
            self._check()

    def __enter__(self) -> "Batch":
        if self._pipeline is not None:
            self._pipeline.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._pipeline is None:
            return
        driver: Any = self._connection.dialect.loaded_dbapi
        if error is not None and not isinstance(error, driver.Error):
            with suppress(driver.Error):
                self._pipeline.finish()
            return
        try:
            self._pipeline.finish()
        except driver.Error as e:
            self._check()
            raise _wrapped(e) from e
        self._check()

    def _check(self) -> None:
        for one in self._expected:
            if one.sent.changed not in (None, one.changes):
                raise one.otherwise


def _wrapped(error: Exception) -> exc.DBAPIError:
    """SQLAlchemy's name for an error of the driver, as it has them for statements that it waits for."""
    for kind in type(error).__mro__:
        known = getattr(exc, kind.__name__, None)
        if known is not None and issubclass(known, exc.DBAPIError):
            return known("(one of a pipeline)", None, error)  # type: ignore[no-any-return]
    return exc.DBAPIError("(one of a pipeline)", None, error)
