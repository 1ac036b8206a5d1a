"""The audit as a chain: each record's hash covers the record and the hash before it, so that nothing can be changed, left out or put in between.

A chain cannot show that its end was cut off, nor that all of it was written anew. Against the first the ledger's own row counts the changes of its epoch
(`adapters.audit`); against both, a head (number and hash of the last record) that was written down elsewhere: the chain has to go through it.
"""

import json
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from json.encoder import encode_basestring_ascii as _text
from typing import NamedTuple

from hbox_common.errors import InvalidRequest
from hbox_common.model import Claim, ClaimState, Epoch
from hbox_common.model.devices import format_numbered

GENESIS = b"\0" * 32

_written = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode

NONE = "none"  #: the state of a claim before its first record
#: state of a claim whose row cannot be read: not a change by the ledger, and not counted as one
ASIDE = "set aside"
NAMED = "named"  #: of a card number, `card NODE/NUMBER`; the cause is the card's id
NOMINATED, ENDED = "nominated", "ended"  #: of a nomination: its places, and that none of them is kept any more


class Record(NamedTuple):
    """One line of the audit: what changed how, by whose word and why. `at`: seconds since the epoch."""

    epoch: Epoch
    at: float
    actor: str
    subject: str
    change: str
    cause: str
    entry: str = ""  #: of a new claim: what it holds

    @property
    def of_claim(self) -> bool:
        """Whether it is about a claim: the ledger's and queues' own records have other subjects."""
        return "->" in self.change and self.subject != "ledger"


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in the chain: a record's number and hash."""

    seq: int
    hash: bytes

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash.hex()}"

    @classmethod
    def parse(cls, text: str) -> "Mark":
        """The reverse of str. Raises InvalidRequest."""
        number, _, digits = text.partition(":")
        try:
            mark = cls(int(number), bytes.fromhex(digits))
        except ValueError:
            mark = cls(0, b"")
        if mark.seq < 1 or len(mark.hash) != len(GENESIS):
            raise InvalidRequest(
                f"{text!r} is no head of a chain", hint="write it as it was printed: NUMBER:HASH, 64 hexadecimal digits"
            )
        return mark


def chained(previous: bytes, seq: int, r: Record) -> bytes:
    """The hash of an audit record: SHA-256 over the hash before it and its fields, with a NUL between. An empty entry, as all had once, is left out."""
    fields = (str(seq), str(r.epoch), repr(r.at), r.actor, r.subject, r.change, r.cause)
    return sha256(previous + "\0".join((*fields, r.entry) if r.entry else fields).encode()).digest()


def entry(claim: Claim) -> str:
    """The canonical text of what a claim holds: a JSON list of queue, node, requests with sorted names, slices with card numbers, cards by model if it has
    any, and the pool if that is not `pooled`."""
    requests = _amounts(tuple(claim.requests.items()))
    models = f",{_amounts(tuple(claim.models.items()))}" if claim.models or claim.pool else ""
    pool = f",{_text(claim.pool)}" if claim.pool else ""
    return f"[{_text(claim.queue)},{_text(claim.node)},{requests},{_text(format_numbered(claim.slices))}{models}{pool}]"


@lru_cache(maxsize=4096)
def _amounts(items: tuple[tuple[str, int], ...]) -> str:
    """Equal pods ask for the same: ten thousand claims, a few hundred of these."""
    return _written(dict(items))


@dataclass(slots=True)
class Chain:
    """Follows the records in order, and the claims in them.

    `partial`: the first records are not available, so that it begins with a later one. Claims, nominations and card numbers from before are unknown."""

    seq: int = 0
    hash: bytes = GENESIS
    partial: bool = False
    seen: set[str] = field(default_factory=set)  #: claims with a record, if it is partial
    first: Epoch | None = None  #: epoch of the first record that was followed
    live: dict[str, tuple[str, str]] = field(default_factory=dict)  #: claim -> state and entry, of those that hold something
    changes: dict[Epoch, int] = field(default_factory=dict)  #: records of claims, by epoch
    aside: dict[str, str] = field(default_factory=dict)  #: claim -> why it was set aside
    nominations: dict[str, None] = field(default_factory=dict)  #: subjects of those that have not ended
    names: set[tuple[str, str]] = field(default_factory=set)  #: subject and card id of each card number

    def follow(self, seq: int, record: Record, hash: bytes | None) -> str:
        """Take in the next record. hash: as stored; None: it is not, because the record is sealed. Returns what is wrong with it; nothing may be followed after
        that."""
        if seq != self.seq + 1:
            return f"audit record {self.seq + 1} is missing: record {seq} comes after {self.seq}"
        if any("\0" in part for part in (record.actor, record.subject, record.change, record.cause, record.entry)):
            return f"audit record {seq} has a NUL where none can be"
        expected = chained(self.hash, seq, record)
        if hash is not None and hash != expected:
            return f"audit record {seq} is not what was written: its hash does not fit its content and record {seq - 1}"
        self.seq, self.hash = seq, expected
        if self.first is None:
            self.first = record.epoch
        if record.change == ASIDE:
            self.live.pop(record.subject, None)
            self.aside[record.subject] = record.cause
        if record.change == NAMED:
            self.names.add((record.subject, record.cause))
        elif record.change == NOMINATED:
            self.nominations[record.subject] = None
        elif record.change == ENDED:
            self.nominations.pop(record.subject, None)
        return self._claim(seq, record) if record.of_claim else ""

    def _claim(self, seq: int, record: Record) -> str:
        before, _, after = record.change.partition("->")
        unknown = self.partial and record.subject not in self.seen
        known, held = self.live.pop(record.subject, (before if unknown else NONE, record.entry))
        if self.partial:
            self.seen.add(record.subject)
        if before != known:
            return f"audit record {seq}: claim {record.subject} changes {record.change}, but was {known}"
        if after != ClaimState.VOID:
            self.live[record.subject] = (after, held)
        self.changes[record.epoch] = self.changes.get(record.epoch, 0) + 1
        return ""
