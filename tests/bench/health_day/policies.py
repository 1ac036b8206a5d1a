"""HBox's judgement, and the two policies that it is compared with."""

import re

from hbox_common.health.report import Check, Fact
from hbox_common.model import Incident, IncidentState, NodeName
from hbox_common.model.remedy import REPAIRS, Outcome, Verb
from hbox_health.core.judge.courses import Policies
from hbox_health.core.judge.facts import Assessor
from hbox_health.core.judge.happenings import (
    Cordon,
    Event,
    EvictGang,
    FactSeen,
    Found,
    IncidentChanged,
    JobsSeen,
    Maintenance,
    NodeSeen,
    OperatorCloses,
    PodOnCards,
    Remedied,
    Remedy,
    Tick,
    Uncordon,
    Validated,
    VerdictChanged,
)
from hbox_health.core.judge.incidents import Incidents
from hbox_health.core.judge.rules import Rules

from .world import CARDS, CHECK_S, HANDS_S, LABELS, Closed, Node, World

_CARD = re.compile(r"gpu:GPU-n\d+-(\d)")


class HBox:
    """The incident engine with all verbs of node-remedy and a check after each repair."""

    name = "hbox"

    def __init__(self, rules: Rules) -> None:
        self.engine = Incidents(Policies(verbs=REPAIRS, validator=True), Assessor(rules))
        self.cordoned: set[str] = set()
        self.events = 0

    def begin(self, world: World) -> None:
        self.world = world
        for node in world.nodes:
            self._seen(node)
            self.booted(node)
            self.pods(node)

    @property
    def due(self) -> float | None:
        return self.engine.due

    def fact(self, node: Node, fact: Fact) -> None:
        self._step(FactSeen(NodeName(node.name), node.boot_id, fact))

    def pods(self, node: Node) -> None:
        gang, cards = node.gang, tuple(map(node.card, range(CARDS)))
        pods = () if gang is None else (PodOnCards(f"{gang.name}-{node.name}", gang.name, "train", cards, multi_node=True),)
        self._step(JobsSeen(NodeName(node.name), pods))

    def booted(self, node: Node) -> None:
        self._step(Found(NodeName(node.name), node.boot_id, ()))

    def repaired_by_hand(self, node: Node) -> None:
        self._step(OperatorCloses(NodeName(node.name)))

    def maintained(self, node: Node, until: float) -> None:
        self._step(Maintenance(NodeName(node.name), until))
        self.world.at(until + CHECK_S, lambda: self._checked(node, "node"))

    def tick(self) -> None:
        self._step(Tick())

    def _seen(self, node: Node) -> None:
        closed = node.name in self.cordoned
        self._step(
            NodeSeen(
                NodeName(node.name),
                tuple(map(node.card, range(CARDS))),
                unit=f"unit-{int(node.name[1:]) // 32}",
                labels=LABELS,
                unschedulable=closed,
                ours=closed,
            )
        )

    def _step(self, event: Event) -> None:
        self.events += 1
        world = self.world
        for effect in self.engine.step(event, world.now):
            name = effect.incident.node if isinstance(effect, IncidentChanged) else getattr(effect, "node", "")
            if (node := world.by_name.get(name)) is not None:
                self._effect(world, node, effect)

    def _effect(self, world: World, node: Node, effect: object) -> None:
        match effect:
            case VerdictChanged(_, _, scopes):
                cards = frozenset(int(found[1]) for card in scopes.cards if (found := _CARD.fullmatch(card)))
                world.close(node, Closed(cards, not scopes.node, bool(scopes.rails_off) or not scopes.multi_gpu))
            case Cordon() | Uncordon():
                (self.cordoned.add if isinstance(effect, Cordon) else self.cordoned.discard)(node.name)
                world.after(0.1, lambda: self._seen(node))
            case EvictGang(_, job, deadline=deadline) if deadline == 0.0:
                world.disturbed.setdefault(node.name, world.now)
                for gang in world.gangs:
                    if gang.name == job:
                        world.after(0.1, lambda gang=gang: world.evict(gang))  # type: ignore[misc]
            case Remedy(verb=Verb.RESET, entity=entity):
                self._reset(world, node, entity)
            case Remedy(verb=Verb.REBOOT):
                boot = node.boot
                world.reboot(node)
                world.after(600.0 + CHECK_S, lambda: self._checked(node, "node") if node.boot > boot else None)
            case IncidentChanged(incident):
                self._incident(world, node, incident)
            case _:
                pass

    def _incident(self, world: World, node: Node, incident: Incident) -> None:
        if (
            incident.state is not IncidentState.SUSPECT
            and incident.state is not IncidentState.CLOSED
            and incident.blame != "user"
        ):
            world.stated(node)

    def _reset(self, world: World, node: Node, entity: str) -> None:
        found = _CARD.fullmatch(entity)
        if found is None:
            return
        card = int(found[1])

        def done(cured: bool) -> None:
            self._step(Remedied(NodeName(node.name), entity, Verb.RESET, Outcome.DONE if cured else Outcome.FAILED))
            if cured:
                world.after(CHECK_S, lambda: self._checked(node, entity))

        self._step(Remedied(NodeName(node.name), entity, Verb.RESET, Outcome.BEGUN))
        world.reset(node, card, done)

    def _checked(self, node: Node, entity: str) -> None:
        found = _CARD.fullmatch(entity)
        self._step(Validated(NodeName(node.name), entity, self.world.well(node, int(found[1]) if found else None)))


