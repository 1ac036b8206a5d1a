"""Settings of job-controller."""

from typing import ClassVar

from pydantic import Field

from hbox_common.runtime import Settings


class JobControllerSettings(Settings):
    service: ClassVar[str] = "job-controller"

    conditions_per_s: float = Field(50.0, gt=0, description="at most so many status writes (pods and PodGroups each) a second")
    events_per_s: float = Field(100.0, gt=0, description="at most so many Kubernetes Events a second")
    phases_per_s: float = Field(200.0, gt=0, description="at most so many job.phase messages a second")
    condition_delay_s: float = Field(1.0, ge=0, description="seconds that a reason to wait has to stand before pods are told")
