"""Settings of the binder."""

from typing import ClassVar

from pydantic import Field

from hbox_common.runtime import Settings

from .core import Limits


class BinderSettings(Settings):
    service: ClassVar[str] = "binder"

    binds_per_s: float = Field(2000.0, gt=0, le=100_000, description="bindings begun per second at most")
    evictions_per_min: float = Field(
        2000.0, ge=1, le=1_000_000, description="evictions per minute at most; what goes beyond is held back"
    )
    taken_grace_s: int = Field(
        1,
        ge=-1,
        le=86_400,
        description="seconds that a pod gets to end which makes room for others and says nothing about its end; one with a preStop hook, or a "
        "terminationGracePeriodSeconds other than 30, gets its own; -1: all get their own",
    )
    pool_taints: bool = Field(
        True,
        description="nodes of exclusive pools bear the taint hbox.io/pool=POOL:NoSchedule; false: it is taken from all nodes",
    )
    notice_s: int = Field(
        90,
        ge=-1,
        le=86_400,
        description="the most seconds that a pod gets to end which makes room for others, whatever it says of its end; -1: as long as it likes. "
        "Whoever waits for its place gives up after 120",
    )
    node_lock_expires_s: float = Field(
        300.0,
        ge=10,
        le=86_400,
        description="the age at which a node's lock (hami.io/mutex.lock) is removed whatever its pod shows; HAMi's HAMI_NODELOCK_EXPIRE",
    )
    volume_timeout_s: float = Field(
        45.0,
        gt=0,
        le=3600,
        description="seconds that a provisioner gets to make a volume for the node of a pod; then another node is tried. The deadline of the bind "
        "(scheduler-core's gang_deadline_s) also ends the wait",
    )
    concurrency: int = Field(32, ge=8, le=512, description="calls to the Kubernetes API under way at once, 8 to 512")
    patience_s: float = Field(
        3.0, gt=0, le=60, description="seconds until a decision that is not settled is reported as unknown"
    )

    def limits(self) -> Limits:
        return Limits(
            slots=self.concurrency,
            urgent_slots=self.concurrency // 8,
            binds_per_s=self.binds_per_s,
            evictions_per_min=self.evictions_per_min,
            patience_s=self.patience_s,
        )
