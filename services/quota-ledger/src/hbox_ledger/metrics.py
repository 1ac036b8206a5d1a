"""What can be watched of the ledger."""

from hbox_common.model import CardQuotas
from hbox_common.telemetry import counter, gauge, histogram

PLANS = counter("ledger_plans", "Plans answered, by result: committed, repeated, or the reason of the refusal", ["result"])
CHANGES = counter("ledger_claim_changes", "Changes of claims, by the state that they came to", ["state"])
JOBS = gauge("ledger_known_jobs", "Jobs with something to place that plans are held against")
LIVE = gauge("ledger_live_claims", "Claims that hold something")
OPEN = gauge("ledger_open_decisions", "Decisions without a result yet")
OLDEST_OPEN = gauge(
    "ledger_oldest_open_decision_seconds",
    "How long the oldest decision without a result stands that no disruption budget holds up; 0: there is none",
    ["decision"],
)
OUTBOX = gauge("ledger_outbox_messages", "Messages committed and not published yet")
COMMIT = histogram("ledger_commit_seconds", "One turn of the ledger, from reading to being on disk")
EVICTIONS_PAUSED = gauge(
    "ledger_evictions_paused", "1 while plans that take from others are refused, since too many were told to leave of late"
)
DRIFT = counter(
    "ledger_drift",
    "Pods on which a list or a read differed from the ledger after its start, and that no message reported within a minute",
)
FROZEN = gauge("ledger_frozen", "1 while no plan is accepted, since the books are not compared with Kubernetes yet")
HELD = gauge("ledger_plans_held", "1 while no plan is accepted, since nobody has seen for some time what runs")
SUSPECTS = gauge(
    "ledger_suspects",
    "Claims whose pods the last list of pods lacks; they hold until the API server says that their pods are gone",
)
CARD_CONFLICTS = gauge(
    "ledger_card_conflicts", "Nodes on which pods have other cards by their kubelet than by the books, for good"
)
CARDS_FOLLOWED = counter("ledger_claims_moved", "Claims moved to the cards that a kubelet gave")
OVERBOOKED = gauge("ledger_overbooked_nodes", "Nodes that hold more than they have: they shrank, or their pods grew")
EPOCH = gauge("ledger_epoch", "The epoch of the ledger")
QUOTA_USED = gauge(
    "ledger_card_quota_used",
    "What pods of a namespace hold of what a ResourceQuota limits of cards",
    ["namespace", "quota", "resource"],
)
QUOTA_LIMIT = gauge(
    "ledger_card_quota_limit",
    "What a ResourceQuota allows of cards; 0 where it has a fault",
    ["namespace", "quota", "resource"],
)
STATUSES = counter(
    "ledger_queue_statuses",
    "Statuses of Queue objects: written, again (conflict, or the API away), refused, contested by others",
    ["result"],
)


def quotas(all: CardQuotas) -> None:
    """Show these quotas, and no others."""
    QUOTA_USED.clear()
    QUOTA_LIMIT.clear()
    for quota in all:
        for name, limit in quota.limits.items():
            QUOTA_USED.labels(quota.namespace, quota.name, name).set(all.used(quota.namespace).get(name, 0))
            QUOTA_LIMIT.labels(quota.namespace, quota.name, name).set(0 if quota.fault else limit)


UNFIT = counter(
    "ledger_facts_unfit", "Facts of pods that the database refused, and that were booked without what it does not hold"
)
SET_ASIDE = gauge(
    "ledger_claims_set_aside", "Claims whose rows could not be read when the ledger started, and that no audit explains"
)
