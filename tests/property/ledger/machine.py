"""The ledger on SQLite between schedulers that lie, a bus that repeats and reorders, and a cluster that tells the truth late.

Every step is judged by the model (what a plan has to be answered) and by the proof (what may never be). Killing the process is dropping the ledger and
what its relay had not published; a database that fails does so before a commit, or after it.

Of S9 the ledger knows three parts, that a pod is evicted by one decision, that one which may not be evicted stays, and that nobody takes from one before the
time that is written on its claim, and the machine judges these. The others are kept where their facts are: disruption budgets by the API server, whose 429 the
binder obeys (tests/integration/binder), grace periods by the binder, which tells the API server (there too).
"""

import asyncio
import shutil
import sqlite3
import tempfile
from collections.abc import Awaitable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TypeAlias, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from hbox_common.errors import Bug, Conflict, Unavailable
from hbox_common.events import (
    Bind,
    BindOutcome,
    OutcomesObserved,
    Placement,
    Plan,
    PlanAnswer,
    PlansAnswered,
    PlansProposed,
    PodRead,
    PodStanding,
)
from hbox_common.model import (
    CardSlice,
    ClaimState,
    Epoch,
    Generation,
    Index,
    JobDemand,
    JobTerms,
    NodeName,
    PlanId,
    PodFact,
    PodPhase,
    PodRef,
    PodUid,
    QueueName,
    Resources,
    SchedulerId,
    TaskDemand,
)
from hbox_ledger.core.ledgerstate import LedgerState
from hbox_ledger.ledger import Ledger, Numbered

from ...jobterms import revisions, terms
from ...same_books import assert_as_in_the_database
from .cluster import CARDS, GPU, JOBS, LAB_JOBS, OPEN, OWN, QUEUES, Cluster, Job, Pod, Streams
from .model import Model, nominated_by, nominated_in
from .process import Process, empty, erring, failing, refusing, started
from .proof import Proof, evictions, s10_s11_a_binding_is_what_was_claimed, s11_every_pod_of_ours_has_a_claim
from .rows import ClaimRow, Reader, Rows

T = TypeVar("T")

Where: TypeAlias = tuple[NodeName, tuple[CardSlice, ...]]

SCHEDULER = SchedulerId("s")


def _cards(*given: tuple[int, int, int]) -> tuple[CardSlice, ...]:
    return tuple(CardSlice(*one) for one in given)


_WHOLE = [_cards((i, 100, 100)) for i in range(CARDS)]
_HALF = [_cards((i, 50, 50)) for i in range(CARDS)]
_OTHER = [_cards((0, 30, 10)), _cards((1, 0, 60)), _cards((0, 50, 50), (1, 50, 50)), _cards((0, 100, 100), (1, 100, 100))]
_WRONG = [_cards((CARDS, 100, 100)), _cards((0, 30, 10), (0, 30, 10)), _cards((0, 30, 101))]
slices = st.sampled_from([()] * 8 + [*_WHOLE, *_HALF] * 4 + _OTHER * 2 + _WRONG)
nodes = st.runner().flatmap(lambda machine: st.sampled_from(machine.all_nodes))
placed = st.tuples(nodes, slices)
wheres = st.lists(placed, min_size=1, max_size=4)
jobs = st.runner().flatmap(lambda machine: st.sampled_from(machine.all_jobs))
anything = st.integers(0, 2**16)


