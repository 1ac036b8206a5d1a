"""Settings of node-agent."""

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from hbox_common.bus import Access
from hbox_common.bus.users import agent_user
from hbox_common.health.report import Check
from hbox_common.runtime import Settings


class ReaderMode(StrEnum):
    ON = "on"
    REPORT_ONLY = "report-only"  #: its facts cause no action
    OFF = "off"


class ReaderRule(BaseModel):
    """How a reader of health is called. 0: the reader's default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: ReaderMode = Field(ReaderMode.ON, description="report-only: its facts cause no action.")
    every_s: float = Field(0.0, ge=0, le=3600, description="Seconds between two calls; 0: the reader's default.")
    deadline_s: float = Field(
        0.0, ge=0, le=600, description="Seconds after which a call counts as failed; 0: the reader's default."
    )

    def filled(self, *, every_s: float, deadline_s: float) -> "ReaderRule":
        return ReaderRule(mode=self.mode, every_s=self.every_s or every_s, deadline_s=self.deadline_s or deadline_s)


class AgentSettings(Settings):
    service: ClassVar[str] = "node-agent"

    node_name: str = Field("", description="Kubernetes name of this node.")
    nats_token: Path | None = Field(
        None,
        description="File with the pod's service account token of audience hbox-bus, in place of nats_seed: the broker admits this agent for its own node "
        "only (docs/guides/broker.md).",
    )
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
    nvml_poll_s: float = Field(25.0, gt=0, le=3600, description="Seconds between two readings of NVML.")
    nvml_timeout_s: float = Field(
        30.0,
        gt=0,
        le=600,
        description="Seconds without an answer after which the agent publishes that NVML does not answer. Without persistence "
        "mode each card takes seconds.",
    )
    nvml_events: bool = Field(
        False,
        description="true = wait for NVML's events, too, in a process that has all cards open; node-remedy ends it before it resets a card.",
    )
    dcgm_url: str = Field(
        "",
        pattern=r"^(https?://.+)?$",
        description="URL of the metrics of DCGM's exporter on this node, such as http://dcgm-exporter.gpu-operator:9400/metrics of a Service with "
        "internalTrafficPolicy Local; empty: not read.",
    )
    kernel_log: bool = Field(
        False,
        description="true = read the kernel log, too: /dev/kmsg below host_root or, if it cannot be opened, by syslog(2), with CAP_SYSLOG.",
    )
    readers: dict[Check, ReaderRule] = Field(
        {},
        description="Readers of health by check (kernel-log, nvml, nvml-events, ports, dcgm, units, links): mode (on, report-only, off), every_s, "
        'deadline_s; for example {"ports": {"mode": "report-only", "every_s": 60}}.',
    )

    @property
    def nats_access(self) -> Access:
        """How this process gets into the broker."""
        return replace(super().nats_access, token=self.nats_token)

    @property
    def nats_user(self) -> str:
        """The broker's user that this process is: with a token, that of its node alone."""
        return self.service if self.nats_token is None else agent_user(self.node_name)
