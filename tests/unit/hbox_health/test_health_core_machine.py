"""Any history of nodes, restarts and answers to cordons: the monitor's rules hold."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hbox_common.events import NodeAction
from hbox_common.model import Card, Generation, NodeName, NodeState, Verdict
from hbox_health.core import OWNER, Decide, Event, Monitor, NodeSeen, Publish, Rules, Synced, Ticked, VerdictHeard

from ...searching import examples

NAMES = [NodeName(f"n{i}") for i in range(4)]
RULES = Rules(bad_conditions=("XidError",), recover_after_s=10.0, max_cordoned_fraction=0.5)


class HealthMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.now = 1000.0
        self.cluster: dict[NodeName, NodeState] = {}
        self.stream: dict[NodeName, Verdict] = {}
        self.decisions: list[Decide] = []
        self.last_bad: dict[NodeName, float] = {}  # a condition
        self.last_unready: dict[NodeName, float] = {}  # but for nodes that only join
        self.was_ready: set[NodeName] = set()
        self.core = Monitor(RULES)
        self.step(Synced())

    def step(self, event: Event) -> None:
        for effect in self.core.step(event, now=self.now, wall=self.now):
            if isinstance(effect, Publish):
                verdict = effect.verdict
                before = self.stream.get(verdict.node)
                assert before is None or verdict.generation > before.generation
                self.stream[verdict.node] = verdict
            elif isinstance(effect, Decide):
                self.decisions.append(effect)

    def show(self, name: NodeName, **facts: Any) -> None:
        old = self.cluster.get(name)
        base: dict[str, Any] = {"uid": name, "generation": Generation(1), "ready": True}
        if old is not None:
            base |= {"unschedulable": old.unschedulable, "cordoned_by": old.cordoned_by, "cards": old.cards}
            base |= {"ready": old.ready, "conditions": old.conditions}
        state = self.cluster[name] = NodeState(name=name, **(base | facts))
        if state.ready and name not in self.was_ready:
            self.was_ready.add(name)
            self.last_unready.pop(name, None)  # it has joined
        self.note(name, state)
        self.step(NodeSeen(state))

    def note(self, name: NodeName, state: NodeState) -> None:
        """What is wrong with the node at this moment."""
        if not state.ready:
            self.last_unready[name] = self.now
        if "True" in state.conditions.values():
            self.last_bad[name] = self.now

    @rule(
        name=st.sampled_from(NAMES),
        ready=st.booleans(),
        xid=st.booleans(),
        bad=st.sets(st.integers(0, 1)),
        cards=st.integers(0, 2),
    )
    def kubelet(self, name: NodeName, ready: bool, xid: bool, bad: set[int], cards: int) -> None:
        inventory = tuple(Card(i, str(i), "x", 1, healthy=i not in bad) for i in range(cards))
        self.show(name, ready=ready, conditions={"XidError": str(xid)}, cards=inventory)

    @rule(name=st.sampled_from(NAMES), closed=st.booleans())
    def somebody(self, name: NodeName, closed: bool) -> None:
        self.show(name, unschedulable=closed, cordoned_by="")

    @rule()
    def binder(self) -> None:
        decisions, self.decisions = self.decisions, []
        for decision in decisions:
            state = self.cluster.get(decision.node)
            if state is None:
                continue
            ours = state.unschedulable and state.cordoned_by == OWNER
            if decision.action is NodeAction.CORDON and not state.unschedulable:
                self.show(decision.node, unschedulable=True, cordoned_by=OWNER)
            elif decision.action is NodeAction.UNCORDON and ours:
                self.show(decision.node, unschedulable=False, cordoned_by="")

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: NodeName) -> None:
        state = self.cluster.pop(name, None)
        self.last_bad.pop(name, None)
        self.last_unready.pop(name, None)
        self.was_ready.discard(name)
        self.step(NodeSeen(NodeState(name=name, uid="x", generation=Generation(1), ready=False, gone=True)))
        assert state is None or name not in self.core.nodes

    @rule(seconds=st.floats(0.1, 30.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        for name, state in self.cluster.items():
            self.note(name, state)
        self.step(Ticked())

    @rule()
    def restart(self) -> None:
        self.core = Monitor(RULES)
        for state in self.cluster.values():
            self.step(NodeSeen(state))
        for verdict in list(self.stream.values()):
            self.step(VerdictHeard(verdict))
        self.step(Synced())

    @invariant()
    def the_state_is_sound(self) -> None:
        self.core.validate()

    @invariant()
    def no_node_with_a_fault_in_the_last_seconds_is_called_healthy(self) -> None:
        for name, at in [*self.last_bad.items(), *self.last_unready.items()]:
            if self.now - at < RULES.recover_after_s:
                assert name in self.stream
                assert not self.stream[name].healthy

    def teardown(self) -> None:
        if not hasattr(self, "core"):
            return
        for name in list(self.cluster):
            self.show(name, ready=True, conditions={}, cards=())
        for _ in range(10):
            self.now += 61.0
            self.step(Ticked())
            self.binder()
        for name, state in self.cluster.items():
            assert not (state.unschedulable and state.cordoned_by == OWNER), "what we closed is opened in the end"
            assert name not in self.stream or self.stream[name].healthy


HealthMachine.TestCase.settings = examples(100, stateful_step_count=40)
TestHealthMachine = HealthMachine.TestCase
