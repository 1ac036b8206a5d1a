"""Settings of the quota-ledger."""

from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from hbox_common.runtime import Settings as Base


class LedgerSettings(Base):
    service: ClassVar[str] = "quota-ledger"

    database_url: str = Field(
        "sqlite:///hbox-ledger.db",
        description="the ledger's database: sqlite:////path/ledger.db, or postgresql+psycopg://user:password@host/database",
    )
    reconcile_s: float = Field(60.0, gt=0, description="seconds between two comparisons of the books with all pods")
    kept_s: float = Field(86_400.0, ge=3600, description="seconds for which answers, void claims and message ids are kept")
    evictions_most: int = Field(
        0,
        ge=0,
        le=1_000_000,
        description="pods told to leave for others within five minutes, at most; 0 = as many as run, but of more than 2,500 a quarter (at least 2,500)",
    )
    notice_s: int = Field(
        90,
        ge=-1,
        le=86_400,
        description="the most seconds that a pod gets to end which makes room for others: the binder's setting of this name, as receipts tell it; "
        "-1: as long as it likes",
    )
    queue_statuses_per_s: float = Field(
        10.0, ge=0, le=1000, description="statuses of Queue objects written a second, at most; 0 = they are left alone"
    )
    pods_in_card_metrics: bool = Field(
        False,
        description="include each pod's share of a card, with namespace and name, in /metrics/cards; every client that reaches the port can read it",
    )
    queues: Literal["open", "bound"] = Field(
        "open",
        description="who may use a queue that names no namespaces, nor any above it: every namespace, as in Volcano; or, where queues are bound, none",
    )
    shares: Literal["deserved", "weight", "policy"] = Field(
        "deserved",
        description="what queues may take back from others: what they deserve by their objects; or at least their share by weight too, of what there is, "
        "among those that ask for it (a policy with proportion); or the one or the other as the file of scheduler_conf has it at the time",
    )
    scheduler_conf: Path | None = Field(
        None,
        description="the volcano-scheduler.conf of scheduler-core: queues have shares by weight while it has proportion, where `shares` is policy",
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
        description="hours after which usage weighs half in what queues used of late; 0 = no history is kept",
    )
    usage_hours_kept_d: int = Field(
        0,
        ge=0,
        le=36_500,
        description="days for which usage is kept by the hour, and at least as long as it weighs in what queues used of late; older usage is kept by "
        "the day (UTC). 0 = by the hour for ever",
    )
    usage_window_h: int = Field(1344, ge=1, le=100_000, description="hours after which usage weighs nothing there")
