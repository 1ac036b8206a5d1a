"""What can be watched of the ledger."""

from hbox_common.telemetry import counter, gauge, histogram

PLANS = counter("ledger_plans", "Plans answered, by result: committed, repeated, or the reason of the refusal", ["result"])
CHANGES = counter("ledger_claim_changes", "State changes of claims, by new state", ["state"])
JOBS = gauge("ledger_known_jobs", "Jobs with pods to place that the ledger checks plans against")
LIVE = gauge("ledger_live_claims", "Claims that hold resources")
OPEN = gauge("ledger_open_decisions", "Decisions without a result")
OLDEST_OPEN = gauge(
    "ledger_oldest_open_decision_seconds",
    "Age in seconds of the oldest decision without a result, except evictions that a disruption budget delays; 0 = none",
    ["decision"],
)
OUTBOX = gauge("ledger_outbox_messages", "Messages committed to the database and not yet published")
COMMIT = histogram(
    "ledger_commit_seconds", "Seconds of one ledger transaction, from reading its messages to its commit on disk"
)
COMPLETED = counter("ledger_turns_completed", "Turns whose commit failed or was unknown, and that are committed now")
UNDONE = counter("ledger_turns_undone", "Turns that the database refused, undone without a reload of all claims")
RELOADED = counter("ledger_reloads", "Reloads of all claims from the database after an error")
SEGMENTS = gauge("ledger_sealed_segments", "Sealed segments of the history")
SEALED_BYTES = gauge("ledger_sealed_bytes", "Bytes of sealed segments, including exported ones")
LIVE_RECORDS = gauge("ledger_unsealed_records", "Audit records that are not sealed")
EVICTIONS_PAUSED = gauge(
    "ledger_evictions_paused", "1 while the ledger refuses plans with evictions because the eviction limit is reached"
)
DRIFT = counter(
    "ledger_drift",
    "Pods whose listed or read state differed from the ledger after startup, without a message within a minute",
)
FROZEN = gauge("ledger_frozen", "1 while the ledger refuses all plans until it has compared its claims with Kubernetes")
HELD = gauge("ledger_plans_held", "1 while the ledger refuses all plans because pod states are stale")
SUSPECTS = gauge(
    "ledger_suspects",
    "Claims whose pods are missing from the last pod list; they stay until the API server confirms that the pods are gone",
)
CARD_CONFLICTS = gauge("ledger_card_conflicts", "Nodes whose kubelet permanently reports other cards for pods than the ledger")
CARDS_FOLLOWED = counter("ledger_claims_moved", "Claims moved to the cards that a kubelet allocated")
OVERBOOKED = gauge("ledger_overbooked_nodes", "Nodes whose claims exceed their allocatable: the node shrank or its pods grew")
EPOCH = gauge("ledger_epoch", "Epoch of the ledger")
STATUSES = counter(
    "ledger_queue_statuses",
    "Status writes of Queue objects: written, again (conflict or API unavailable), refused, contested by another writer",
    ["result"],
)
UNFIT = counter("ledger_facts_unfit", "Pod states that the database rejected; booked without the rejected fields")
SET_ASIDE = gauge("ledger_claims_set_aside", "Claims whose rows could not be read at startup and that no audit resolved")
