"""The ledger's core under any order of plans, outcomes, sightings, lists and time, beside a small model that keeps no sums.

The model holds live claims in a list and adds them up anew for each question. Checked after every step: S1 and S2 (no card is over-booked by
claims that were arbitrated), S3 (capability), S5 (moves replay to the use of queues), S6 (a gang has no claims, or is on its way with a
deadline, or had its minimum), S12 (states only go forward; a void claim never comes back), S13 (time and plans free nothing).
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import TypeAlias

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hbox_common.events import BindOutcome, Outcome, Placement, Plan, PlansProposed, PodRead, PodStanding
from hbox_common.model import (
    Card,
    CardSlice,
    ClaimId,
    ClaimState,
    Epoch,
    Generation,
    Index,
    JobId,
    NodeName,
    NodeState,
    PodFact,
    PodPhase,
    PodUid,
    Queue,
    QueueName,
    SchedulerId,
)
from hbox_ledger.core import arbitrate, lifecycle
from hbox_ledger.core.claimrecord import ClaimRecord
from hbox_ledger.core.ledgerstate import LedgerState
from hbox_ledger.core.reconcile import Comparison
from hbox_ledger.core.step import Step

from ..jobterms import terms
from ..searching import examples

NODES, CARDS, MEMORY, SHARES, CPU = (NodeName("a"), NodeName("b")), 2, 100, 3, 4000
CAPABILITY = {"cpu": 6000, "nvidia.com/gpu": 4}

Placed: TypeAlias = tuple[PodUid, NodeName, tuple[CardSlice, ...]]

pods = st.sampled_from([PodUid(f"pod{i}") for i in range(8)])
slices = st.lists(
    st.builds(CardSlice, st.integers(0, CARDS), st.sampled_from([0, 30, 50, 100]), st.sampled_from([10, 50, 100])), max_size=2
).map(tuple)
placements = st.lists(st.tuples(pods, st.sampled_from([*NODES, NodeName("nowhere")]), slices), min_size=1, max_size=4)
RANK = {None: 0, ClaimState.PENDING: 1, ClaimState.POSTED: 2, ClaimState.VOID: 3}


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.state = LedgerState(Epoch(1), frozen=False)
        for name in NODES:
            cards = tuple(Card(i, f"{name}{i}", "m", MEMORY, SHARES) for i in range(CARDS))
            room = {"cpu": CPU, "pods": 5, "nvidia.com/gpu": 10}
            self.state.nodes[name] = NodeState(name, name, Generation(1), ready=True, allocatable=room, cards=cards)
        self.state.queues[QueueName("q")] = Queue(QueueName("q"), capability=CAPABILITY)
        self.now, self.plans = 1000.0, 0
        self.seen: dict[str, ClaimState] = {}
        self.moved: dict[tuple[str, str, str], int] = defaultdict(int)
        self.started: set[str] = set()

    def done(self, step: Step, *, may_free: bool) -> None:
        index = step.first
        for change in step.changes:
            index = Index(index + 1)
            assert change.index == index
            assert self.seen.get(change.claim.id) is change.before
            assert RANK[change.claim.state] > RANK[change.before]
            assert may_free or change.claim.state is not ClaimState.VOID
            self.seen[change.claim.id] = change.claim.state
        for move, amount in step.moves.items():
            assert amount > 0
            for bucket, sign in ((move.debit, -1), (move.credit, 1)):
                if bucket != "free":
                    self.moved[move.queue, move.resource, bucket] += sign * amount
        assert len({b.id for b in step.binds}) == len(step.binds)

    def live(self) -> list[ClaimRecord]:
        return list(self.state.live.values())

    # --- the model: could this plan be right?

    def fits(self, job: JobId, placed: Sequence[Placed], min_member: int) -> bool:
        claimed = {h.claim.pod_uid for h in self.live()}
        names = [pod for pod, _, _ in placed]
        if len(set(names)) < len(names) or claimed & set(names) or set(names) & self.state.gone.keys():
            return False
        gang = self.state.gangs.get(job)
        members = sum(h.claim.job == job for h in self.live()) + (gang.finished if gang else 0)
        if (gang and gang.unwinding) or members + len(placed) < min_member:
            return False
        holds = [(h.claim.node, h.claim.slices, h.claim.requests.get("cpu", 0), h.claim.queue) for h in self.live()]
        used = {r: sum(h.claim.requests.get(r, 0) for h in self.live() if h.claim.queue == "q") for r in CAPABILITY}
        asked = {"cpu": 1000 * len(placed), "nvidia.com/gpu": sum(len(s) for _, _, s in placed)}
        if any(asked[r] and used[r] + asked[r] > CAPABILITY[r] for r in CAPABILITY):
            return False
        for _, node, given in placed:
            if node not in NODES:
                return False
            there = [h for h in holds if h[0] == node]
            gpus = sum(h.claim.requests.get("nvidia.com/gpu", 0) for h in self.live() if h.claim.node == node)
            gpus += sum(len(h[1]) for h in holds[len(self.live()) :] if h[0] == node)
            if len(there) + 1 > 5 or sum(h[2] for h in there) + 1000 > CPU or (given and gpus + len(given) > 10):
                return False
            if len({s.index for s in given}) < len(given):
                return False
            for s in given:
                on = [o for h in there for o in h[1] if o.index == s.index]
                if s.index >= CARDS or s.memory_mib > MEMORY:
                    return False
                cores, memory = sum(o.cores for o in on), sum(o.memory_mib for o in on)
                if on and (
                    s.cores == 100
                    or cores + s.cores > 100
                    or cores >= 100
                    or memory + s.memory_mib > MEMORY
                    or len(on) >= SHARES
                ):
                    return False
            holds.append((node, given, 1000, QueueName("q")))
        return True

    @rule(
        placed=placements,
        job=st.sampled_from([JobId("j1"), JobId("j2"), JobId("j3")]),
        min_member=st.integers(1, 3),
        again=st.booleans(),
    )
    def propose(self, placed: Sequence[Placed], job: JobId, min_member: int, again: bool) -> None:
        self.plans += 1
        plan = Plan(
            id=f"p{self.plans}", job=job, namespace="n", name=job, queue="q", priority=0, min_member=min_member, bound=9,
            requests=tuple({"cpu": 1000, "pods": 1, "nvidia.com/gpu": len(s)} for _, _, s in placed),
            placements=tuple(
                Placement(pod_uid=pod, pod=pod, resource_version="1", node=node, generation=Generation(1), slices=s, requests=i)
                for i, (pod, node, s) in enumerate(placed)
            ),
        )  # fmt: skip
        expected = self.fits(job, placed, min_member)
        self.state.records.only([terms(plan)])
        message = PlansProposed(
            scheduler=SchedulerId("s"), epoch=Epoch(1), seen=Index(0), plans=(plan, plan) if again else (plan,)
        )
        step = self.state.step(self.now)
        arbitrate.propose(self.state, step, message, {})
        answer = step.answers[SchedulerId("s")][plan.id]
        assert answer.committed == expected, answer
        assert len(step.changes) == (len(placed) if expected else 0)
        self.done(step, may_free=False)

    @rule(data=st.data(), outcome=st.sampled_from(list(BindOutcome)), late=st.booleans(), twice=st.booleans())
    def outcome(self, data: st.DataObject, outcome: BindOutcome, late: bool, twice: bool) -> None:
        if not self.state.live:
            return
        holding = self.state.live[data.draw(st.sampled_from(sorted(self.state.live)))]
        said = Outcome(
            decision="d", claim=holding.claim.id, generation=1 if late else holding.generation, job=holding.claim.job,
            pod_uid=holding.claim.pod_uid, outcome=outcome, node=holding.claim.node if outcome is BindOutcome.BOUND else "",
        )  # fmt: skip
        for _ in range(1 + twice):
            step = self.state.step(self.now)
            lifecycle.outcome(self.state, step, said)
            self.done(step, may_free=outcome is not BindOutcome.UNKNOWN)

    def fact(self, pod: PodUid, node: NodeName, phase: PodPhase, *, known: bool) -> PodFact:
        claim = self.state.by_pod.get(pod, ClaimId("")) if known else ClaimId("")
        job = self.state.live[claim].claim.job if claim else JobId("found")
        node = self.state.live[claim].claim.node if claim else node
        requests = {"cpu": 1000, "pods": 1}
        return PodFact(pod, "n", pod, phase, node, job, QueueName("q"), 0, requests, cards=1, claim=claim, ours=known)

    @rule(pod=pods, node=st.sampled_from(NODES), phase=st.sampled_from(list(PodPhase)), known=st.booleans())
    def see(self, pod: PodUid, node: NodeName, phase: PodPhase, known: bool) -> None:
        step = self.state.step(self.now)
        lifecycle.observed(self.state, step, self.fact(pod, node, phase, known=known))
        self.done(step, may_free=True)

    @rule(running=st.lists(pods, unique=True))
    def list_pods(self, running: Sequence[PodUid]) -> None:
        step = self.state.step(self.now)
        facts = [self.fact(pod, NODES[0], PodPhase.RUNNING, known=True) for pod in running]
        comparison = Comparison(self.state.index)
        comparison.take(self.state, step, facts)
        self.done(step, may_free=True)
        live = len(self.state.live)
        comparison.miss(self.state, list(self.state.live))
        assert len(self.state.live) == live, "a list freed what it lacks"

    @rule(standing=st.sampled_from(list(PodStanding)))
    def read_suspects(self, standing: PodStanding) -> None:
        for id in list(self.state.suspects):
            step = self.state.step(self.now)
            claim = self.state.live[id].claim
            lifecycle.read(self.state, step, PodRead(uid=claim.pod_uid, standing=standing, node=claim.node))
            self.done(step, may_free=standing in (PodStanding.GONE, PodStanding.ENDED))

    @rule(seconds=st.sampled_from([0.5, 20.0, 61.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        step = self.state.step(self.now)
        lifecycle.tick(self.state, step)
        lifecycle.send_again(self.state, step)
        self.done(step, may_free=False)

    # --- after every step

    @invariant()
    def books_agree_with_themselves(self) -> None:
        self.state.validate()

    @invariant()
    def moves_replay_to_use(self) -> None:
        used: dict[tuple[str, str, str], int] = defaultdict(int)
        for h in self.live():
            for resource, amount in h.claim.requests.items() if h.claim.queue else ():
                used[h.claim.queue, resource, h.claim.state] += amount
        assert {k: n for k, n in self.moved.items() if n} == {k: n for k, n in used.items() if n}

    @invariant()
    def arbitrated_claims_over_book_nothing(self) -> None:
        on = defaultdict(list)
        slots = set()
        for h in self.live():
            if h.forced:
                continue
            for slot, s in zip(h.slots, h.claim.slices, strict=True):
                on[h.claim.node, s.index].append(s)
                assert (h.claim.node, s.index, slot) not in slots
                slots.add((h.claim.node, s.index, slot))
        for held in on.values():
            assert sum(s.cores for s in held) <= 100
            assert sum(s.memory_mib for s in held) <= MEMORY
            assert len(held) == 1 or not any(s.whole for s in held)
        for resource, limit in CAPABILITY.items():
            assert sum(h.claim.requests.get(resource, 0) for h in self.live() if h.claim.queue == "q" and not h.forced) <= limit

    @invariant()
    def unfinished_gangs_have_a_deadline(self) -> None:
        for job, gang in self.state.gangs.items():
            assert self.state.jobs[job].live
            assert gang.unwinding or self.state.jobs[job].posted + gang.finished < gang.min_member
            assert gang.deadline > 0


TestLedgerCore = LedgerMachine.TestCase
TestLedgerCore.settings = examples(150, stateful_step_count=40)
