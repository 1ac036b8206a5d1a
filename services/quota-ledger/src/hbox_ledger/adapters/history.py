"""The audit and the transfers from their first rows: through the sealed segments, then in their tables.

Each segment is checked by itself first (number, digest, header), so that a fault names it, and later segments are checked nevertheless. Only a history without
such faults is replayed to its end. Rows that are sealed and not yet deleted from the tables have to equal the sealed ones.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Row, Select, func, select

from hbox_common.errors import InvalidRequest

from ..core.chain import GENESIS, Chain, Mark, Record
from ..core.segments import Damaged, Header, Transfer, begins_after, digest_of, sealed_digest, unpack
from . import segments
from . import tables as t
from .segments import record_of, transfer_of

ROWS = 10_000

Check = Callable[[bool, str], None]


@dataclass(slots=True)
class Transfers:
    """Sums of the transfers, in their order."""

    last: int = 0
    sums: defaultdict[tuple[str, str], Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def follow(self, transfer: Transfer) -> None:
        self.last += 1
        sums = self.sums[transfer.queue, transfer.resource]
        sums[transfer.debit] -= transfer.amount
        sums[transfer.credit] += transfer.amount


@dataclass(slots=True)
class History:
    """What follows from all rows. `chain`, `transfers`: None where they are broken, since what comes after that proves nothing."""

    chain: Chain | None
    transfers: Transfers | None
    segments: int  #: that are sealed
    skipped: int = 0  #: segments at the beginning without content


def replay(connection: Connection, check: Check, *, through: Mark | None = None, folder: Path | None = None) -> History:
    """Replay all of it. check: takes the result of each check and the fault that it means. through: a head that the chain has to contain. folder: of exported
    segments, whose contents are not in the database. Without them the replay begins after the last segment that was removed."""
    one = _Replay(connection, check, through, folder)
    rows = list(segments.sealed(connection))
    if not one.sealed(rows):
        return History(None, None, len(rows), one.skipped)
    transfers = one.moved()
    whole = one.records()
    return History(one.chain if whole else None, None if one.skipped else transfers, len(rows), one.skipped)


class _Replay:
    def __init__(self, connection: Connection, check: Check, through: Mark | None, folder: Path | None) -> None:
        self.chain, self._sums = Chain(), Transfers()
        self.skipped = 0
        self._connection, self._check, self._through, self._folder = connection, check, through, folder
        self._digests: dict[int, str] = {}  #: by segment, as the audit has them
        self._sealed: dict[int, str] = {}  #: by segment, as `segments` has them
        # Where the tables begin. Sealed rows from there on are remembered, to compare them.
        self._first_record = connection.execute(select(func.min(t.audit.c.seq))).scalar() or 0
        self._first_transfer = connection.execute(select(func.min(t.transfers.c.seq))).scalar() or 0
        self._hashes: dict[int, bytes] = {}
        self._transfers: dict[int, Transfer] = {}

    def sealed(self, rows: list[Row[Any]]) -> bool:
        """Whether the segments are whole. All of them are checked; they are replayed up to the first fault."""
        whole, number, head = True, 0, GENESIS
        for row in rows:
            if row.number != number + 1:
                self._check(False, f"segment {number + 1} is missing: segment {row.number} comes after {number}")
                whole = False
            elif bytes(row.previous) != head:
                self._check(
                    False, f"segment {row.number} does not continue segment {number}: its hash of the record before differs"
                )
                whole = False
            number, head = row.number, bytes(row.head)
            self._sealed[number] = bytes(row.digest).hex()
            content = segments.content(self._connection, number, self._folder)
            if content is None and whole and number == self.skipped + 1:
                self._skip(row)
                continue
            opened = self._opened(row, content)
            whole = opened is not None and (not whole or self._replayed(row, *opened)) and whole
        return whole

    def _skip(self, row: Row[Any]) -> None:
        """Continue after a segment whose content was removed, like all before it."""
        self.skipped = row.number
        self.chain = Chain(row.last_record, bytes(row.head), partial=True)
        self._sums.last = row.last_transfer

    def _opened(self, row: Row[Any], content: bytes | None) -> tuple[Header, list[Record], list[Transfer]] | None:
        """The content of a segment, if it is what was sealed."""
        name = f"segment {row.number}"
        if content is None:
            self._check(False, f"{name}: its content is missing")
            return None
        altered = digest_of(content) != bytes(row.digest)
        try:
            header, records, transfers = unpack(content)
        except Damaged as e:
            self._check(False, f"{name} was altered: {e}")
            return None
        if header.segment != row.number:
            self._check(False, f"{name} has the content of segment {header.segment}")
            return None
        expected = Header(
            row.number, row.first_record, row.last_record, row.first_transfer, row.last_transfer, bytes(row.previous).hex(), bytes(row.head).hex()
        )  # fmt: skip
        good = not altered and header == expected
        self._check(good, f"{name} was altered: its content is not the one that was sealed")
        return (header, records, transfers) if good else None

    def _replayed(self, row: Row[Any], header: Header, records: list[Record], transfers: list[Transfer]) -> bool:
        for seq, record in enumerate(records, start=header.first_record):
            if not self._follow(seq, record, None):
                return False
            if 0 < self._first_record <= seq:
                self._hashes[seq] = self.chain.hash
        good = self.chain.hash == bytes(row.head)
        self._check(good, f"segment {row.number} was altered: its records do not lead to its head")
        if header.first_transfer != self._sums.last + 1:
            self._check(
                False, f"segment {row.number} begins with transfer {header.first_transfer} after transfer {self._sums.last}"
            )
            return False
        for seq, transfer in enumerate(transfers, start=header.first_transfer):
            self._sums.follow(transfer)
            if 0 < self._first_transfer <= seq:
                self._transfers[seq] = transfer
        return good

    def _follow(self, seq: int, record: Record, hash: bytes | None) -> bool:
        chain = self.chain
        before = Mark(chain.seq, chain.hash)
        fault = chain.follow(seq, record, hash)
        self._check(not fault, fault)
        if fault:
            return False
        if self._through is not None and self._through.seq == seq:
            same = self._through.hash == chain.hash
            self._check(same, f"audit record {seq} is another than that of {self._through}: history was written anew")
        if (digest := sealed_digest(record)) is not None:
            self._digests[digest[0]] = digest[1]
        try:
            after = begins_after(record)
        except InvalidRequest:
            after = Mark(0, GENESIS)
        self._check(
            after in (None, before), f"audit record {seq} begins a segment after {after}, and the record before it is {before}"
        )
        return True

    def records(self) -> bool:
        """The rest of the audit. Returns whether all of it is intact."""
        for r in _rows(self._connection, select(t.audit).order_by(t.audit.c.seq)):
            if r.seq <= self.chain.seq and (r.seq in self._hashes or self.skipped):
                same = bytes(r.hash) == self._hashes.get(r.seq, bytes(r.hash))
                self._check(same, f"audit record {r.seq} is not the one that was sealed")
            elif not self._follow(r.seq, record_of(r), bytes(r.hash)):
                return False
        for number, digest in sorted(self._digests.items()):
            known = self._sealed.get(number)
            self._check(known is not None, f"segment {number} is missing: the audit has its digest")
            self._check(known in (None, digest), f"segment {number} was altered: the audit has another digest of it")
        for number in sorted(self._sealed.keys() - self._digests.keys()):
            self._check(number <= self.skipped, f"segment {number} is not in the audit")
        return True

    def moved(self) -> Transfers:
        """The sums of all transfers."""
        for r in _rows(self._connection, select(t.transfers).order_by(t.transfers.c.seq)):
            transfer = transfer_of(r)
            if r.seq <= self._sums.last and (r.seq in self._transfers or self.skipped):
                self._check(
                    transfer == self._transfers.get(r.seq, transfer), f"transfer {r.seq} is not the one that was sealed"
                )
                continue
            last = self._sums.last
            self._check(r.seq == last + 1, f"transfer {last + 1} is missing: transfer {r.seq} comes after {last}")
            self._sums.last = r.seq - 1
            self._sums.follow(transfer)
        return self._sums


def _rows(connection: Connection, query: Select[Any]) -> Iterator[Row[Any]]:
    """Row by row, few in memory at once."""
    with closing(connection.execute(query, execution_options={"yield_per": ROWS})) as rows:
        yield from rows
