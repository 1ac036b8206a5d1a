"""Any order of decisions, duplicates, epochs, answers and pauses: the binder's rules hold."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hbox_binder.core import (
    Acknowledge,
    Answer,
    Answered,
    Binder,
    CardsChanged,
    Decided,
    Effect,
    Event,
    Finding,
    Limits,
    LockStands,
    Report,
    Start,
    Ticked,
    Unlock,
    Unlocked,
    Verb,
)
from hbox_common.events import Bind, BindOutcome, Evict, EvictKind
from hbox_common.model import ClaimId, DecisionId, Epoch, JobId, NodeName, PlanId, PodUid, QueueName

from ...searching import examples

FINDINGS: dict[Verb, list[Finding]] = {
    Verb.VOLUME: [Finding.READY, Finding.WAITING, Finding.NOT_YET, Finding.REFUSED, Finding.UNCLEAR],
    Verb.BIND: [f for f in Finding if f not in (Finding.ACCEPTED, Finding.BLOCKED, Finding.READY, Finding.WAITING)],
    Verb.FENCE: [Finding.UNBOUND, Finding.BOUND, Finding.ELSEWHERE, Finding.GONE, Finding.REFUSED, Finding.UNCLEAR],
    Verb.EVICT: [Finding.ACCEPTED, Finding.GONE, Finding.BLOCKED, Finding.REFUSED, Finding.UNCLEAR],
}
SETTLING = {Verb.VOLUME: Finding.READY, Verb.BIND: Finding.BOUND, Verb.FENCE: Finding.UNBOUND, Verb.EVICT: Finding.ACCEPTED}


#: The node of all pods but the first: its device plugin hands over the cards of one pod at a time.
GPU = NodeName("gpu")


def decision(pod: int, claim: int, generation: int, kind: EvictKind | None, deadline: float) -> Bind | Evict:
    name = f"{pod}/{claim}"
    common: dict[str, Any] = {
        "id": DecisionId(f"{name}/{generation}/{kind}"),
        "claim": ClaimId(name),
        "generation": generation,
        "job": JobId("job"),
        "namespace": "ml",
        "pod": f"p{pod}",
        "pod_uid": PodUid(f"u{pod}"),
    }
    if kind is not None:
        return Evict(kind=kind, reason="", **common)
    return Bind(
        plan=PlanId("p"), queue=QueueName("q"), resource_version="1", node=GPU if pod else NodeName("n"), deadline=deadline,
        volume_claims=("data",) if pod == 3 else (), **common
    )  # fmt: skip


def rank(d: Bind | Evict) -> tuple[int, bool]:
    return d.generation, isinstance(d, Evict)


class BinderMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.core = Binder(
            Limits(slots=3, urgent_slots=1, evictions_per_min=6.0, remembered=1000), takes_turns=lambda bind: bind.node == GPU
        )
        self.turn: DecisionId | None = None  #: whose it is on GPU
        self.locked = False  #: whether GPU may be, by a pod whose turn is over
        self.holder = ""  #: the pod that has that lock, where it is known and unbound
        self.unclear: set[DecisionId] = set()  #: binds that an earlier call may have made
        self.now = 0.0
        self.epoch = 1
        self.under_way: dict[DecisionId, Start] = {}
        self.owed: set[DecisionId] = set()
        self.highest: dict[ClaimId, tuple[int, bool]] = {}  #: of what the binder took and did not drop
        self.taken: dict[DecisionId, Bind | Evict] = {}
        self.first_words: dict[DecisionId, BindOutcome] = {}

    def do(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Start():
                    asked = effect.call.decision
                    assert asked.id not in self.under_way
                    assert all(s.call.decision.pod_uid != asked.pod_uid for s in self.under_way.values()), "two calls on a pod"
                    assert rank(asked) >= self.highest.get(asked.claim, (0, False)), "a superseded decision was begun"
                    self.under_way[asked.id] = effect
                    if effect.call.verb is Verb.BIND:
                        assert effect.call.seen or asked.id not in self.unclear, (
                            "a bind that may be made is called as if it were new"
                        )
                    if effect.call.verb is Verb.BIND and isinstance(asked, Bind) and asked.node == GPU:
                        assert effect.call.locked
                        assert not self.locked or asked.pod == self.holder, "bound to a node in allocation"
                        self.locked, self.holder = False, ""
                        assert self.turn in (None, asked.id), "two pods in allocation on a node"
                        self.turn = asked.id
                case Report():
                    said = effect.outcome
                    if said.outcome is BindOutcome.BOUND and said.decision == self.turn:
                        self.turn, self.locked = None, True
                    if said.outcome is not BindOutcome.UNKNOWN:
                        assert self.first_words.setdefault(said.decision, said.outcome) is said.outcome, "two answers differ"
                        self.owed.discard(said.decision)
                case Unlock():
                    assert effect.bind.id == self.turn
                    self.turn, self.locked, self.holder = None, True, ""
                case Acknowledge():
                    if effect.stale:
                        self.owed.discard(effect.decision)
        # A dropped decision supersedes nobody any more: count anew from what is owed or was settled.
        self.highest = {}
        for d in self.taken.values():
            if d.id in self.owed or d.id in self.first_words:
                self.highest[d.claim] = max(rank(d), self.highest.get(d.claim, (0, False)))

    def step(self, event: Event) -> None:
        if isinstance(event, Decided):
            for d in event.decisions:
                self.taken[d.id] = d
                if d.id not in self.first_words:
                    self.owed.add(d.id)
            if event.epoch >= self.core.epoch:
                for d in event.decisions:
                    self.highest[d.claim] = max(rank(d), self.highest.get(d.claim, (0, False)))
        self.do(self.core.step(event, now=self.now, wall=self.now))

    @rule(
        pod=st.integers(0, 3),
        claim=st.integers(0, 1),
        generation=st.integers(1, 3),
        kind=st.sampled_from([None, None, EvictKind.EVICT, EvictKind.REVOKE]),
        late=st.booleans(),
        stale=st.integers(0, 3),
    )
    def decide(self, pod: int, claim: int, generation: int, kind: EvictKind | None, late: bool, stale: int) -> None:
        d = decision(pod, claim, generation, kind, self.now - 1 if late else self.now + 20)
        if (kind is EvictKind.EVICT and self._known(d, EvictKind.REVOKE)) or (
            kind is EvictKind.REVOKE and self._known(d, EvictKind.EVICT)
        ):
            return  # the ledger makes one decision a generation
        self.step(Decided(Epoch(self.epoch - (stale == 0 and self.epoch > 1)), (d,)))

    def _known(self, d: Bind | Evict, kind: EvictKind) -> bool:
        return DecisionId(f"{d.claim}/{d.generation}/{kind}") in self.taken

    @rule()
    def new_epoch(self) -> None:
        self.epoch += 1
        self.step(Decided(Epoch(self.epoch), ()))

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        id_ = data.draw(st.sampled_from(sorted(self.under_way)))
        call = self.under_way.pop(id_).call
        finding = data.draw(st.sampled_from(FINDINGS[call.verb]))
        answer = Answer(finding)
        if call.verb is Verb.BIND and finding is Finding.UNCLEAR:
            self.unclear.add(id_)
        if finding is Finding.LOCKED and call.locked:
            self.turn, self.locked = None, True
            self.holder = data.draw(st.sampled_from(["", "p1", "p2", "p3", "somebody"]))
            answer = Answer(finding, holder=("ml", self.holder) if self.holder else None)
        self.step(Answered(id_, answer))

    @precondition(lambda self: self.locked)
    @rule()
    def the_lock_is_gone(self) -> None:
        self.locked, self.holder = False, ""
        self.step(Unlocked(GPU))

    @precondition(lambda self: self.locked and self.core.awaits_unlock(GPU))
    @rule(pod=st.sampled_from(["p1", "p2", "p3", "somebody"]))
    def the_lock_is_seen(self, pod: str) -> None:
        """The worker reports a lock only while the core waits for it: once a bind is ready for its turn, its own call finds the lock."""
        self.holder = pod
        self.step(LockStands(GPU, ("ml", pod)))

    @rule(node=st.sampled_from([GPU, NodeName("n")]))
    def cards_change(self, node: NodeName) -> None:
        self.step(CardsChanged(node))

    @rule()
    def tick(self) -> None:
        self.step(Ticked())

    @rule(seconds=st.floats(0.0, 15.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.step(Ticked())

    @invariant()
    def the_state_is_sound(self) -> None:
        self.core.validate()
        assert self.core.running == len(self.under_way)

    def teardown(self) -> None:
        for _ in range(2000):
            while self.under_way:
                id_, start = self.under_way.popitem()
                self.step(Answered(id_, Answer(SETTLING[start.call.verb])))
            if self.core.awaits_unlock(GPU):
                self.the_lock_is_gone()
                continue
            wake = self.core.next_wake()
            if wake is None:
                break
            self.now = max(self.now, wake)
            self.step(Ticked())
        assert not self.owed, "every decision gets an outcome, or is dropped as stale"
        assert self.core.waiting == self.core.running == 0


BinderMachine.TestCase.settings = examples(120, stateful_step_count=50)
TestBinderMachine = BinderMachine.TestCase
