"""Settings of topology-collector."""

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from hbox_common.runtime import Settings


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

    @property
    def allowed_fabric_hosts(self) -> tuple[str, ...]:
        return tuple(filter(None, (host.strip() for host in self.fabric_hosts.split(","))))
