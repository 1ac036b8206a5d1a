"""Settings of the quota-ledger."""

from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from hbox_common.runtime import Settings as Base


class LedgerSettings(Base):
    service: ClassVar[str] = "quota-ledger"

    database_url: str = Field(
        "sqlite:///hbox-ledger.db",
        description="The ledger's database: sqlite:////path/ledger.db, or postgresql+psycopg://user:password@host/database.",
    )
    reconcile_s: float = Field(
        60.0, gt=0, description="Seconds between two comparisons of the claims with all pods of the cluster."
    )
    kept_s: float = Field(
        86_400.0, ge=3600, description="Seconds for which the ledger keeps answers, void claims and message ids."
    )
    history_kept_d: float = Field(
        30.0,
        ge=0,
        le=36_500,
        description="Days after which audit records and transfers are sealed: compressed into segments of 16,384 records; 0 = never.",
    )
    history_records: int = Field(
        1_000_000,
        ge=0,
        le=10**12,
        description="Number of audit records beyond which older ones are sealed before history_kept_d has passed; 0 = any number.",
    )
    evictions_most: int = Field(
        0,
        ge=0,
        le=1_000_000,
        description="Maximum evictions within five minutes, beyond which only a first plan is accepted; 0 = as many as pods run (at "
        "least 200), with more than 2,500 pods a quarter of them (at least 2,500).",
    )
    notice_s: int = Field(
        90,
        ge=-1,
        le=86_400,
        description="Maximum grace period in seconds of a victim, for eviction receipts: the same value as the binder's notice_s;"
        " -1 = no maximum.",
    )
    queue_statuses_per_s: float = Field(
        10.0, ge=0, le=1000, description="Maximum status writes of Queue objects per second; 0 = the ledger writes none."
    )
    pods_in_card_metrics: bool = Field(
        False,
        description="Include each pod's share of a card, with namespace and name, in /metrics/cards",
    )
    queues: Literal["open", "bound"] = Field(
        "open",
        description="Access to a queue without a list of namespaces (its own or an ancestor's): open = every namespace, as in "
        "Volcano; bound = no namespace.",
    )
    shares: Literal["deserved", "weight", "policy"] = Field(
        "deserved",
        description="Share that a queue may reclaim: deserved = the deserved amount of its object; weight = at least its share by"
        " weight of the total, among queues with demand (plugin proportion); policy = as the file of scheduler_conf "
        "states.",
    )
    scheduler_conf: Path | None = Field(
        None,
        description="scheduler-core's volcano-scheduler.conf; with shares=policy, queues have shares by weight while it contains "
        "proportion.",
    )

    @model_validator(mode="after")
    def _names_the_policy(self) -> Self:
        if self.shares == "policy" and self.scheduler_conf is None:
            raise ValueError("shares: policy asks for scheduler_conf, the file of the policy that scheduler-core follows")
        return self

    usage_half_life_h: float = Field(
        168.0,
        ge=0,
        le=100_000,
        description="Half-life in hours of past usage in fair-share order; 0 = past usage has no effect.",
    )
    usage_hours_kept_d: int = Field(
        0,
        ge=0,
        le=36_500,
        description="Days for which usage is stored per hour (at least usage_window_h); older usage is stored per day (UTC). 0 = "
        "per hour for ever.",
    )
    usage_window_h: int = Field(
        1344, ge=1, le=100_000, description="Hours after which past usage has no effect on fair-share order."
    )
