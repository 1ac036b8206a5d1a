"""Jobs of checks: what the binder has to run on each node now, derived from the open incidents, and what became of it.

A Job has no expiry: Kubernetes ends it at its deadline, also while health-monitor is away.
"""

import logging
from collections.abc import Iterable, Sequence

from hbox_common.bus import Delivery
from hbox_common.events import GateJobObserved, GateJobsDecided
from hbox_common.health.gatejob import JobOutcome
from hbox_common.model import NodeName
from hbox_common.model.bounds import sanitized

from . import metrics
from .adapters.outbox import Outbox
from .core.judge.courses import Policies
from .core.judge.gate import gate_jobs
from .core.judge.happenings import JobObserved
from .core.judge.memory import NodeMemory
from .nodemessages import of_own_nodes

log = logging.getLogger(__name__)


class Gating:
    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._standing: dict[NodeName, GateJobsDecided] = {}  #: the last value of each node with Jobs

    @property
    def nodes(self) -> Iterable[NodeName]:
        return self._standing.keys()

    def note(self, decided: GateJobsDecided) -> None:
        """Jobs that were in the stream at the start."""
        if decided.jobs:
            self._standing[decided.node] = decided

    def lost(self) -> None:
        """The stream lost all decisions."""
        self._standing.clear()

    def publish(self, name: str, node: NodeMemory | None, policies: Policies) -> None:
        """Publish the Jobs of a node, if they differ from the stream. A manifest that changes meanwhile applies to the next attempt."""
        if policies.unread:
            return
        known = self._standing.get(NodeName(name))
        wanted = gate_jobs(node, policies.job)
        if [one.id for one in wanted] == [one.id for one in (known.jobs if known else ())]:
            return
        decided = GateJobsDecided(node=NodeName(name), jobs=wanted)
        self._outbox.gate(decided)
        if wanted:
            self._standing[decided.node] = decided
        else:
            self._standing.pop(decided.node, None)


def observed(deliveries: Sequence[Delivery]) -> Iterable[JobObserved]:
    """What the binder reports."""
    for event in of_own_nodes(deliveries, GateJobObserved):
        metrics.GATE_JOBS.labels(event.outcome).inc()
        log.log(
            logging.INFO if event.outcome in (JobOutcome.STARTED, JobOutcome.SUCCEEDED) else logging.WARNING,
            "Job %s on %s: %s %s", event.job, event.node, event.outcome, event.message, extra={"node": event.node},
        )  # fmt: skip
        yield JobObserved(event.node, event.job, event.outcome, sanitized(event.message))
