"""PostgreSQL's pipeline, on the driver's lowest level (`psycopg.pq`): statements are sent without waiting, and all results are awaited together.

Theory of operation. Parameters are text or binary (`literals`), the server infers their types. A connection prepares a statement at its first use and keeps it
for its lifetime. libpq sends its buffer whenever it is full, so that the server works while the client writes the next statement. After an error the server
skips the rest; `finish` reads all results in order, whatever happened. The driver's own cursors in a pipeline do the same with a message, a select and some
forty calls per statement: most of the time of a commit of nine small statements (measured).
"""

import select
from collections import deque
from collections.abc import Sequence
from typing import Any

from psycopg import Error, OperationalError
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, TransactionStatus
from sqlalchemy import Connection

from .prepared import Sent

_TEXT, _BINARY = 0, 1


class Pipeline:
    """Of one transaction on `connection`, from `begin` to `finish`. Raises the driver's errors."""

    def __init__(self, connection: Connection) -> None:
        driver: Any = connection.connection.driver_connection
        self._pg: Any = driver.pgconn
        self._names: dict[str, bytes] = connection.info.setdefault("hbox-prepared", {})  # lives as long as the session
        self._under_way: deque[tuple[Sent, str]] = deque()  #: each with the text that it prepares, if that is what it does

    def begin(self) -> None:
        begun = self._pg.transaction_status != TransactionStatus.IDLE
        self._pg.enter_pipeline_mode()
        if not begun:
            self._pg.send_query_params(b"BEGIN", None)
            self._under_way.append((Sent(), ""))

    def send(self, text: str, values: Sequence[str | bytes | None]) -> Sent:
        """Run a statement with its parameters `$1` and so on."""
        name = self._names.get(text)
        if name is None:
            name = f"hbox_{len(self._names)}".encode()
            self._pg.send_prepare(name, text.encode())
            self._under_way.append((Sent(), text))
            self._names[text] = name
        formats = [_BINARY if isinstance(value, bytes) else _TEXT for value in values]
        self._pg.send_query_prepared(name, [value.encode() if isinstance(value, str) else value for value in values], formats)
        sent = Sent()
        self._under_way.append((sent, ""))
        return sent

    def finish(self) -> None:
        """Wait for all results. Raises the first error among them."""
        error: Error | None = None
        try:
            self._pg.pipeline_sync()
            error = self._results()
            self._pg.exit_pipeline_mode()
        except OperationalError as e:  # the server's last message explains more
            raise error or e from e
        finally:
            for _, prepares in self._under_way:
                self._names.pop(prepares, None)
        if error is not None:
            raise error

    def _results(self) -> Error | None:
        error: Error | None = None
        while True:
            result = self._next()
            if result is None:
                continue  # the end of one statement's
            if result.status == ExecStatus.PIPELINE_SYNC:
                return error
            sent, prepares = self._under_way.popleft()
            if result.status == ExecStatus.COMMAND_OK:
                sent.changed = result.command_tuples or 0
                continue
            self._names.pop(prepares, None)
            if error is None:
                error = error_from_result(result)

    def _next(self) -> Any:
        """The next result, or None after the last of a statement."""
        poll = select.poll()
        while True:
            unsent = self._pg.flush()
            if not unsent and not self._pg.is_busy():
                return self._pg.get_result()
            poll.register(self._pg.socket, select.POLLIN | (select.POLLOUT if unsent else 0))
            poll.poll()
            self._pg.consume_input()
