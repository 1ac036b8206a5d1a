"""Settings of scheduler-core."""

from pathlib import Path
from typing import ClassVar

from pydantic import Field, model_validator

from hbox_common.errors import InvalidRequest
from hbox_common.model.consolidation import Mode
from hbox_common.model.shards import Shards
from hbox_common.runtime import Settings

from .core.policy import PolicyName


class SchedulerSettings(Settings):
    service: ClassVar[str] = "scheduler-core"

    policy: PolicyName = Field(
        PolicyName.BINPACK,
        description="binpack (fill used nodes), least-waste (least cards that nobody can use, learned from the requests) or fgd (least "
        "expected fragmentation, to compare with)",
    )
    scheduler_conf: Path | None = Field(
        None,
        description="a volcano-scheduler.conf by which every job is placed and room is taken from others; without one HBox's own, and `policy` says where "
        "pods go that have to do with nobody",
    )
    defragmentation: Mode = Field(
        Mode.OFF,
        description="of HBox's own policies: whether pods move so that a gang finds room in one piece, where it gains more than they lose (on), "
        "whether that is only said (preview), or not looked for (off); a volcano-scheduler.conf says it itself (action consolidate)",
    )
    cycle_window_ms: float = Field(
        10.0, ge=0, le=1000, description="least time between two planning cycles; the first is at once"
    )
    cycle_placements: int = Field(
        512, ge=1, description="placements after which a cycle ends and its plans are sent; a gang is never cut"
    )
    resend_after_s: float = Field(
        5.0, gt=0, description="a plan without an answer is sent again, with the same id, after so long"
    )
    gang_deadline_s: float = Field(60.0, gt=0, description="a gang that is not bound whole so long after its commit is unwound")
    record: Path | None = Field(
        None,
        description="a folder in which each start writes down what the scheduler is told and decides, for `hbox simulate replay`; without one nothing is "
        "recorded",
    )
    record_most_mib: int = Field(
        1024,
        ge=2,
        description="bound of that folder: a record ends at half of it, and the oldest records go until they fit in the other half",
    )
    fabric_max_age_s: float = Field(
        600.0,
        gt=0,
        description="a fabric that its source (UFM, ...) has not confirmed for longer promises no domain: gangs that need one wait; others go by it",
    )
    verdict_every_s: float = Field(2.0, ge=0, description="why one job waits is said at most so often")
    shards: str = Field(
        "",
        description="several schedulers: how many (2: jobs go by their queues), or which pools of nodes each has (main=*;lab=lab-a,lab-b: * is all that none "
        "names); job-controller and all schedulers are told the same. Empty: one has all",
    )
    shard: str = Field("", description="with `shards`: which of them this scheduler is of, as 0, or lab")

    @model_validator(mode="after")
    def _one_of_the_shards(self) -> "SchedulerSettings":
        try:
            shards = Shards.parse(self.shards)
        except InvalidRequest as e:
            raise ValueError(f"shards: {e}") from e
        if self.shard and not shards.several:
            raise ValueError(f"shard {self.shard}: HBOX_SHARDS says that there are none")
        if shards.several and self.shard not in shards.names:
            raise ValueError(
                f"shard {self.shard or 'is not named, and'} is none of {', '.join(shards.names)}: HBOX_SHARD names one"
            )
        return self

    @property
    def divided(self) -> Shards:
        """The shards that there are."""
        return Shards.parse(self.shards)
