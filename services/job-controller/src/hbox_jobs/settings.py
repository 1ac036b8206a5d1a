"""Settings of job-controller."""

from typing import ClassVar

from pydantic import Field, field_validator

from hbox_common.errors import InvalidRequest
from hbox_common.model import SCHEDULER_NAME, scheduler_names
from hbox_common.model.shards import Shards
from hbox_common.runtime import Settings


class JobControllerSettings(Settings):
    service: ClassVar[str] = "job-controller"

    conditions_per_s: float = Field(50.0, gt=0, description="at most so many status writes (pods and PodGroups each) a second")
    events_per_s: float = Field(100.0, gt=0, description="at most so many Kubernetes Events a second")
    phases_per_s: float = Field(200.0, gt=0, description="at most so many job.phase messages a second")
    condition_delay_s: float = Field(1.0, ge=0, description="seconds that a reason to wait has to stand before pods are told")
    pending_per_namespace: int = Field(
        20_000,
        ge=0,
        description="of one namespace, jobs that scheduler and ledger are told of while they wait for places; others are held back, and told so; 0 = all",
    )
    pending_mib_per_namespace: int = Field(
        64,
        ge=0,
        description="likewise, what is told of these jobs: where their pods may run and what they want, labels and notes, of equal pods of a job once; 0 = all",
    )
    scheduler_names: str = Field(
        SCHEDULER_NAME, description="pods whose schedulerName is one of these are HBox's, joined by commas: hbox,volcano"
    )
    volcano_namespace: str = Field(
        "volcano-system", description="where Volcano's scheduler would run, if scheduler_names has a name of its"
    )

    system_namespaces: str = Field(
        "kube-system,kube-public,kube-node-lease",
        description="namespaces, separated by commas, where the PriorityClasses system-cluster-critical and system-node-critical keep their own values; "
        "elsewhere they count no more than the highest PriorityClass of users",
    )
    shards: str = Field(
        "",
        description="several schedulers: how many (2: jobs go by their queues), or which pools of nodes each has (main=*;lab=lab-a,lab-b: * is all that none "
        "names); job-controller and all schedulers are told the same. Empty: one has all",
    )

    @property
    def namespaces_of_the_system(self) -> frozenset[str]:
        return frozenset(name.strip() for name in self.system_namespaces.split(",") if name.strip())

    @field_validator("shards")
    @classmethod
    def _shards(cls, value: str) -> str:
        try:
            Shards.parse(value)
        except InvalidRequest as e:
            raise ValueError(str(e)) from e
        return value

    @field_validator("scheduler_names")
    @classmethod
    def _names(cls, value: str) -> str:
        try:
            return ",".join(scheduler_names(value))
        except InvalidRequest as e:
            raise ValueError(str(e)) from e
