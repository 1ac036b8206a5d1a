"""What the binder counts."""

from hbox_common.events import BindOutcome
from hbox_common.telemetry import counter, gauge, histogram

from .core import Verb

_BINDS = counter("binder_binds", "Bind decisions, by outcome", ["outcome"])
EVICTIONS = counter("binder_evictions", "Evictions and revocations, by outcome", ["kind", "outcome"])
NODES = counter("binder_nodes", "Node decisions (cordon, uncordon), by outcome", ["action", "outcome"])
GATE_JOBS = counter("binder_gate_jobs", "Jobs of health-monitor's checks, by outcome", ["outcome"])
POOL_TAINTS = counter("binder_pool_taints", "Taints of exclusive pools: added, removed, failed", ["done"])
LOCK_WAIT_S = histogram(
    "binder_node_lock_wait_seconds",
    "Seconds a bind waits for its node's lock: the device plugin allocates for one pod at a time",
)
ALLOCATION_S = histogram("binder_allocation_seconds", "Seconds from taking a node's lock to its release")
ALLOCATIONS = counter("binder_allocations", "Allocations by HAMi device plugins, by phase", ["phase"])
IN_LINE = gauge("binder_binds_in_line", "Binds that wait for the lock of their node")
LOCKED_NODES = gauge("binder_locked_nodes", "Nodes with an allocation in progress")
RESTING_NODES = gauge(
    "binder_resting_nodes", "Nodes whose locks the binder does not take because their kubelets refused pods with cards recently"
)
LOCKS_REMOVED = counter("binder_node_locks_removed", "Stale node locks removed by the binder, by reason", ["why"])
BIND_S = histogram("binder_bind_seconds", "Seconds of one bind at the API server, including confirming reads")
_CALL_S = histogram("binder_call_seconds", "Seconds of one API call", ["verb"])
DECIDED_S = histogram(
    "binder_decided_seconds", "Seconds from a decision's arrival at the broker to the publication of its outcome"
)
RUNNING = gauge("binder_calls_running", "API calls in progress")
WAITING = gauge("binder_decisions_waiting", "Unsettled decisions without an API call in progress")
REPEATED = counter("binder_repeated_decisions", "Decisions settled earlier whose outcome was published again")
STALE = counter("binder_stale_decisions", "Decisions dropped because of their epoch")
FALSE_EPOCHS = counter("binder_false_epochs", "Decisions with an epoch that the ledger has not reached")
BREAKER = gauge("binder_eviction_breaker_open", "1 while the eviction rate limit delays evictions")

#: Looked up once: of every binding, a label looked up by name costs more than the count.
BINDS = {outcome: _BINDS.labels(outcome) for outcome in BindOutcome}
CALL_S = {verb: _CALL_S.labels(verb) for verb in Verb}
