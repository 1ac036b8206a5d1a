"""From faults to verdicts, and from verdicts to cordons.

Each fault of a node goes its own way. Bad counts at once, good only after `recover_after_s` without a break, so that a flapping card or kubelet
does not attract one job after the other:

    shown now   fault is      then it is
    ----------  ------------  ------------------------------------------------
    yes         -             ACTIVE, and the verdict is out in the same step
    yes         RECOVERING    ACTIVE; its clock starts anew
    no          ACTIVE        RECOVERING from now on
    no          RECOVERING    over when `recover_after_s` have passed
    (a card that is not in the inventory any more shows nothing: its fault stays as it is)
    (a node that was never seen ready, and of which no verdict stands, joins: its not being ready is over at once when it is)

The verdict is made of the faults, active and recovering: unhealthy by any fault of the node, or when all of its cards are bad; else its bad
cards. Its generation is above all that were ever published for the node (the last one is read back at start), and follows the clock. A fault
that a read-back verdict tells of and that is not shown any more starts as RECOVERING.

A cordon keeps other schedulers off too, and shows people why. `asked` is what we last decided, until the node shows it:

    wanted      the node is       asked       then
    ----------  ----------------  ----------  ---------------------------------------------------------------------
    closed      open              -           CORDON, unless too many are closed by us: held back, and the verdict says so
    closed      open              CORDON      CORDON again after `repeat_s`
    closed      open, was closed  -           somebody opened it by hand: left alone until the faults are over
    any         open, our marks   not CORDON  UNCORDON, again after `repeat_s`: removes the marks, so that a later cordon by hand is not taken for ours
    closed      closed by us      UNCORDON    CORDON: the fault came back before the node was opened
    open        closed by us      any         UNCORDON, again after `repeat_s`
    any         closed by others  any         nothing

Wanted closed: a condition, or all cards bad. Wanted open: the verdict is healthy. In between (not ready, an earlier fault that may be over) it
stays as it is.

The limit on cordons does not soften verdicts: HBox itself places nothing on any unhealthy node, however many there are. It only keeps a
wrong signal from closing the cluster to everybody. An operator's order is no signal: its cordon is within no limit, and counted in none.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from hbox_common.events import NodeAction
from hbox_common.model import CardId, Generation, NodeName, NodeState, TaintEffect, Verdict
from hbox_common.model.annotations import HEALTH_TAINT
from hbox_common.model.devices.cardids import numbered

from .faults import Fault, FaultKind, Rules, faults_of
from .scopes import Judged, Scopes

#: Who cordons, as it is written on the node.
OWNER = "hbox-health-monitor"

#: Value of the taint of nodes that part of the work may not use.
DEGRADED = "degraded"


# --- what happens


@dataclass(frozen=True, slots=True)
class NodeSeen:
    state: NodeState


@dataclass(frozen=True, slots=True)
class VerdictHeard:
    """A verdict in the stream: one from before this process, one of our own, or of another instance that is about to end."""

    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Synced:
    """All that the stream held at the start was handed in; nothing is decided before."""


@dataclass(frozen=True, slots=True)
class VerdictsLost:
    """The stream was deleted: publish the current verdicts again."""


@dataclass(frozen=True, slots=True)
class Ticked:
    pass


Event: TypeAlias = NodeSeen | Judged | VerdictHeard | Synced | VerdictsLost | Ticked


# --- what is to be done


@dataclass(frozen=True, slots=True)
class Publish:
    """`changed`: the usable part of the node changed, so integrators get the verdict too."""

    verdict: Verdict
    changed: bool


@dataclass(frozen=True, slots=True)
class Retire:
    """The node is gone: this was the last verdict on it."""

    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Decide:
    node: NodeName
    action: NodeAction
    reason: str
    taint: str = ""  #: of a TAINT: the value


@dataclass(frozen=True, slots=True)
class Breaker:
    """So many nodes are not cordoned because too many are; 0 = no longer any."""

    held_back: int


Effect: TypeAlias = Publish | Retire | Decide | Breaker


# --- state


@dataclass(frozen=True, slots=True)
class _Counted:
    with_cards: bool
    closed: bool  #: see `_closes`
    held_back: bool


@dataclass(slots=True)
class _Node:
    state: NodeState
    scopes: Scopes = field(default_factory=Scopes)
    faults: dict[Fault, float | None] = field(default_factory=dict)  #: None = active; else recovering since then
    joining: bool = False  #: never seen ready
    asked: NodeAction | None = None
    asked_at: float = 0.0
    was_closed: bool = False  #: by us, as the node showed since its faults began
    opened: bool = False  #: uncordoned by hand, with marks of our ended cordon left on it
    unmarked_at: float = float("-inf")  #: when the removal of the marks was decided last
    taint_asked_at: float = float("-inf")
    held_back: bool = False
    ordered: bool = False  #: an operator's order closed the node, until it is open again or has another reason to be closed
    counted: "_Counted | None" = None  #: as what it is in the monitor's counts

    @property
    def closed_by_us(self) -> bool:
        return self.state.unschedulable and self.state.cordoned_by == OWNER and not self.opened

    @property
    def all_cards_bad(self) -> bool:
        bad = {fault.card for fault in self.faults if not fault.of_node} | {*self.scopes.cards}
        return bool(self.state.cards) and all(card.id in bad or card.parent_id in bad for card in self.state.cards)

    @property
    def present_cards(self) -> set[CardId]:
        """Cards that the node reports. A card that is divided is not among them, but its healthy MIG instances show that it is there."""
        parents = {card.parent_id for card in self.state.cards if card.parent and card.healthy}
        return {card.id for card in self.state.cards} | parents

    @property
    def wanted_taint(self) -> str:
        """The value of the taint that the node has to bear; "": none."""
        scopes = self.scopes
        return "" if not scopes.rails_off and scopes.multi_gpu and scopes.multi_node else DEGRADED

    @property
    def shown_taint(self) -> str:
        ours = HEALTH_TAINT, TaintEffect.PREFER_NO_SCHEDULE
        return next((taint.value for taint in self.state.taints if (taint.key, taint.effect) == ours), "")

    @property
    def wants_closed(self) -> bool:
        return self.all_cards_bad or not self.scopes.node or any(fault.closes for fault in self.faults)


class Monitor:
    """`step` takes what happened and returns what is to be done. `now`: monotonic seconds; `wall`: seconds since the epoch."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.nodes: dict[NodeName, _Node] = {}
        self.verdicts: dict[NodeName, Verdict] = {}  #: the last of each name, also of nodes that are gone
        self.synced = False
        self._scopes: dict[NodeName, Scopes] = {}  #: by judgement, also of nodes that are not known yet
        self._retired: set[NodeName] = set()  #: nodes of `verdicts` whose last verdict was published because they are gone
        self._restless: set[NodeName] = set()  #: what time can change something about
        self._size = {False: 0, True: 0}  #: nodes without cards, nodes with
        self._closed = {False: 0, True: 0}
        self._held_back = 0
        self._held_back_published = 0

    def state_of(self, name: NodeName) -> NodeState | None:
        """The last state of a node; None if it is unknown or gone."""
        known = self.nodes.get(name)
        return None if known is None else known.state

    def step(self, event: Event, *, now: float, wall: float) -> list[Effect]:
        effects: list[Effect] = []
        match event:
            case NodeSeen():
                self._seen(event.state, now)
                self._judge(event.state.name, now, wall, effects)
                self._retire(event.state.name, wall, effects)
            case Judged(name, scopes):
                self._scopes[name] = scopes
                if (known := self.nodes.get(name)) is not None:
                    known.scopes = scopes
                    self._judge(name, now, wall, effects)
            case VerdictHeard(verdict):
                last = self.verdicts.get(verdict.node)
                if last is None or verdict.generation > last.generation:
                    self.verdicts[verdict.node] = verdict
                    self._judge(verdict.node, now, wall, effects)
            case Synced():
                self.synced = True
                for name, node in self.nodes.items():
                    self._inherit(name, node, now)
                    self._judge(name, now, wall, effects)
                for name in list(self.verdicts):
                    self._retire(name, wall, effects)
            case VerdictsLost():
                unhealthy = [v for v in self.verdicts.values() if v.restricts and v.node not in self._retired]
                effects += [Publish(verdict, changed=False) for verdict in unhealthy]
            case Ticked():
                for name in list(self._restless):
                    self._judge(name, now, wall, effects)
        if self._held_back != self._held_back_published:
            self._held_back_published = self._held_back
            effects.append(Breaker(self._held_back))
        return effects

    def _retire(self, name: NodeName, wall: float, effects: list[Effect]) -> None:
        """Retire the verdict of a node that is gone; if the node returns, publish it again, since the retired one does not stay in the stream."""
        verdict = self.verdicts.get(name)
        if verdict is None or not self.synced or (name in self.nodes) is (name not in self._retired):
            return
        if name in self.nodes:
            self._retired.discard(name)
            if not any(isinstance(effect, Publish) and effect.verdict is verdict for effect in effects):
                generation = Generation(max(verdict.generation + 1, int(wall * 1000)))
                self.verdicts[name] = replace(verdict, generation=generation)
                effects.append(Publish(self.verdicts[name], changed=False))
        else:
            self._retired.add(name)
            effects.append(Retire(verdict))

    # --- faults

    def _seen(self, state: NodeState, now: float) -> None:
        known = self.nodes.get(state.name)
        if known is not None and (state.gone or known.state.uid != state.uid):
            self._count(known, gone=True)
            del self.nodes[state.name]
            self._restless.discard(state.name)
            known = None
        if state.gone:
            return
        if known is None:
            node = self.nodes[state.name] = _Node(state, self._scopes.get(state.name, Scopes()), joining=not state.ready)
        else:
            node = known
            node.state = state
        if state.cordoned_by != OWNER:
            node.opened = False
        elif not state.unschedulable and node.asked is not NodeAction.CORDON:
            node.opened = True
        self._count(node)
        shown = faults_of(state, self.rules)
        self._rename_faults(node)
        present = node.present_cards
        absent = {fault for fault in node.faults if not fault.of_node and fault.card not in present}
        for fault in shown:
            node.faults[fault] = None
        if state.ready and node.joining:
            node.joining = False
            node.faults.pop(Fault(FaultKind.NOT_READY), None)
        for fault, recovering in node.faults.items():
            if recovering is None and fault not in shown and fault not in absent:
                node.faults[fault] = now

    def _inherit(self, name: NodeName, node: _Node, now: float) -> None:
        earlier = self.verdicts.get(name)
        if earlier is None:
            return
        if not earlier.healthy:
            node.joining = False
            node.faults[Fault(FaultKind.EARLIER, earlier.reason)] = now
        present = node.present_cards
        for card, index in _bad_cards_of(earlier):
            if card in node.scopes.cards:
                continue  # it ends with its incident
            known = node.state.known_card(card)
            fault = Fault(FaultKind.CARD, card=card, index=index)
            if known is not None:
                fault = Fault(FaultKind.CARD, card=known.id, index=known.index)
            node.faults.setdefault(fault, now if fault.card in present else None)  # a card that the node lacks does not recover

    def _rename_faults(self, node: _Node) -> None:
        """Move faults of cards to the cards' current ids: older verdicts have indices, and a generated UUID ends when the kubelet reports the real one."""
        present = {card.id for card in node.state.cards}
        for fault in [fault for fault in node.faults if not fault.of_node and fault.card not in present]:
            known = node.state.known_card(fault.card)
            if known is not None and known.id != fault.card:
                node.faults.setdefault(Fault(FaultKind.CARD, card=known.id, index=known.index), node.faults.pop(fault))

    # --- verdicts

    def _judge(self, name: NodeName, now: float, wall: float, effects: list[Effect]) -> None:
        node = self.nodes.get(name)
        if node is None or not self.synced:
            return
        for fault, recovering in list(node.faults.items()):
            if recovering is not None and now - recovering >= self.rules.recover_after_s:
                del node.faults[fault]
        node.ordered = node.scopes.ordered or (node.ordered and not node.wants_closed and _is_closed(node))
        self._attend(node, now, effects)
        self._taint(node, now, effects)
        waits = node.asked is not None or node.held_back or node.wanted_taint != node.shown_taint
        if waits or node.faults or node.closed_by_us or node.opened:
            self._restless.add(name)
        else:
            self._restless.discard(name)
        self._count(node)
        self._speak(node, wall, effects)

    def _count(self, node: _Node, *, gone: bool = False) -> None:
        """Bring the counts up to date with the node, without a walk over all of them."""
        now = None if gone else _Counted(bool(node.state.cards), _closes(node), node.held_back)
        for counted, times in ((node.counted, -1), (now, 1)):
            if counted is not None:
                self._size[counted.with_cards] += times
                self._closed[counted.with_cards] += times * counted.closed
                self._held_back += times * counted.held_back
        node.counted = now

    def _speak(self, node: _Node, wall: float, effects: list[Effect]) -> None:
        last = self.verdicts.get(node.state.name)
        healthy = not any(fault.of_node for fault in node.faults) and not node.all_cards_bad
        scopes = node.scopes
        bad = {fault.card: fault.index for fault in node.faults if not fault.of_node}
        for card in scopes.cards:
            known = node.state.known_card(card)
            bad.setdefault(card, known.index if known is not None else -1)
        cards = tuple(sorted(bad, key=lambda card: (bad[card], card)))
        verdict = Verdict(
            node=node.state.name,
            generation=Generation(max((last.generation if last else 0) + 1, int(wall * 1000))),
            healthy=healthy and scopes.node,
            bad_cards=tuple(bad[card] for card in cards),
            reason=self._reason(node),
            since=wall,
            cards=cards,
            rails_off=scopes.rails_off,
            multi_gpu=scopes.multi_gpu,
            multi_node=scopes.multi_node,
            incidents=scopes.incidents,
            boot_id=scopes.boot_id,
        )
        if last is None and not verdict.restricts:
            return  # no verdict was ever published for it
        changed = last is None or _usable_part(last) != _usable_part(verdict)
        if last is not None and not changed:
            if (last.reason, last.incidents) == (verdict.reason, verdict.incidents):
                return
            verdict = replace(verdict, since=last.since)
        self.verdicts[verdict.node] = verdict
        effects.append(Publish(verdict, changed))

    def _reason(self, node: _Node) -> str:
        of_node = [fault for fault in node.faults if fault.of_node]
        known = [fault for fault in of_node if fault.kind is not FaultKind.EARLIER]
        if of_node and not known:
            return str(of_node[0])  # it covers the cards too
        parts = [str(fault) for fault in known]
        if node.all_cards_bad:
            parts.append("all cards unhealthy")
        else:
            parts += sorted(str(fault) for fault in node.faults if not fault.of_node)
        if node.scopes.reason:
            parts.append(node.scopes.reason)
        if node.held_back:
            parts.append("not cordoned, since too many nodes are")
        return "; ".join(parts)

    # --- taints

    def _taint(self, node: _Node, now: float, effects: list[Effect]) -> None:
        """A node that part of the work may not use bears a taint, so that other schedulers choose other nodes first."""
        wanted = node.wanted_taint
        if wanted == node.shown_taint:
            node.taint_asked_at = float("-inf")
        elif self.rules.cordon and now - node.taint_asked_at >= self.rules.repeat_s:
            node.taint_asked_at = now
            action = NodeAction.TAINT if wanted else NodeAction.UNTAINT
            effects.append(Decide(node.state.name, action, self._reason(node) or "recovered", wanted))

    # --- cordons

    def _attend(self, node: _Node, now: float, effects: list[Effect]) -> None:
        node.held_back = False
        state, closed = node.state, node.closed_by_us
        if node.opened and not state.unschedulable and now - node.unmarked_at >= self.rules.repeat_s:
            node.unmarked_at = now
            effects.append(Decide(state.name, NodeAction.UNCORDON, "opened by hand"))
        if state.unschedulable and not closed:
            node.asked, node.was_closed = None, False
        elif node.wants_closed:
            if closed and node.asked is not NodeAction.UNCORDON:
                node.asked, node.was_closed = None, True
            elif self.rules.cordon and not (node.was_closed and node.asked is None):
                self._ask(node, NodeAction.CORDON, now, effects)
        elif node.scopes.node and not any(fault.of_node for fault in node.faults):
            if closed:
                self._ask(node, NodeAction.UNCORDON, now, effects)
            else:
                node.asked, node.was_closed = None, False

    def _ask(self, node: _Node, action: NodeAction, now: float, effects: list[Effect]) -> None:
        if node.asked is action and now - node.asked_at < self.rules.repeat_s:
            return
        if action is NodeAction.CORDON and node.asked is None and not node.ordered:
            kind = bool(node.state.cards)
            if self._closed[kind] >= self.limit(with_cards=kind):
                node.held_back = True
                return
        node.asked, node.asked_at = action, now
        if action is NodeAction.CORDON:
            node.opened = False
        self._count(node)
        effects.append(Decide(node.state.name, action, self._reason(node) or "recovered"))

    def limit(self, *, with_cards: bool) -> int:
        """Nodes of this kind that may be cordoned by us at once."""
        return max(1, int(self._size[with_cards] * self.rules.max_cordoned_fraction))

    def validate(self) -> None:
        """Assert what has to hold between any two steps."""
        for kind in (False, True):
            of_kind = [node for node in self.nodes.values() if bool(node.state.cards) is kind]
            assert self._size[kind] == len(of_kind)
            assert self._closed[kind] == sum(_closes(node) for node in of_kind)
        assert self._held_back == sum(node.held_back for node in self.nodes.values())
        assert self._restless <= self.nodes.keys()
        if not self.synced:
            return
        for name, node in self.nodes.items():
            assert not node.state.gone
            verdict = self.verdicts.get(name)
            shown = faults_of(node.state, self.rules)
            assert all(node.faults.get(fault, 0.0) is None for fault in shown), "a fault that is shown is active"
            if any(fault.of_node for fault in node.faults) or node.all_cards_bad:
                assert verdict is not None
                assert not verdict.healthy
            bad = {fault.card for fault in node.faults if not fault.of_node} | {*node.scopes.cards}
            assert not bad or (verdict is not None and bad == set(verdict.cards))
            assert name in self._restless or not (node.faults or node.asked or node.closed_by_us or node.held_back)


def _closes(node: _Node) -> bool:
    """Whether the node is one of those that the limit on cordons counts: closed by us, or about to be, without an operator's order."""
    return not node.ordered and _is_closed(node)


def _is_closed(node: _Node) -> bool:
    return node.closed_by_us or node.asked is NodeAction.CORDON


def _usable_part(verdict: Verdict) -> tuple[object, ...]:
    return verdict.healthy, verdict.cards, verdict.rails_off, verdict.multi_gpu, verdict.multi_node


def _bad_cards_of(verdict: Verdict) -> Iterator[tuple[CardId, int]]:
    """Ids and indices of the unhealthy cards of a verdict. If an older program published it, the indices serve as ids."""
    if not verdict.cards:
        return ((numbered(index), index) for index in verdict.bad_cards)
    return zip(verdict.cards, verdict.bad_cards, strict=False)
