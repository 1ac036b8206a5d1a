"""What ends the wait of a job, and who acts next.

A job waits, if it would have a place once running pods end: on the nodes that are in service, with nothing running on them. It needs a change if it would have
none even then and with all nodes in service. In between an operator has to act. Labels of rules that bookings, time or other pods decide play no part in this.
"""

from dataclasses import dataclass

from hbox_common.model.explanation import Outcome, Owner
from hbox_common.reasons import CODES, code_of_message

from .labels import Label

#: Rules that a node fails until an operator acts, or it is repaired.
RETURNING = frozenset(
    (
        Label.NODE_NOT_READY,
        Label.NODE_UNSCHEDULABLE,
        Label.NODE_UNHEALTHY,
        Label.NODE_MULTI_CARD_OFF,
        Label.NODE_MULTI_NODE_OFF,
        Label.NODE_RAIL_OFF,
    )
)

#: Rules of plugins that no running pod and no time changes.
PERMANENT = frozenset(
    (
        Label.NODE_POOL,
        Label.NODE_SELECTOR_MISMATCH,
        Label.NODE_AFFINITY_MISMATCH,
        Label.UNTOLERATED_TAINT,
        Label.VOLUME_NODE_MISMATCH,
        Label.SPREAD_NO_LABEL,
        Label.NODE_GROUP,
        Label.CARDS_ONLY,
        Label.CARD_LINK,
    )
)

#: Of these the rules by which the pod itself chooses nodes.
CHOICES = frozenset((Label.NODE_POOL, Label.NODE_SELECTOR_MISMATCH, Label.NODE_AFFINITY_MISMATCH))

#: Codes that the engine gives apart from labels of nodes and codes with which messages start.
NODES_OUT_OF_SERVICE = "NodesOutOfService"
NO_NODES = "NoNodes"
GANG_TOO_LARGE, GANG_PARTLY_FITS, GANG_GATHERS = "GangTooLarge", "GangPartlyFits", "GangGathers"
GANG_KEEPS_APART, RESOURCE_QUOTA_TOO_SMALL = "GangKeepsApart", "ResourceQuotaTooSmall"
RESOURCE_ABSENT = "ResourceAbsent"
TOPOLOGY_FULL, TOPOLOGY_TOO_SMALL = "TopologyFull", "TopologyTooSmall"
CARDS_SPREAD, CARDS_RECLAIMED = "CardsSpread", "CardsBeingReclaimed"
CARD_MEMORY_TOO_LARGE, RESOURCE_TOO_LARGE, INSUFFICIENT_RESOURCE = (
    "CardMemoryTooLarge",
    "ResourceTooLarge",
    "InsufficientResource",
)
QUEUE_LIMIT_TOO_SMALL, NOT_TRIED_YET = "QueueLimitTooSmall", "NotTriedYet"
INVALID_SPEC, LEDGER_RECONCILING = "InvalidSpec", "LedgerReconciling"

#: Those codes.
EMITTED = (
    NODES_OUT_OF_SERVICE,
    NO_NODES,
    GANG_TOO_LARGE,
    GANG_PARTLY_FITS,
    GANG_GATHERS,
    GANG_KEEPS_APART,
    RESOURCE_ABSENT,
    RESOURCE_QUOTA_TOO_SMALL,
    TOPOLOGY_FULL,
    TOPOLOGY_TOO_SMALL,
    CARDS_SPREAD,
    CARDS_RECLAIMED,
    CARD_MEMORY_TOO_LARGE,
    RESOURCE_TOO_LARGE,
    INSUFFICIENT_RESOURCE,
    QUEUE_LIMIT_TOO_SMALL,
    NOT_TRIED_YET,
    INVALID_SPEC,
    LEDGER_RECONCILING,
)


@dataclass(frozen=True, slots=True)
class Headline:
    """The head of an explanation."""

    code: str
    outcome: Outcome
    owner: Owner


def headline_of(message: str) -> Headline | None:
    """Of a message that starts with a code, as the catalogue has it; None: it starts with none."""
    code = code_of_message(message)
    return None if code is None else Headline(code.name, code.outcome, code.owner)


def judged(name: str, outcome: Outcome) -> Headline:
    """With this code and outcome. The catalogue's owner acts if its outcome is this one, or if a change is needed that it can make."""
    code = CODES[name]
    if code.outcome is outcome or (outcome is Outcome.CHANGE and code.owner in (Owner.USER, Owner.QUEUE_ADMIN)):
        return Headline(name, outcome, code.owner)
    return Headline(name, outcome, _OWNERS[outcome])


_OWNERS = {Outcome.WAIT: Owner.SYSTEM, Outcome.CHANGE: Owner.USER, Outcome.ESCALATE: Owner.OPERATOR}


def code_of_lack(label: str, *, ever: bool) -> str:
    """The code for a label of nodes: `ever`: also when nothing runs on them."""
    if label.startswith("Insufficient "):
        return RESOURCE_TOO_LARGE if ever else INSUFFICIENT_RESOURCE
    label = label.partition(":")[0]
    return CARD_MEMORY_TOO_LARGE if ever and label == Label.CARD_INSUFFICIENT_MEMORY else label
