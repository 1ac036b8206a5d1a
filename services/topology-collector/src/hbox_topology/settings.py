"""Settings of topology-collector."""

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from hbox_common.runtime import Settings


class TopologySettings(Settings):
    service: ClassVar[str] = "topology-collector"

    pools_file: Path | None = Field(
        None,
        description="which nodes are of which pool, by name or by labels; without one, and for nodes that it does not say, the node's own label counts",
    )
    fabrics_file: Path | None = Field(
        None,
        description="where the fabric is read: UFM, ibnetdiscover, LLDP, labels of nodes, HyperNodes; without one the cluster's HyperNodes are the fabric",
    )
    fabric_hosts: str = Field("", description="hosts that file may have us ask, joined by commas; none: those that it names")

    @property
    def allowed_fabric_hosts(self) -> tuple[str, ...]:
        return tuple(filter(None, (host.strip() for host in self.fabric_hosts.split(","))))
