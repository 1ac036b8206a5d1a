"""Settings of node-agent."""

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from hbox_common.runtime import Settings


class AgentSettings(Settings):
    service: ClassVar[str] = "node-agent"

    node_name: str = Field("", description="Kubernetes name of this node.")
    kubelet_root: Path = Field(
        Path("/var/lib/kubelet"), description="The kubelet's root folder, with its sockets and checkpoints."
    )
    kubelet_config: Path | None = Field(
        None, description="The kubelet's configuration file; default: config.yaml in kubelet_root."
    )
    host_root: Path = Field(Path("/"), description="Folder under which the node's /sys is mounted.")
    kubelets: Path | None = Field(
        None,
        description="Emulated clusters only: folder with one kubelet root folder per node, in place of kubelet_root.",
    )
    poll_s: float = Field(
        1.0,
        gt=0,
        le=60,
        description="Seconds between two checks of the kubelet's checkpoints; after a change the agent queries the kubelet.",
    )
    resync_s: float = Field(
        30.0,
        gt=0,
        le=3600,
        description="Maximum seconds between two queries of the kubelet, with or without a changed checkpoint.",
    )
    nvml: bool = Field(False, description="true = read NVML, too; the container needs its library and the GPU devices.")
    nvml_library: Path | None = Field(None, description="Folder of NVML's library, if the dynamic loader does not find it.")
    nvml_poll_s: float = Field(60.0, gt=0, le=3600, description="Seconds between two readings of NVML.")
    nvml_timeout_s: float = Field(
        30.0,
        gt=0,
        le=600,
        description="Seconds without an answer after which the agent publishes that NVML does not answer. Without persistence "
        "mode each card takes seconds.",
    )
