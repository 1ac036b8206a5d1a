"""Metrics by queue, pool and namespace: cards, jobs, the age of the oldest pending job, seconds until jobs are bound, evictions, quotas of cards.

A separate page, /metrics/queues, because it contains names (ADR 98). It has many series (2,000 queues: 20,000 lines), so they are no gauges of the registry,
which renders everything at once. A scrape renders them from the books in parts, between turns of the ledger, and other scrapes within RENDERED_S get the same
text: clients cannot multiply the cost. Figures of two queues may be some milliseconds apart. Turns update the counters and histograms.

Jobs may name any queue: only queues that exist are labels, and of these MOST_QUEUES. All others, and a queue of this name, count together as the queue `other`.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from hbox_common.clock import Clock, monotonic_s
from hbox_common.model import QueueName, QueueTree
from hbox_common.model.traceids import traceparent_of
from hbox_common.telemetry import decided, exemplar, recording
from hbox_common.telemetry.series import Counters, Family, Histogram, Row, head, lines

from .core import queuecards
from .core.accounts.usage import CARD
from .core.cardstates import CardCounts, CardState, NodeUse
from .core.ledgerstate import LedgerState
from .core.step import Step

T = TypeVar("T")

MOST_QUEUES, MOST_POOLS, MOST_QUOTAS = 2_000, 200, 2_000
OTHER = "other"  #: the label of all queues, or pools, beyond these numbers
RENDERED_S = 5.0
#: Of the histogram, in seconds.
BOUND_WITHIN_S = (1.0, 10.0, 60.0, 600.0, 3_600.0, 21_600.0, 86_400.0)
#: Nodes or queues, and jobs, in one go: about a millisecond.
_SOME, _SOME_JOBS = 64, 2_048


QUEUE_CARDS = Family(
    "hbox_queue_cards",
    "gauge",
    "Cards of a queue and all queues below it: used, borrowed (beyond deserved), offline, and what its rules give: guaranteed, deserved, limit, lent",
)
QUEUE_JOBS = Family("hbox_queue_jobs", "gauge", "Jobs of a queue: pending (pods to place, no pod has a place) or placed")
OLDEST = Family("hbox_queue_oldest_pending_seconds", "gauge", "Age in seconds of a queue's oldest pending job; 0 = none")
EVICTED = Family("hbox_queue_evictions_total", "counter", "Pods of a queue whose eviction was decided, by rule")
CAUSED = Family("hbox_queue_evictions_caused_total", "counter", "Pods whose eviction was decided for jobs of a queue, by rule")
BOUND = Family(
    "hbox_queue_submit_to_bound_seconds",
    "histogram",
    "Seconds from a job's creation until its minimum of pods is bound, at its first start",
)
GANG_NODES = Family(
    "hbox_queue_gang_nodes_total",
    "counter",
    "Nodes of gangs with cards at their first start: used, and the least that could hold them",
)
GANG_GROUPS = Family(
    "hbox_queue_gang_groups_total",
    "counter",
    "Leaf groups of the fabric of the same gangs: used, and the least that could hold them",
)
QUOTA_USED = Family("hbox_ledger_card_quota_used", "gauge", "Cards that pods of a namespace hold of a ResourceQuota's limit")
QUOTA_LIMIT = Family("hbox_ledger_card_quota_limit", "gauge", "Cards that a ResourceQuota allows; 0 if the quota is invalid")
CARDS = Family("hbox_cards", "gauge", "Cards by pool, model and state: used, kept (nominated), idle, unhealthy, unavailable")
NODES = Family("hbox_card_nodes", "gauge", "Nodes with cards by pool and by use of these: empty, partial, full, unavailable")
FAMILIES = (
    QUEUE_CARDS,
    QUEUE_JOBS,
    OLDEST,
    EVICTED,
    CAUSED,
    GANG_NODES,
    GANG_GROUPS,
    BOUND,
    CARDS,
    NODES,
    QUOTA_USED,
    QUOTA_LIMIT,
)


class QueueMetrics:
    """`clock`: seconds since the epoch, as in the books."""

    def __init__(self, *, clock: Clock, most: int = MOST_QUEUES) -> None:
        self._clock, self._most = clock, most
        self._counters = {family: Counters() for family in (EVICTED, CAUSED, GANG_NODES, GANG_GROUPS)}
        self._bound: defaultdict[str, Histogram] = defaultdict(partial(Histogram, BOUND_WITHIN_S))
        self._cards = CardCounts()
        self._bound_shown: set[str] = set()  #: in an earlier scrape: the first shows 0, as `Counters` do
        self._named: frozenset[QueueName] = frozenset()
        self._named_in: QueueTree | None = None
        self._named_at = -1  #: the tree's version
        self._text, self._rendered_at = b"", float("-inf")
        self._rendering = asyncio.Lock()

    def committed(self, step: Step, tree: QueueTree) -> None:
        """Count the evictions and the bound jobs of a committed turn."""
        for queue, job, seconds in step.bound:
            trace = exemplar(decided(traceparent_of(job))) if recording() else None
            self._bound[self.label(tree, queue)].add(max(seconds, 0.0), trace, at=step.now)
        for queue, spread in step.gangs_bound:
            for family, used, least in (
                (GANG_NODES, spread.nodes, spread.least_nodes),
                (GANG_GROUPS, spread.groups, spread.least_groups),
            ):
                for which, number in (("used", used), ("least", least)):
                    self._counters[family].add((("queue", self.label(tree, queue)), ("of", which)), number)
        for receipt in step.receipts:
            for family, queue in ((EVICTED, receipt.queue), (CAUSED, receipt.for_queue)):
                if queue:
                    labels = (("queue", self.label(tree, queue)), ("rule", receipt.rule.value))
                    self._counters[family].add(labels, len(receipt.pods))

    async def text(self, books: Callable[[], LedgerState]) -> bytes:
        """All of them in Prometheus's text format, at most RENDERED_S old. `books`: returns the current state, which a failed commit replaces."""
        async with self._rendering:
            if monotonic_s() >= self._rendered_at + RENDERED_S:
                self._text = b"".join([part async for part in self._render(books)])
                self._rendered_at = monotonic_s()
            return self._text

    async def _render(self, books: Callable[[], LedgerState]) -> AsyncIterator[bytes]:
        """Family by family; after each part other tasks run."""
        parts = (
            self._cards_of_queues,
            self._jobs,
            self._counted_events,
            self._bound_jobs,
            self._cards_by_pool,
            self._card_quotas,
        )
        for part in parts:
            async for text in part(books):
                yield text
                await asyncio.sleep(0)

    async def _cards_of_queues(self, books: Callable[[], LedgerState]) -> AsyncIterator[bytes]:
        state = books()
        names = self._names(state.queues)
        borrowed = queuecards.used_by_borrowers(state.queues, state.used)
        others = Counter[str]()
        for name in state.used.keys() - names:
            others.update(queuecards.cards_in_use(state.used[name], {}))
        rows: list[Row] = [((("queue", OTHER), ("state", which)), others[which]) for which in ("used", "offline")]
        yield head(QUEUE_CARDS) + lines(QUEUE_CARDS, rows)
        for some in _in_parts(sorted(names), _SOME):
            tree, rows = books().queues, []
            for name in some:
                found = queuecards.cards_of_queue(tree, name)
                if (lent := queuecards.lent_by(tree, name, borrowed)) is not None:
                    found["lent"] = lent
                rows += [((("queue", name), ("state", which)), cards) for which, cards in found.items()]
            yield lines(QUEUE_CARDS, rows)

    async def _jobs(self, books: Callable[[], LedgerState]) -> AsyncIterator[bytes]:
        pending, placed, oldest = Counter[str](), Counter[str](), dict[str, float]()
        looked = 0
        for queue in list(books().records.queues()):
            label = self.label(books().queues, queue)
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
                placed[self.label(books().queues, queue)] += count
        labels = [OTHER, *sorted(self._names(books().queues))]
        yield head(QUEUE_JOBS)
        for some in _in_parts(labels, _SOME):
            counts = [
                (name, which, count[name]) for name in some for which, count in (("pending", pending), ("placed", placed))
            ]
            yield lines(QUEUE_JOBS, [((("queue", name), ("state", which)), count) for name, which, count in counts])
        yield head(OLDEST)
        now = self._clock()
        for some in _in_parts(labels, _SOME):
            yield lines(OLDEST, [((("queue", name),), max(now - oldest.get(name, now), 0.0)) for name in some])

    async def _counted_events(self, books: Callable[[], LedgerState]) -> AsyncIterator[bytes]:
        for family, counters in self._counters.items():
            names = self._names(books().queues) | {OTHER}
            counters.keep(lambda labels, names=names: labels[0][1] in names)  # type: ignore[misc]
            yield head(family) + lines(family, counters.rows())

    async def _bound_jobs(self, books: Callable[[], LedgerState]) -> AsyncIterator[bytes]:
        names = self._names(books().queues)
        for gone in [name for name in self._bound if name not in names and name != OTHER]:
            del self._bound[gone]
            self._bound_shown.discard(gone)
        yield head(BOUND)
        for some in _in_parts(sorted(self._bound), _SOME):
            shown = {name: self._bound[name] if name in self._bound_shown else Histogram(BOUND_WITHIN_S) for name in some}
            self._bound_shown.update(some)
            yield "".join([times.text(BOUND, (("queue", name),)) for name, times in shown.items()]).encode()

    async def _cards_by_pool(self, books: Callable[[], LedgerState]) -> AsyncIterator[bytes]:
        state, counts = books(), self._cards
        for names in _in_parts(counts.due(state), _SOME):
            counts.count(state, names)
            yield b""
        named = frozenset(sorted(counts.nodes)[:MOST_POOLS])
        cards = defaultdict[tuple[str, str], Counter[CardState]](Counter)
        nodes = defaultdict[str, Counter[NodeUse]](Counter)
        for pool in counts.nodes:
            label = pool if pool in named else OTHER
            nodes[label].update(counts.nodes[pool])
            for (model, which), amount in counts.cards[pool].items():
                cards[label, model][which] += amount
        rows: list[Row] = [
            ((("pool", pool), ("model", model), ("state", which.value)), count[which] / CARD)
            for (pool, model), count in sorted(cards.items())
            if count.total()
            for which in CardState
        ]
        yield head(CARDS) + lines(CARDS, rows)
        rows = [
            ((("pool", pool), ("state", use.value)), count[use]) for pool, count in sorted(nodes.items()) for use in NodeUse
        ]
        yield head(NODES) + lines(NODES, rows)

    async def _card_quotas(self, books: Callable[[], LedgerState]) -> AsyncIterator[bytes]:
        """Of at most MOST_QUOTAS quotas: users of namespaces may create them."""
        used, limits = list[Row](), list[Row]()
        quotas = books().card_quotas
        for quota in sorted(quotas, key=lambda quota: (quota.namespace, quota.name))[:MOST_QUOTAS]:
            for resource, limit in quota.limits.items():
                labels = (("namespace", quota.namespace), ("quota", quota.name), ("resource", resource))
                used.append((labels, quotas.used(quota.namespace).get(resource, 0)))
                limits.append((labels, 0 if quota.fault else limit))
        yield head(QUOTA_USED) + lines(QUOTA_USED, used)
        yield head(QUOTA_LIMIT) + lines(QUOTA_LIMIT, limits)

    def _names(self, tree: QueueTree) -> frozenset[QueueName]:
        if self._named_in is not tree or self._named_at != tree.version:
            self._named = queuecards.named(tree, self._most) - {OTHER}
            self._named_in, self._named_at = tree, tree.version
        return self._named

    def label(self, tree: QueueTree, queue: QueueName) -> str:
        """The queue's name if it is one of those that are named."""
        return queue if queue in self._names(tree) else OTHER


def _in_parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
