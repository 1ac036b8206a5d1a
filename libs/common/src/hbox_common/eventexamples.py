"""One example of each public event, with a value in every field: for the bus reference and the tests of the wire format."""

from typing import Any

from hbox_common.events import (
    CloudEvent,
    EvictionRule,
    JobEnd,
    JobEnding,
    JobEvicted,
    JobEviction,
    JobFinished,
    JobPlaced,
    JobPlacement,
    JobRejected,
    JobRejection,
    JobStarted,
    NodeDrain,
    NodeDrained,
    PlanRefusal,
    PlanRefused,
    QueueQuota,
    QueueReclaimed,
    QuotaChange,
    QuotaChanged,
    Reclaim,
    places_of,
)
from hbox_common.model import CardId, CardSlice, JobId, NodeName, PlanId, QueueName, RefusalReason
from hbox_common.model.devices import VENDORS

_AT = 1_767_225_600.25
_JOB, _QUEUE, _PLAN = JobId("7d0c1f6e-4b60-4f0a-9a51-0f6d3b0f7a10"), QueueName("research"), PlanId("plan-01")
_CARD = CardSlice(index=3, cores=100, memory_mib=0, card=CardId("gpu:GPU-6a1f0c9e-3a5d-4a51-8c3e-1f2b3c4d5e6f"))
_PLACES: dict[str, Any] = dict(places_of([(NodeName("node-0001"), (_CARD,))]))
_PLACED: dict[str, Any] = {"job": _JOB, "namespace": "team-a", "name": "train", "queue": _QUEUE, "attempt": 1} | _PLACES
_NAMES: dict[str, Any] = {"job": _JOB, "namespace": "team-a", "name": "train", "queue": _QUEUE}
_OLD, _NEW = (
    QueueQuota(
        guarantee={VENDORS.default.cards: 8},
        deserved={VENDORS.default.cards: cards},
        capability={VENDORS.default.cards: 64, "cpu": 512_000},
        weight=1,
        budget_card_hours=10_000,
    )
    for cards in (16, 32)
)

EXAMPLES: tuple[CloudEvent, ...] = (
    JobPlaced.of(JobPlacement(**_PLACED), at=_AT, id=f"{_JOB}.1.placed"),
    JobStarted.of(JobPlacement(**_PLACED), at=_AT, id=f"{_JOB}.1.started"),
    JobFinished.of(JobEnding(**_PLACED, code=JobEnd.SUCCEEDED), at=_AT, id=f"{_JOB}.1.finished"),
    JobRejected.of(
        JobRejection(**_NAMES, code="InvalidSpec", message="PodGroup team-a/train: minMember 0"), at=_AT, id=f"{_JOB}.InvalidSpec"
    ),
    JobEvicted.of(
        JobEviction(
            job=_JOB, namespace="team-a", queue=_QUEUE, code=EvictionRule.RECLAIM, plan=_PLAN, pods=("train-0",), pods_kept=1,
            cards_kept=1, notice_s=30, **_PLACES,
        ),
        at=_AT,
        id="ledger-12-345",
    ),
    QueueReclaimed.of(Reclaim(**_NAMES, plan=_PLAN, **_PLACES), at=_AT, id="ledger-12-346"),
    QuotaChanged.of(QuotaChange(queue=_QUEUE, old=_OLD, new=_NEW), at=_AT, id="ledger-12-347"),
    PlanRefused.of(PlanRefusal(queue=_QUEUE, job=_JOB, code=RefusalReason.QUEUE_CAPABILITY), at=_AT, id="ledger-12-348"),
    NodeDrained.of(
        NodeDrain(node=NodeName("node-0001"), uid="5b1c", cordoned_by="health-monitor", reason="XidError"), at=_AT, id="ledger-12-349"
    ),
)  # fmt: skip
