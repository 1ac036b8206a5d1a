"""Settings of the binder."""

from typing import ClassVar

from pydantic import Field

from hbox_common.runtime import Settings

from .core import Limits


class BinderSettings(Settings):
    service: ClassVar[str] = "binder"

    binds_per_s: float = Field(2000.0, gt=0, le=100_000, description="Maximum bindings started per second.")
    evictions_per_min: float = Field(
        2000.0, ge=1, le=1_000_000, description="Maximum evictions per minute; the binder delays the rest."
    )
    taken_grace_s: int = Field(
        1,
        ge=-1,
        le=86_400,
        description="Grace period in seconds of a victim without its own: no preStop hook, and terminationGracePeriodSeconds "
        "unset or 30. -1 = every victim keeps the grace period of its spec.",
    )
    pool_taints: bool = Field(
        True,
        description="true = nodes of exclusive pools carry the taint hbox.io/pool=POOL:NoSchedule; false = HBox removes it from "
        "all nodes.",
    )
    notice_s: int = Field(
        90,
        ge=-1,
        le=86_400,
        description="Maximum grace period in seconds of any victim; -1 = no maximum. A preemptor stops waiting for a victim after"
        " 120 s.",
    )
    node_lock_expires_s: float = Field(
        300.0,
        ge=10,
        le=86_400,
        description="Age in seconds at which the binder removes a node's HAMi lock (hami.io/mutex.lock) whatever its pod's state;"
        " as HAMi's HAMI_NODELOCK_EXPIRE.",
    )
    volume_timeout_s: float = Field(
        45.0,
        gt=0,
        le=3600,
        description="seconds that a provisioner gets to make a volume for the node of a pod; then another node is tried. The deadline of the bind "
        "(scheduler-core's gang_deadline_s) also ends the wait",
    )
    gate_namespace: str = Field(
        "",
        description="Namespace in which the binder creates the Jobs of health-monitor's checks (gate-job.yaml); empty = none, and these checks wait.",
    )
    concurrency: int = Field(32, ge=8, le=512, description="Maximum concurrent calls to the Kubernetes API, 8 to 512.")
    patience_s: float = Field(
        3.0, gt=0, le=60, description="Seconds after which the binder reports an unsettled decision as unknown."
    )

    def limits(self) -> Limits:
        return Limits(
            slots=self.concurrency,
            urgent_slots=self.concurrency // 8,
            binds_per_s=self.binds_per_s,
            evictions_per_min=self.evictions_per_min,
            patience_s=self.patience_s,
        )
