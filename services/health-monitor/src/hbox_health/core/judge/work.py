"""What a step works on: the memory, the effects so far, and the publication of incidents."""

from dataclasses import dataclass, field, replace

from hbox_common.model import GateStep, Incident, IncidentState, NodeName, StepResult

from .courses import Policies, decides
from .finding import Action, Finding, Severity
from .happenings import Effect, IncidentChanged
from .memory import MOST_EVIDENCE, Group, Memory, NodeMemory, Open, Step

NODE, CONTROL_PLANE = "node", "control-plane"
#: Kinds of incidents that rules name: a fault that only a reboot ends; a card that has to be reset or replaced.
NODE_FAULT, CARD = "node-fault", "card"
#: What an incident may take out of use, in addition to entities and the node: work on several cards of the node.
MULTI_GPU = "multi-gpu"


@dataclass(slots=True)
class Work:
    policies: Policies
    memory: Memory
    now: float = 0.0
    out: list[Effect] = field(default_factory=list)
    dirty: dict[str, None] = field(default_factory=dict)  #: nodes to review; "" for what belongs to no node
    changed: set[str] = field(default_factory=set)  #: nodes whose memory changed since the store asked last

    def site(self, name: str) -> "Site":
        return Site(self, NodeName(name), self.node(name))

    def node(self, name: str) -> NodeMemory:
        node = self.memory.nodes.get(name)
        if node is None:
            node = self.memory.nodes[name] = NodeMemory()
            self.memory.breaker.seen(name, "")
        return node

    def open(self, name: str, node: NodeMemory, entity: str, kind: str) -> Open:
        node.count += 1
        return Open(f"{name}-{int(self.now * 1000):x}-{node.count}", entity, kind, self.now)

    def group_limit(self, key: str) -> float:
        if key == CONTROL_PLANE:
            return max(2, self.policies.silent_share * len(self.memory.breaker.nodes))
        return self.policies.group_nodes

    def join(self, key: str, name: str) -> None:
        group = self.memory.groups.setdefault(key, Group())
        new = name not in group.members
        group.members.setdefault(name, self.now)
        if group.incident is not None:
            self.dirty |= dict.fromkeys([name, ""] if new else [name])
            return
        window = self.policies.group_window_s
        recent = [since for since in group.members.values() if self.now - since <= window]
        if len(recent) > self.group_limit(key):
            self.memory.count += 1
            group.incident = Open(f"{key}-{int(self.now * 1000):x}-{self.memory.count}", key, "group", self.now)
            group.incident.state = IncidentState.CONFIRMED
            self.dirty |= dict.fromkeys([*group.members, ""])

    def leave(self, key: str, name: str) -> None:
        group = self.memory.groups.get(key)
        if group is not None and group.members.pop(name, None) is not None:
            self.dirty[""] = None

    def close(self, name: str, incident: Open, why: str) -> None:
        incident.state = IncidentState.CLOSED
        for reason in incident.reasons.values():
            if reason.group and not why.startswith("part of") and name:
                self.leave(reason.group, name)
        node = self.memory.nodes.get(name)
        if node is not None and incident.kind == CARD:
            node.closed_cards[incident.entity] = self.now
        if not incident.part_of and incident.published is not None:
            self.publish(name, incident, node, why)
        if why.startswith("part of"):
            incident.state = (
                IncidentState.CONFIRMED if any(r.confirmed for r in incident.reasons.values()) else IncidentState.SUSPECT
            )

    def publish(self, name: str, incident: Open, node: NodeMemory | None, closed: str = "") -> None:
        if incident.part_of:
            return
        findings = [reason.finding for reason in incident.reasons.values()]
        before = incident.published
        if not findings and before is None:
            return
        worst = max(findings, key=decides) if findings else None
        severest = max(findings, key=lambda f: list(Severity).index(f.severity)) if findings else None
        evidence = tuple(dict.fromkeys(line for f in findings for line in f.evidence or (f.why,)))[-MOST_EVIDENCE:]
        value = Incident(
            id=incident.id,
            node=NodeName(name),
            entity=incident.entity,
            kind=incident.kind,
            code=worst.code if worst else before.code if before else "",
            state=incident.state,
            severity=severest.severity if severest else before.severity if before else "",
            blame=worst.blame if worst else before.blame if before else "",
            scope=worst.scope if worst else before.scope if before else "",
            action=Action.NONE if closed else incident.action,
            opened=incident.opened,
            changed=before.changed if before else self.now,
            boot_id=node.boot_id if node else "",
            action_done=incident.action_done,
            authority=worst.authority if worst else before.authority if before else "",
            rule_version=self.policies.version,
            evidence=evidence or (before.evidence if before else ()),
            closed=self.now if closed else None,
            held_by=tuple(dict.fromkeys(incident.held_by)) if not closed else (),
            why=closed or incident.ticket or "; ".join(filter(None, (worst.why if worst else "", incident.next_step))),
            checks=tuple(incident.checks),
            steps=(*incident.attempted, *(shown(step) for step in incident.steps if not ended(step))),
        )
        if value != before:
            incident.published = value = replace(value, changed=self.now)
            self.out.append(IncidentChanged(value))


@dataclass(slots=True)
class Site:
    """One node in a step. `due`: times at which it has to be reviewed again."""

    work: Work
    name: NodeName
    node: NodeMemory
    due: list[float] = field(default_factory=list)
    taken: dict[str, set[str]] = field(default_factory=dict)  #: what each incident takes out of use, by its id

    @property
    def now(self) -> float:
        return self.work.now


def key_of(entity: str, kind: str) -> str:
    return f"{entity}|{kind}"


def code_of(finding: Finding) -> str:
    """Names a reason within an incident: cards of one node-wide fault are reasons of their own."""
    return f"{finding.entity}|{finding.kind}|{finding.code}"


def is_card(entity: str) -> bool:
    return entity.startswith(("gpu:", "mig:"))


def hold(incident: Open, by: str) -> None:
    if by not in incident.held_by:
        incident.held_by.append(by)


def of_entity(node: NodeMemory, entity: str) -> list[Open]:
    return [
        incident
        for incident in node.open.values()
        if entity in (incident.entity, node.parents.get(incident.entity)) or entity in incident.cards
    ]


def repaired(site: Site, incident: Open, verb: str) -> None:
    """The incident's reasons are cured; a check has to confirm it, unless nothing was isolated yet."""
    if incident.ticket or not all(reason.cured for reason in incident.reasons.values()):
        return
    if incident.state in (IncidentState.SUSPECT, IncidentState.VALIDATING):
        if incident.state is IncidentState.SUSPECT:
            incident.reasons = {}
        return
    incident.state, incident.validated_from, incident.steps = IncidentState.VALIDATING, site.now, []
    incident.action_done = verb or incident.action_done


def ended(step: Step) -> bool:
    return step.result not in (StepResult.WAITING, StepResult.RUNNING)


def shown(step: Step) -> GateStep:
    attempt = step.attempt if step.result is not StepResult.WAITING else 0
    return GateStep(step.name, step.result, attempt, step.at, step.text)
