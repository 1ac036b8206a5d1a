"""Settings of health-monitor."""

from typing import ClassVar

from pydantic import Field

from hbox_common.runtime import Settings

from .core import NODE_CONDITIONS, Rules


class HealthSettings(Settings):
    service: ClassVar[str] = "health-monitor"

    bad_conditions: str = Field(
        "GpuUnhealthy,XidError,KernelDeadlock,ReadonlyFilesystem",
        description="types of node conditions, joined by commas, that are bad when True, beside Kubernetes' own",
    )
    recover_after_s: float = Field(30.0, ge=0, le=86_400, description="seconds that a fault has to be absent before it is over")
    cordon: bool = Field(True, description="whether nodes with faults of their own are cordoned, beside the verdict")
    max_cordoned_fraction: float = Field(
        0.1, ge=0, le=1, description="of the nodes with cards, and of those without, 0 to 1; one is always allowed"
    )

    def rules(self) -> Rules:
        named = tuple(name.strip() for name in self.bad_conditions.split(",") if name.strip())
        return Rules(
            bad_conditions=tuple(dict.fromkeys(NODE_CONDITIONS + named)),
            recover_after_s=self.recover_after_s,
            cordon=self.cordon,
            max_cordoned_fraction=self.max_cordoned_fraction,
        )
