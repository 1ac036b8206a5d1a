"""Metrics by queue and by pool: cards, jobs, the age of the oldest pending job, evictions.

They have many series (2,000 queues: 20,000 lines), so they are no gauges of the registry, which renders everything at once. A scrape renders them from the
books in parts, between turns of the ledger, and other scrapes within RENDERED_S get the same text: clients cannot multiply the cost. Figures of two queues may
be some milliseconds apart. Only the counters of evictions are updated by turns.

Jobs may name any queue, and any client that reaches the port reads the labels: only queues that exist are labels, and of these MOST_QUEUES. All others, and
a queue of this name, count together as the queue `other`.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

from hbox_common.clock import Clock, monotonic_s
from hbox_common.events import EvictionReceipt
from hbox_common.model import QueueName, QueueTree, pool_of
from hbox_common.telemetry import escaped

from .core import queuecards
from .core.accounts.usage import CARD
from .core.cardstates import CardState, NodeUse, cards_on
from .core.ledgerstate import LedgerState

T = TypeVar("T")
#: Labels and value of one series.
Row: TypeAlias = tuple[tuple[tuple[str, str], ...], float]

MOST_QUEUES, MOST_POOLS = 2_000, 200
OTHER = "other"  #: the label of all queues, or pools, beyond these numbers
RENDERED_S = 5.0
#: Nodes or queues, and jobs, in one go: about a millisecond.
_SOME, _SOME_JOBS = 64, 2_048


class Family(NamedTuple):
    name: str
    type: str
    help: str


QUEUE_CARDS = Family(
    "hbox_queue_cards",
    "gauge",
    "Cards of a queue and all queues below it: used, borrowed (beyond deserved), offline, and what its rules give: guaranteed, deserved, limit, lent",
)
QUEUE_JOBS = Family("hbox_queue_jobs", "gauge", "Jobs of a queue: pending (pods to place, no pod has a place) or placed")
OLDEST = Family("hbox_queue_oldest_pending_seconds", "gauge", "Age in seconds of a queue's oldest pending job; 0 = none")
EVICTED = Family("hbox_queue_evictions_total", "counter", "Pods of a queue whose eviction was decided, by rule")
CAUSED = Family("hbox_queue_evictions_caused_total", "counter", "Pods whose eviction was decided for jobs of a queue, by rule")
CARDS = Family("hbox_cards", "gauge", "Cards by pool, model and state: used, kept (nominated), idle, unhealthy, unavailable")
NODES = Family("hbox_card_nodes", "gauge", "Nodes with cards by pool and by use of these: empty, partial, full, unavailable")
FAMILIES = (QUEUE_CARDS, QUEUE_JOBS, OLDEST, EVICTED, CAUSED, CARDS, NODES)


class QueueMetrics:
    """`clock`: seconds since the epoch, as in the books."""

    def __init__(self, *, clock: Clock, most: int = MOST_QUEUES) -> None:
        self._clock, self._most = clock, most
        self._evictions: dict[Family, Counter[tuple[str, str]]] = {EVICTED: Counter(), CAUSED: Counter()}
        self._named: frozenset[QueueName] = frozenset()
        self._named_in: QueueTree | None = None
        self._named_at = -1  #: the tree's version
        self._text, self._rendered_at = b"", float("-inf")
        self._rendering = asyncio.Lock()

    def evicted(self, receipts: Iterable[EvictionReceipt], tree: QueueTree) -> None:
        """Count the evictions of a committed turn."""
        for receipt in receipts:
            self._evictions[EVICTED][self._label(tree, receipt.queue), receipt.rule.value] += len(receipt.pods)
            if receipt.for_queue:
                self._evictions[CAUSED][self._label(tree, receipt.for_queue), receipt.rule.value] += len(receipt.pods)

    async def text(self, books: Callable[[], LedgerState]) -> bytes:
        """All of them in Prometheus's text format, at most RENDERED_S old. `books`: returns the current state, which a failed commit replaces."""
        async with self._rendering:
            if monotonic_s() >= self._rendered_at + RENDERED_S:
                self._text = b"".join([part async for part in self._render(books)])
                self._rendered_at = monotonic_s()
            return self._text

    async def _render(self, books: Callable[[], LedgerState]) -> AsyncIterator[bytes]:
        """Family by family; after each part other tasks run."""
        parts = (self._cards_of_queues, self._jobs, self._counted_evictions, self._cards_by_pool)
        for part in parts:
            async for lines in part(books):
                yield lines
                await asyncio.sleep(0)

    async def _cards_of_queues(self, books: Callable[[], LedgerState]) -> AsyncIterator[bytes]:
        state = books()
        names = self._names(state.queues)
        borrowed = queuecards.used_by_borrowers(state.queues, state.used)
        others = Counter[str]()
        for name in state.used.keys() - names:
            others.update(queuecards.cards_in_use(state.used[name], {}))
        rows: list[Row] = [((("queue", OTHER), ("state", which)), others[which]) for which in ("used", "offline")]
        yield _head(QUEUE_CARDS) + _lines(QUEUE_CARDS, rows)
        for some in _in_parts(sorted(names), _SOME):
            tree, rows = books().queues, []
            for name in some:
                found = queuecards.cards_of_queue(tree, name)
                if (lent := queuecards.lent_by(tree, name, borrowed)) is not None:
                    found["lent"] = lent
                rows += [((("queue", name), ("state", which)), cards) for which, cards in found.items()]
            yield _lines(QUEUE_CARDS, rows)

    async def _jobs(self, books: Callable[[], LedgerState]) -> AsyncIterator[bytes]:
        pending, placed, oldest = Counter[str](), Counter[str](), dict[str, float]()
        looked = 0
        for queue in list(books().records.queues()):
            label = self._label(books().queues, queue)
            for jobs in _in_parts(list(books().records.created_in(queue).items()), _SOME_JOBS):
                placed_jobs = books().jobs
                if created := [at for id, at in jobs if id not in placed_jobs]:
                    pending[label] += len(created)
                    oldest[label] = min(*created, oldest.get(label, created[0]))
                if (looked := looked + len(jobs)) >= _SOME_JOBS:
                    looked = 0
                    yield b""
        for queue, count in list(books().placed_jobs.items()):
            if queue:
                placed[self._label(books().queues, queue)] += count
        labels = [OTHER, *sorted(self._names(books().queues))]
        yield _head(QUEUE_JOBS)
        for some in _in_parts(labels, _SOME):
            counts = [
                (name, which, count[name]) for name in some for which, count in (("pending", pending), ("placed", placed))
            ]
            yield _lines(QUEUE_JOBS, [((("queue", name), ("state", which)), count) for name, which, count in counts])
        yield _head(OLDEST)
        now = self._clock()
        for some in _in_parts(labels, _SOME):
            yield _lines(OLDEST, [((("queue", name),), max(now - oldest.get(name, now), 0.0)) for name in some])

    async def _counted_evictions(self, books: Callable[[], LedgerState]) -> AsyncIterator[bytes]:
        for family, counts in self._evictions.items():
            names = self._names(books().queues)
            rows = [(name, rule, count) for (name, rule), count in sorted(counts.items()) if name in names or name == OTHER]
            yield _head(family) + _lines(family, [((("queue", name), ("rule", rule)), count) for name, rule, count in rows])

    async def _cards_by_pool(self, books: Callable[[], LedgerState]) -> AsyncIterator[bytes]:
        cards = defaultdict[tuple[str, str], Counter[CardState]](Counter)
        nodes = defaultdict[str, Counter[NodeUse]](Counter)
        pools = frozenset(sorted({pool_of(node.labels) for node in books().nodes.values()})[:MOST_POOLS])
        for names in _in_parts(list(books().nodes), _SOME):
            state = books()
            for name in names:
                if (found := cards_on(state, name)) is not None:
                    pool = found.pool if found.pool in pools else OTHER
                    nodes[pool][found.use] += 1
                    for (model, which), amount in found.cards.items():
                        cards[pool, model][which] += amount
            yield b""
        rows: list[Row] = [
            ((("pool", pool), ("model", model), ("state", which.value)), count[which] / CARD)
            for (pool, model), count in sorted(cards.items())
            for which in CardState
        ]
        yield _head(CARDS) + _lines(CARDS, rows)
        rows = [
            ((("pool", pool), ("state", use.value)), count[use]) for pool, count in sorted(nodes.items()) for use in NodeUse
        ]
        yield _head(NODES) + _lines(NODES, rows)

    def _names(self, tree: QueueTree) -> frozenset[QueueName]:
        if self._named_in is not tree or self._named_at != tree.version:
            self._named = queuecards.named(tree, self._most) - {OTHER}
            self._named_in, self._named_at = tree, tree.version
        return self._named

    def _label(self, tree: QueueTree, queue: QueueName) -> str:
        return queue if queue in self._names(tree) else OTHER


def _in_parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _head(family: Family) -> bytes:
    return f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.type}\n".encode()


def _lines(family: Family, rows: Iterable[Row]) -> bytes:
    return "".join(
        [
            f"{family.name}{{{','.join([f'{name}={_quoted(value)}' for name, value in labels])}}} {value:.10g}\n"
            for labels, value in rows
        ]
    ).encode()


def _quoted(value: str) -> str:
    return f'"{escaped(value)}"'
