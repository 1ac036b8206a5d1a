"""What the binder counts."""

from hbox_common.events import BindOutcome
from hbox_common.telemetry import counter, gauge, histogram

from .core import Verb

_BINDS = counter("binder_binds", "Outcomes of bind decisions", ["outcome"])
EVICTIONS = counter("binder_evictions", "Outcomes of evictions and revocations", ["kind", "outcome"])
NODES = counter("binder_nodes", "Outcomes of node decisions", ["action", "outcome"])
POOL_TAINTS = counter("binder_pool_taints", "Taints of exclusive pools that were put or removed, or could not be", ["done"])
LOCK_WAIT_S = histogram(
    "binder_node_lock_wait_seconds",
    "From a bind's coming to its turn, where its node's device plugin allocates for one pod at a time",
)
ALLOCATION_S = histogram("binder_allocation_seconds", "From taking a node's lock to its being released")
ALLOCATIONS = counter("binder_allocations", "Pods that device plugins of HAMi's handed cards to, or failed", ["phase"])
IN_LINE = gauge("binder_binds_in_line", "Binds that wait while their node is in allocation")
LOCKED_NODES = gauge("binder_locked_nodes", "Nodes in allocation")
RESTING_NODES = gauge(
    "binder_resting_nodes", "Nodes whose locks the binder does not take because their kubelets refused pods with cards recently"
)
LOCKS_REMOVED = counter(
    "binder_node_locks_removed", "Locks of nodes that were removed because nobody else would have, by why", ["why"]
)
BIND_S = histogram("binder_bind_seconds", "One bind against the API server, reads for certainty included")
_CALL_S = histogram("binder_call_seconds", "One call of any kind", ["verb"])
DECIDED_S = histogram("binder_decided_seconds", "From the broker's storing of a decision to its outcome being published")
RUNNING = gauge("binder_calls_running", "Calls to the API server under way")
WAITING = gauge("binder_decisions_waiting", "Decisions that are not settled and have no call under way")
REPEATED = counter("binder_repeated_decisions", "Decisions that were settled before and got their outcome again")
STALE = counter("binder_stale_decisions", "Decisions dropped because of their epoch")
FALSE_EPOCHS = counter("binder_false_epochs", "Decisions of an epoch that the ledger, asked, has not come to")
BREAKER = gauge("binder_eviction_breaker_open", "1 while evictions are held back because there are too many")

#: Looked up once: of every binding, a label looked up by name costs more than the count.
BINDS = {outcome: _BINDS.labels(outcome) for outcome in BindOutcome}
CALL_S = {verb: _CALL_S.labels(verb) for verb in Verb}
