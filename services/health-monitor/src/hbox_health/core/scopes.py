"""What of a node may not be used, by the judgement of its agent's facts."""

from dataclasses import dataclass

from hbox_common.model import CardId, NodeName


@dataclass(frozen=True, slots=True)
class Scopes:
    """The smallest isolation that the open incidents of a node require. The default: none."""

    cards: tuple[CardId, ...] = ()  #: ids of cards and of MIG instances
    rails_off: tuple[str, ...] = ()
    multi_gpu: bool = True
    multi_node: bool = True
    node: bool = True  #: whether new work may use the node at all
    ordered: bool = False  #: an operator's order closes the node: within no limit on cordons, and counted in none
    incidents: tuple[str, ...] = ()
    reason: str = ""
    boot_id: str = ""


@dataclass(frozen=True, slots=True)
class Judged:
    """The scopes of a node changed."""

    node: NodeName
    scopes: Scopes
