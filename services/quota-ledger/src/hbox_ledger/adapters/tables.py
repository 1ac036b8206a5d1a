"""The ledger's tables. Constraints of the database exclude what may never happen:

two live claims of one pod (claims_pod), two claims on one slot of a card (card_slots_slot; card_names maps its card numbers to cards), more than a card has
or a second claim on a wholly allocated card (card_accounts), a negative balance (accounts), and changes of history (triggers on transfers, audit and segments;
see the migrations).

Claims of pods that were found bound (`forced`) must be representable even where they over-book: they take slot -1, which is outside of the
unique index, and a card is excused from its CHECK while one of them is on it. Arbitration gives nothing new to such a card unless it fits.
Amounts are integers in base units; times are seconds since the epoch.
"""

from pathlib import Path

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    text,
    true,
)

from hbox_common.store import Inbox, Outbox

metadata = MetaData()

#: The migrations that make these tables.
VERSIONS = Path(__file__).with_name("versions")

inbox = Inbox(metadata)
outbox = Outbox(metadata)

#: One row: the epoch, and how many changes of claims it has seen.
ledger = Table(
    "ledger",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("idx", BigInteger, nullable=False),
    Column(
        "metered_until", BigInteger, nullable=False, server_default="0"
    ),  # the second up to which `usage` is accrued; 0 = never yet
    Column(
        "key", LargeBinary
    ),  # by which claims that are written on pods are known as issued here; NULL until the first epoch that knows of it
    Column(
        "commits", BigInteger, nullable=False, server_default="0"
    ),  # of turns: shows whether a commit of unknown outcome took effect
    CheckConstraint("id = 1", name="ledger_one"),
)

