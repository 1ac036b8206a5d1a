"""The present faults of a node, by its published state."""

from dataclasses import dataclass, field
from enum import StrEnum

from hbox_common.model import CardId, NodeState
from hbox_common.model.devices import short_card

#: Conditions that kubelets and cloud controllers write; bad when True.
NODE_CONDITIONS = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")


class FaultKind(StrEnum):
    NOT_READY = "not-ready"
    CONDITION = "condition"
    CARD = "card"
    EARLIER = "earlier"  #: in a verdict from before this process; what it was about is no longer known


@dataclass(frozen=True, slots=True)
class Fault:
    kind: FaultKind
    name: str = ""  #: of the condition, or from an earlier verdict
    card: CardId = CardId("")
    index: int = field(default=-1, compare=False)  #: of the card, as last observed

    @property
    def of_node(self) -> bool:
        """Whether it concerns the whole node."""
        return self.kind is not FaultKind.CARD

    @property
    def closes(self) -> bool:
        """Whether it is a reason to cordon. A node that is not ready is tainted by Kubernetes itself."""
        return self.kind is FaultKind.CONDITION

    def __str__(self) -> str:
        match self.kind:
            case FaultKind.NOT_READY:
                return "not ready"
            case FaultKind.CARD:
                return f"card {short_card(self.card)} unhealthy"
            case FaultKind.CONDITION | FaultKind.EARLIER:
                return self.name


@dataclass(frozen=True, slots=True)
class Rules:
    """What counts as bad, and what follows."""

    #: faulty if True; Unknown is no fault by itself, since the node is not ready then
    bad_conditions: tuple[str, ...] = NODE_CONDITIONS
    recover_after_s: float = 30.0  #: so long a fault has to be absent before it is over
    cordon: bool = True
    max_cordoned_fraction: float = 0.1  #: of the nodes with cards, and of those without, each; one node is always allowed
    repeat_s: float = 60.0  #: a decision that shows no effect is made again after so long


def faults_of(state: NodeState, rules: Rules) -> list[Fault]:
    """The faults that the node shows now; those of the whole node first."""
    out = [] if state.ready else [Fault(FaultKind.NOT_READY)]
    out += [Fault(FaultKind.CONDITION, name) for name in rules.bad_conditions if state.conditions.get(name) == "True"]
    out += [Fault(FaultKind.CARD, card=card.id, index=card.index) for card in state.cards if not card.healthy]
    return out
