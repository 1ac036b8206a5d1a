"""The core at work: deliveries in, calls made, outcomes published, deliveries acknowledged, in this order."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from hbox_common.bus import Bus, Delivery, LeadEdgeBatcher
from hbox_common.clock import monotonic_s, wall_s
from hbox_common.events import Bind, BindDecided, EvictDecided, NodeRests, NodeStateChanged, Outcome, OutcomesObserved
from hbox_common.kube import KubeClient
from hbox_common.model import DecisionId, NodeName
from hbox_common.runtime import Condition
from hbox_common.telemetry import exemplar, within

from . import metrics
from .adapters.cluster import carry_out
from .adapters.epochs import Epochs
from .adapters.nodelocks import NodeLocks
from .adapters.podlabels import PodLabels
from .core import (
    Acknowledge,
    Answer,
    Answered,
    Binder,
    Breaker,
    Call,
    CardsChanged,
    Decided,
    Effect,
    Event,
    Finding,
    LockStands,
    NodeCards,
    Report,
    Ruled,
    Start,
    Ticked,
    Unlock,
    Unlocked,
    Verb,
)
from .steps import Steps

log = logging.getLogger(__name__)

#: Everything is in one shard today.
SHARD = "0"

#: Seconds after this binder's start within which decisions may have reached a previous binder: the broker's clock may differ, and the ledger repeats decisions.
STARTED_S = 5.0

#: Seconds after which a missing right is no longer reported if it was not needed: calls that need it are retried every ten seconds.
LACKING_S = 60.0

#: Seconds between two messages of outcomes, and after one with several: no component waits for a single outcome.
OUTCOMES_S, MANY_OUTCOMES_S = 0.05, 0.2


@dataclass(slots=True, eq=False)
class _Handling:
    """A call of `handle` that waits for the outcomes of its decisions."""

    left: int
    over: "asyncio.Future[None]"
    steps: Steps


class Worker:
    """One loop runs it all, and the core is only touched between awaits: it needs no lock."""

    def __init__(
        self,
        core: Binder,
        client: KubeClient,
        bus: Bus,
        on_kube: Condition,
        on_rights: Condition,
        *,
        taken_grace_s: int,
        notice_s: int = -1,
        epochs: Epochs,
        cards: NodeCards,
        lock_expires_s: float = 300.0,
        volume_timeout_s: float = 45.0,
    ) -> None:
        """`cards`: by which `core` tells who takes turns."""
        self.core = core
        self._cards = cards
        self._bus = bus
        self._locks = NodeLocks(
            client,
            on_news=self._lock_changed,
            waited_for=core.waits_to_bind,
            in_line=core.waits_for,
            expires_s=lock_expires_s,
        )
        self._volume_timeout_s = volume_timeout_s
        self._began = wall_s()
        self._labels = PodLabels(client)
        self._taken_grace_s, self._notice_s = taken_grace_s, notice_s
        self._client, self._on_kube, self._on_rights, self._epochs = client, on_kube, on_rights, epochs
        self._outcomes: LeadEdgeBatcher[Outcome] = LeadEdgeBatcher(
            bus.publish, self._message, SHARD, window_s=OUTCOMES_S, backlog_window_s=MANY_OUTCOMES_S
        )
        metrics.RUNNING.set_function(lambda: core.running)
        metrics.IN_LINE.set_function(lambda: core.in_line)
        metrics.WAITING.set_function(lambda: core.waiting)
        self._lacking: dict[Verb, tuple[str, float]] = {}  #: rights, by what they are for: the API server's words, and when
        self._handlings: dict[DecisionId, list[_Handling]] = {}
        self._group = asyncio.TaskGroup()
        self._sooner = asyncio.Event()  #: the core wants to be woken earlier than `_keep_time` sleeps
        self._sleeping_until: float | None = None

    async def run(self) -> None:
        """Until cancelled. Calls under way are broken off then, which is as harmless as a crash."""
        async with self._group:
            self._group.create_task(self._outcomes.run())
            self._group.create_task(self._keep_time())
            self._group.create_task(self._locks.run())
            self._group.create_task(self._labels.run())

    async def see(self, deliveries: Sequence[Delivery]) -> None:
        """Receive states and rests of nodes."""
        for delivery in deliveries:
            if isinstance(delivery.event, NodeRests):
                self._locks.rest(delivery.event.rest)
            elif isinstance(delivery.event, NodeStateChanged):
                node = delivery.event.node
                if node.registered:
                    self._locks.want()
                if self._cards.see(node):
                    self._step(CardsChanged(node.name))

    def report_rights(self) -> None:
        """Report a missing right until a call of its kind succeeds, whatever other calls do. Call it periodically."""
        since = monotonic_s() - LACKING_S
        lacking = [message for message, at in self._lacking.values() if at > since]
        if lacking:
            self._on_rights.bad("; ".join(lacking))
        else:
            self._on_rights.ok()

    async def handle(self, deliveries: Sequence[Delivery]) -> None:
        """Apply decisions; returns when the broker has stored the outcome of each (or it needs none).

        Raises InvalidRequest for a decision of an epoch that the ledger has not reached, Unavailable if that cannot be determined.
        """
        batches: list[Decided] = []
        for delivery in deliveries:
            event = delivery.event
            assert isinstance(event, BindDecided | EvictDecided)
            counts = await self._epochs.check(event.epoch)
            if counts != self.core.epoch:
                self._step(Ruled(counts))
            seen = delivery.deliveries > 1 or delivery.stored_at < self._began + STARTED_S
            batches.append(Decided(event.epoch, event.binds if isinstance(event, BindDecided) else event.evictions, seen))
        ids = {decision.id for batch in batches for decision in batch.decisions}
        handling = _Handling(len(ids), asyncio.get_running_loop().create_future(), Steps())
        for id_ in ids:
            self._handlings.setdefault(id_, []).append(handling)
        for batch in batches:
            self._step(batch)
        if ids:
            await handling.over
            handling.steps.record()
        now = wall_s()
        for delivery in deliveries:
            metrics.DECIDED_S.observe(max(0.0, now - delivery.stored_at))

    # --- the core

    def _step(self, event: Event) -> None:
        self._execute(self.core.step(event, now=monotonic_s(), wall=wall_s()))
        due = self.core.next_wake()
        if due is not None and (self._sleeping_until is None or due < self._sleeping_until):
            self._sooner.set()

    def _execute(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Start():
                    if effect.lock_wait_s is not None:
                        metrics.LOCK_WAIT_S.observe(effect.lock_wait_s, exemplar(effect.call.decision.traceparent))
                    self._group.create_task(self._call(effect.call))
                case Unlock():
                    self._group.create_task(self._unlock(effect.bind))
                case Report():
                    if (writing := self._labels.writing(effect.outcome.decision)) is None:
                        self._hand_in(effect)
                    else:
                        writing.add_done_callback(partial(self._labelled, effect))
                case Acknowledge():
                    if effect.stale:
                        metrics.STALE.inc()
                        log.info("a decision of an older epoch was dropped", extra={"decision": effect.decision})
                    self._release(effect.decision)
                case Breaker():
                    metrics.BREAKER.set(effect.open)
                    if effect.open:
                        rate = self.core.limits.evictions_per_min
                        log.warning("more than %g evictions a minute: %d are held back", rate, effect.waiting)
                    else:
                        log.warning("evictions are not held back any more")

    async def _keep_time(self) -> None:
        while True:
            self._sooner.clear()
            self._sleeping_until = self.core.next_wake()
            wait_s = None if self._sleeping_until is None else max(0.0, self._sleeping_until - monotonic_s())
            try:
                async with asyncio.timeout(wait_s):
                    await self._sooner.wait()
            except TimeoutError:
                self._step(Ticked())

    # --- effects

    async def _call(self, call: Call) -> None:
        decision = call.decision
        started, clock = wall_s(), monotonic_s()
        answer = await carry_out(
            self._client,
            call,
            cards=self._cards,
            locks=self._locks,
            labels=self._labels,
            taken_grace_s=self._taken_grace_s,
            notice_s=self._notice_s,
            volume_timeout_s=self._volume_timeout_s,
            now=started,
        )
        took_s = monotonic_s() - clock
        metrics.CALL_S[call.verb].observe(took_s)
        if call.verb is Verb.BIND:
            metrics.BIND_S.observe(took_s, exemplar(call.decision.traceparent))
        self._trace(call, started, took_s)
        if answer.not_allowed:
            self._lacking[call.verb] = answer.message, monotonic_s()
        elif answer.finding is not Finding.UNCLEAR:
            self._lacking.pop(call.verb, None)
        self.report_rights()
        if answer.finding is Finding.UNCLEAR and not answer.not_allowed:
            self._on_kube.bad(answer.message)
        else:
            self._on_kube.ok()
        if answer.finding in (Finding.UNCLEAR, Finding.REFUSED, Finding.BLOCKED):
            _log_answer(call, answer)
        self._step(Answered(decision.id, answer))
        if isinstance(decision, Bind):
            self._lock_changed(decision.node)
        if call.verb is Verb.FENCE and answer.finding is Finding.UNBOUND:
            await self._leave_no_lock(decision.namespace, decision.pod)

    async def _leave_no_lock(self, namespace: str, pod: str) -> None:
        """Of a pod that will not be bound: a binder that was killed may have locked a node for it."""
        for node in self._locks.held_by(namespace, pod):
            if not self.core.waits_to_bind(namespace, pod):
                await self._locks.release(node, namespace=namespace, pod=pod)

    async def _unlock(self, bind: Bind) -> None:
        await self._locks.release(bind.node, namespace=bind.namespace, pod=bind.pod)
        self._lock_changed(bind.node)

    def _lock_changed(self, node: NodeName) -> None:
        """The lock may be gone before the answer to the call that took it is here; or it is not that pod's, but of one whose binding a binder before this one
        did not come to."""
        if not self.core.awaits_unlock(node):
            return
        if self._locks.free(node):
            self._step(Unlocked(node))
        elif (holder := self._locks.holder(node)) is not None:
            self._step(LockStands(node, holder))

    def _trace(self, call: Call, started: float, took_s: float) -> None:
        waiting = self._handlings.get(call.decision.id)
        steps = waiting[0].steps if waiting else Steps()
        steps.add(call, started, took_s)
        if not waiting:
            steps.record()

    def _labelled(self, report: Report, writing: "asyncio.Task[None]") -> None:
        if not writing.cancelled():
            self._hand_in(report)

    def _hand_in(self, report: Report) -> None:
        self._outcomes.hand_in(report.outcome).add_done_callback(partial(self._stored, report))

    def _stored(self, report: Report, stored: "asyncio.Future[None]") -> None:
        if stored.cancelled():
            return
        if (error := stored.exception()) is not None:
            self._group.create_task(_fail(error))
            return
        outcome = report.outcome
        if report.again:
            metrics.REPEATED.inc()
        elif report.kind is None:
            metrics.BINDS[outcome.outcome].inc()
        else:
            metrics.EVICTIONS.labels(report.kind, "blocked" if outcome.blocked else outcome.outcome).inc()
        self._release(outcome.decision)

    def _message(self, outcomes: Sequence[Outcome]) -> OutcomesObserved:
        return OutcomesObserved(epoch=self.core.epoch, outcomes=tuple(outcomes))

    def _release(self, decision: DecisionId) -> None:
        for handling in self._handlings.pop(decision, ()):
            handling.left -= 1
            if not handling.left and not handling.over.done():
                handling.over.set_result(None)


async def _fail(error: BaseException) -> None:
    """Ends the service, by the group that it runs in: an outcome is bounded, so that a message carries it."""
    raise error


def _log_answer(call: Call, answer: Answer) -> None:
    decision = call.decision
    level = logging.WARNING if answer.finding is Finding.REFUSED else logging.INFO
    with within(decision.traceparent):
        log.log(
            level, "%s of %s/%s: %s: %s", call.verb, decision.namespace, decision.pod, answer.finding, answer.message,
            extra={"claim": decision.claim, "job": decision.job},
        )  # fmt: skip
