"""Settings of job-controller."""

from typing import ClassVar, Literal

from pydantic import Field, field_validator

from hbox_common.errors import InvalidRequest
from hbox_common.model import SCHEDULER_NAME, scheduler_names
from hbox_common.model.shards import Shards
from hbox_common.runtime import Settings


class JobControllerSettings(Settings):
    service: ClassVar[str] = "job-controller"

    conditions_per_s: float = Field(
        50.0, gt=0, description="Maximum status writes per second, separately for pods and PodGroups."
    )
    events_per_s: float = Field(100.0, gt=0, description="Maximum Kubernetes Events per second.")
    phases_per_s: float = Field(
        200.0, gt=0, description="Maximum job.phase messages and public events of jobs per second, together."
    )
    condition_delay_s: float = Field(
        1.0,
        ge=0,
        description="Minimum age in seconds of a pending reason before job-controller writes it to the pod's conditions.",
    )
    pending_per_namespace: int = Field(
        20_000,
        ge=0,
        description="Maximum pending jobs of one namespace that job-controller submits to the scheduler; it holds back the others"
        " and writes that in their conditions. 0 = no maximum.",
    )
    pending_mib_per_namespace: int = Field(
        64,
        ge=0,
        description="Maximum MiB of the placement data of these jobs (requests, selectors, labels, annotations; identical pods of"
        " a job count once). 0 = no maximum.",
    )
    scheduler_names: str = Field(
        SCHEDULER_NAME, description="Scheduler names that HBox serves, separated by commas: hbox,volcano."
    )
    volcano_namespace: str = Field(
        "volcano-system", description="Namespace of Volcano's scheduler; used if scheduler_names contains volcano."
    )

    kinds_dir: str = Field(
        "",
        description="Directory with files of further kinds of workloads, one or more documents each; read again every 5 s. Empty = the built-in kinds.",
    )
    indexed_jobs: Literal["single", "gang"] = Field(
        "single",
        description="Whether the pods of an Indexed Job start together (gang) or each for itself (single); the label "
        "hbox.io/indexed-jobs of a namespace takes precedence.",
    )
    system_namespaces: str = Field(
        "kube-system,kube-public,kube-node-lease",
        description="Namespaces, separated by commas, in which the PriorityClasses system-cluster-critical and system-node-"
        "critical keep their own values; elsewhere they count at most as the highest PriorityClass of users.",
    )
    shards: str = Field(
        "",
        description="Scheduler shards: a number (2 = jobs are divided by queue) or node pools per shard (main=*;lab=lab-a,lab-b; "
        "* = all other pools). job-controller and all schedulers must use the same value. Empty = one scheduler.",
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
