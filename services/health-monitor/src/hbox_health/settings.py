"""Settings of health-monitor."""

from pathlib import Path
from typing import ClassVar

from pydantic import Field, field_validator

from hbox_common.model.remedy import Verb
from hbox_common.model.sickhardware import SickPolicy
from hbox_common.runtime import Settings

from .core import NODE_CONDITIONS, Rules
from .core.judge.courses import Policies


class HealthSettings(Settings):
    service: ClassVar[str] = "health-monitor"

    bad_conditions: str = Field(
        "GpuUnhealthy,XidError,KernelDeadlock,ReadonlyFilesystem",
        description="Node condition types, separated by commas, that mark a node as faulty when True, in addition to Kubernetes' own.",
    )
    recover_after_s: float = Field(30.0, ge=0, le=86_400, description="Seconds without recurrence after which a fault clears.")
    cordon: bool = Field(True, description="true = health-monitor also cordons nodes with a fault of the whole node.")
    max_cordoned_fraction: float = Field(
        0.1,
        ge=0,
        le=1,
        description="Maximum cordoned fraction, 0 to 1, of the nodes with cards and of the nodes without; one node is always allowed.",
    )

    health_database_url: str = Field(
        "sqlite:///hbox-health.db",
        description="health-monitor's database of incidents: sqlite:////path/health.db, or postgresql+psycopg://user:password@host/database of its own.",
    )
    on_sick_hardware: SickPolicy = Field(
        SickPolicy.RESTART,
        description="What happens to jobs on sick hardware that, like their queues, have no annotation hbox.io/on-sick-hardware: restart, checkpoint, shrink "
        "or ignore.",
    )

    validated_s: float = Field(
        600.0,
        ge=0,
        le=86_400,
        description="Seconds without a new fault after which a repaired card or node is used again.",
    )

    remedies: str = Field(
        "",
        description="Verbs, separated by commas, that health-monitor decides and node-remedy executes: reset, reboot, restart-fm, load-module, acs-off, "
        "restart-device-plugin, diagnose. Empty: none.",
    )

    @field_validator("remedies")
    @classmethod
    def _known_verbs(cls, text: str) -> str:
        _verbs(text)
        return text

    rules_folder: Path | None = Field(
        None,
        description="Folder with own codes.yaml, nvlink5.yaml, profiles.yaml, policies.yaml or gate-job.yaml, read again when they change; a missing file: as "
        "shipped.",
    )

    def policies(self) -> Policies:
        return Policies(validated_s=self.validated_s, cordon=self.cordon, verbs=_verbs(self.remedies))

    def rules(self) -> Rules:
        named = tuple(name.strip() for name in self.bad_conditions.split(",") if name.strip())
        return Rules(
            bad_conditions=tuple(dict.fromkeys(NODE_CONDITIONS + named)),
            recover_after_s=self.recover_after_s,
            cordon=self.cordon,
            max_cordoned_fraction=self.max_cordoned_fraction,
        )


def _verbs(text: str) -> frozenset[Verb]:
    return frozenset(Verb(name.strip()) for name in text.split(",") if name.strip())
