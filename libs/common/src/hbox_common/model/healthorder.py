"""What an operator orders of health-monitor: exemptions, maintenance, and the end of an incident."""

from dataclasses import dataclass
from enum import StrEnum

from .ids import NodeName


@dataclass(frozen=True, slots=True)
class Exemption:
    """Findings that are recorded and lead to nothing, for a named owner and until a date. Empty selectors match everything, but one at least is set."""

    owner: str
    reason: str
    until: float  #: seconds since the epoch; an exemption always ends
    node: str = ""
    label: str = ""  #: KEY or KEY=VALUE of the node
    check: str = ""  #: the finding's kind, the incident's kind, or kind-code
    code: str = ""
    id: str = ""  #: of the order; empty: an exemption of a story


class OrderVerb(StrEnum):
    EXEMPT = "exempt"
    END_EXEMPTION = "end-exemption"
    MAINTENANCE = "maintenance"
    END_MAINTENANCE = "end-maintenance"
    CLOSE = "close"
    ACCEPT = "accept"


@dataclass(frozen=True, slots=True)
class HealthOrder:
    """One order of an operator, and its record in health-monitor's database. Which fields an order has depends on its verb."""

    id: str  #: chosen by the client; an order that arrives twice has effect once
    verb: OrderVerb
    operator: str  #: as the client states it: any client with the key `hbox-orders` may state any name
    reason: str
    node: NodeName = NodeName(
        ""
    )  #: of exempt (may be empty), maintenance, end-maintenance, accept; of close set by health-monitor
    label: str = ""  #: of exempt, as are the next three
    check: str = ""
    code: str = ""
    owner: str = ""  #: who answers for the exempted fault
    until: float = 0.0  #: of exempt and maintenance: seconds since the epoch
    target: str = ""  #: of end-exemption and close: id of the exemption or incident
    at: float = 0.0  #: when health-monitor accepted it
    effect: str = ""  #: what it changed, in a sentence
