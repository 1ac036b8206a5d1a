"""The outbox: messages written in the transaction whose effects they report, published afterwards in the order of their ids.

An id is a pair (epoch, number), assigned by the owner: an epoch that increases with every start makes ids, and so the broker's message ids, unique for ever
without a database sequence. A message leaves the table when the broker has stored it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    LargeBinary,
    MetaData,
    Table,
    Text,
    and_,
    bindparam,
    delete,
    insert,
    or_,
    select,
)

from .batch import Batch
from .prepared import Prepared


@dataclass(frozen=True, slots=True)
class Letter:
    """One message to be published: its CloudEvents type, subject keys, body (msgpack) and trace context."""

    epoch: int
    number: int
    type: str
    keys: tuple[str, ...]
    body: bytes
    traceparent: str = ""

    @property
    def id(self) -> str:
        """What the broker de-duplicates by."""
        return f"{self.epoch}-{self.number}"


class Outbox:
    """The table `outbox` of `metadata` and the statements on it."""

    def __init__(self, metadata: MetaData) -> None:
        self.table = Table(
            "outbox",
            metadata,
            Column("epoch", BigInteger, primary_key=True),
            Column("number", BigInteger, primary_key=True),
            Column("type", Text, nullable=False),
            Column("keys", Text, nullable=False),
            Column("body", LargeBinary, nullable=False),
            Column("traceparent", Text, nullable=False),
        )
        t = self.table
        self._insert = Prepared(insert(t), columns=t.columns.keys())
        self._delete = Prepared(delete(t).where(and_(t.c.epoch == bindparam("e"), t.c.number == bindparam("n"))))

    def add(self, batch: Batch, letters: Sequence[Letter]) -> None:
        """Write `letters`, in the caller's transaction."""
        rows = [
            {"epoch": m.epoch, "number": m.number, "type": m.type, "keys": json.dumps(m.keys), "body": m.body, "traceparent": m.traceparent}
            for m in letters
        ]  # fmt: skip
        batch.run(self._insert, rows)

    def unsent(
        self, connection: Connection, *, after: tuple[int, int] = (0, 0), types: Sequence[str] = (), most: int | None = None
    ) -> list[Letter]:
        """What has not been published, or not been known to be, in order: of these types (none: all), behind (epoch, number) `after`, `most` at most."""
        t = self.table
        query = select(t).where(or_(t.c.epoch > after[0], and_(t.c.epoch == after[0], t.c.number > after[1])))
        if types:
            query = query.where(t.c.type.in_(types))
        rows = connection.execute(query.order_by(t.c.epoch, t.c.number).limit(most))
        return [Letter(r.epoch, r.number, r.type, tuple(json.loads(r.keys)), r.body, r.traceparent) for r in rows]

    def sent(self, connection: Connection, letters: Sequence[Letter]) -> None:
        """Take out what the broker has stored."""
        with Batch(connection) as batch:
            batch.run(self._delete, [{"e": m.epoch, "n": m.number} for m in letters])