class LedgerMachine(RuleBasedStateMachine):
    by_weight = False  #: whether queues have shares by weight
    all_jobs: Sequence[Job] = JOBS
    all_nodes: Sequence[NodeName] = [NodeName("a"), NodeName("b")] * 20 + [NodeName("nowhere")]

    def __init__(self) -> None:
        super().__init__()
        memory = Path("/dev/shm")
        self.folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
        self.path = self.folder / "ledger.db"
        self.path.write_bytes(empty())
        self.backup = self.folder / "backup.db"
        self.runner = asyncio.Runner()
        self.clock, self.ahead = 1000.0, 0.0  #: a clock that is never set, and by how much the time of day is wrong
        self.cluster, self.streams, self.proof = Cluster(), Streams(), Proof()
        self.plans: list[Plan] = []
        self.answered: dict[PlanId, PlanAnswer] = {}
        self.needing: LedgerState | None = None  #: the books for which `needed` was noted
        self.needed: dict[str, list[Plan]] = {}  #: by claim, the plans for which those books have it leave
        self.blocked: dict[str, int] = {}  #: claims of gangs that are unwound, and the decision to evict that was refused
        self.blockers: LedgerState | None = None  #: the books that were told so
        self.zombie: Process | None = None
        self.reader = Reader(self.path)
        self.waits: dict[PodUid, tuple[QueueName, Resources]] = {}  #: as job-controller said last
        self.process = self.start()
        for queue in QUEUES.values():
            self.run(self.ledger.set_queues(queue))
        self.settle()
        self.compare()

    @initialize(full=st.booleans())
    def some_cards_are_taken(self, full: bool) -> None:
        held = [(JOBS[0], "a", _WHOLE[0]), (JOBS[2], "a", _WHOLE[1]), (JOBS[-1], "b", _WHOLE[0])]
        for job, node, given in held if full else ():
            self.propose_a_plan(job, [(NodeName(node), given)], twice=False, works=True)

    def teardown(self) -> None:
        for process in (self.process, self.zombie):
            if process is not None:
                self.run(process.stack.aclose())
        self.runner.close()
        self.reader.close()
        shutil.rmtree(self.folder)

    def run(self, what: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await what

        return self.runner.run(awaited())

    def start(self) -> Process:
        return self.run(started(self.path, self.streams, self.time_of_day, by_weight=self.by_weight))

    def time_of_day(self) -> float:
        """The time of day, as the ledger and the binder are told it."""
        return self.clock + self.ahead

    @property
    def ledger(self) -> Ledger:
        return self.process.ledger

    def settle(self) -> None:
        """Judge what there is now."""
        self.rows = self.reader.read()
        self.reader.seen(self.rows)
        self.proof.after(self.rows, self.cluster, self.streams)
        if not self.ledger._stale:
            self.ledger.state.validate()
            live = {id: h.claim.state for id, h in self.ledger.state.live.items()}
            assert live == {c.id: c.state for c in self.rows.live()}, "the books differ from the database"

    def complete(self) -> None:
        """Let the ledger complete a turn whose commit failed, so that the next step is judged by itself."""
        books, pending, failed = self.ledger.state, self.ledger._pending is not None, self.ledger._failed
        self.run(self.ledger._fresh())
        self.settle()
        if failed is not None and self.ledger.state is books:
            self.run(assert_as_in_the_database(books, self.process.store))
        assert not pending or self.ledger.state is books, "the books were reloaded although a turn could be completed"

    # --- schedulers

    def waiting(self, job: Job, count: int) -> list[Pod]:
        return self.cluster.waiting(job, count, besides={claim.pod for claim in self.rows.live()})

    def plan(self, name: str, job: Job, pods: Sequence[Pod], where: Sequence[Where]) -> Plan:
        made = Plan(
            id=f"{name}{len(self.plans)}", job=job.id, namespace=job.namespace, name=job.id, queue=job.queue, priority=job.priority,
            min_member=job.min_member, bound=9, preemptable=job.preemptable, deadline_s=60.0,
            requests=tuple({"cpu": 1000, "pods": 1, GPU: len(given)} for _, given in where),
            placements=tuple(
                Placement(pod_uid=pod.uid, pod=pod.uid, resource_version="1", node=node, generation=Generation(1), slices=given, requests=i)
                for i, (pod, (node, given)) in enumerate(zip(pods, where, strict=True))
            ),
        )  # fmt: skip
        self.plans.append(made)
        self.proof.plans[made.id] = made
        return made

    def propose(self, plans: Sequence[Plan], epoch: Epoch, process: Process | None = None) -> dict[PlanId, PlanAnswer]:
        process = process or self.process
        process.ledger.state.records.ask()
        process.ledger.state.records.only(self.published(plans))
        message = PlansProposed(scheduler=SCHEDULER, epoch=epoch, seen=Index(0), plans=tuple(plans))
        first = len(process.relay.told)
        self.run(process.ledger.propose([message]))
        told = [a for e in process.relay.told[first:] if isinstance(e, PlansAnswered) for a in e.answers]
        return {answer.plan: answer for answer in told}

    def published(self, plans: Sequence[Plan]) -> list[JobTerms]:
        """What job-controller says of jobs: of those of the plans what these say and, where weights count, of all pods that wait what they ask for."""
        known = {plan.job: terms(plan) for plan in plans}
        if not self.by_weight:
            return list(known.values())
        self.waits = {
            pod.uid: (pod.job.queue, {"cpu": 1000, "pods": 1, GPU: 1})
            for pod in self.cluster.pods.values()
            if pod.job is not None and pod.phase is None
        }
        for plan in plans:
            for p in plan.placements:
                self.waits[p.pod_uid] = plan.queue, dict(plan.requests[p.requests])
        found: list[JobTerms] = []
        for job in self.all_jobs:
            pods = {uid: asks for uid, (_, asks) in self.waits.items() if self.cluster.pods[uid].job is job}
            tasks = tuple(TaskDemand(asks, (PodRef(uid, uid, "1"),)) for uid, asks in pods.items())
            own = known.get(job.id)
            revision = own.revision if own is not None else next(revisions)
            preemptable = own.preemptable if own is not None else True
            created_at = own.created_at if own is not None else 0.0
            found.append(
                JobDemand(
                    job.id,
                    job.namespace,
                    job.queue,
                    job.priority,
                    job.min_member,
                    created_at,
                    revision,
                    preemptable,
                    tasks=tasks,
                )
            )
        return found

    @rule(job=jobs, where=wheres, twice=st.booleans(), works=st.booleans())
    def propose_a_plan(self, job: Job, where: list[Where], twice: bool, works: bool) -> None:
        plan = self.plan("p", job, self.waiting(job, len(where)), where)
        self._propose([plan, plan] if twice else [plan])
        if works:
            self.work_goes_on()

    @rule(several=st.lists(st.tuples(jobs, wheres), min_size=2, max_size=4), works=st.booleans())
    def propose_plans_together(self, several: list[tuple[Job, list[Where]]], works: bool) -> None:
        """Each is judged beside those before it."""
        self._propose([self.plan("p", job, self.waiting(job, len(where)), where) for job, where in several])
        if works:
            self.work_goes_on()

    @precondition(lambda self: any(pod.job for pod in self.cluster.pods.values()))
    @rule(which=anything, where=placed)
    def propose_a_pod_that_has_a_claim_or_has_ended(self, which: int, where: Where) -> None:
        claimed = {claim.pod for claim in self.rows.live()}
        known = [(p, p.job) for p in self.cluster.pods.values() if p.job is not None]
        pod, job = ([one for one in known if one[0].over or one[0].uid in claimed] or known)[-1 - which % 2 :][0]
        self._propose([self.plan("p", job, [pod], [where])])

    def _propose(self, plans: Sequence[Plan]) -> None:
        self.complete()
        before, gone, frozen = self.rows, set(self.ledger.state.gone), self.ledger.state.frozen
        told = self.propose(plans, self.ledger.state.epoch)
        self.settle()
        if frozen:
            assert {answer.reason for answer in told.values()} == {"LedgerReconciling"}
            return
        if self.ledger.state is not self.needing:
            self.needing, self.needed = self.ledger.state, {}
        nominated = nominated_in(before)
        for plan in {plan.id: plan for plan in plans}.values():
            waits = self.waits if self.by_weight else None
            model = Model(before, QUEUES, gone, nominated, self.may_not_leave(before), waits, self.time_of_day())
            right = model.accepts(plan)
            self.completed(plan, before) if right else None
            if plan.victims:
                mine = {p.pod_uid for p in plan.placements}
                nominated = [p for p in nominated if p.pod not in mine]
                nominated += nominated_by(plan) if right else []
                for victim in plan.victims if right else ():
                    self.needed.setdefault(victim.claim, []).append(plan)
            assert told[plan.id].committed == right, f"{told[plan.id]} of {plan}"
            self.answered[plan.id] = told[plan.id]
            if right:
                before = model.after(plan)
        claims = [{(c.pod, c.plan, c.preemptable) for c in rows.live()} for rows in (before, self.rows)]
        assert claims[0] == claims[1], "a plan made other claims than it placed"

    @precondition(lambda self: any(c.state == "posted" for c in self.rows.live()))
    @rule(job=anything, which=st.lists(anything, min_size=1, max_size=2), elsewhere=st.lists(placed, max_size=1))
    def take_from_others(self, job: int, which: list[int], elsewhere: list[Where]) -> None:
        posted = [c for c in self.rows.live() if c.state == "posted"]
        victims = list({c.id: c for c in (posted[n % len(posted)] for n in which)}.values())
        able = [one for one in self.all_jobs if one.priority >= victims[0].priority] or self.all_jobs
        self.take(victims, able[job % len(able)], elsewhere)

    def take(self, victims: Sequence[ClaimRow], job: Job, elsewhere: Sequence[Where] = (), pods: Sequence[Pod] = ()) -> None:
        where = [(NodeName(c.node), c.slices) for c in victims] + list(elsewhere)
        where += [where[0]] * max(0, job.min_member - len(where))
        plan = self.plan("take", job, pods or self.waiting(job, len(where)), where)
        named = tuple({"claim": c.id, "pod_uid": c.pod} for c in victims)
        self.plans[-1] = self.proof.plans[plan.id] = plan = Plan.model_validate({**plan.model_dump(), "victims": named})
        self._propose([plan])

    @precondition(lambda self: self.plans)
    @rule(which=anything, epochs=st.sampled_from([0, 0, -1, 1]))
    def propose_it_again(self, which: int, epochs: int) -> None:
        """S12, S14: the same answer, or one that says that the epoch is over, and no effect."""
        self._again(self.plans[-1 - which % min(len(self.plans), 8)], epochs)

    @rule(job=jobs, where=wheres, epochs=st.sampled_from([-1, 1]))
    def propose_in_another_epoch(self, job: Job, where: list[Where], epochs: int) -> None:
        self._again(self.plan("e", job, self.waiting(job, len(where)), where), epochs)

    def _again(self, plan: Plan, epochs: int) -> None:
        self.complete()
        before, frozen = self.reader.read(), self.ledger.state.frozen
        answer = self.propose([plan], Epoch(self.ledger.state.epoch + epochs))[plan.id]
        self.settle()
        if frozen and answer.reason == "LedgerReconciling":
            pass  # not an answer: it may be asked again
        elif plan.id in self.answered or plan.id in before.answers:
            said = (answer.plan, answer.job, answer.committed, answer.reason, answer.message, answer.refresh)
            assert said == before.answers.get(plan.id), "S12: an answer was changed, or is not kept"
            assert answer == self.answered.setdefault(plan.id, answer), "S12: a plan got two answers"
        elif epochs:
            assert answer.reason == "StaleEpoch", "S14: a plan of another epoch was judged"
        else:
            self.answered[plan.id] = answer
            return
        assert self.rows.index == before.index, "S12: a plan that was answered had an effect again"

    @precondition(lambda self: self.zombie is not None)
    @rule(job=jobs, where=placed)
    def an_older_ledger_wakes_up(self, job: Job, where: Where) -> None:
        """S14: whoever has been followed writes nothing."""
        assert self.zombie is not None
        plan = self.plan("z", job, self.waiting(job, 1), [where])
        self.plans.remove(plan)
        self.zombie.ledger.state.frozen = False
        before = self.reader.read()
        try:
            self.propose([plan], self.zombie.ledger.state.epoch, self.zombie)
        except Unavailable:
            assert self.zombie.ledger.taken_over.is_set()
        self.settle()
        assert (self.rows.epoch, self.rows.index) == (before.epoch, before.index), "S14: an older ledger wrote"
        assert plan.id not in self.rows.answers, "S14: an older ledger answered"

    # --- the bus

    @rule(most=st.sampled_from([1, 9]), flush=st.booleans())
    def publish(self, most: int, flush: bool) -> None:
        self.run(self.process.relay.publish(self.streams, most))
        if flush:
            self.run(self.process.relay.flush())
        self.settle()

    @rule(which=anything, published=st.booleans())
    def decisions_reach_the_binder(self, which: int, published: bool) -> None:
        if published:
            self.run(self.process.relay.publish(self.streams, 99))
        said = self.streams.decisions()
        for event in said[len(said) - 1 - which % min(len(said), 4) :] if said else []:
            self.cluster.take(event)

    @precondition(lambda self: self.cluster.begun)
    @rule(which=anything, again=st.booleans(), heard=st.booleans())
    def a_call_has_its_effect(self, which: int, again: bool, heard: bool) -> None:
        """`again`: its answer was lost, so that it is made once more."""
        begun = self.cluster.begun
        decision = begun[which % len(begun)]
        if not again:
            begun.remove(decision)
        bound = self.cluster.pods[decision.pod_uid].holds
        self.cluster.land(decision, now=self.time_of_day())
        if isinstance(decision, Bind) and not bound and self.cluster.pods[decision.pod_uid].holds:
            s10_s11_a_binding_is_what_was_claimed(self.reader.read(), decision.claim, decision.node, decision.slices)
        self.settle()
        if heard:
            self.news_reach_the_ledger(-1, lost=False)

    @precondition(lambda self: self.cluster.begun)
    @rule(which=anything)
    def a_call_gets_no_answer(self, which: int) -> None:
        self.cluster.tell(self.cluster.begun[which % len(self.cluster.begun)], BindOutcome.UNKNOWN)
        self.news_reach_the_ledger(-1, lost=False)

    @rule()
    def work_goes_on(self) -> None:
        """What usually happens: all is published, done and heard."""
        self.decisions_reach_the_binder(2, published=True)
        while self.cluster.begun:
            self.a_call_has_its_effect(0, again=False, heard=False)
        while self.cluster.news:
            self.news_reach_the_ledger(0, lost=False)

    @precondition(lambda self: self.cluster.news)
    @rule(which=anything, lost=st.sampled_from([False] * 7 + [True]))
    def news_reach_the_ledger(self, which: int, lost: bool) -> None:
        message = self.cluster.news.pop(which if which < 0 else which % min(len(self.cluster.news), 4))
        if lost:
            return
        self.complete()
        before = self.rows
        self.run(self.hear(message))
        self.settle()
        self.refusals_are_heeded(message, before)
        if self.rows.index != before.index:
            self.cluster.old_news.append(message)

    @precondition(lambda self: self.cluster.old_news)
    @rule(which=anything)
    def news_reach_the_ledger_again(self, which: int) -> None:
        message = self.cluster.old_news[which % len(self.cluster.old_news)]
        self.complete()
        before = self.reader.read()
        self.run(self.hear(message))
        self.settle()
        assert self.rows.index == before.index, "S12: a message that was handled had an effect again"

    def may_not_leave(self, rows: Rows) -> list[str]:
        """Claims of gangs that are unwound, as far as the ledger knows by now: that is not kept over a restart, nor when the books are read anew."""
        if self.ledger.state is not self.blockers:
            self.blocked = {}
        now = {id: (rows.claims[id].intent, rows.claims[id].generation) for id in self.blocked}
        return [id for id, generation in self.blocked.items() if now[id] == ("evict", generation)]

    def completed(self, plan: Plan, before: Rows) -> None:
        """What a plan that completes a gang does to the rest of it."""
        gang = before.gangs.get(plan.job)
        if plan.victims or gang is None or not gang.unwinding:
            return
        now = self.rows.gangs.get(plan.job)
        assert now is None or not now.unwinding, "S6: a gang is completed, and unwound at the same time"
        stay = [id for id in self.may_not_leave(before) if before.claims[id].job == plan.job]
        assert all(self.rows.claims[id].intent == "revoke" for id in stay), "S6: a member leaves a gang that was completed"

    def refusals_are_heeded(self, message: Numbered, before: Rows) -> None:
        """S9: who may not be evicted stays, and nobody leaves for a plan that this brings to nothing."""
        for told in message.event.outcomes if isinstance(message.event, OutcomesObserved) else ():
            claim = before.claims.get(told.claim)
            if (
                not told.blocked
                or claim is None
                or (claim.live, claim.intent, claim.generation) != (True, "evict", told.generation)
            ):
                continue
            gang = before.gangs.get(claim.job)
            if gang is not None and gang.unwinding:
                if self.ledger.state is not self.blockers:
                    self.blockers, self.blocked = self.ledger.state, {}
                self.blocked[claim.id] = claim.generation
                continue
            assert self.rows.claims[claim.id].intent == "revoke", f"S9: {claim.pod} goes on leaving, which it may not"
            thwarted = self.needed.pop(claim.id, [])
            for plans in self.needed.values():
                plans[:] = [plan for plan in plans if plan not in thwarted]

    async def hear(self, message: Numbered) -> None:
        if isinstance(message.event, OutcomesObserved):
            await self.ledger.outcomes([message])
        else:
            await self.ledger.observed([message])

    # --- the cluster

    @precondition(lambda self: self.cluster.bound())
    @rule(which=anything, phase=st.sampled_from([PodPhase.RUNNING, PodPhase.SUCCEEDED, PodPhase.FAILED, PodPhase.GONE]))
    def a_bound_pod_changes(self, which: int, phase: PodPhase) -> None:
        bound = self.cluster.bound()
        self.cluster.change(bound[which % len(bound)], phase)

    @precondition(lambda self: self.cluster.bound())
    @rule(which=anything, forbids=st.sampled_from([True, True, False]))
    def a_budget_forbids_evictions(self, which: int, forbids: bool) -> None:
        bound = self.cluster.bound()
        bound[which % len(bound)].guarded = forbids

    @precondition(lambda self: any(p.phase is None for p in self.cluster.pods.values()))
    @rule(which=anything)
    def a_waiting_pod_is_deleted(self, which: int) -> None:
        waiting = [p for p in self.cluster.pods.values() if p.phase is None]
        self.cluster.change(waiting[which % len(waiting)], PodPhase.GONE)

    @precondition(lambda self: sum(p.job is None for p in self.cluster.pods.values()) < 2)
    @rule(node=st.runner().flatmap(lambda machine: st.sampled_from(machine.all_nodes[:-1])), card=st.integers(0, CARDS - 1))
    def another_scheduler_binds(self, node: NodeName, card: int) -> None:
        self.cluster.foreign(node, (CardSlice(card, 100, 100),))

    @rule()
    def compare(self) -> None:
        self.list_pods([pod.fact() for pod in self.cluster.bound()])
        s11_every_pod_of_ours_has_a_claim(self.rows, self.cluster)

    @rule(seen=st.integers(0, 255))
    def compare_with_a_view_that_is_old(self, seen: int) -> None:
        """A list that lacks pods which are bound: nothing that runs loses its claim by it."""
        self.list_pods([pod.fact() for number, pod in enumerate(self.cluster.bound()) if seen >> number % 8 & 1])

    def list_pods(self, facts: Sequence[PodFact]) -> None:
        self.run(self.ledger.reconcile(facts, as_of=self.ledger.index))
        self.settle()

    @rule(fails=st.integers(0, 255))
    def suspects_are_read(self, fails: int) -> None:
        """At the API server, by uid; some reads fail."""
        reads = [
            PodRead(uid=asked.uid, standing=PodStanding.UNKNOWN) if fails >> number % 8 & 1 else self.cluster.read(asked.uid)
            for number, asked in enumerate(self.ledger.suspects())
        ]
        self.run(self.ledger.read(reads))
        self.settle()

    @rule()
    def compare_until_sure(self) -> None:
        """Whatever was missed, and whatever the clock said meanwhile, no pod that is gone holds anything then."""
        self.compare()
        self.suspects_are_read(0)
        bound = {pod.uid for pod in self.cluster.bound()}
        held = {claim.pod for claim in self.rows.live() if claim.state == ClaimState.POSTED}
        assert held <= bound, "pods that are gone hold claims"

    # --- time and trouble

    @rule(ahead=st.sampled_from([-600.0, 0.0, 600.0]))
    def the_clock_is_set(self, ahead: float) -> None:
        self.ahead = ahead

    @rule(seconds=st.sampled_from([0.5, 20.0, 61.0]))
    def wait(self, seconds: float) -> None:
        self.clock += seconds
        self.run(self.ledger.tick())
        self.settle()
        if self.ledger.state is self.needing and not self.ledger.state.frozen:
            self.proof.s7_nobody_leaves_in_vain(self.rows, self.needed, self.ledger.state.gone)

    @rule(zombie=st.booleans(), opens=st.sampled_from([True, True, True, False]))
    def the_ledger_is_killed(self, zombie: bool, opens: bool) -> None:
        old = self.process
        self.process = self.start()
        if self.zombie is not None:
            self.run(self.zombie.stack.aclose())
            self.zombie = None
        if zombie:
            self.zombie = old
        else:
            self.run(old.stack.aclose())
        self.settle()
        if opens:
            self.compare()

    @rule()
    def a_backup_is_made(self) -> None:
        with closing(sqlite3.connect(self.path)) as source, closing(sqlite3.connect(self.backup)) as target:
            source.backup(target)

    @precondition(lambda self: self.backup.exists())
    @rule()
    def the_backup_is_restored(self) -> None:
        """Everything but the ledger goes on as if nothing had happened. Plans that were answered meanwhile may be answered anew."""
        for process in (self.process, self.zombie):
            if process is not None:
                self.run(process.stack.aclose())
        self.zombie = None
        self.reader.close()
        for path in self.folder.glob("ledger.db-*"):
            path.unlink()
        shutil.copy(self.backup, self.path)
        self.reader = Reader(self.path)
        self.proof = Proof(self.proof.plans)
        self.rows = self.reader.read()
        self.reader.seen(self.rows)
        self.proof.begin_with(self.rows)
        self.cluster.old_news.clear()
        self.streams.lost = {id for _, id in evictions(self.streams.said.values())}
        self.process = self.start()
        kept = self.reader.read().answers
        self.answered = {id: answer for id, answer in self.answered.items() if id in kept}
        assert self.ledger.state.epoch > self.cluster.epoch, "S14: an epoch was given out twice"
        self.settle()
        self.compare()

    @rule(job=jobs, where=st.lists(placed, min_size=3, max_size=3), after=st.booleans())
    def the_database_fails(self, job: Job, where: list[Where], after: bool) -> None:
        """While a plan is committed, before it is or after."""
        plan = self.plan("f", job, self.waiting(job, 3), where)
        with failing(self.process.store, after=after):
            try:
                self.propose([plan], self.ledger.state.epoch)
            except Unavailable:
                pass
            else:
                assert self.ledger.state.frozen, "the ledger answered what is not on disk"
        self.settle()

    @rule(job=jobs, where=st.lists(placed, min_size=3, max_size=3), victims=st.integers(0, 2))
    def the_database_refuses_a_plan(self, job: Job, where: list[Where], victims: int) -> None:
        """The ledger undoes the turn, and continues without the plan."""
        self.complete()
        before, books = self.rows.index, self.ledger.state
        plan = self.plan("r", job, self.waiting(job, 3), where)
        if named := [{"claim": c.id, "pod_uid": c.pod} for c in self.rows.live() if c.state == "posted"][:victims]:
            self.plans[-1] = self.proof.plans[plan.id] = plan = Plan.model_validate({**plan.model_dump(), "victims": named})
        with refusing(self.process.store):
            try:
                self.propose([plan], self.ledger.state.epoch)
            except Conflict:
                pass
            else:
                assert self.ledger.state.frozen, "the ledger answered what is not on disk"
        failed = self.ledger._failed
        self.complete()
        assert self.rows.index == before, "a plan was committed that the database refused"
        assert failed is None or failed.names or self.ledger.state is books, (
            "the books were reloaded although the turn could be undone"
        )

    @rule(job=jobs, where=st.lists(placed, min_size=3, max_size=3))
    def a_decision_fails(self, job: Job, where: list[Where]) -> None:
        """The ledger reloads its books after an error of its own."""
        self.complete()
        before = self.rows.index
        plan = self.plan("e", job, self.waiting(job, 3), where)
        with erring(), suppress(ZeroDivisionError):
            self.propose([plan], self.ledger.state.epoch)
        self.complete()
        assert self.rows.index == before, "a plan was committed whose decision failed"

    @precondition(lambda self: self.cluster.news)
    @rule(which=anything)
    def the_database_refuses_news(self, which: int) -> None:
        """The turn of a message is undone, and the message is delivered again."""
        self.complete()
        before, books = self.rows, self.ledger.state
        message = self.cluster.news[which % min(len(self.cluster.news), 4)]
        with refusing(self.process.store), suppress(Conflict, Bug):
            self.run(self.hear(message))
        failed = self.ledger._failed
        self.complete()
        assert self.rows.index == before.index, "a message had an effect that the database refused"
        assert failed is None or failed.names or self.ledger.state is books, (
            "the books were reloaded although the turn could be undone"
        )

    @precondition(lambda self: self.cluster.news)
    @rule(which=anything, after=st.booleans(), again=st.booleans())
    def the_database_fails_at_news(self, which: int, after: bool, again: bool) -> None:
        """A commit of a message fails, before it or after. `again`: the bus delivers the message again; else the ledger completes the turn by itself."""
        self.complete()
        before = self.rows
        message = self.cluster.news.pop(which % min(len(self.cluster.news), 4))
        failed = False
        with failing(self.process.store, after=after):
            try:
                self.run(self.hear(message))
            except Unavailable:
                failed = True
        self.settle()
        assert after or self.rows.index == before.index, "a commit that failed had an effect"
        self.complete()
        self.refusals_are_heeded(message, before)
        done = self.rows.index
        if again and failed:
            self.run(self.hear(message))
            self.settle()
            assert self.rows.index == done, "S12: a repeated message of a completed turn changed the books"
        if done != before.index:
            self.cluster.old_news.append(message)


class WeightsMachine(LedgerMachine):
    """And queues have shares by weight, of what there is among those that ask for it."""

    by_weight = True


class PoolsMachine(LedgerMachine):
    """And there are pools: own nodes that their owner lends, that two queues share, of which one gives nothing back; and public ones."""

    all_jobs = [*LAB_JOBS, *LAB_JOBS, *JOBS]
    all_nodes = [NodeName("a"), NodeName("b"), OWN, OWN, OPEN, NodeName("a"), NodeName("b"), OWN, OWN] * 3 + [
        NodeName("nowhere")
    ]
