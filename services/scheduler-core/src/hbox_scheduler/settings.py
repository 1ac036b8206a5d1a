"""Settings of scheduler-core."""

from pathlib import Path
from typing import ClassVar

from pydantic import Field, model_validator

from hbox_common.errors import InvalidRequest
from hbox_common.model.consolidation import Mode
from hbox_common.model.shards import Shards
from hbox_common.runtime import Settings

from .core.policy import PolicyName
from .core.policy.default import DEFAULT


class SchedulerSettings(Settings):
    service: ClassVar[str] = "scheduler-core"

    policy: PolicyName = Field(
        DEFAULT,
        description="HBox's own placement policy: least-waste (minimise unusable cards, learned from the requests), binpack "
        "(fill used nodes) or fgd (minimise expected fragmentation, for comparison).",
    )
    scheduler_conf: Path | None = Field(
        None,
        description="volcano-scheduler.conf that replaces HBox's own policy for all jobs; then `policy` only places pods outside "
        "every queue.",
    )
    defragmentation: Mode = Field(
        Mode.OFF,
        description="HBox's own policies only: move pods so that a gang finds connected room, if the gain exceeds the cost: on, "
        "preview (report only) or off. A volcano-scheduler.conf uses action consolidate.",
    )
    cycle_window_ms: float = Field(
        10.0,
        ge=0,
        le=1000,
        description="Minimum milliseconds between two scheduling cycles; the first cycle after idle time starts at once.",
    )
    cycle_placements: int = Field(
        512, ge=1, description="Placements after which a cycle ends and publishes its plans; a gang is never split."
    )
    resend_after_s: float = Field(
        5.0, gt=0, description="Seconds without an answer after which a plan is sent again with the same id."
    )
    gang_deadline_s: float = Field(60.0, gt=0, description="Seconds after its commit at which a partly bound gang is unwound.")
    record: Path | None = Field(
        None,
        description="Folder for records of the scheduler's inputs and decisions, one per start, for `hbox simulate replay`; "
        "default: no record.",
    )
    record_most_mib: int = Field(
        1024,
        ge=2,
        description="Maximum size in MiB of the record folder: a record ends at half of it, and the oldest records are deleted to"
        " fit the other half.",
    )
    fabric_max_age_s: float = Field(
        600.0,
        gt=0,
        description="Seconds after its source's last confirmation (UFM, ...) at which a fabric is stale: gangs with a hard "
        "topology requirement wait, others still prefer its domains.",
    )
    verdict_every_s: float = Field(2.0, ge=0, description="Minimum seconds between two pending-reason updates of a job.")
    shards: str = Field(
        "",
        description="Scheduler shards: a number (2 = jobs are divided by queue) or node pools per shard (main=*;lab=lab-a,lab-b; "
        "* = all other pools). job-controller and all schedulers must use the same value. Empty = one scheduler.",
    )
    shard: str = Field("", description="Shard of this scheduler, as named by shards: 0, or lab.")

    @model_validator(mode="after")
    def _one_of_the_shards(self) -> "SchedulerSettings":
        try:
            shards = Shards.parse(self.shards)
        except InvalidRequest as e:
            raise ValueError(f"shards: {e}") from e
        if self.shard and not shards.several:
            raise ValueError(f"shard {self.shard}: HBOX_SHARDS names no shards")
        if shards.several and self.shard not in shards.names:
            raise ValueError(
                f"shard {self.shard or 'is not named, and'} is none of {', '.join(shards.names)}: HBOX_SHARD names one"
            )
        return self

    @property
    def divided(self) -> Shards:
        """The shards of the cluster."""
        return Shards.parse(self.shards)
