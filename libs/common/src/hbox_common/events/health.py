"""HBOX_REPORTS: facts about nodes' health, in the order in which each node's agent read them."""

from typing import ClassVar

from hbox_common.health.report import Fact
from hbox_common.model import NodeName

from .base import About, Event, Stream, register


@register
class HealthReport(Event):
    """Facts that a node's agent read since its last report. A reader refuses a report whose `node` is not its subject's node."""

    about: ClassVar = About("hbox.v1.health.report.{node}", Stream.REPORTS, ("node-agent",), ("health-monitor", "cli"))
    node: NodeName
    boot_id: str  #: of the node's kernel; a reader discards facts of earlier boots
    agent: str  #: id of the agent's process; another one after each start
    facts: tuple[Fact, ...]
    report_only: tuple[str, ...] = ()  #: checks whose facts are recorded and cause no action
    log_seq: int = -1  #: of the last kernel record whose facts are published; a restarted agent continues after it

    @property
    def own_id(self) -> str:
        """A report that is published again, because the broker's answer was lost, is one message."""
        return f"{self.node}.{self.agent}.{self.facts[0].seq}" if self.facts else ""
