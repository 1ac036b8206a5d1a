"""Incidents of single cards: NVML's recovery action, a card that NVML reports as lost, and XID 79.

fact                                    incident of the card
--------------------------------------  ------------------------------------------------------
recovery action 1, 2, 4, 6, 7, unknown  recovery-action, card off, jobs leave
recovery action 3                       recovery-action, multi-card work off
recovery action 5                       none: local work continues
every call returns GPU_IS_LOST          gpu-lost, card off, jobs leave
XID 79, or a lost-card message          gpu-lost, card off, jobs leave
recovery action 0, and NVML answers     all incidents of the card close
"""

from dataclasses import dataclass, field, replace

from hbox_common.health.report import Check, Fact
from hbox_common.model import CardId, Incident, IncidentState, NodeName

from .judge.finding import Action, Blame, Scope, Severity
from .scopes import Scopes

RULE_VERSION = "recovery-actions-1"
LOST, RECOVERY = "gpu-lost", "recovery-action"
#: Boots of a node that are remembered, so that late facts of an earlier one are ignored.
MOST_BOOTS, MOST_EVIDENCE = 8, 8

#: NVML field 230, and what it requires.
_ACTIONS = {
    1: Action.RESET,
    2: Action.REBOOT,
    3: Action.DRAIN_P2P,
    4: Action.DRAIN_AND_RESET,
    6: Action.REBOOT,
    7: Action.REBOOT,
}
_IMEX_DOMAIN = 5


@dataclass(slots=True)
class NodeFacts:
    """How far a node's facts were judged."""

    boot_id: str = ""
    seq: int = 0  #: of the last judged fact of this boot
    earlier_boots: tuple[str, ...] = ()


@dataclass(slots=True)
class Incidents:
    """`nodes` and `open` are all that it remembers."""

    nodes: dict[NodeName, NodeFacts] = field(default_factory=dict)
    open: dict[NodeName, dict[str, Incident]] = field(default_factory=dict)  #: by id

    def report(self, node: NodeName, boot_id: str, facts: tuple[Fact, ...], now: float) -> dict[str, Incident]:
        """Judge facts that were not judged before. Returns the incidents that changed, by id."""
        known = self.nodes.setdefault(node, NodeFacts())
        if boot_id in known.earlier_boots:
            return {}
        if boot_id != known.boot_id:
            earlier = (*known.earlier_boots, known.boot_id) if known.boot_id else ()
            known.boot_id, known.seq, known.earlier_boots = boot_id, 0, earlier[-MOST_BOOTS:]
        changed: dict[str, Incident] = {}
        for fact in facts:
            if fact.seq > known.seq:
                known.seq = fact.seq
                self._judge(node, boot_id, fact, now, changed)
        return changed

    def scopes(self, node: NodeName) -> Scopes:
        found = sorted(self.open.get(node, {}).values(), key=lambda one: (one.opened, one.id))
        return Scopes(
            cards=tuple(dict.fromkeys(CardId(one.entity) for one in found if one.scope == Scope.GPU)),
            multi_gpu=all(one.scope != Scope.MULTI_GPU for one in found),
            incidents=tuple(one.id for one in found),
            reason="; ".join(one.why for one in found),
            boot_id=self.nodes[node].boot_id if node in self.nodes else "",
        )

    def _judge(self, node: NodeName, boot_id: str, fact: Fact, now: float, changed: dict[str, Incident]) -> None:
        if not fact.entity.startswith("gpu:"):
            return
        if fact.check == Check.KERNEL_LOG and fact.code in ("79", LOST):
            self._open(node, boot_id, fact, LOST, Action.REBOOT, "nvidia-catalogue", "fell off the bus", now, changed)
        if fact.check != Check.NVML or fact.code != "card":
            return
        lost, action = fact.value.get("every_call"), fact.value.get("recovery_action")
        if lost is not None:
            self._open(node, boot_id, fact, LOST, Action.REBOOT, "nvml", f"NVML returns {lost} for every call", now, changed)
        elif isinstance(action, int) and action not in (0, _IMEX_DOMAIN):
            wanted = _ACTIONS.get(action, Action.ISOLATE_GPU)
            why = f"NVML's recovery action is {action} ({wanted})"
            self._open(node, boot_id, fact, RECOVERY, wanted, "recovery-action", why, now, changed)
        elif action == 0:
            self._close(node, fact, now, changed)

    def _open(  # noqa: PLR0917  all that the incident states
        self,
        node: NodeName,
        boot_id: str,
        fact: Fact,
        kind: str,
        action: Action,
        authority: str,
        why: str,
        now: float,
        changed: dict[str, Incident],
    ) -> None:
        code = str(fact.value.get("recovery_action")) if kind == RECOVERY else fact.code.replace("card", "lost")
        evidence = f"{boot_id}/{fact.seq} {fact.text or fact.code}"
        here = self.open.setdefault(node, {})
        same = next((one for one in here.values() if (one.entity, one.kind) == (fact.entity, kind)), None)
        if same is None:
            same = Incident(
                id=f"{node}.{kind}.{int(fact.at * 1000)}.{fact.seq}", node=node, entity=fact.entity, kind=kind, code=code,
                state=IncidentState.CONFIRMED, severity=Severity.FATAL_GPU, blame=Blame.HARDWARE, scope=Scope.GPU, action=action,
                opened=now, changed=now,
            )  # fmt: skip
        incident = replace(
            same,
            code=code,
            action=action,
            scope=Scope.MULTI_GPU if action is Action.DRAIN_P2P else Scope.GPU,
            authority=authority,
            rule_version=RULE_VERSION,
            boot_id=boot_id,
            changed=now,
            evidence=(*same.evidence, evidence)[-MOST_EVIDENCE:],
            why=f"{fact.entity.partition(':')[2]}: {why}",
        )
        here[incident.id] = changed[incident.id] = incident

    def _close(self, node: NodeName, fact: Fact, now: float, changed: dict[str, Incident]) -> None:
        here = self.open.get(node, {})
        for incident in [one for one in here.values() if one.entity == fact.entity]:
            del here[incident.id]
            changed[incident.id] = replace(incident, state=IncidentState.CLOSED, changed=now, closed=now)
        if not here:
            self.open.pop(node, None)
