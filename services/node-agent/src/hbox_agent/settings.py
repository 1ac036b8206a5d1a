"""Settings of node-agent."""

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from hbox_common.runtime import Settings


class AgentSettings(Settings):
    service: ClassVar[str] = "node-agent"

    node_name: str = Field("", description="the node on which it runs, as Kubernetes calls it")
    kubelet_root: Path = Field(Path("/var/lib/kubelet"), description="the kubelet's folder, with its sockets and checkpoints")
    kubelet_config: Path | None = Field(None, description="the kubelet's configuration; without one, config.yaml in its folder")
    host_root: Path = Field(Path("/"), description="where the node's /sys is found")
    kubelets: Path | None = Field(
        None,
        description="a folder with such a folder for each of several nodes, by their names, in place of one: of an emulated cluster",
    )
    poll_s: float = Field(
        1.0,
        gt=0,
        le=60,
        description="how often it is looked whether the kubelet's checkpoints changed; where they did, the kubelet is asked",
    )
    resync_s: float = Field(30.0, gt=0, le=3600, description="the kubelet is asked so often also where no checkpoint changed")
    nvml: bool = Field(False, description="NVML is asked too, which needs its library and devices in the container")
    nvml_library: Path | None = Field(None, description="the folder of NVML's library, where the loader does not look")
    nvml_poll_s: float = Field(60.0, gt=0, le=3600, description="how often it is asked")
    nvml_timeout_s: float = Field(
        30.0,
        gt=0,
        le=600,
        description="after so long without an answer it is said that it gives none; without persistence mode each card takes seconds",
    )
