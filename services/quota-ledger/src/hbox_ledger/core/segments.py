"""Sealed segments: the older part of the audit and of the transfers, compressed and no longer in their tables.

Theory of operation. The audit is cut into segments of RECORDS records. The first record of a segment (`BEGINS`) has the number and the hash of the record
before it. Once a segment is old enough, its records and the transfers of that time become one file: JSON lines, compressed with xz. A record of the audit
(`SEALED`) has the file's SHA-256, so that the chain of the newer records protects the content of every sealed segment, transfers included. The hashes of
sealed records are not stored: they follow from the hash before the segment, and the last one is known.

A file is readable without HBox: `sha256sum` yields the digest of the `SEALED` record, `xzcat` the lines: the header, the records, the transfers.
"""

import json
import lzma
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any, NamedTuple

from hbox_common.model import Epoch

from .chain import Mark, Record, chained

#: Records of a segment. A boundary is where a record's number is a multiple of it.
RECORDS = 16_384
#: Transfers of a segment at most: a turn of one pod has five to eight records and moves together.
MOST_TRANSFERS = 8 * RECORDS

HISTORY = "history"  #: subject of the records about segments
BEGINS, SEALED = "begins", "sealed"  #: their changes

FORMAT = 1
#: Content of a segment in bytes at most, when it is read: above what RECORDS records with causes of the greatest length need.
MOST_BYTES = 2**30
_PRESET = 2


class Transfer(NamedTuple):
    """A row of `transfers` without its number."""

    epoch: Epoch
    idx: int
    at: float
    queue: str
    resource: str
    debit: str
    credit: str
    amount: int


@dataclass(frozen=True, slots=True)
class Header:
    """The first line of a segment's file. Ranges include both ends; `last_transfer` is below `first_transfer` if the segment has none."""

    segment: int
    first_record: int
    last_record: int
    first_transfer: int
    last_transfer: int
    previous: str  #: hash of the record before the segment, in hexadecimal digits
    head: str  #: hash of the last record
    format: int = FORMAT

    @property
    def records(self) -> int:
        return self.last_record - self.first_record + 1

    @property
    def transfers(self) -> int:
        return self.last_transfer - self.first_transfer + 1


class Damaged(Exception):
    """The content is no segment, or not the one of its header."""


def boundary(first: int) -> int:
    """The number of the last record of the segment that begins with record `first`."""
    return -(-first // RECORDS) * RECORDS


def begins(seq: int) -> bool:
    """Whether record `seq` is the first of a segment that has one before it."""
    return seq > 1 and (seq - 1) % RECORDS == 0


def begin_record(epoch: Epoch, at: float, before: Mark, transfer: int) -> Record:
    """The first record of the segment after record `before`. transfer: number of the last transfer by then."""
    return Record(epoch, at, "quota-ledger", HISTORY, BEGINS, f"after {before}, transfer {transfer}")


def begins_after(record: Record) -> Mark | None:
    """The record before a segment, by the segment's first record; None if that is no `BEGINS`. Raises InvalidRequest if it is malformed."""
    if record.subject != HISTORY or record.change != BEGINS:
        return None
    return Mark.parse(record.cause.removeprefix("after ").partition(",")[0])


def sealed_record(epoch: Epoch, at: float, header: Header, digest: bytes) -> Record:
    """The record that protects the content of a segment."""
    records = f"records {header.first_record}-{header.last_record}"
    transfers = f"transfers {header.first_transfer}-{header.last_transfer}"
    return Record(
        epoch, at, "quota-ledger", HISTORY, SEALED, f"segment {header.segment}: {records}, {transfers}, sha256 {digest.hex()}"
    )


def sealed_digest(record: Record) -> tuple[int, str] | None:
    """Number of the segment and digest, in hexadecimal digits, of a `SEALED` record; None for any other."""
    if record.subject != HISTORY or record.change != SEALED:
        return None
    number = record.cause.removeprefix("segment ").partition(":")[0]
    return (int(number) if number.isdecimal() else 0), record.cause.rpartition("sha256 ")[2]


def pack(header: Header, records: Sequence[Record], transfers: Sequence[Transfer]) -> bytes:
    """The content of a segment."""
    assert (len(records), len(transfers)) == (header.records, header.transfers)
    lines = [json.dumps(asdict(header), separators=(",", ":"))]
    lines += [json.dumps(row, separators=(",", ":"), ensure_ascii=False) for row in (*records, *transfers)]
    return lzma.compress("\n".join((*lines, "")).encode(), preset=_PRESET)


def digest_of(content: bytes) -> bytes:
    return sha256(content).digest()


def unpack(content: bytes) -> tuple[Header, list[Record], list[Transfer]]:
    """The reverse of `pack`. Raises Damaged."""
    try:
        opened = lzma.LZMADecompressor()
        text = opened.decompress(content, max_length=MOST_BYTES)
        if not opened.eof:
            raise Damaged("it is cut off, or too large")
        first, *lines = text.decode().removesuffix("\n").split("\n")
        header = Header(**json.loads(first))
        rows = [json.loads(line) for line in lines]
    except (lzma.LZMAError, ValueError, TypeError, EOFError) as e:
        raise Damaged(f"it cannot be read: {e}") from e
    if header.format != FORMAT:
        raise Damaged(f"it has format {header.format}, and this version knows {FORMAT}")
    if len(rows) != header.records + header.transfers:
        raise Damaged(f"it has {len(rows)} rows instead of {header.records + header.transfers}")
    try:
        records = [_record(row) for row in rows[: header.records]]
        transfers = [_transfer(row) for row in rows[header.records :]]
    except (ValueError, TypeError) as e:
        raise Damaged(f"a row cannot be read: {e}") from e
    return header, records, transfers


def _record(row: list[Any]) -> Record:
    epoch, at, actor, subject, change, cause, entry = row
    return Record(epoch, at, actor, subject, change, cause, entry)


def _transfer(row: list[Any]) -> Transfer:
    epoch, idx, at, queue, resource, debit, credit, amount = row
    return Transfer(epoch, idx, at, queue, resource, debit, credit, amount)


def hashed(header: Header, records: Sequence[Record]) -> Iterator[tuple[int, Record, bytes]]:
    """(number, record, hash) of each record, from the hash before the segment."""
    hash = bytes.fromhex(header.previous)
    for seq, record in enumerate(records, start=header.first_record):
        hash = chained(hash, seq, record)
        yield seq, record, hash
