"""The ledger: one turn at a time. A turn decides in the core and commits the decision in one transaction.

Theory of operation. A turn takes the lock, lets the core decide on the books in memory, writes the step and the messages about it in one transaction, and
only then hands the messages to the relay. No other code reads or writes the books' claims meanwhile.

If the database is unavailable during a commit, the books are one turn ahead of it, and the turn stays `pending`. The next turn reads how many were committed:
either the pending one was, or the same rows are written again. Then the books equal the database, the messages are published, and a repeated message finds
its answer or has no effect. Only if a turn fails otherwise (an error in a decision, a rule of the database, a repeated message) are the books reloaded.

A transaction moves the ledger's row from the index at which the turn began, within its epoch. If the row has another epoch or index, another ledger has
taken over, and this one stops.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from sqlalchemy import Connection

from hbox_common.clock import Clock, monotonic_s
from hbox_common.errors import Bug, Conflict, Unavailable
from hbox_common.events import (
    CloudEvent,
    Event,
    HealthEvictionAsked,
    OutcomesObserved,
    PlanAnswer,
    PlansProposed,
    PodAsked,
    PodRead,
    PodsObserved,
    Stream,
    encode,
)
from hbox_common.model import (
    DEFAULT_QUEUE,
    ROOT_QUEUE,
    CardQuota,
    ClaimId,
    ClaimState,
    ClassQuota,
    HyperNode,
    Index,
    NodeDevices,
    NodeName,
    NodeState,
    PlanId,
    PodFact,
    Queue,
    QueueName,
    RefusalReason,
    Verdict,
    models_on,
)
from hbox_common.model.bounds import sanitized
from hbox_common.pace import Pace
from hbox_common.store import Batch, Letter, Store
from hbox_common.telemetry import recording

from . import metrics
from .adapters import load, repair, rollup, segments, tables
from .adapters.journal import Head, Repeated
from .caches import ChangedQueues, RecentIds
from .core import arbitrate, kubelet_cards, lifecycle, publicfacts, recovery
from .core.accounts import budget, loans, usage
from .core.accounts.history import DECAY, Decay
from .core.chain import ASIDE, Record
from .core.claimrecord import Decision
from .core.drift import REPORTED_WITHIN_S, Drift
from .core.evictions.brake import Brake
from .core.fitting import fitting
from .core.ledgerstate import LedgerState
from .core.overbooked import overbooked
from .core.reconcile import Comparison, ListOrder
from .core.recovery import Position, StreamHistory
from .core.segments import sealed_record
from .core.step import Step
from .core.undo import can_be_undone, undo
from .kubelets import Kubelets
from .messages import messages_of
from .queuemetrics import QueueMetrics
from .relay import WINDOW, Outgoing, Relay, message_id
from .traces import record_turn

log = logging.getLogger(__name__)

Extra = Callable[[Batch], None]

NOTHING = StreamHistory()

#: Maximum number of pods named in one log line.
DRIFT_NAMED = 3

#: Maximum characters of a note about an over-booked node.
LONGEST_NOTE = 1000

#: Slices of a comparison: pods to sort, and claims to compare with the list. Each takes milliseconds.
ORDERED_SLICE, MISSED_SLICE = 1000, 10_000

#: Attempts to write a pending turn again that fail although the database can be read; then the books are reloaded without it.
MOST_ATTEMPTS = 10

#: Sealed rows that one transaction deletes, and the pause in seconds after it.
TRIMMED_SLICE, TRIM_PAUSE_S = 256, 0.01


@dataclass(slots=True)
class Turn:
    """A turn that is decided and not known to be committed."""

    step: Step
    index: Index  #: of the books after it
    write: Callable[[Connection], Head]
    outgoing: list[Outgoing]  #: as encoded by the last `write`
    heads: list[Head]  #: of the last `write`
    opens: bool
    then: Callable[[], None] | None
    attempts: int = 0  #: to write it again


@dataclass(frozen=True, slots=True)
class Numbered:
    """A message of the bus and the id that identifies its repetitions."""

    id: str
    event: OutcomesObserved | PodsObserved
    again: bool = False  #: delivered before, so possibly handled already


#: Errors that a database or its driver raises for values that it cannot store.
_REFUSED = (Conflict, OverflowError, ValueError)

#: Maximum changed claims of a turn that commits at once, without the store's thread: a plan of one pod or a few.
BRIEF = 8

#: A warning is logged if the clock was set back by more.
BEHIND_S = 120.0


class Ledger:
    """The only owner of the books. All of its coroutines raise Unavailable while the database is unavailable."""

    def __init__(self, store: Store, relay: Relay, loaded: load.Loaded, *, clock: Clock) -> None:
        self.state = loaded.state
        self.gone = loaded.gone  #: deleted queues
        self.touched = ChangedQueues()
        self.models: Counter[str] = Counter()  #: number of nodes by card model, without zeros
        self.quotas_changed = asyncio.Event()
        self.taken_over = asyncio.Event()
        self.over = "another quota-ledger writes to this database"  #: reason, once `taken_over` is set
        self._store, self._relay, self._clock = store, relay, clock
        self._journal = loaded.journal
        self._lock = asyncio.Lock()
        self._answered, self._handled = RecentIds(), RecentIds()
        self._overbooked: dict[NodeName, str] = {}  #: with the message that describes it
        self._kubelets = Kubelets(clock)
        self._stale = False  #: the books may differ from the database
        self._pending: Turn | None = None  #: the turn by which they may differ; None: undo `_failed`, or reload them
        self._failed: Step | None = None  #: of the turn by which they differ, if the database refused it
        self._names_failed = False  #: no commit since a turn was undone that assigned card numbers
        self._committed = self.state.index  #: last index that the database confirmed
        self._gone_since: dict[QueueName, float] = {}  #: when this process published the deletion of each queue in `gone`
        self._number = 0
        self._unknown = 0
        self._comparison: Comparison | None = None  #: in progress
        self._drift = Drift()
        self.queue_metrics = QueueMetrics(clock=clock)
        self.released: str | None = None  #: last value of the release setting; None: not read yet
        metrics.EPOCH.set(self.state.epoch)
        metrics.FROZEN.set(1)
        for decision in (Decision.BIND, Decision.REVOKE, Decision.EVICT):
            metrics.OLDEST_OPEN.labels(decision.value).set_function(partial(self._oldest_open_s, decision))

    @classmethod
    async def begin(
        cls,
        store: Store,
        relay: Relay,
        *,
        clock: Clock,
        history: StreamHistory = NOTHING,
        decay: Decay = DECAY,
        evictions_most: int = 0,
        notice_s: int = -1,
        by_weight: bool | None = None,
        clock_rate: float = 1.0,
    ) -> "Ledger":
        """Begin a new epoch from the database and from newer messages of the streams; frozen until `reconcile`.
        by_weight: whether queues also have shares by weight. None: never, so that demand is not counted.
        """
        now = clock()

        def start(connection: Connection) -> tuple[load.Loaded, list[Letter], int]:
            before = load.position(connection)
            epoch = load.begin_epoch(connection, now=now, above=history.position.epoch)
            load.delete_unused_names(connection)
            loaded = load.load(connection)
            aside: dict[ClaimId, str] = {}
            if loaded.unreadable:
                aside |= repair.mend(connection, loaded.unreadable, now=now)
                loaded = load.load(connection)
                aside |= repair.mend(connection, loaded.unreadable, now=now)  # rows that the audit could not restore
                repair.recount(connection, loaded.state.live)
            metrics.SET_ASIDE.set(len(aside))
            loaded.state.history = load.history(connection, decay)
            loaded.state.brake = Brake(evictions_most)
            loaded.state.notice_s = notice_s
            loaded.state.clock_rate = clock_rate
            load.recent_moves(connection, loaded.state.moves, now=now)
            load.recent_evictions(connection, loaded.state.evicted, now=now)
            if by_weight is not None:
                loaded.state.count_demand(by_weight=by_weight)
            step = loaded.state.step(now)
            notes = [Record(epoch, now, "quota-ledger", "ledger", "epoch", f"epoch {epoch} begins")]
            notes += [Record(epoch, now, "quota-ledger", claim, ASIDE, why) for claim, why in aside.items()]
            if aside or loaded.left_out:
                repair.balance(connection, loaded.state, step)
            if history.position > before:
                known = load.known(connection, [bind.claim for bind in history.binds])
                adopted = recovery.adopt(loaded.state, step, history.binds, known)
                text = f"{before.epoch}.{before.index} is older than {history.position.epoch}.{history.position.index}, {adopted} claims adopted"
                notes.append(Record(epoch, now, "quota-ledger", "ledger", "restored", text))
                log.warning("the books were restored or lost their end: %s", text)
            loans.lend(loaded.state, step, loaded.state.used.keys() | loaded.state.borrowed.keys())
            step.nominations = loaded.state.nominations.take_changes()
            step.names = loaded.state.numbers.take()
            index = loaded.state.index
            letters = [
                Letter(
                    epoch,
                    number,
                    message.event.ce_type(),
                    message.keys,
                    encode(_identified(message.event, f"{epoch}-{number}")),
                )
                for number, message in enumerate(messages_of(step, epoch=epoch, index=index), start=1)
            ]
            with Batch(connection) as batch:
                head = loaded.journal.write(batch, step, epoch=epoch, index=index, letters=lambda: letters, notes=notes)
            loaded.journal.adopt(head)
            return loaded, tables.outbox.unsent(connection, most=WINDOW), len(letters)

        loaded, letters, number = await store.write(start)
        relay.restore(letters)
        ledger = cls(store, relay, loaded, clock=clock)
        ledger._number = number
        ledger.touch_all()
        log.info("epoch %d begins with %d live claims", loaded.state.epoch, len(loaded.state.live))
        return ledger

    # --- inputs

    def node(self, state: NodeState) -> None:
        """Replace a node's inventory."""
        before = self.state.nodes.get(state.name)
        self.state.know(state.name, state)
        self._kubelets.node_changed(state.name)
        old, new = (models_on(one) if one is not None and not one.gone else set() for one in (before, state))
        if old != new:
            self._models_moved(new - old, old - new)

    def _models_moved(self, come: Iterable[str], gone: Iterable[str]) -> None:
        """Update the card models of the cluster. If a model appears or disappears, publish the queues again: some of them may name it."""
        known = set(self.models)
        self.models.update(come)
        for model in gone:
            self.models[model] -= 1
            if not self.models[model]:
                del self.models[model]
        if self.models.keys() != known and self.state.by_model:
            self.touch_all()

    def fabric(self, fabric: str, version: int, domains: Iterable[HyperNode]) -> None:
        """Replace the domains of a fabric; the next tick checks gangs that have not begun against them."""
        self.state.fabrics.put(fabric, version, domains)

    def devices(self, reported: NodeDevices) -> None:
        """Record which devices a kubelet allocated; the next tick updates the books."""
        self._kubelets.receive(reported)

    def verdict(self, verdict: Verdict) -> None:
        """Replace a node's verdict: which of its cards may be used."""
        self.state.know(verdict.node, verdict=verdict)

    def evict_from(self, asked: HealthEvictionAsked) -> None:
        """Record or withdraw a request that jobs leave sick hardware; the next tick applies it."""
        self.state.sick.put(asked)

    def limit(self, quotas: Iterable[CardQuota], classes: Iterable[ClassQuota] = ()) -> None:
        """Replace all ResourceQuotas of cards and by PriorityClass."""
        changed = self.state.limit_classes(classes)
        if self.state.limit(quotas) or changed:
            self.quotas_changed.set()

    async def propose(self, proposals: Sequence[PlansProposed]) -> None:
        """Answer the plans of these messages."""
        ids = [plan.id for proposed in proposals for plan in proposed.plans]

        async def answer(*, look: bool) -> None:
            answered: dict[PlanId, PlanAnswer] = await self._store.read(lambda c: load.answers(c, ids)) if look else {}

            def decide(step: Step) -> None:
                lifecycle.find_cards(self.state, step)
                for proposed in proposals:
                    arbitrate.propose(self.state, step, proposed, answered)

            self._answered.add(ids)  # also if the commit fails: the turn may be committed later
            try:
                await self._turn(decide)
            except Conflict:
                # The books allow what the database forbids, so they differ from it: without this turn they would differ still.
                self._failed = None
                raise
            metrics.PLANS.labels("repeated").inc(len(answered))

        async with self._lock:
            await self._fresh()
            # This process answered all plans of this epoch.
            await self._insist(answer, look=ids in self._answered or any(p.epoch != self.state.epoch for p in proposals))

    async def outcomes(self, messages: Sequence[Numbered]) -> None:
        """Apply outcomes of decisions."""
        await self._once("outcomes", messages)

    async def observed(self, messages: Sequence[Numbered]) -> None:
        """Apply pod facts that job-controller published."""
        await self._once("pods", messages)

    async def tick(self) -> None:
        """Run what is due."""
        async with self._lock:
            await self._fresh()
            self.state.brake.pass_(self._clock())
            if not self.state.frozen:
                notes = self._overbookings()
                moves, differing = self._kubelets.look(self.state)
                await self._turn(partial(self._tick, moves), notes=notes + differing)
        self._count_drift()
        metrics.LIVE.set(len(self.state.live))
        metrics.OPEN.set(len(self.state.open))

    def _count_drift(self) -> None:
        within_s = self.state.clock_rate * REPORTED_WITHIN_S
        if names := self._drift.overdue(self._clock(), within_s=within_s):
            metrics.DRIFT.inc(len(names))
            shown = ", ".join(sanitized(name, 128) for name in names[:DRIFT_NAMED])
            log.warning("the ledger differed from the cluster on %d pods that no message reported: %s", len(names), shown)

    def _oldest_open_s(self, decision: Decision) -> float:
        """Read when metrics are scraped."""
        since = [r.changed_at for r in list(self.state.open.values()) if r.decision is decision and not r.blocked]
        return max(0.0, self._clock() - min(since)) if since else 0.0

    def _overbookings(self) -> list[Record]:
        """Nodes that became over-booked since the last call, or no longer are: log, count and audit them."""
        looked, self.state.look_at = self.state.look_at | self._overbooked.keys(), set()
        notes = []
        for name in sorted(looked):
            over, before = overbooked(self.state, name), self._overbooked.pop(name, "")
            if over:
                self._overbooked[name] = over
            if over == before:
                continue
            log.warning("node %s %s", name, f"is over-booked: it holds {over}" if over else "is not over-booked any more")
            change = "overbooked" if over else "fits"  # arrows are for changes of claims only
            notes.append(Record(self.state.epoch, self._clock(), "quota-ledger", f"node {name}", change, over[:LONGEST_NOTE]))
        metrics.OVERBOOKED.set(len(self._overbooked))
        return notes

    def _tick(self, moves: Iterable[kubelet_cards.Moves], step: Step) -> None:
        for one in moves:
            metrics.CARDS_FOLLOWED.inc(kubelet_cards.move(self.state, step, one))
        lifecycle.find_cards(self.state, step)
        lifecycle.tick(self.state, step)
        if self._relay.reaches(
            Stream.DECISIONS
        ):  # otherwise the message waits in the outbox, and would be added again every two minutes
            lifecycle.send_again(self.state, step)

    @property
    def unknown_jobs(self) -> int:
        """Number of plans refused so far because their job is unknown."""
        return self._unknown

    @property
    def index(self) -> Index:
        """Index of the last committed change."""
        return self._committed

    def has_unconfirmed(self, as_of: Index) -> bool:
        """Whether the books at `as_of` contained claims that only the binder reported as posted, and no pod fact has confirmed since."""
        oldest = next(iter(self.state.unseen.values()), None)
        return oldest is not None and oldest <= as_of

    async def release_evictions(self, word: str) -> None:
        """Resume evictions that the rate limit paused, if `word` is new. The first value that a ledger reads dates from before its start, so it releases
        nothing."""
        async with self._lock:
            await self._fresh()
            if word == self.released:
                return
            if word and self.released is not None:
                count = self.state.brake.release()
                message = f"evictions were resumed ({word}): {count} recent evictions no longer count"
                note = Record(self.state.epoch, self._clock(), "kubernetes", "evictions", "released", message)
                await self._turn(lambda _: None, notes=[note])
                log.warning("%s", message)
            self.released = word

    def hold(self, why: str) -> None:
        """Refuse all plans for this reason; empty: accept plans. Committed decisions continue."""
        if bool(why) is not bool(self.state.held):
            metrics.HELD.set(bool(why))
            log.warning("plans are held: %s", why) if why else log.warning("plans are accepted again")
        self.state.held = why

    async def reconcile(self, facts: Sequence[PodFact], *, as_of: Index) -> None:
        """Compare the books with a complete list of bound pods, requested when the books were at `as_of`; the first comparison opens the books.

        Posted claims without a pod become `suspects`. The comparison holds the lock for one slice at a time (`Pace`), so that other turns run in between.
        """
        self._comparison = comparison = Comparison(as_of)
        try:
            await self._compare(comparison, facts)
        finally:
            self._comparison = None
        if self.state.frozen:
            await self._open(len(facts), len(comparison.differed))
        metrics.SUSPECTS.set(len(self.suspects()))

    async def _compare(self, comparison: Comparison, facts: Sequence[PodFact]) -> None:
        order = ListOrder()
        for first in range(0, len(facts), ORDERED_SLICE):
            order.add(self.state, facts[first : first + ORDERED_SLICE])
            await asyncio.sleep(0)
        facts = order.facts()
        pace = Pace()
        first = 0
        while first < len(facts):
            await self._store.settle()
            async with self._lock:
                await self._fresh()
                with pace.slice(facts, first) as some:
                    try:
                        await self._turn(partial(self._take, comparison, some))
                    except _REFUSED as e:
                        await self._fresh()
                        await self._turn(partial(self._take, comparison, self._fitting(some.taken, e)))
            first += len(some.taken)
            await asyncio.sleep(0)  # a turn without changes never suspends: let tasks that wait for the lock run
        async with self._lock:
            await self._fresh()
            live = list(self.state.live)
        for first in range(0, len(live), MISSED_SLICE):
            async with self._lock:
                await self._fresh()
                comparison.miss(self.state, live[first : first + MISSED_SLICE])
            await asyncio.sleep(0)

    def _take(self, comparison: Comparison, facts: Iterable[PodFact], step: Step) -> None:
        comparison.take(self.state, step, facts)
        if not self.state.frozen:
            for uid, fact in comparison.differed.items():
                self._drift.differs(uid, f"{fact.namespace}/{fact.name}", holds=fact.phase.holds, now=step.now)
            comparison.differed.clear()

    async def _open(self, pods: int, differed: int) -> None:
        await self._send_open()

        def decide(step: Step) -> None:
            step.announce = True

        async with self._lock:
            await self._fresh()
            note = Record(self.state.epoch, self._clock(), "reconciler", "ledger", "frozen->open", f"compared with {pods} pods")
            await self._turn(decide, notes=[note], opens=True)
        if self.state.by_model:
            self.touch_all()  # the card models of the cluster are known now
        log.info("open: %d live claims, %d differed from the cluster", len(self.state.live), differed)

    async def _send_open(self) -> None:
        """Send every open decision again at the start of an epoch: the binder drops decisions of older epochs."""
        pace = Pace()
        ids, first = list(self.state.open), 0
        while first < len(ids):
            await self._store.settle()
            async with self._lock:
                await self._fresh()
                with pace.slice(ids, first) as some:
                    await self._turn(lambda step, some=some: lifecycle.send_open(self.state, step, some))  # type: ignore[misc]
            first += len(some.taken)
            await asyncio.sleep(0)

    def suspects(self) -> list[PodAsked]:
        """Pods of posted claims that the last list lacks, and pods that a list shows although they were reported gone."""
        claims = (self.state.live[id].claim for id in self.state.suspects)
        asked = [PodAsked(uid=claim.pod_uid, namespace=claim.namespace, name=claim.pod) for claim in claims]
        contradicted = self.state.contradicted.values()
        return asked + [PodAsked(uid=fact.uid, namespace=fact.namespace, name=fact.name) for fact in contradicted]

    async def read(self, pods: Sequence[PodRead]) -> None:
        """Apply consistent reads of pods."""

        after: Counter[ClaimState] = Counter()

        def decide(step: Step) -> None:
            after.clear()
            for pod in pods:
                lifecycle.read(self.state, step, pod)
            for one in step.changes:
                after[one.claim.state] += 1
                if one.claim.state is ClaimState.VOID:
                    claim = one.claim
                    self._drift.differs(claim.pod_uid, f"{claim.namespace}/{claim.pod}", holds=False, now=step.now)

        async with self._lock:
            await self._fresh()
            await self._turn(decide)
        if freed := after[ClaimState.VOID]:
            log.info("freed %d claims: the pods have ended according to the API server", freed)
        if found := after[ClaimState.POSTED]:
            log.error("%d pods have claims again: they were reported as gone, but run", found)
        metrics.DRIFT.inc(found)
        metrics.SUSPECTS.set(len(self.suspects()))

    async def set_queues(self, *queues: Queue) -> None:
        """Replace the rules of these queues, in one turn: each turn first accrues the usage of all queues under the old rules."""
        async with self._lock:
            await self._fresh()
            changed = [queue for queue in queues if self.state.queues.get(queue.name) != queue]
            if not changed:
                return
            names = [queue.name for queue in changed]
            self._touch_relatives(names)

            def then() -> None:
                for name in names:
                    self.gone.pop(name, None)
                    self._gone_since.pop(name, None)
                self._touch_relatives(names)

            await self._queues(
                [(queue, "set", queue.fault or f"{queue.phase}, capability {queue.capability}") for queue in changed], then
            )

    async def drop_queue(self, name: QueueName) -> None:
        """Drop a deleted queue. Its claims stay until their pods end; it gets no new ones."""
        async with self._lock:
            await self._fresh()
            queue = self.state.queues.get(name)
            if queue is None:
                return

            def then() -> None:
                self.gone[name] = queue
                self._gone_since[name] = self._clock()
                self._touch_relatives([name])

            await self._queues([(queue, "deleted", "its object was deleted")], then, gone=True)

    async def meter(self) -> None:
        """Bring the usage accounts up to the present second.

        The query over all claims runs without the lock, in parallel with the writer: decisions made meanwhile begin or end claims no earlier than that second.
        If a
        queue change brought the accounts up to date meanwhile, the query's result is discarded.
        """
        async with self._lock:
            await self._fresh()
            until, deserved = int(self._clock()), usage.deserved_cards(self.state.queues.values())
        accrued = await self._store.look(lambda c: load.accrued(c, deserved, until=until))
        async with self._lock:
            await self._fresh()
            behind = accrued.since - self._clock()
            if behind > BEHIND_S:
                log.warning(
                    "usage was accrued up to %d s from now: the clock was set back; accrual continues from there", behind
                )
            if accrued.since < accrued.until and accrued.since == await self._store.read(load.metered_until):
                await self._turn(lambda step: budget.spend(self.state, step, accrued))
            if (hours := self.state.history.outdated()) is not None:
                self.state.history.forget(hours[1], await self._store.read(lambda c: load.used_in(c, *hours)))

    async def forget(self, *, before: float) -> int:
        """Delete records that can no longer be repeated. Returns the number of rows."""
        await self.meter()
        async with self._lock:
            await self._fresh()
            gone = [
                name for name, at in self._gone_since.items() if at < before and not any(self.state.used.get(name, {}).values())
            ]
            count = await self._store.write(lambda c: load.forget(c, before=before, queues=gone))
            for name in gone:
                self.gone.pop(name, None)
                self.state.used.pop(name, None)
                del self._gone_since[name]
        return count

    async def thin(self, *, before: float) -> int:
        """Merge hourly usage rows from before that time, and from before the usage history's window, into daily rows. Returns the number of hourly rows."""
        before = min(int(before), self.state.history.decay.begins(int(self._clock())))
        count = 0
        while rows := await self._store.write(lambda c: rollup.sum_up_a_day(c, before=before)):
            count += rows
        return count

    async def seal(self, *, before: float, most: int) -> int:
        """Seal segments of the audit and of the transfers whose records are from before that time, or that more than `most` (0: any number of) records follow.
        Returns the number of segments.

        The lock is held only for the commit of a segment. A pause as long as the work follows each segment, so that a backlog takes half of the time."""
        await self._trim()
        count = 0
        while True:
            history = await self._store.look(segments.summary)
            for metric, value in zip((metrics.SEGMENTS, metrics.SEALED_BYTES, metrics.LIVE_RECORDS), history, strict=True):
                metric.set(value)
            began = monotonic_s()
            async with self._lock:
                await self._fresh()  # a pending turn may seal this segment
            made = await self._store.look(lambda c: segments.draft(c, before=before, most=most))
            if made is None:
                return count
            async with self._lock:
                await self._fresh()
                note = sealed_record(self.state.epoch, self._clock(), made.header, made.digest)
                await self._turn(lambda _: None, notes=[note], extra=partial(segments.add, made=made))
            await self._trim()
            count += 1
            await asyncio.sleep(monotonic_s() - began)

    async def _trim(self) -> None:
        """Delete sealed rows from their tables. Each slice is a short transaction, and others are committed in between."""
        left = await self._store.read(segments.untrimmed)
        while left is not None:
            rows = left
            left = await self._store.write(lambda c, rows=rows: segments.trim(c, rows, TRIMMED_SLICE))  # type: ignore[misc]
            await asyncio.sleep(TRIM_PAUSE_S)

    # --- queries

    @asynccontextmanager
    async def still(self) -> AsyncIterator[LedgerState]:
        """The committed books, under the lock."""
        async with self._lock:
            await self._fresh()
            yield self.state

    def touch_all(self) -> None:
        """Publish the state of every queue and the quotas again."""
        self.quotas_changed.set()
        gone = self.gone.keys() - self._gone_since.keys()  # their deletion was published, and is kept for a day
        self._gone_since |= dict.fromkeys(gone, self._clock())
        used = [name for name, amounts in self.state.used.items() if any(amounts.values())]
        self.touched.add([*self.state.queues, *used, *gone, DEFAULT_QUEUE])

    # --- turns

    async def _once(self, consumer: str, messages: Sequence[Numbered]) -> None:
        ids = [m.id for m in messages]
        mended: dict[str, OutcomesObserved | PodsObserved] = {}

        async def take_in(*, look: bool) -> None:
            known = set(await self._store.read(lambda c: tables.inbox.results(c, consumer, ids))) if look else set()
            new = {m.id: mended.get(m.id, m.event) for m in messages if m.id not in known}

            def decide(step: Step) -> None:
                for event in new.values():
                    if isinstance(event, OutcomesObserved):
                        for outcome in event.outcomes:
                            lifecycle.outcome(self.state, step, outcome)
                    else:
                        for fact in event.pods:
                            lifecycle.observed(self.state, step, fact)

            def note(batch: Batch) -> None:
                tables.inbox.add(batch, consumer, list(new), at=now, otherwise=Repeated())

            def then() -> None:
                facts = [fact for event in new.values() if isinstance(event, PodsObserved) for fact in event.pods]
                self._drift.reported(facts)
                if self._comparison is not None:
                    self._comparison.changed(fact.uid for fact in facts)

            now = self._clock()
            self._handled.add(ids)  # also if the commit fails: the turn may be committed later
            await self._turn(decide, extra=note, then=then)

        async with self._lock:
            await self._fresh()
            look = ids in self._handled or any(m.again for m in messages)
            try:
                await self._insist(take_in, look=look)
            except _REFUSED as e:
                for m in messages:
                    if isinstance(m.event, PodsObserved):
                        mended[m.id] = PodsObserved(pods=tuple(self._fitting(m.event.pods, e)))
                if not mended:
                    raise
                await self._fresh()
                await self._insist(take_in, look=True)

    def _fitting(self, facts: Sequence[PodFact], error: Exception) -> list[PodFact]:
        """The database refused these facts or changes that followed from them: reduce each to what fits."""
        found = [(fact, fitting(fact)) for fact in facts]
        for fact, fit in found:
            if fit != fact:
                metrics.UNFIT.inc()
                name = sanitized(f"{fact.namespace}/{fact.name}", 128)
                log.error("pod %s: %s: %s", name, "booked without what is unfit" if fit else "left out", error)
        return [fit for _, fit in found if fit is not None]

    async def _insist(self, turn: Callable[..., Awaitable[None]], *, look: bool) -> None:
        """Run the turn. `look`: first read from the database which messages were handled before. If `look` is false and one was, the database raises Repeated,
        and
        the turn runs again with `look`.
        """
        try:
            await turn(look=look)
        except Repeated:
            await self._fresh()
            await turn(look=True)

    async def _queues(self, changes: Sequence[tuple[Queue, str, str]], then: Callable[[], None], *, gone: bool = False) -> None:
        """Write these queues, each with its change and the reason, and call `then`."""
        now = self._clock()
        notes = [Record(self.state.epoch, now, "kubernetes", f"queue {queue.name}", what, why) for queue, what, why in changes]
        accrued = await self._accrued()  # under the old rules

        def extra(batch: Batch) -> None:
            for queue, _, _ in changes:
                self._journal.queue(batch, queue, gone=gone)

        def decide(step: Step) -> None:
            budget.spend(self.state, step, accrued)
            for queue, _, _ in changes if not gone else ():
                budget.change(self.state, step, queue)
            for queue, _, _ in changes:
                publicfacts.quota(self.state, step, queue, gone=gone)
                self.state.rule(step, queue.name, None if gone else queue)
                step.queues.add(queue.name)

        await self._turn(decide, notes=notes, extra=extra, then=then)

    def _touch_relatives(self, names: Iterable[QueueName]) -> None:
        """A queue's faults depend on the queues above and below it."""
        for name in names:
            self.touched.add([*self.state.queues.path(name), *self.state.queues.below(name)])

    async def _accrued(self) -> usage.Accrued:
        """Usage to add to the accounts by now. The caller holds the lock until it is committed, so that no claim begins or ends meanwhile."""
        until, deserved = int(self._clock()), usage.deserved_cards(self.state.queues.values())
        return await self._store.read(lambda c: load.accrued(c, deserved, until=until))

    async def _turn(
        self,
        decide: Callable[[Step], None],
        *,
        extra: Extra | None = None,
        notes: Sequence[Record] = (),
        opens: bool = False,
        then: Callable[[], None] | None = None,
    ) -> None:
        """Decide, commit, publish. The caller holds the lock and has called `_fresh`. then: called once it is committed, also if that is only known later."""
        with metrics.COMMIT.time():
            self._stale, self._failed = True, None
            state, journal = self.state, self._journal
            step = state.step(self._clock())
            decide(step)
            publicfacts.drained(state, step)
            step.nominations = state.nominations.take_changes()
            step.names = state.numbers.take()
            usage.meter(step.made.values(), state.nodes)
            loans.lend(state, step, step.queues)
            epoch, index = state.epoch, state.index
            outgoing: list[Outgoing] = []
            heads: list[Head] = []

            def letters() -> list[Letter]:
                outgoing[:] = self._outgoing(step, durable=True)
                return [o.letter for o in outgoing if o.letter is not None]

            def write(connection: Connection) -> Head:
                with Batch(connection) as batch:
                    if extra is not None:
                        extra(batch)
                    heads[:] = [journal.write(batch, step, epoch=epoch, index=index, letters=letters, notes=notes)]
                return heads[0]

            turn = Turn(step, index, write, outgoing, heads, opens, then)
            if step.durable or notes:
                await self._commit(turn)
            else:
                outgoing[:] = self._outgoing(step, durable=False)
            self._finish(turn)

    async def _commit(self, turn: Turn) -> None:
        """Write the turn. If the database is unavailable, it stays pending."""
        self._pending = turn
        try:
            head = await self._store.write(turn.write, brief=len(turn.step.changes) <= BRIEF)
        except Unavailable:
            raise
        except Conflict as e:
            self._pending = None
            try:
                await self._fresh()  # raises if the database lost its last commits
            finally:
                self.taken_over.set()
            raise Unavailable(e.message, hint=e.hint) from e
        except Bug as e:
            # No reason to stop: nothing was committed. The log helps to find the message that caused it.
            self._pending, self._failed = None, turn.step
            log.critical("a decision breaks a rule of the database and was not made: %s", e)
            raise Conflict(f"the database refuses what was decided: {e.message}") from e
        except Exception:
            self._pending, self._failed = None, turn.step
            raise
        self._adopt(turn, head)

    def _adopt(self, turn: Turn, head: Head) -> None:
        self._pending, self._names_failed = None, False
        self._journal.adopt(head)
        self._committed = turn.index

    def _finish(self, turn: Turn) -> None:
        """What follows a turn once it is committed, or needed no commit."""
        state = self.state
        if turn.opens:
            state.frozen = False
            metrics.FROZEN.set(0)
        self._stale = False
        if state.class_quotas.moved:
            state.class_quotas.moved = False
            self.quotas_changed.set()
        if turn.then is not None:
            turn.then()
        self._publish(turn.step, turn.outgoing)
        if recording():
            record_turn(turn.step, self._clock())

    def _outgoing(self, step: Step, *, durable: bool) -> list[Outgoing]:
        out = []
        for message in messages_of(step, epoch=self.state.epoch, index=self.state.index):
            self._number += 1
            letter, letter_id = None, f"{self.state.epoch}-{self._number}"
            event = _identified(message.event, letter_id)
            body = encode(event)
            if durable:
                letter = Letter(self.state.epoch, self._number, event.ce_type(), message.keys, body)
            out.append(Outgoing(event, body, message.keys, letter_id, letter))
        return out

    def _publish(self, step: Step, outgoing: list[Outgoing]) -> None:
        for message in sorted(outgoing, key=_waited_for):
            self._relay.send(message)
        if step.queues:
            self.touched.add(name for queue in step.queues for name in self.state.queues.path(queue))
            if ROOT_QUEUE in self.state.queues:
                self.touched.add([ROOT_QUEUE])
        for state, count in Counter(change.claim.state for change in step.changes).items():
            metrics.CHANGES.labels(state.value).inc(count)
        self.queue_metrics.committed(step, self.state.queues)
        for stored in step.stored:
            self._unknown += stored.answer.reason is RefusalReason.JOB_UNKNOWN
            metrics.PLANS.labels("committed" if stored.answer.committed else str(stored.answer.reason)).inc()

    async def _fresh(self) -> None:
        """Make the books equal to the database, if they may differ: complete the pending turn, undo one that was refused, or reload them."""
        if self._stale and self._pending is not None:
            await self._complete(self._pending)
        if self._stale and self._failed is not None:
            await self._undo(self._failed)
        if self._stale:
            await self._reload()

    async def _complete(self, turn: Turn) -> None:
        """Commit the pending turn, unless it was. The books stay stale if that is impossible. Raises Unavailable while the database is."""
        position, commits = await self._store.read(load.commits)
        before = self._journal.head.commits
        if (position, commits) == (Position(self.state.epoch, turn.index), before + 1) and turn.heads:
            log.warning("the last turn was committed: the books continue from it")
            self._adopt(turn, turn.heads[0])
        elif (position, commits) == (Position(self.state.epoch, turn.step.first), before):
            turn.attempts += 1
            try:
                await self._commit(turn)
            except Unavailable:
                if turn.attempts >= MOST_ATTEMPTS:
                    self._pending, self._failed = None, turn.step
                raise
            except Exception as e:  # noqa: BLE001  it belongs to the caller of that turn, who has an error already
                log.error("the last turn cannot be committed, and is given up: %s", e)
                return
            log.warning("the last turn was not committed, and is now")
        else:
            self._pending = None
            return
        metrics.COMPLETED.inc()
        self._finish(turn)

    async def _undo(self, step: Step) -> None:
        """Replace what the step changed by what the database has. The books stay stale if that is impossible."""
        if not can_be_undone(step) or (step.names and self._names_failed):
            return
        at, committed = Position(self.state.epoch, step.first), self._journal.head.commits
        saved = await self._store.read(lambda c: load.before(c, step, self.state.numbers, at, committed=committed))
        self._failed = None  # if this fails, the books are reloaded
        if saved is None:
            return
        undo(self.state, step, saved)
        self._stale, self._names_failed = False, bool(step.names)
        metrics.UNDONE.inc()
        log.warning("the last turn is undone: %d claims are as before", len(saved.records))

    async def _reload(self) -> None:
        """Read the books from the database."""
        metrics.RELOADED.inc()
        old = self.state
        loaded, letters, history = await self._store.read(
            lambda c: (load.load(c), tables.outbox.unsent(c, most=WINDOW), load.history(c, old.history.decay))
        )
        if loaded.state.epoch > old.epoch:
            self.taken_over.set()
            raise Unavailable(
                f"another quota-ledger has taken over from epoch {old.epoch}", hint="only one may run on a database"
            )
        if (loaded.state.epoch, loaded.state.index) < (old.epoch, self._committed):
            at = f"{loaded.state.epoch}.{loaded.state.index}"
            self.over = f"the database is at {at} and had committed {old.epoch}.{self._committed}: it lost its end"
            self.taken_over.set()
            raise Unavailable(self.over, hint="a restarted ledger continues with the messages of the streams")
        state = loaded.state
        state.look_at |= old.look_at
        found = {
            node: {uid: fact for uid, fact in facts.items() if uid in state.by_pod} for node, facts in old.unplaced.items()
        }
        state.unplaced = {node: facts for node, facts in found.items() if facts}
        state.described = set(state.unplaced)
        state.nodes, state.verdicts, state.fabrics = old.nodes, old.verdicts, old.fabrics
        state.single_node, state.sick = old.single_node, old.sick
        for node in state.nodes.values():
            state.name_cards(node)
        for gang in state.gangs.values():
            gang.keep(old.gangs.get(gang.job))
        state.gone, state.contradicted, state.schedulers = old.gone, old.contradicted, old.schedulers
        state.brake, state.moves, state.notice_s, state.evicted = old.brake, old.moves, old.notice_s, old.evicted
        state.clock_rate = old.clock_rate
        state.keep_records(old.records)
        state.suspects = {id: None for id in old.suspects if id in state.live}
        state.unseen = {id: posted for id, posted in old.unseen.items() if id in state.live}
        state.frozen, state.held, state.history = old.frozen, old.held, history
        state.limit(old.card_quotas)
        state.class_quotas.keep(old.class_quotas, (record.claim for record in state.live.values()))
        self.state, self._journal, self.gone, self._stale = state, loaded.journal, loaded.gone, False
        self._relay.restore(letters)
        log.warning("the books were read anew: %d live claims", len(state.live))


def _identified(event: Event, letter: str) -> Event:
    return event.identified(message_id(letter)) if isinstance(event, CloudEvent) else event


def _waited_for(message: Outgoing) -> bool:
    """Sort key that puts decisions first, because the binder waits for them. Streams are published in parallel, each in its order."""
    return message.event.about.stream is not Stream.DECISIONS
