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
