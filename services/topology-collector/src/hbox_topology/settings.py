"""Settings of topology-collector."""

from typing import ClassVar

from hbox_common.runtime import Settings


class TopologySettings(Settings):
    service: ClassVar[str] = "topology-collector"