class _Simple:
    """A policy without a memory of incidents."""

    name = ""

    @property
    def due(self) -> float | None:
        return None

    def begin(self, world: World) -> None:
        self.world = world

    def fact(self, node: Node, fact: Fact) -> None:
        pass

    def pods(self, node: Node) -> None:
        pass

    def booted(self, node: Node) -> None:
        pass

    def repaired_by_hand(self, node: Node) -> None:
        pass

    def maintained(self, node: Node, until: float) -> None:
        pass

    def tick(self) -> None:
        pass


class ReportOnly(_Simple):
    name = "report only"


class CordonFatal(_Simple):
    """Cordons and drains a node with a code of hardware that ends work, a lost card, or a port that is down for a minute. Technicians return it after four
    hours.

    Codes that other lists count, too, and that do not end work (63, 94), are left out in its favour.
    """

    name = "cordon on every fatal code"
    FATAL = frozenset(
        {"46", "48", "61", "62", "64", "74", "79", "95", "110", "119", "120", "140", "143", "fs-read-only", "read-only"}
    )
    PORT_S = 60.0

    def begin(self, world: World) -> None:
        super().begin(world)
        self._down: dict[str, int] = {}

    def fact(self, node: Node, fact: Fact) -> None:
        if node.maintained:
            return
        if fact.check == Check.PORTS:
            turn = self._down[node.name] = self._down.get(node.name, 0) + 1
            if "DOWN" in str(fact.value.get("state")):
                self.world.after(self.PORT_S, lambda: self._cordon(node) if self._down[node.name] == turn else None)
        elif fact.check == Check.NVML and fact.code == "cards":
            if len(tuple(fact.value.get("listed") or ())) < CARDS:  # type: ignore[arg-type]
                self._cordon(node)
        elif fact.check == Check.KERNEL_LOG and fact.code in self.FATAL:
            self._cordon(node)

    def repaired_by_hand(self, node: Node) -> None:
        self.world.close(node, Closed())

    def _cordon(self, node: Node) -> None:
        if self.world.closed.get(node.name, Closed()).node:
            return
        self.world.stated(node)
        self.world.close(node, Closed(node=True))
        if node.gang is not None:
            self.world.evict(node.gang)
        self.world.after(HANDS_S, lambda: self.world.close(node, Closed()))
