"""Operators' orders to health-monitor, their record, and the rules in force."""

from typing import ClassVar

from hbox_common.model import NodeName
from hbox_common.model.healthorder import Exemption, HealthOrder

from .base import About, Event, Stream, register


@register
class HealthOrderAsked(Event):
    """Requests an order of an operator. The answer comes after the order is stored. A request that is repeated has effect once."""

    about: ClassVar = About("hbox.v1.rpc.health.order", None, ("hbox-orders",), ("health-monitor",))
    asker: str
    order: HealthOrder


@register
class HealthOrderTaken(Event):
    """The order as it is stored, with its time and effect."""

    about: ClassVar = About("hbox.v1.rpc.health.order-taken", None, ("health-monitor",), ("hbox-orders",))
    order: HealthOrder


@register
class HealthOrdersAsked(Event):
    """Requests the orders since a time (seconds since the epoch), of one node or of all."""

    about: ClassVar = About("hbox.v1.rpc.health.orders", None, ("cli",), ("health-monitor",))
    asker: str
    since: float = 0.0
    node: NodeName = NodeName("")


@register
class HealthOrdersPage(Event):
    """A page of orders, oldest first."""

    about: ClassVar = About("hbox.v1.rpc.health.orders-page", None, ("health-monitor",), ("cli",), items=("orders",))
    orders: tuple[HealthOrder, ...]


@register
class HealthPolicyAsked(Event):
    """Requests the rules and policies in force, and the exemptions that have not ended."""

    about: ClassVar = About("hbox.v1.rpc.health.policy", None, ("cli",), ("health-monitor",))
    asker: str


class PolicyValue(Event):
    """One value in force."""

    name: str
    value: str
    source: str  #: default, setting, or the name of the file


@register
class HealthPolicyPage(Event):
    """What health-monitor decides by."""

    about: ClassVar = About("hbox.v1.rpc.health.policy-page", None, ("health-monitor",), ("cli",), items=("exemptions",))
    version: str  #: as in `rule_version` of incidents
    values: tuple[PolicyValue, ...]
    tables: dict[str, str] = {}  #: name of the table -> its source: shipped, or the path of the file
    fault: str = ""  #: why the files in the folder of rules are not in force
    exemptions: tuple[Exemption, ...] = ()


@register
class HealthOrdered(Event):
    """health-monitor accepted and stored an order of an operator. A restart may publish it again, with the same id. The key is empty for an order that names no
    node."""

    about: ClassVar = About("hbox.v1.health.order.{node}", Stream.EVENTS, ("health-monitor",), ("integrators", "cli"))
    order: HealthOrder
    at: float  #: seconds since the epoch

    @property
    def own_id(self) -> str:
        """An order that is published again after a restart is one message."""
        return self.order.id


@register
class HealthRulesChanged(Event):
    """Other tables or policies are in force, or a file in the folder of rules cannot be used: then the former ones stay in force."""

    about: ClassVar = About("hbox.v1.health.rules", Stream.EVENTS, ("health-monitor",), ("integrators", "cli"))
    version: str
    fault: str = ""
    at: float = 0.0  #: seconds since the epoch
