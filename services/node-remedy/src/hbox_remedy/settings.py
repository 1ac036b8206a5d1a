"""Settings of node-remedy."""

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from hbox_common.bus import Access
from hbox_common.bus.users import remedy_user
from hbox_common.model.remedy import Verb
from hbox_common.runtime import Settings

from .core.admission import Limit

DAY_S = 24 * 3600.0
#: Executions of a verb on a node, whatever the incidents. health-monitor's own limits are per card and per incident.
LIMITS = {
    Verb.RESET: Limit(16, DAY_S),
    Verb.REBOOT: Limit(2, DAY_S),
    Verb.RESTART_FM: Limit(1, 3600.0),
    Verb.LOAD_MODULE: Limit(3, DAY_S),
    Verb.ACS_OFF: Limit(3, DAY_S),
    Verb.RESTART_DEVICE_PLUGIN: Limit(3, DAY_S),
    Verb.DIAGNOSE: Limit(32, DAY_S),
}
#: Seconds until a hook, or the longest command of a verb, is ended.
TIMEOUT_S = 300.0


class Mode(StrEnum):
    ON = "on"
    DRY_RUN = "dry-run"  #: the commands are reported, and none is executed
    OFF = "off"


class VerbRule(BaseModel):
    """Whether and how a verb is executed. 0: the verb's default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: Mode = Field(Mode.ON, description="dry-run: its commands are reported, and none is executed.")
    hook: tuple[str, ...] = Field((), description="A command in place of the verb's own.")
    most: int = Field(0, ge=0, le=1000, description="Executions in per_s seconds; 0: the verb's default.")
    per_s: float = Field(0.0, ge=0, le=30 * DAY_S, description="Seconds in which `most` are allowed; 0: the verb's default.")
    timeout_s: float = Field(TIMEOUT_S, gt=0, le=3600, description="Seconds after which it is ended.")

    def limit(self, verb: Verb) -> Limit:
        default = LIMITS[verb]
        return Limit(self.most or default.most, self.per_s or default.per_s)


class RemedySettings(Settings):
    service: ClassVar[str] = "node-remedy"
    drain_s: ClassVar[float] = (
        TIMEOUT_S + 30
    )  #: a remedy whose `timeout_s` is not longer than the default ends; as the grace period in the chart

    node_name: str = Field("", description="Kubernetes name of this node.")
    nats_token: Path | None = Field(
        None,
        description="File with the pod's service account token of audience hbox-bus: the broker admits this program for its own node only.",
    )
    verbs: dict[Verb, VerbRule] = Field(
        {},
        description="Enabled verbs (reset, reboot, restart-fm, load-module, acs-off, restart-device-plugin, diagnose); one that is not listed is off. Of each: "
        "mode (on, dry-run, off), hook (a command in place of the verb), most and per_s (limit of executions), timeout_s; for example "
        '{"restart-fm": {}, "reboot": {"mode": "dry-run"}}.',
    )
    state: Path = Field(
        Path("/var/lib/hbox/remedy"),
        description="Folder of the journal of remedies, which has to outlive the node's boots. While it contains a file named stop, nothing is executed.",
    )
    host_root: Path = Field(Path("/"), description="Folder under which the node's /proc and /sys are mounted.")
    enter: tuple[str, ...] = Field(
        (),
        description="Command in front of every command, as a JSON list; in a pod: nsenter into the namespaces of the node's process 1.",
    )
    stopped_units: tuple[str, ...] = Field(
        (), description="systemd units that are stopped for the reset of a card and started after it, such as nvidia-dcgm."
    )
    stopped_programs: tuple[str, ...] = Field(
        (),
        description="Programs that may be terminated for the reset of a card, such as dcgm-exporter; the kubelet starts them again.",
    )
    device_plugin: str = Field("nvidia-device-plugin", description="Program of the device plugin.")
    diagnostics_level: int = Field(
        2,
        ge=1,
        le=4,
        description="Level of DCGM's diagnostics (`dcgmi diag -r`) of `diagnose`: 1 takes seconds, 2 about two minutes; 3 and 4 need more `timeout_s`.",
    )
    bug_reports: str = Field(
        "/var/log",
        description="Folder on the node for the output of nvidia-bug-report.sh after a second failed reset; empty: none.",
    )

    @property
    def nats_access(self) -> Access:
        """How this process gets into the broker."""
        return replace(super().nats_access, token=self.nats_token)

    @property
    def nats_user(self) -> str:
        """The broker's user that this process is: that of its node alone."""
        return remedy_user(self.node_name)

    def rule(self, verb: Verb) -> VerbRule:
        return self.verbs.get(verb, VerbRule(mode=Mode.OFF))
