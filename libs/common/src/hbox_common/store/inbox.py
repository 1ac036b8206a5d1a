"""The inbox: which messages have had their effect, written in the transaction of that effect, so that a duplicate has none."""

from collections.abc import Sequence

from sqlalchemy import Column, Connection, Double, Index, LargeBinary, MetaData, Table, Text, and_, delete, insert, select

from .batch import Batch
from .prepared import Prepared, Rows


class Inbox:
    """The table `inbox` of `metadata` and the statements on it. Times are seconds since the epoch."""

    def __init__(self, metadata: MetaData) -> None:
        self.table = Table(
            "inbox",
            metadata,
            Column("consumer", Text, primary_key=True),
            Column("message", Text, primary_key=True),
            Column("at", Double, nullable=False),
            Column("result", LargeBinary, nullable=False),
        )
        Index("inbox_at", self.table.c.at)
        self._insert = Prepared(insert(self.table), columns=self.table.columns.keys(), conflict="DO NOTHING")

    def results(self, connection: Connection, consumer: str, messages: Sequence[str]) -> dict[str, bytes]:
        """The stored results of those of `messages` that `consumer` has handled."""
        t = self.table
        found = connection.execute(select(t.c.message, t.c.result).where(t.c.consumer == consumer, t.c.message.in_(messages)))
        return {row.message: row.result for row in found}

    def add(
        self, batch: Batch, consumer: str, messages: Sequence[str], *, at: float, otherwise: Exception, result: bytes = b""
    ) -> None:
        """Note `messages` as handled. The batch raises `otherwise` where one of them was noted before."""
        batch.expect(self._insert, self._rows(consumer, messages, at, result), len(messages), otherwise)

    def once(self, connection: Connection, consumer: str, message: str, *, at: float, result: bytes = b"") -> bytes | None:
        """Note one message, or return the result stored for it, in which case the caller must have no effect."""
        stored = self.results(connection, consumer, [message]).get(message)
        if stored is None:
            with Batch(connection) as batch:
                batch.run(self._insert, self._rows(consumer, [message], at, result))
        return stored

    def _rows(self, consumer: str, messages: Sequence[str], at: float, result: bytes) -> Rows:
        return [{"consumer": consumer, "message": m, "at": at, "result": result} for m in messages]

    def forget(self, connection: Connection, *, before: float) -> int:
        """Drop what is older than the broker can repeat. Returns how many."""
        t = self.table
        return connection.execute(delete(t).where(and_(t.c.at < before))).rowcount
