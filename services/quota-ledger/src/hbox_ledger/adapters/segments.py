"""Sealed segments in the database: `segments` has their ranges and hashes, `segment_contents` their compressed rows.

Sealing takes three steps, and a process that dies between two of them continues at its next start. `draft` reads and compresses the next segment on a
connection of its own, concurrently with the writer. `add` writes both rows in one transaction with the `SEALED` record. `trim` deletes the sealed rows from
`audit` and `transfers` in slices. Until then rows are in both places. The last record and the last transfer are never sealed: the next ones continue from
their numbers.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from sqlalchemy import Connection, Row, delete, func, insert, select

from hbox_common.errors import Conflict
from hbox_common.store import Batch, Prepared

from ..core import segments
from ..core.chain import GENESIS, Record
from ..core.segments import Header, Transfer
from . import tables as t

ROWS = 10_000  #: of transfers that are read at a time

_ADDED = Prepared(insert(t.segments), columns=t.segments.columns.keys(), conflict="DO NOTHING")
_FILLED = Prepared(insert(t.segment_contents), columns=t.segment_contents.columns.keys())


@dataclass(frozen=True, slots=True)
class Draft:
    """A segment that is read and compressed, and not yet sealed. Times are those of its first and last record, in seconds since the epoch."""

    header: Header
    first_at: float
    last_at: float
    content: bytes
    digest: bytes


@dataclass(frozen=True, slots=True)
class Trimmed:
    """The rows that are left to delete: numbers of the first and of the last, by table."""

    record: int
    last_record: int
    transfer: int
    last_transfer: int


def last(connection: Connection) -> Row[tuple[object, ...]] | None:
    """The segment that was sealed last."""
    return connection.execute(select(t.segments).order_by(t.segments.c.number.desc()).limit(1)).first()


def draft(connection: Connection, *, before: float, most: int) -> Draft | None:
    """The next segment, if its last record is older than `before`, or more than `most` (0: any number of) records follow it; else None."""
    sealed = last(connection)
    number, first, first_transfer = (
        (sealed.number + 1, sealed.last_record + 1, sealed.last_transfer + 1) if sealed is not None else (1, 1, 1)
    )
    final = segments.boundary(first)
    a, m = t.audit.c, t.transfers.c
    head = connection.execute(select(func.max(a.seq))).scalar() or 0
    if head <= final:
        return None
    last_at = connection.execute(select(a.at).where(a.seq == final)).scalar_one()
    if last_at >= before and not 0 < most < head - final:
        return None
    rows = connection.execute(select(t.audit).where(a.seq >= first, a.seq <= final).order_by(a.seq)).all()
    end = connection.execute(select(func.max(m.seq))).scalar() or 0
    moved = select(t.transfers).where(m.seq >= first_transfer, m.seq < end).order_by(m.seq).limit(segments.MOST_TRANSFERS)
    with closing(connection.execute(moved, execution_options={"yield_per": ROWS})) as found:
        transfers = [transfer_of(row) for row in takewhile(lambda row: row.at <= last_at, found)]
    previous = bytes(sealed.head) if sealed is not None else GENESIS
    header = Header(
        number, first, final, first_transfer, first_transfer + len(transfers) - 1, previous.hex(), bytes(rows[-1].hash).hex()
    )
    content = segments.pack(header, [record_of(row) for row in rows], transfers)
    return Draft(header, rows[0].at, last_at, content, segments.digest_of(content))


def record_of(row: Row[tuple[object, ...]]) -> Record:
    return Record(row.epoch, row.at, row.actor, row.subject, row.change, row.cause, row.entry)


def transfer_of(row: Row[tuple[object, ...]]) -> Transfer:
    return Transfer(row.epoch, row.idx, row.at, row.queue, row.resource, row.debit, row.credit, row.amount)


def add(batch: Batch, made: Draft) -> None:
    """Seal the segment. The batch raises Conflict if another ledger has sealed one of this number."""
    h = made.header
    row = (
        h.segment, h.first_record, h.last_record, h.first_transfer, h.last_transfer, made.first_at, made.last_at, bytes.fromhex(h.previous),
        bytes.fromhex(h.head), made.digest, len(made.content),
    )  # fmt: skip
    taken_over = Conflict(f"segment {h.segment} was sealed by another quota-ledger", hint="only one may run on a database")
    batch.expect(_ADDED, [row], 1, taken_over)
    batch.run(_FILLED, [(h.segment, made.content)])


def untrimmed(connection: Connection) -> Trimmed | None:
    """The sealed rows that are still in `audit` and `transfers`; None if there are none."""
    sealed = last(connection)
    if sealed is None:
        return None
    record = connection.execute(select(func.min(t.audit.c.seq))).scalar_one()
    transfer = connection.execute(select(func.min(t.transfers.c.seq))).scalar() or sealed.last_transfer + 1
    if record > sealed.last_record and transfer > sealed.last_transfer:
        return None
    return Trimmed(record, sealed.last_record, transfer, sealed.last_transfer)


def trim(connection: Connection, left: Trimmed, most: int) -> Trimmed | None:
    """Delete at most `most` sealed rows of `left` from one of the tables. Returns what is left then."""
    if left.record <= left.last_record:
        end = min(left.record + most - 1, left.last_record)
        connection.execute(delete(t.audit).where(t.audit.c.seq >= left.record, t.audit.c.seq <= end))
        left = Trimmed(end + 1, left.last_record, left.transfer, left.last_transfer)
    elif left.transfer <= left.last_transfer:
        end = min(left.transfer + most - 1, left.last_transfer)
        connection.execute(delete(t.transfers).where(t.transfers.c.seq >= left.transfer, t.transfers.c.seq <= end))
        left = Trimmed(left.record, left.last_record, end + 1, left.last_transfer)
    return left if left.record <= left.last_record or left.transfer <= left.last_transfer else None


def sealed(connection: Connection) -> Iterator[Row[tuple[object, ...]]]:
    """All sealed segments in order, without their contents."""
    yield from connection.execute(select(t.segments).order_by(t.segments.c.number)).all()


def summary(connection: Connection) -> tuple[int, int, int]:
    """Number of sealed segments, their bytes, and the number of audit records that are not sealed."""
    s = t.segments.c
    count, size, end = connection.execute(select(func.count(), func.sum(s.size), func.max(s.last_record))).one()
    head = connection.execute(select(func.max(t.audit.c.seq))).scalar() or 0
    return count, int(size or 0), head - (end or 0)


def file_of(folder: Path, number: int) -> Path:
    """File of an exported segment."""
    return folder / f"segment-{number:08}.jsonl.xz"


def content(connection: Connection, number: int, folder: Path | None = None) -> bytes | None:
    """The content of a segment, as it is in the database, else in its file in `folder`; None if it is in neither."""
    c = t.segment_contents.c
    found = connection.execute(select(c.content).where(c.number == number)).scalar()
    if found is not None:
        return bytes(found)
    file = file_of(folder, number) if folder is not None else None
    return file.read_bytes() if file is not None and file.is_file() else None
