"""Settings of topology-collector."""

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from hbox_common.runtime import Settings

from .core.firstreport import FirstReport, selector_of


class TopologySettings(Settings):
    service: ClassVar[str] = "topology-collector"

    pools_file: Path | None = Field(
        None,
        description="File that assigns nodes to pools by name or labels; a node without an entry, and every node without the "
        "file, uses its own label.",
    )
    fabrics_file: Path | None = Field(
        None,
        description="File that names the fabric sources: UFM, ibnetdiscover, LLDP, node labels, HyperNodes; default: the "
        "cluster's HyperNodes.",
    )
    fabric_hosts: str = Field(
        "", description="Hosts that fabrics_file may name, separated by commas; empty = every host in the file."
    )

    agent_wait_s: float = Field(
        0.0,
        ge=0.0,
        le=3600.0,
        description="maximum seconds until node-agent's first report, in which a new node takes no pods that its kubelet may refuse; 0: there is no node-agent",
    )
    agent_nodes: str = Field(
        "",
        description="nodes on which node-agent runs: labels or annotations, `key=value` or `key`, joined by commas; none: all nodes",
    )

    @property
    def first_report(self) -> FirstReport:
        return FirstReport(self.agent_wait_s, selector_of(filter(None, (term.strip() for term in self.agent_nodes.split(",")))))

    @property
    def allowed_fabric_hosts(self) -> tuple[str, ...]:
        return tuple(filter(None, (host.strip() for host in self.fabric_hosts.split(","))))