claims = Table(
    "claims",
    metadata,
    Column("id", Text, primary_key=True),
    Column("pod_uid", Text, nullable=False),
    Column("namespace", Text, nullable=False),
    Column("pod", Text, nullable=False),
    Column("job", Text, nullable=False),
    Column("plan", Text, nullable=False),
    Column("queue", Text, nullable=False),
    Column("priority", BigInteger, nullable=False),
    Column("node", Text, nullable=False),
    Column("requests", Text, nullable=False),  # JSON
    Column("slices", Text, nullable=False),
    Column("slots", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("intent", Text, nullable=False),
    Column("intent_reason", Text, nullable=False),
    Column("resource_version", Text, nullable=False),
    Column("deadline", Double, nullable=False),
    Column("forced", Boolean, nullable=False),
    Column("traceparent", Text, nullable=False),
    Column("changed_at", Double, nullable=False),
    Column("min_member", Integer, nullable=False, server_default="1"),  # of its job, as the next two
    Column("preemptable", Boolean, nullable=False, server_default=true()),
    Column("created_at", Double, nullable=False, server_default="0"),
    Column("claimed_at", Double, nullable=False, server_default="0"),  # it is live from here to `changed_at` of its end
    Column("cards", Text, nullable=False, server_default="{}"),  # JSON: thousandths of cards by model
    Column("models", Text, nullable=False, server_default="{}"),  # JSON: what counts against queues by model
    Column("pool", Text, nullable=False, server_default=""),  # in which it counts; empty for `pooled`
    Column("protected_until", Double, nullable=False, server_default="0"),  # not reclaimed before
    Column("rank", Integer, nullable=False, server_default="-1"),  # of its pod in the job; -1: none
    Column(
        "layout", Text, nullable=False, server_default=""
    ),  # which container gets which of `slices`; empty where that follows
    Column("volume_claims", Text, nullable=False, server_default=""),  # names, separated by commas
    CheckConstraint("state IN ('pending', 'posted', 'void')", name="claims_state"),
    Index("claims_pod", "pod_uid", unique=True, sqlite_where=text("state <> 'void'"), postgresql_where=text("state <> 'void'")),
    Index("claims_void", "changed_at", sqlite_where=text("state = 'void'"), postgresql_where=text("state = 'void'")),
)

#: The card of each number in `claims.slices`, `card_slots` and `card_accounts` (`core.cardnumbers`): each card has one number, and each number is one card's.
card_names = Table(
    "card_names",
    metadata,
    Column("node", Text, primary_key=True),
    Column("card", Text, primary_key=True),
    Column("number", Integer, nullable=False),
    Column("since", BigInteger, nullable=False),  # sequence number of its audit record; the latest id of a number counts
    Index("card_names_number", "node", "number", "since", unique=True),
)

card_slots = Table(
    "card_slots",
    metadata,
    Column("claim", Text, ForeignKey("claims.id", ondelete="CASCADE"), primary_key=True),
    Column("card", Integer, primary_key=True),
    Column("node", Text, nullable=False),
    Column("slot", Integer, nullable=False),
    Column("live", Boolean, nullable=False),
    Index(
        "card_slots_slot", "node", "card", "slot", unique=True,
        sqlite_where=text("live AND slot >= 0"), postgresql_where=text("live AND slot >= 0"),
    ),
)  # fmt: skip

card_accounts = Table(
    "card_accounts",
    metadata,
    Column("node", Text, primary_key=True),
    Column("card", Integer, primary_key=True),
    Column("cores", BigInteger, nullable=False),  # percent
    Column("memory_mib", BigInteger, nullable=False),
    Column("pods", BigInteger, nullable=False),
    Column("whole", BigInteger, nullable=False),  # of these pods, those that take all of it
    Column("forced", BigInteger, nullable=False),
    Column("size_mib", BigInteger, nullable=False),
    Column("shares", BigInteger, nullable=False),
    CheckConstraint("cores >= 0 AND memory_mib >= 0 AND pods >= 0 AND whole >= 0 AND forced >= 0", name="card_accounts_none_below_zero"),
    CheckConstraint(
        "forced > 0 OR pods = 0 OR (cores <= 100 AND memory_mib <= size_mib AND pods <= shares AND (whole = 0 OR pods = 1))",
        name="card_accounts_not_overbooked",
    ),
)  # fmt: skip

#: A queue's balances: a cache of `transfers`, which a replay must reproduce.
accounts = Table(
    "accounts",
    metadata,
    Column("queue", Text, primary_key=True),
    Column("resource", Text, primary_key=True),
    Column("pending", BigInteger, nullable=False),
    Column("posted", BigInteger, nullable=False),
    Column("borrowed", BigInteger, nullable=False, server_default="0"),
    CheckConstraint("borrowed >= 0 AND borrowed <= pending + posted", name="accounts_borrowed"),
    CheckConstraint("pending >= 0 AND posted >= 0", name="accounts_not_negative"),
)

#: Double entry: each row takes from `debit` what it gives to `credit`. One a turn of the ledger, queue, resource and pair; append-only.
transfers = Table(
    "transfers",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("epoch", BigInteger, nullable=False),
    Column("idx", BigInteger, nullable=False),  # of the last change of the turn
    Column("at", Double, nullable=False),
    Column("queue", Text, nullable=False),
    Column("resource", Text, nullable=False),
    Column("debit", Text, nullable=False),
    Column("credit", Text, nullable=False),
    Column("amount", BigInteger, nullable=False),
    CheckConstraint("amount > 0 AND debit <> credit", name="transfers_move_something"),
)

#: Thousandths of card-seconds by the hour that begins at `hour` (seconds since the epoch).
usage = Table(
    "usage",
    metadata,
    Column("hour", BigInteger, primary_key=True),
    Column("queue", Text, primary_key=True),
    Column("namespace", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("own", BigInteger, nullable=False),
    Column("borrowed", BigInteger, nullable=False),
    Column("idle", BigInteger, nullable=False),
    CheckConstraint("own >= 0 AND borrowed >= 0 AND idle >= 0", name="usage_not_negative"),
)

plan_answers = Table(
    "plan_answers",
    metadata,
    Column("plan", Text, primary_key=True),
    Column("scheduler", Text, nullable=False),
    Column("job", Text, nullable=False),
    Column("committed", Boolean, nullable=False),
    Column("reason", Text, nullable=True),
    Column("message", Text, nullable=False),
    Column("refresh", BigInteger, nullable=False),
    Column("at", Double, nullable=False),
    Index("plan_answers_at", "at"),
)

gangs = Table(
    "gangs",
    metadata,
    Column("job", Text, primary_key=True),
    Column("min_member", Integer, nullable=False),
    Column("deadline", Double, nullable=False),
    Column("unwinding", Boolean, nullable=False),
    Column("finished", Integer, nullable=False),
)

#: Places for which others leave (`core.evictions.nominations`): they count in no account.
nominations = Table(
    "nominations",
    metadata,
    Column("plan", Text, primary_key=True),
    Column("until", Double, nullable=False),
    Column("body", Text, nullable=False),  # JSON
)

#: Queues as last read from Kubernetes. A deleted queue stays, as `gone`, so that its deletion is published after any crash.
queues = Table(
    "queues",
    metadata,
    Column("name", Text, primary_key=True),
    Column("phase", Text, nullable=False),
    Column("capability", Text, nullable=False),  # JSON
    Column("weight", BigInteger, nullable=False),
    Column("priority", BigInteger, nullable=False),
    Column("gone", Boolean, nullable=False),
    Column("rules", Text, nullable=False, server_default="{}"),  # JSON: shares, parent, and whether others may reclaim
)

#: One record a change of state, each with the hash of the one before: a chain that cannot be edited in the middle.
audit = Table(
    "audit",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("epoch", BigInteger, nullable=False),
    Column("at", Double, nullable=False),
    Column("actor", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("change", Text, nullable=False),
    Column("cause", Text, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Column("entry", Text, nullable=False, server_default=""),  # JSON, of a new claim: what it holds
)

#: Sealed parts of `audit` and `transfers` (`core.segments`): append-only, and their rows may be deleted from the two tables. Ranges include both ends.
segments = Table(
    "segments",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("first_record", BigInteger, nullable=False),
    Column("last_record", BigInteger, nullable=False),
    Column("first_transfer", BigInteger, nullable=False),
    Column("last_transfer", BigInteger, nullable=False),
    Column("first_at", Double, nullable=False),  # of the first and last record
    Column("last_at", Double, nullable=False),
    Column("previous", LargeBinary, nullable=False),  # hash of the record before
    Column("head", LargeBinary, nullable=False),  # hash of the last record
    Column("digest", LargeBinary, nullable=False),  # SHA-256 of the content
    Column("size", BigInteger, nullable=False),  # of the content in bytes
)

#: The compressed rows of a segment; missing once they were exported and removed.
segment_contents = Table(
    "segment_contents",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("content", LargeBinary, nullable=False),
    info={"rows": 8},  # copied at a time
)
